"""The line of a request that its connection, and not the app, has answered: it has the status that was sent."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import connections
from limner.server.app import create_app
from limner.server.audit import AuditLog
from limner.server.settings import ServerSettings
from limner.server.uploads import Changes
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import base64_of, problem
from tests.server.test_connections import BEARER, POST, QUERY, TOKEN, dialled, rest

BODY = POST + b"Content-Length: %d\r\n\r\n" % len(QUERY)


def lines(file: Path, count: int) -> list[dict[str, Any]]:
    """The lines of requests, when there are so many."""
    until = time.monotonic() + 10
    while True:
        read = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()[1:]]
        if len(read) >= count or time.monotonic() > until:
            return read
        time.sleep(0.05)


@contextmanager
def served(
    engine: Engine, turn_away: Callable[[float], None] | None = None, **given: object
) -> Iterator[tuple[str, int]]:
    settings = ServerSettings.parse(given)
    app = create_app(Store(engine), settings)
    app.state.turn_away = turn_away or app.state.turn_away
    with running(app, settings) as url:
        host, port = url.removeprefix("http://").split(":")
        yield host, int(port)


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def test_a_body_that_is_late(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit"
    with served(engine, audit=file, token=SecretStr(TOKEN), request_seconds=0.6) as address:
        with dialled(address, POST + BEARER + b"Content-Length: 99\r\n\r\n{") as one:
            got, _ = rest(one)
        (line,) = lines(file, 1)
    assert (status_of(got), line["status"], line["who"]) == (408, 408, "--token-file")
    assert "more than 0.6 s" in line["refused"]


def test_a_server_that_stops(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.3)
    file = tmp_path / "audit"
    with served(engine, audit=file) as address:
        one = dialled(address, BODY + QUERY[:5])
        time.sleep(0.3)
    got = one.recv(4096)
    one.close()
    (line,) = lines(file, 1)
    assert (status_of(got), line["status"], line["refused"]) == (503, 503, "the server is stopping")


def test_a_client_that_has_gone(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit"
    with served(engine, audit=file) as address:
        dialled(address, BODY + QUERY[:5]).close()
        (line,) = lines(file, 1)
    assert line["status"] == 499


def test_a_change_that_was_made_all_the_same(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client was sent 503 in the middle of it: the line says so, and what has changed."""
    monkeypatch.setattr(connections, "GRACE", 1)
    file = tmp_path / "audit"
    changing, ended = threading.Event(), threading.Event()
    add = Changes.add

    def slow(*given: Any) -> Any:
        changing.set()
        assert ended.wait(10)
        return add(*given)

    monkeypatch.setattr(Changes, "add", slow)
    body = json.dumps({"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99))}).encode()
    head = POST.replace(b"search", b"items") + b"Content-Length: %d\r\n\r\n" % len(body)
    # the app goes on when it is told to end, and its connection says so in its place
    with served(engine, lambda _: None, audit=file, changes=True, uploads=tmp_path / "up") as address:
        one = dialled(address, head + body)
        assert changing.wait(10)
        # behind the refusal, and before the task is cut off
        threading.Timer(2.5, ended.set).start()
    with one:
        got, _ = rest(one)
    before, after = lines(file, 2)
    assert (status_of(got), before["begun"], after["status"]) == (503, True, 503)
    assert (after["count"], len(after["found"])) == (1, 1)
    assert after["refused"] == "the server is stopping"


def test_an_answer_whose_line_is_written_is_not_replaced(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says 200; so the client is sent nothing else, however late it comes."""
    monkeypatch.setattr(connections, "GRACE", 1)
    file = tmp_path / "audit"
    writing, ended = threading.Event(), threading.Event()
    append = AuditLog.append

    def slow(*given: Any) -> None:
        writing.set()
        assert ended.wait(10)
        append(*given)

    monkeypatch.setattr(AuditLog, "append", slow)
    with served(engine, audit=file) as address:
        one = dialled(address, b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert writing.wait(10)
        threading.Timer(2.5, ended.set).start()
    with one:
        got, _ = rest(one)
    (line,) = lines(file, 1)
    assert (status_of(got), line["status"]) == (200, 200)


@pytest.mark.parametrize("method", ["PUT", "OPTIONS"])
def test_every_method_leaves_a_line_where_persons_are(engine: Engine, tmp_path: Path, method: str) -> None:
    file = tmp_path / "audit"
    app = create_app(Store(engine), ServerSettings(audit=file, token=SecretStr(TOKEN), rate=0))
    client = TestClient(app)
    key = client.get("/v1/items", headers=(headers := {"Authorization": f"Bearer {TOKEN}"})).json()["items"][
        0
    ]["id"]
    paths = sorted({name.split()[1] for name, rules in app.state.routes.declared.items() if rules.audit})
    for path in paths:
        answer = client.request(method, path.format(id=key, name="none"), headers=headers)
        assert answer.status_code == 405
    read = lines(file, 1 + len(paths))[1:]
    assert [(line["request"], line["status"], line["who"]) for line in read] == [
        ("other", 405, "--token-file")
    ] * len(paths)
    assert [line.get("id") for line in read] == [key if "{id}" in path else None for path in paths]
    # the page is nobody's data
    problem(client.put("/"), 405)
    assert len(lines(file, 0)) == 1 + len(paths)
