"""Strangers' further requests wait for their turn, and nobody waits for all of theirs."""

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from inspect import iscoroutinefunction
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import connections
from limner.server.app import create_app
from limner.server.connections import _AT_ONCE, _Turns
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.test_routes import all_of

TOKEN = "0123456789abcdef"
STRANGER = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOLDER = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
WRONG = HOLDER.replace(TOKEN.encode(), b"another-0123456789")
MANY = ServerSettings(token=SecretStr(TOKEN), rate=0, client_connections=400)


@given(st.lists(st.integers(0, 60), max_size=6))
def test_few_a_turn_and_in_their_order(arrivals: list[int]) -> None:
    """`arrivals`: how many come in each turn of the loop."""

    async def turns() -> list[list[int]]:
        queue, number = _Turns(), 0
        taken: list[list[int]] = []
        for count in arrivals:
            for _ in range(count):
                queue.wait(lambda number=number: taken[-1].append(number))  # type: ignore[misc]
                number += 1
            taken.append([])
            await asyncio.sleep(0)
        while sum(len(turn) for turn in taken) < number:
            taken.append([])
            await asyncio.sleep(0)
        return taken

    taken = asyncio.run(asyncio.wait_for(turns(), 10))
    assert [one for turn in taken for one in turn] == list(range(sum(arrivals)))
    assert all(len(turn) <= _AT_ONCE for turn in taken)
    # and no turn goes by while some wait
    came = list(accumulate(arrivals))
    for number, turn in enumerate(taken):
        waiting = came[min(number, len(came) - 1)] - sum(len(one) for one in taken[:number])
        assert len(turn) == min(_AT_ONCE, waiting)


