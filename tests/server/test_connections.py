"""Deadlines and the number of connections: each test speaks to a real server on this machine."""

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction

import httpx
import pytest
from pydantic import SecretStr

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import limits, listening
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.test_routes import all_of

TOKEN = "0123456789abcdef"
BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WHOLE = GET + b"\r\n"
HALF = b"POST /v1/search HTTP/1.1\r\nHost: loc"
QUERY = b'{"text": "a red coat", "k": 1}'
SLOW = {
    "get": GET + b"Content-Length: 1000\r\n\r\n",
    "chunked": GET + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n",
    "post": POST + b"Content-Length: 1000\r\n\r\n",
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


@pytest.mark.parametrize(("kind", "status"), [("get", 200), ("chunked", 200), ("post", 401)])
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
    assert b"not both" in got
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


def test_a_head_that_is_too_large(engine: Engine) -> None:
    with served(engine) as address, dialled(address, GET) as one:
        with suppress(ConnectionError):
            for _ in range(10):
                one.sendall(b"a: " + b"b" * 2000 + b"\r\n")
                time.sleep(0.05)
        assert one.recv(4096).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("bad", [b"nonsense\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize("before", [b"", WHOLE])
def test_what_is_no_request_behind_another(engine: Engine, before: bytes, bad: bytes) -> None:
    with served(engine) as address, dialled(address, before) as one:
        while before and not one.recv(4096).endswith(b"}"):
            pass
        one.sendall(bad)
        got, _ = rest(one)
    assert got.startswith(b"HTTP/1.1 400")
    assert b"no HTTP request" in got


def test_too_many_connections(engine: Engine) -> None:
    with served(engine, max_connections=3, request_seconds=1.5) as address:
        ones = [dialled(address, WHOLE) for _ in range(3)]
        assert {one.recv(12) for one in ones} == {b"HTTP/1.1 200"}
        with dialled(address) as refused:
            got, _ = rest(refused)
        assert got.startswith(b"HTTP/1.1 503")
        assert b"too many connections" in got
        # who has a place keeps it, and it is another's when it is left
        ones[0].close()
        time.sleep(0.3)
        ones[0] = dialled(address, HALF)
        with dialled(address) as refused:
            assert rest(refused)[0].startswith(b"HTTP/1.1 503")
        # or when its client is late
        assert rest(ones[0])[0] == b""
        with dialled(address, WHOLE) as one:
            assert one.recv(12) == b"HTTP/1.1 200"
        for one in ones:
            one.close()


@pytest.mark.parametrize("step", [0.02, 0.2])
def test_no_byte_moves_the_deadline_of_a_further_request(engine: Engine, step: float) -> None:
    with served(engine, **FAST) as address, dialled(address, WHOLE) as one:
        while not one.recv(4096).endswith(b"}"):
            pass
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


def test_strangers_take_no_threads(engine: Engine) -> None:
    """Work that waits for one of asyncio's threads outlives its connection, so it could grow without end."""
    app = create_app(Store(engine), ServerSettings(token=SecretStr(TOKEN)))
    is_open = {name.split()[1] for name, rules in app.state.routes.declared.items() if rules.is_open}
    free = [one for one in all_of(app.routes) if one.path in is_open]
    assert {one.path for one in free} >= {"/", "/page/{name}", "/health", "/openapi.json"}
    assert [one.path for one in free if not iscoroutinefunction(one.endpoint)] == []
    assert [one for one in app.exception_handlers.values() if not iscoroutinefunction(one)] == []
