import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.responses import Response

from limner.client import Client
from limner.data.images import encoded_anew
from limner.errors import LimnerError, ServerError, SettingsError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import COUNT, HOME, toy_engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return toy_engine(folder)


@pytest.fixture(scope="module")
def server(engine: Engine, folder: Path) -> Iterator[Client]:
    settings = ServerSettings(changes=True, uploads=folder / "uploads", rate=0)
    with running(create_app(Store(engine), settings)) as url, Client(f"{url}/") as client:
        yield client


@pytest.mark.parametrize("closed", [1, 2])
def test_a_connection_that_was_closed_meanwhile(
    server: Client, monkeypatch: pytest.MonkeyPatch, closed: int
) -> None:
    """What changes nothing is sent again, once; the rest is the caller's to decide."""
    import httpx

    tries: list[str] = []
    send = httpx.Client.request

    def lost(self: httpx.Client, method: str, path: str, **given: Any) -> httpx.Response:
        tries.append(path)
        if len(tries) <= closed:
            raise httpx.RemoteProtocolError("the server has closed the connection")
        return send(self, method, path, **given)

    monkeypatch.setattr(httpx.Client, "request", lost)
    calls: list[Any] = [server.info, lambda: server.search("a red coat"), lambda: server.sentences("a")]
    for call in calls:
        tries.clear()
        if closed == 1:
            call()
        else:
            with pytest.raises(ServerError, match="cannot be reached"):
                call()
        assert len(tries) == 2
    for call in (lambda: server.delete("0" * 32), lambda: server.erase(["0" * 32])):
        tries.clear()
        with pytest.raises(ServerError, match="cannot be reached"):
            call()
        assert len(tries) == 1


def test_search_as_the_library(server: Client, engine: Engine, folder: Path) -> None:
    picture = folder / HOME / "3.png"
    for answer, query in (
        (server.search("a red coat", k=3), SearchRequest(text="a red coat", k=3)),
        (server.search(image=picture), SearchRequest(image=picture)),
        (
            server.search(image=bytearray(picture.read_bytes()), group="near"),
            SearchRequest(image=picture, group="near"),
        ),
        (
            server.search("a", after=datetime(2026, 11, 12), before="2026-11-14"),
            SearchRequest(text="a", after=datetime(2026, 11, 12), before=datetime(2026, 11, 14)),
        ),
    ):
        expected = engine.answer(query)
        assert [(hit.id, hit.score, hit.taken) for hit in answer.hits] == [
            (hit.id, hit.score, hit.taken) for hit in expected.hits
        ]
        assert (answer.total, answer.matching) == (expected.total, expected.matching)
    assert server.search("a zxqv").unknown == ("zxqv",)
    some = server.search("a", where=["camera=1", "identity=even"])
    assert {hit.metadata["camera"] for hit in some.hits} == {1}
    marked = server.search("a", marks={some.hits[0].id: "right"})
    assert marked.hits == server.search_many(["a"], marks={some.hits[0].id: "right"})[0].hits
    assert some.hits[0].id not in [hit.id for hit in marked.hits]
    like = server.search("a", like=some.hits[0].id, text_weight=0.1, k=2)
    assert some.hits[0].id not in [hit.id for hit in like.hits]


def test_sentences(server: Client, engine: Engine, folder: Path) -> None:
    picture = folder / HOME / "3.png"
    SentenceTable(engine.files).index(
        engine.encoder, [Sentence("a red coat", str(picture)), Sentence("blue")]
    )
    found = server.sentences(image=picture)
    expected = engine.sentences(SearchRequest(image=picture))
    assert [(hit.rank, hit.score, hit.text) for hit in found] == [
        (hit.rank, hit.score, hit.text) for hit in expected
    ]
    assert {hit.text: hit.id is None for hit in found} == {"a red coat": False, "blue": True}


def test_the_other_calls(server: Client, engine: Engine, folder: Path) -> None:
    items = server.items(limit=3, where=["camera=1"])
    assert ([item.name for item in items.items], items.total) == (["0.png", "2.png", "4.png"], 4)
    first = items.items[0]
    assert server.item(first.id) == first
    assert first.taken == datetime(2026, 11, 10, 8)
    assert server.image(first.id) == encoded_anew((folder / HOME / "0.png").read_bytes())[0]
    assert server.thumbnail(first.id).startswith(b"\xff\xd8")
    explanation = server.explain("a red coat", first.id)
    assert explanation.words == ("a", "red", "coat")
    assert explanation.score == engine.explain("a red coat", first.id).score
    added = server.add(draw(folder / "new.png", 99), identity="9", metadata={"camera": 3})
    assert (added.name, added.identity, added.metadata["camera"]) == ("new.png", "9", 3)
    assert server.info().pictures == COUNT + 1
    assert server.delete(added.id) == 0
    assert server.items().total == COUNT
    again = server.add(folder / "new.png", identity="9", metadata={"camera": 3})
    report = server.erase(identity="9", where={"camera": 3})
    assert (report.pictures, report.uploads, report.left, report.found) == (1, 1, COUNT, ())
    assert server.erase(again.id).pictures == 0
    with pytest.raises(SettingsError, match="paths"):
        server.erase(paths="/pictures")


def test_refusals(server: Client, folder: Path) -> None:
    with pytest.raises(ServerError, match=r"http://127.*at most 100 answers") as refused:
        server.search("a", k=1000)
    assert refused.value.status == 422
    assert isinstance(refused.value, LimnerError)
    with pytest.raises(ServerError) as refused:
        server.image("0" * 32)
    assert refused.value.status == 404
    for key in ("../info", "", "a/b", "a?b"):
        with pytest.raises(SettingsError, match="32 hex digits"):
            server.item(key)
    with pytest.raises(SettingsError, match="cannot be read"):
        server.search(image=folder / "missing.png")
    with pytest.raises(SettingsError, match="a Pillow image or an array of one, got dict"):
        server.search(image={})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="JSON"):
        server.add(b"", metadata={"a": object()})


def test_a_server_that_is_not_there() -> None:
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(ServerError, match="cannot be reached") as refused,
    ):
        client.info()
    assert refused.value.status is None
    for url in ("http://", "localhost:8000", "", "ftp://localhost"):
        with pytest.raises(SettingsError, match="expected a URL"):
            Client(url)
    with pytest.raises(SettingsError, match="token"):
        Client("http://127.0.0.1:1", "schlüssel")


def test_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(SettingsError, match=r"pip install 'limner\[server\]'"):
        Client("http://127.0.0.1:8000")


@pytest.mark.parametrize("answer", ["<html>", "[]", "3", "{}", '{"hits": 3}', '{"hits": [{}], "items": [3]}'])
def test_answers_of_something_else(answer: str) -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await Response(answer)(scope, receive, send)

    app = FastAPI()
    app.state.turn_away, app.state.stopping = (lambda code: None), (lambda: None)
    app.state.refused = lambda reason: None
    app.mount("/", other)
    with running(app) as url, Client(url) as client:
        for call in (
            lambda: client.search("a"),
            lambda: client.sentences("a"),
            lambda: client.explain("a", "0" * 32),
            client.items,
            lambda: client.item("0" * 32),
            lambda: client.add(bytearray(b"a")),
        ):
            with pytest.raises(ServerError, match="not that of a limner server") as refused:
                call()
            assert refused.value.status == 200
        assert not client.health()


def test_health(server: Client) -> None:
    assert server.health()
    with Client("http://127.0.0.1:1") as nobody:
        assert not nobody.health()
