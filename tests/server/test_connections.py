"""Slow clients, and what is done about them: each test speaks to a real server on this machine."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx
import pytest
from fastapi.responses import StreamingResponse
from pydantic import SecretStr

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import limits, listening
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.running import running

TOKEN = "0123456789abcdef"
BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WHOLE = GET + b"\r\n"
HALF = b"POST /v1/search HTTP/1.1\r\nHost: loc"
QUERY = b'{"text": "a red coat", "k": 1}'
SLOW = {
    "head": HALF,
    "get": GET + b"Content-Length: 1000\r\n\r\n",
    "chunked": GET + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n",
    "post": POST + b"Content-Length: 1000\r\n\r\n",
    "pipelined": WHOLE * 50,
}
FAST = {"request_seconds": 0.6, "answer_seconds": 0.6}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_LINGERING", 0.2)


@contextmanager
def served(engine: Engine, **given: object) -> Iterator[tuple[str, int]]:
    """The address of a server with these settings."""
    settings = ServerSettings.parse(given)
    with running(create_app(Store(engine), settings), settings) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


def dialled(address: tuple[str, int], sent: bytes = b"", window: int | None = None) -> socket.socket:
    one = socket.socket()
    if window is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    one.settimeout(10)
    one.connect(address)
    one.sendall(sent)
    return one


def rest(one: socket.socket, trickled: bytes = b"") -> tuple[bytes, float]:
    """All that comes until the connection ends, and how long that takes; `trickled` is sent again and again."""
    began, got = time.monotonic(), b""
    one.settimeout(0.05)
    while time.monotonic() - began < 10:
        with suppress(TimeoutError):
            try:
                one.sendall(trickled)
                part = one.recv(65536)
            except ConnectionError:
                return got, time.monotonic() - began
            if not part:
                return got, time.monotonic() - began
            got += part
    pytest.fail("the connection is still open")


@pytest.mark.parametrize(("before", "half"), [(b"", b""), (b"", HALF), (WHOLE, HALF)])
def test_a_head_that_does_not_come(engine: Engine, before: bytes, half: bytes) -> None:
    with served(engine, **FAST) as address, dialled(address, before) as one:
        answer = b""
        while before and not answer.endswith(b"}"):
            answer += one.recv(4096)
        one.sendall(half)
        got, seconds = rest(one, trickled=b"a" if half else b"")
        assert got == b""
        assert seconds < 3


def test_no_byte_moves_the_deadline_of_a_body(engine: Engine) -> None:
    with served(engine, **FAST) as address, dialled(address, POST + b"Content-Length: 1000\r\n\r\n{") as one:
        got, seconds = rest(one, trickled=b" ")
    assert got.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in got
    assert b"more than 0.6 s" in got
    assert 0.5 < seconds < 3


@pytest.mark.parametrize(("kind", "status"), [("get", 200), ("chunked", 400), ("post", 401)])
def test_after_an_answer_to_an_unread_body_the_connection_closes(
    engine: Engine, kind: str, status: int
) -> None:
    with served(engine, token=SecretStr(TOKEN)) as address, dialled(address, SLOW[kind]) as one:
        got, seconds = rest(one, trickled=b"a")
    assert got.startswith(f"HTTP/1.1 {status}".encode())
    assert got.lower().count(b"connection: close\r\n") == 1
    assert seconds < 3


def test_a_refusal_reaches_a_client_that_is_still_sending(engine: Engine) -> None:
    with served(engine, token=SecretStr(TOKEN)) as (host, port):
        url = f"http://{host}:{port}/v1/search"
        answers = [httpx.post(url, content=b" " * size) for size in (10, 100_000, 8_000_000)]
        assert [answer.status_code for answer in answers] == [401] * 3


@pytest.mark.parametrize("times", [1, 30])
def test_answers_that_are_not_read(engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    # the description of the API is smaller than what the system keeps
    monkeypatch.setattr(listening, "_UNSENT", 2048)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + BEARER + b"\r\n"
    with served(engine, request_seconds=60, answer_seconds=0.6) as address:
        whole = len(httpx.get(f"http://{address[0]}:{address[1]}/openapi.json").content) * times
        # a small window, or the system of the client takes all
        with dialled(address, request * times, window=4096) as one:
            time.sleep(2)
            got, _ = rest(one)
    # what the two systems hold still comes
    assert 0 < len(got) < whole


def test_a_client_that_reads_slowly_but_in_time(engine: Engine) -> None:
    with served(engine, answer_seconds=20) as address:
        whole = httpx.get(f"http://{address[0]}:{address[1]}/openapi.json").content
        head = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with dialled(address, head, window=4096) as one:
            time.sleep(1)
            got, _ = rest(one)
    assert got.endswith(whole)


def test_next_requests_of_strangers_are_not_taken_ahead(engine: Engine) -> None:
    with served(engine, token=SecretStr(TOKEN)) as address:
        with dialled(address, WHOLE * 3) as one:
            assert rest(one)[0].count(b"HTTP/1.1 200") == 1
        asked = b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n" + BEARER
        with dialled(address, (asked + b"\r\n") * 2 + asked + b"Connection: close\r\n\r\n") as one:
            assert rest(one)[0].count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("order", ["length first", "chunked first"])
def test_a_body_of_two_lengths(engine: Engine, order: str) -> None:
    headers = [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"]
    if order == "chunked first":
        headers.reverse()
    with (
        served(engine) as address,
        dialled(address, POST + b"".join(headers) + b"\r\n0\r\n\r\n" + WHOLE) as one,
    ):
        got, _ = rest(one)
    assert got.startswith(b"HTTP/1.1 400")
    assert b"Transfer-Encoding" in got
    # the second request, which another party may have seen as a body
    assert got.count(b"HTTP/1.1") == 1


class Lines(logging.Handler):
    """The lines that a log has got."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_what_is_no_request(engine: Engine) -> None:
    written = Lines()
    with served(engine) as address:
        # uvicorn hands nothing on to the root, where pytest listens
        logging.getLogger("uvicorn").addHandler(written)
        try:
            with dialled(address, b"hello\r\n\r\n") as one:
                got, _ = rest(one)
            with dialled(address, GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n") as other:
                assert other.recv(4096).startswith(b"HTTP/1.1 200")
            # strangers must not fill a disk
            assert written.lines == []
            logging.getLogger("uvicorn.error.connections").error("a failure")
            assert written.lines == ["a failure"]
        finally:
            logging.getLogger("uvicorn").removeHandler(written)
    assert got.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in got


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"a: b\r\n" * 90, b"200"),
        (b"a: b\r\n" * 101, b"400"),
        (b"a:b\n" * 12_000, b"400"),
        (b"a: " + b"b" * 15_000 + b"\r\n", b"200"),
        (b"a: " + b"b" * 17_000 + b"\r\n", b"400"),
        (b"TRANSFER-encoding: chunked\r\n", b"400"),
        (b"a: b\r\n transfer-encoding: chunked\r\n", b"200"),
    ],
)
@pytest.mark.parametrize("parts", [1, 3])
def test_what_takes_long_to_parse_is_not_parsed(
    engine: Engine, headers: bytes, status: bytes, parts: int
) -> None:
    head = GET + headers + b"\r\n"
    with served(engine) as address, dialled(address) as one:
        with suppress(ConnectionError):
            for start in range(0, len(head), -(-len(head) // parts)):
                one.sendall(head[start : start - (-len(head) // parts)])
                time.sleep(0.05)
        assert one.recv(4096).startswith(b"HTTP/1.1 " + status)


def test_nor_is_it_behind_an_answer(engine: Engine) -> None:
    """The next request arrives while the answer is being sent, when it is not looked at yet."""
    sent = b"".join(b"1\r\na\r\n" for _ in range(8000))
    app = create_app(Store(engine), ServerSettings(rate=0))

    @app.get("/slow")
    async def slow() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.sleep(0.5)
            yield b"b"

        return StreamingResponse(parts())

    with running(app, ServerSettings(rate=0)) as url:
        host, port = url.removeprefix("http://").split(":")
        with dialled((host, int(port)), WHOLE.replace(b"/health", b"/slow")) as one:
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
            one.sendall(GET + b"Transfer-Encoding: chunked\r\n\r\n" + sent)
            got, _ = rest(one)
    assert got.endswith(b"0\r\n\r\n")
    assert b"HTTP/1.1" not in got


@pytest.mark.parametrize("kind", SLOW)
def test_slow_clients_do_not_keep_the_right_token_out(engine: Engine, kind: str) -> None:
    few = {"max_connections": 30, "client_connections": 10, "rate": 0, "request_seconds": 60}
    with served(engine, token=SecretStr(TOKEN), **few) as address:
        slow = []
        for _ in range(40):
            with suppress(OSError):
                slow.append(dialled(address, SLOW[kind], window=4096))
        time.sleep(1)
        for _ in range(5):
            with suppress(OSError):
                for one in slow:
                    one.sendall(b"a")
            with dialled(address, b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n" + BEARER + b"\r\n") as one:
                assert one.recv(4096).startswith(b"HTTP/1.1 200")
        for one in slow:
            one.close()


@contextmanager
def storm(attack: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run an attack beside the block; it goes on until its event is set."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        stormed = pool.submit(attack, ended)
        try:
            time.sleep(1)
            yield
        finally:
            ended.set()
        stormed.result()


def answers_to_the_token(address: tuple[str, int]) -> list[bytes]:
    """The first bytes of ten answers to the right token, each on a connection of its own."""
    seen = []
    for _ in range(10):
        with dialled(address, b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n" + BEARER + b"\r\n") as one:
            seen.append(one.recv(4096)[:12])
    return seen


def test_quick_clients_without_a_token_do_not_keep_the_right_one_out(engine: Engine) -> None:
    # more places than are taken at once, as by default
    few = {"max_connections": 300, "client_connections": 50, "rate": 1, "burst": 20}
    with served(engine, token=SecretStr(TOKEN), **few) as address:

        def attack(ended: threading.Event) -> None:
            ones = [dialled(address, WHOLE) for _ in range(150)]
            while not ended.is_set():
                for number, one in enumerate(ones):
                    try:
                        if one.recv(4096):
                            one.sendall(WHOLE)
                            continue
                    except OSError:
                        pass
                    one.close()
                    ones[number] = dialled(address, WHOLE)
            for one in ones:
                one.close()

        with storm(attack):
            seen = answers_to_the_token(address)
    assert seen == [b"HTTP/1.1 200"] * 10


def is_open(one: socket.socket) -> bool:
    one.settimeout(0.01)
    try:
        while one.recv(4096):
            pass
    except TimeoutError:
        return True
    except OSError:
        pass
    return False


def test_of_one_client_the_slowest_are_closed(engine: Engine) -> None:
    with served(engine, client_connections=4) as address:
        ones = [dialled(address) for _ in range(7)]
        time.sleep(1)
        # a refusal comes before the end
        for one in ones[:3]:
            assert rest(one)[0].startswith(b"HTTP/1.1 503")
        assert [is_open(one) for one in ones] == [False] * 3 + [True] * 4
        for one in ones:
            one.close()


def test_a_new_one_takes_the_place_of_the_slowest(engine: Engine) -> None:
    with served(engine, client_connections=2) as address:
        ones = []
        for _ in range(8):
            ones.append(dialled(address))
            # each with a turn of the server's own
            time.sleep(0.01)
        got = [rest(one) for one in ones[:4]]
        assert [answer.startswith(b"HTTP/1.1 503") for answer, _ in got] == [True] * 4
        assert is_open(ones[-1])
        for one in ones:
            one.close()


def test_far_too_many_are_refused_where_none_is_slow(engine: Engine) -> None:
    head = POST + BEARER + f"Content-Length: {len(QUERY)}\r\n\r\n".encode()
    with served(engine, token=SecretStr(TOKEN), client_connections=2) as address:
        trusted = []
        for _ in range(4):
            trusted.append(dialled(address, head + QUERY[:5]))
            time.sleep(0.01)
        with dialled(address) as one:
            assert rest(one)[0].startswith(b"HTTP/1.1 503")
        for one in trusted:
            one.close()


@pytest.mark.parametrize("kind", SLOW)
def test_slow_clients_that_come_back_do_not_keep_the_right_token_out(engine: Engine, kind: str) -> None:
    few = {"max_connections": 150, "client_connections": 50, "rate": 1, "burst": 20}
    with served(engine, token=SecretStr(TOKEN), **few) as address:

        def attack(ended: threading.Event) -> None:
            open_ones: list[socket.socket] = []
            while not ended.wait(0.005):
                with suppress(OSError):
                    open_ones.append(dialled(address, SLOW[kind], window=4096))
                if len(open_ones) > 200:
                    open_ones.pop(0).close()
            for one in open_ones:
                one.close()

        with storm(attack):
            seen = answers_to_the_token(address)
    assert seen == [b"HTTP/1.1 200"] * 10


def test_whoever_has_shown_the_token_stays(engine: Engine) -> None:
    few = {"max_connections": 20, "client_connections": 100}
    with served(engine, token=SecretStr(TOKEN), **few) as address:
        head = POST + BEARER + f"Content-Length: {len(QUERY)}\r\n\r\n".encode()
        with dialled(address, head + QUERY[:5]) as trusted:
            time.sleep(0.3)
            strangers = [dialled(address, HALF) for _ in range(18)]
            time.sleep(1)
            assert sum(map(is_open, strangers)) <= 10
            trusted.sendall(QUERY[5:])
            assert trusted.recv(4096).startswith(b"HTTP/1.1 200")
            for one in strangers:
                one.close()


def test_the_clients_of_a_proxy_share_its_address(engine: Engine) -> None:
    settings = ServerSettings(client_connections=2)
    with running(create_app(Store(engine), settings), settings, proxy="127.0.0.1") as url:
        host, port = url.removeprefix("http://").split(":")
        ones = [dialled((host, int(port))) for _ in range(8)]
        time.sleep(0.6)
        assert all(map(is_open, ones))
        for one in ones:
            one.close()


def test_those_who_come_at_once_do_not_take_each_others_places(engine: Engine) -> None:
    """Each has its answer before its place is another's, though they are five times as many as the places."""
    settings = ServerSettings(rate=0, client_connections=40)
    app = create_app(Store(engine), settings)

    @app.get("/busy")
    async def busy() -> str:
        time.sleep(1)
        return "done"

    with running(app, settings) as url:
        host, port = url.removeprefix("http://").split(":")
        address = (host, int(port))
        with dialled(address, WHOLE.replace(b"/health", b"/busy")):
            time.sleep(0.2)
            ones = [dialled(address, GET + b"Connection: close\r\n\r\n") for _ in range(400)]
            assert {one.recv(12) for one in ones} == {b"HTTP/1.1 200"}
    for one in ones:
        one.close()