class Record:
    """A server whose loop stands still at each request while `held` is cleared; `asked` lists who has asked.

    While `pauses`, it waits between the head and the body of each answer; from then on it counts the turns of its loop
    for a second.
    """

    def __init__(self) -> None:
        self.held = threading.Event()
        self.held.set()
        self.asked: list[str] = []
        self.pauses = False
        self.turn = 0
        """Number of turns of the loop since the pause."""
        self.in_turn: Counter[int] = Counter()
        """How many have asked in which turn."""

        self._ends: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def pause(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._ends or asyncio.Event()
        await self._ends.wait()

    def end_pauses(self) -> None:
        """Let all go on in one turn."""
        assert self._loop is not None
        assert self._ends is not None
        self.pauses = False
        self._loop.call_soon_threadsafe(self._ends.set)
        asyncio.run_coroutine_threadsafe(self._count(), self._loop)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + 1
        while loop.time() < until:
            self.turn += 1
            await asyncio.sleep(0)


class Recorded:
    """A middleware that keeps a `Record`."""

    def __init__(self, app: Any, record: Record) -> None:
        self._app, self._record = app, record

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            shown = dict(scope["headers"]).get(b"authorization", b"")
            self._record.asked.append("holder" if TOKEN.encode() in shown else "stranger")
            self._record.in_turn[self._record.turn] += 1
            self._record.held.wait(10)

        async def sent(message: Any) -> None:
            await send(message)
            if message["type"] == "http.response.start" and self._record.pauses:
                await self._record.pause()

        await self._app(scope, receive, sent)


@contextmanager
def recorded(engine: Engine, settings: ServerSettings = MANY) -> Iterator[tuple[str, Record]]:
    app, record = create_app(Store(engine), settings), Record()
    app.add_middleware(Recorded, record=record)
    with running(app, settings) as url:
        yield url, record


def dialled(url: str, sent: bytes = b"") -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    one = socket.create_connection((host, int(port)), timeout=10)
    one.sendall(sent)
    return one


def exactly(one: socket.socket, until: Callable[[bytes], bool]) -> bytes:
    got = b""
    while not until(got):
        part = one.recv(1)
        assert part, f"the server closed the connection after {got!r}"
        got += part
    return got


def whole(one: socket.socket) -> bytes:
    """The status line of an answer, which is read to its end and not further."""
    head = exactly(one, lambda got: got.endswith(b"\r\n\r\n"))
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    exactly(one, lambda got: len(got) == length)
    return head[:12]


def asked_before(
    record: Record,
    holder: socket.socket,
    first: socket.socket,
    others: list[socket.socket],
    sent: bytes = STRANGER,
) -> int:
    """How many strangers' requests are begun before the token's, where all come in one turn of the loop, its last.

    `first` holds the loop until then.
    """
    record.held.clear()
    first.sendall(STRANGER)
    time.sleep(0.2)
    record.asked.clear()
    for one in others:
        one.sendall(sent)
    holder.sendall(HOLDER)
    time.sleep(0.2)
    record.held.set()
    assert whole(holder) == b"HTTP/1.1 200"
    before = record.asked.index("holder")
    # nobody is lost
    assert {whole(one) for one in (first, *others)} == {b"HTTP/1.1 401"}
    assert len(record.asked) == len(others) + 1
    return before


@pytest.mark.parametrize("sent", [STRANGER, WRONG])
def test_the_right_token_does_not_wait_for_all_strangers(engine: Engine, sent: bytes) -> None:
    with ExitStack() as open_ones, recorded(engine) as (url, record):
        strangers = [open_ones.enter_context(dialled(url, STRANGER)) for _ in range(300)]
        assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
        holder, first = (open_ones.enter_context(dialled(url)) for _ in range(2))
        time.sleep(0.3)
        assert asked_before(record, holder, first, strangers, sent) <= 2 * _AT_ONCE


def test_the_right_token_does_not_wait_on_a_connection_that_began_without_it(engine: Engine) -> None:
    """As the page does, which has its files before it asks."""
    with ExitStack() as open_ones, recorded(engine) as (url, record):
        strangers = [open_ones.enter_context(dialled(url, STRANGER)) for _ in range(300)]
        assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
        holder, first, *others = strangers
        assert asked_before(record, holder, first, others) <= 2 * _AT_ONCE


def test_nor_does_it_lose_its_place_there(engine: Engine) -> None:
    """The oldest connection, whose request has the token and is not answered yet, while all places are taken anew."""
    settings = MANY.replace(client_connections=10, max_connections=20)
    with ExitStack() as open_ones, recorded(engine, settings) as (url, record):
        holder = open_ones.enter_context(dialled(url, STRANGER))
        assert whole(holder) == b"HTTP/1.1 401"
        record.held.clear()
        holder.sendall(HOLDER)
        time.sleep(0.2)
        for _ in range(100):
            open_ones.enter_context(dialled(url, STRANGER))
        threading.Timer(0.2, record.held.set).start()
        assert whole(holder) == b"HTTP/1.1 200"


def test_a_connection_without_a_request_closes_without_an_answer(engine: Engine) -> None:
    """Its client would take it for the answer to the next request, and tries that again where it finds it closed."""
    settings = MANY.replace(client_connections=2, max_connections=4)
    with ExitStack() as open_ones, recorded(engine, settings) as (url, _):
        first = open_ones.enter_context(dialled(url, STRANGER))
        assert whole(first) == b"HTTP/1.1 401"
        for _ in range(8):
            whole(open_ones.enter_context(dialled(url, STRANGER)))
        assert first.recv(4096) == b""


@pytest.mark.parametrize(
    "header", ["Upgrade: x\r\nConnection: upgrade", "Upgrade: websocket\r\nConnection: upgrade", "A: b"]
)
@pytest.mark.parametrize("line", ["GET /health", "GET /v1/info", "CONNECT /health"])
def test_of_requests_sent_ahead_one_is_answered(engine: Engine, line: str, header: str) -> None:
    request = f"{line} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode()
    with recorded(engine) as (url, record), dialled(url, 20 * request) as one:
        got = b""
        while part := one.recv(65536):
            got += part
    assert got.count(b"HTTP/1.1 ") == 1
    assert len(record.asked) == 1


def test_strangers_take_no_threads(engine: Engine) -> None:
    """Work that waits for one of asyncio's threads outlives its connection, so it could grow without end."""
    app = create_app(Store(engine), MANY)
    opened = {name.split()[1] for name, rules in app.state.routes.declared.items() if rules.is_open}
    free = [one for one in all_of(app.routes) if one.path in opened]
    assert {one.path for one in free} >= {"/", "/page/{name}", "/health", "/openapi.json"}
    assert [one.path for one in free if not iscoroutinefunction(one.endpoint)] == []
    assert [one for one in app.exception_handlers.values() if not iscoroutinefunction(one)] == []


def test_of_those_who_hold_the_token_nobody_waits(engine: Engine) -> None:
    with ExitStack() as open_ones, recorded(engine) as (url, record):
        holder = open_ones.enter_context(dialled(url, HOLDER))
        assert whole(holder) == b"HTTP/1.1 200"
        strangers = [open_ones.enter_context(dialled(url, STRANGER)) for _ in range(100)]
        assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
        first, *others = strangers
        assert asked_before(record, holder, first, others) <= 2 * _AT_ONCE


def test_what_comes_with_the_end_of_an_answer_waits_too(engine: Engine) -> None:
    """A client may send its next request as soon as the answer has begun."""
    with ExitStack() as open_ones, recorded(engine) as (url, record):
        record.pauses = True
        strangers = [open_ones.enter_context(dialled(url, STRANGER)) for _ in range(100)]
        for one in strangers:
            assert one.recv(4, socket.MSG_PEEK) == b"HTTP"
            one.sendall(STRANGER)
        time.sleep(0.2)
        record.end_pauses()
        assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
        assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
    assert sum(record.in_turn.values()) == 200
    assert max(number for turn, number in record.in_turn.items() if turn) <= 2 * _AT_ONCE


@pytest.mark.parametrize("step", [0.02, 0.2])
def test_no_byte_moves_the_deadline_of_a_further_request(engine: Engine, step: float) -> None:
    settings = MANY.replace(request_seconds=0.6)
    with recorded(engine, settings) as (url, _), dialled(url, STRANGER) as one:
        assert whole(one) == b"HTTP/1.1 401"
        began = time.monotonic()
        one.settimeout(step)
        with suppress(ConnectionError):
            while time.monotonic() - began < 5:
                one.sendall(b"G")
                try:
                    if not one.recv(4096):
                        break
                except TimeoutError:
                    pass
        assert 0.4 < time.monotonic() - began < 3


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every turn comes a second late; the times at which somebody began to wait."""
    began: list[float] = []

    def wait(_: _Turns, take: Callable[[], None]) -> None:
        began.append(time.monotonic())
        asyncio.get_running_loop().call_later(1, take)

    monkeypatch.setattr(_Turns, "wait", wait)
    return began


def test_who_waits_for_a_turn_is_not_late(engine: Engine, queued: list[float]) -> None:
    with recorded(engine, MANY.replace(request_seconds=0.8)) as (url, _), dialled(url, STRANGER) as one:
        assert whole(one) == b"HTTP/1.1 401"
        one.sendall(STRANGER[:20])
        time.sleep(1.2)
        one.sendall(STRANGER[20:])
        assert whole(one) == b"HTTP/1.1 401"
    assert len(queued) == 2


def test_the_token_of_an_earlier_request_does_not_count(engine: Engine, queued: list[float]) -> None:
    with recorded(engine) as (url, _), dialled(url, HOLDER) as one:
        answers = [whole(one)]
        for _ in range(2):
            one.sendall(STRANGER)
            answers.append(whole(one))
    assert answers == [b"HTTP/1.1 200", b"HTTP/1.1 401", b"HTTP/1.1 401"]
    # the second, behind a request without the token
    assert len(queued) == 1


def test_while_one_waits_no_more_of_it_is_read(engine: Engine, queued: list[float]) -> None:
    with recorded(engine) as (url, _), dialled(url, STRANGER) as one:
        assert whole(one) == b"HTTP/1.1 401"
        for byte in STRANGER:
            one.sendall(bytes([byte]))
            time.sleep(0.005)
        assert whole(one) == b"HTTP/1.1 401"
    # the first bytes, and all that came meanwhile
    assert len(queued) == 2


def test_a_request_in_the_queue_is_answered_when_the_server_stops(
    engine: Engine, queued: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_QUIET", 0.1)
    with ExitStack() as open_ones:
        with recorded(engine) as (url, _):
            strangers = [open_ones.enter_context(dialled(url, STRANGER)) for _ in range(20)]
            assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
            for one in strangers:
                one.sendall(STRANGER)
            time.sleep(0.3)
        assert {whole(one) for one in strangers} == {b"HTTP/1.1 401"}
    assert len(queued) == 20
