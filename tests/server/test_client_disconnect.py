import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

import httpx
import pytest
from starlette.requests import Request

from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.batching import unless_disconnected
from limner.server.problems import RefusedError
from limner.wire import Answer
from tests.search.fake import answer_of
from tests.server.running import running


def test_queries_of_clients_that_have_gone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    answered: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def answers(queries: Sequence[SearchRequest], until: Sequence[float]) -> list[Answer]:
        answered.extend(str(query.text) for query in queries)
        begun.set()
        assert go.wait(30)
        return [answer_of((), 0, 0) for _ in queries]

    monkeypatch.setattr(engine, "begin", answers)
    with running(create_app(Store(engine))) as url:
        host, port = url.removeprefix("http://").split(":")

        def send(text: str) -> socket.socket:
            body = f'{{"text": "{text}"}}'
            head = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection = socket.create_connection((host, int(port)), timeout=30)
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            return connection

        with send("first") as first:
            assert begun.wait(30)
            gone = [send("gone") for _ in range(3)]
            with send("there") as there:
                while "limner_waiting_requests 4.0" not in httpx.get(f"{url}/metrics").text:
                    time.sleep(0.02)
                for one in gone:
                    one.close()
                while httpx.get(f"{url}/metrics").text.count('status="499"} 3.0') == 0:
                    time.sleep(0.02)
                go.set()
                assert first.recv(4096).startswith(b"HTTP/1.1 200")
                assert there.recv(4096).startswith(b"HTTP/1.1 200")
    assert answered == ["first", "there"]


def test_is_given_up_before_it_is_counted_as_gone() -> None:
    """Not at the event loop's next turn, by which the thread of the model may have begun it."""

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def answer(done: Future[int]) -> bool:
        with pytest.raises(RefusedError, match="has gone"):
            await unless_disconnected(Request({"type": "http"}, receive), done)
        return done.cancelled()

    assert asyncio.run(answer(Future()))
