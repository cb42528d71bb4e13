"""Answers that nobody reads: they take no more than so much memory, and the others are told so."""

import asyncio
import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server import limits
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import COUNT, problem

GET = b"GET /v1/items?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def ask(unread: ExitStack, url: str) -> None:
    """Ask for all pictures, and do not read the answer."""
    host, port = url.removeprefix("http://").split(":")
    one = unread.enter_context(socket.socket())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((host, int(port)))
    one.sendall(GET)


def test_answers_that_nobody_reads(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [draw(tmp_path / "large" / f"{seed}.png", seed) for seed in range(20, 28)]
    index_pictures(
        engine.encoder,
        engine.files,
        pictures,
        metadata={str(path): {"camera": 9, "note": "x" * 2**20} for path in pictures},
    )
    # answers of 8 MB, of which the systems of both sides take some; two wait and a third is too much
    monkeypatch.setattr(limits, "_UNREAD", 2**24)
    settings = ServerSettings(max_answer=2**25, rate=0, audit=tmp_path / "audit.jsonl")
    app = create_app(Store(engine), settings)
    count = 6
    with running(app, settings) as url, ExitStack() as unread:
        for _ in range(count):
            ask(unread, url)
        until = time.monotonic() + 20
        while len(_lines(tmp_path)) < count and time.monotonic() < until:
            time.sleep(0.1)
        # of the two that wait the systems may take more after the others have been refused
        until, settled = time.monotonic() + 20, 0
        while settled < 5 and time.monotonic() < until:
            settled += 1
            if app.state.unread() + 2**23 <= 2**24:
                settled, count = 0, count + 1
                ask(unread, url)
            time.sleep(0.1)
        assert app.state.unread() < 2**24
        # what the others have asked for, and not compressed
        answer = httpx.get(f"{url}/v1/items", headers={"Accept-Encoding": "identity"}, timeout=30)
        assert "do not read" in problem(answer, 503)["detail"]
        assert answer.headers["retry-after"] == "1"
        # small answers leave all the same
        assert len(httpx.get(f"{url}/v1/items?where=camera<=2", timeout=30).json()["items"]) == COUNT
        unread.close()
        until = time.monotonic() + 20
        while app.state.unread() and time.monotonic() < until:
            time.sleep(0.1)
        assert len(httpx.get(f"{url}/v1/items", timeout=30).json()["items"]) == COUNT + 8
        # whoever is alone has an answer of any size
        monkeypatch.setattr(limits, "_UNREAD", 1)
        assert httpx.get(f"{url}/v1/items", timeout=30).status_code == 200
    lines = _lines(tmp_path)
    assert [line["status"] for line in lines[-4:]] == [503, 200, 200, 200]
    assert [line["status"] for line in lines[:count]].count(503) >= 3
    assert not [line for line in lines if line["status"] == 503 and "found" in line]


@pytest.mark.parametrize(
    ("waiting", "size", "status"), [(2**30, 2**16, 200), (2**30, 2**17, 503), (0, 2**17, 200)]
)
def test_an_answer_in_parts_is_refused_once(waiting: int, size: int, status: int) -> None:
    async def parts(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, True, False):
            await send({"type": "http.response.body", "body": bytes(size), "more_body": more})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    asyncio.run(limits.Unread(parts, lambda: waiting)({"type": "http"}, receive, send))
    assert [one["status"] for one in sent if one["type"] == "http.response.start"] == [status]
    assert sum(not one.get("more_body", False) for one in sent[1:]) == 1
    assert (sum(len(one["body"]) for one in sent[1:]) == 3 * size) == (status == 200)


def _lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()[1:]]
