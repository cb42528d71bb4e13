"""The end of the server while clients are busy: every request that it has let in gets an answer."""

import http.client
import json
import socket
import threading
import time
from collections import Counter

import pytest

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import connections
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.running import running

SEARCH = json.dumps({"text": "a red coat"})
JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_busy_clients_lose_no_request(engine: Engine) -> None:
    seen: Counter[object] = Counter()
    settings = ServerSettings(rate=0)

    def load(connection: http.client.HTTPConnection, method: str, path: str) -> None:
        ends = False
        while not ends:
            try:
                connection.request(method, path, SEARCH if method == "POST" else None, JSON)
                answer = connection.getresponse()
                answer.read()
                seen[answer.status] += 1
                ends = answer.will_close
            except (OSError, http.client.HTTPException) as error:
                seen[type(error).__name__] += 1
                ends = True
        connection.close()

    with running(create_app(Store(engine), settings), settings) as url:
        threads = []
        for method, path in [("POST", "/v1/search"), ("GET", "/v1/items"), ("GET", "/livez")] * 4:
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
            threads.append(threading.Thread(target=load, args=(connection, method, path)))
        for thread in threads:
            thread.start()
        time.sleep(0.7)
    for thread in threads:
        thread.join(30)
    assert set(seen) == {200}


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\n"])
def test_a_request_that_is_on_its_way(engine: Engine, sent: bytes) -> None:
    got: list[bytes] = []

    def later(one: socket.socket) -> None:
        time.sleep(0.4)
        one.sendall(
            (sent and b"Host: localhost\r\n\r\n") or b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        got.append(one.recv(4096))
        one.close()

    with running(create_app(Store(engine))) as url:
        host, port = url.removeprefix("http://").split(":")
        one = socket.create_connection((host, int(port)), timeout=10)
        one.sendall(sent)
        time.sleep(0.2)
        thread = threading.Thread(target=later, args=(one,))
        thread.start()
    thread.join(10)
    assert got[0].startswith(b"HTTP/1.1 200")
    assert b"connection: close" in got[0].lower()


def test_what_does_not_come_to_an_end_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.3)
    began = time.monotonic()
    with running(create_app(Store(engine))) as url:
        host, port = url.removeprefix("http://").split(":")
        one = socket.create_connection((host, int(port)), timeout=10)
        one.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        time.sleep(0.2)
    answer = one.recv(4096)
    one.close()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"the server is stopping" in answer
    assert time.monotonic() - began < 10
