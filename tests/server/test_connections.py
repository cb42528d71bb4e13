import socket
import time

import pytest

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import connections
from limner.server.app import create_app
from tests.server.running import running

WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


HALF = b"POST /v1/search HTTP/1.1\r\nHost: loc"


@pytest.mark.parametrize(("before", "half"), [(b"", b""), (b"", HALF), (WHOLE, HALF)])
def test_a_head_that_does_not_come(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, before: bytes, half: bytes
) -> None:
    monkeypatch.setattr(connections, "SECONDS", 0.5)
    with running(create_app(Store(engine))) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=4) as connection:
            if before:
                connection.sendall(before)
                assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            began = time.monotonic()
            connection.sendall(half)
            while connection.recv(4096):
                pass
            assert time.monotonic() - began < 3
