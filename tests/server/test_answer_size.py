import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limner.client import Client
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.server.answer_forms import fields_that_fit
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.wire import MetadataField
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import COUNT, HOME, base64_of, problem, toy_engine

MOST = 8192


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Pictures whose metadata, identities and sentences have up to 40 KB each, which no client may write."""
    folder = tmp_path_factory.mktemp("heavy")
    engine = toy_engine(folder)
    pictures = [folder / HOME / f"{seed}.png" for seed in range(COUNT)]
    sizes = [0, 40_000, 10, 2000, 2000, 2000, 2000, 7000]
    facts: dict[str, dict[str, str | None]] = {
        str(path): {"note": "ü" * (size // 2), "camera": None}
        for path, size in zip(pictures, sizes, strict=True)
    }
    for path, size in zip(pictures, [30_000, 0, 3000, 2000, 0, 20_000, 10, 0], strict=True):
        # of a sign that JSON spells with six
        facts[str(path)]["identity"] = "\a" * (size // 6)
    index_pictures(engine.encoder, engine.files, pictures, metadata=facts)
    told = [Sentence(f"{number} {'ü' * (size // 2)}", str(pictures[0])) for number, size in enumerate(sizes)]
    SentenceTable(engine.files).index(engine.encoder, told)
    return engine


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(most=st.integers(1024, 200_000), limit=st.integers(1, 9), reverse=st.booleans())
def test_a_list_is_cut_and_goes_on(heavy: Engine, most: int, limit: int, reverse: bool) -> None:
    client = TestClient(create_app(Store(heavy), ServerSettings(max_answer=most, rate=0)))
    names: list[str] = []
    while len(names) < COUNT:
        answer = client.get("/v1/items", params={"offset": len(names), "limit": limit})
        body = answer.json()
        assert body["total"] == COUNT
        assert 1 <= len(body["items"]) <= limit
        assert len(answer.content) <= most or len(body["items"]) == 1
        names += [item["name"] for item in body["items"]]
    assert names == [f"{seed}.png" for seed in range(COUNT)]
    found = client.post("/v1/search", json={"text": "a", "k": limit})
    hits = found.json()["hits"]
    assert len(found.content) <= most + 512 or len(hits) == 1
    assert len(hits) + found.json().get("left_out", 0) == min(limit, COUNT)
    found = client.post("/v1/sentences", json={"text": "a", "k": limit})
    sentences = found.json()["sentences"]
    assert len(found.content) <= most + 512 or len(sentences) == 1
    assert len(sentences) + found.json().get("left_out", 0) == min(limit, COUNT)


def test_the_client_goes_through_all_of_them(heavy: Engine) -> None:
    app = create_app(Store(heavy), ServerSettings(max_answer=MOST, rate=0))
    with running(app) as url, Client(url) as client:
        assert [item.name for item in client] == [f"{seed}.png" for seed in range(COUNT)]
        assert len(client) == COUNT
        answer = client.search("a", k=COUNT)
        assert answer.left_out == COUNT - len(answer.hits) > 0
        assert "left_out" not in client.search("a", k=1).model_dump()
        # a field with so long values has none to choose from
        assert [(field.name, field.values) for field in client.info().fields] == [("note", ())]


def test_fields_that_fit() -> None:
    short = [MetadataField(name=str(n), values=("a", "b"), kind="text") for n in range(100)]
    assert fields_that_fit(short, 10**6) == tuple(short)
    some = fields_that_fit(short, 10_000)
    assert 0 < len(some) < 100
    assert len(json.dumps([field.model_dump() for field in some])) <= 10_000
    assert fields_that_fit([], 1024) == ()


def test_metadata_of_one_picture(engine: Engine, tmp_path: Path) -> None:
    allowed = ServerSettings(changes=True, uploads=tmp_path / "uploads", max_metadata=100)
    client = TestClient(create_app(Store(engine), allowed))
    body = {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99))}
    # {"note": "…"} has twelve bytes beside the text, of which each letter here has two
    assert client.post("/v1/items", json={**body, "metadata": {"note": "ü" * 44}}).status_code == 201
    refused = client.post("/v1/items", json={**body, "metadata": {"note": "ü" * 45}})
    assert "at most 100 bytes" in problem(refused, 413)["detail"]
    answer = client.post("/v1/items", json={**body, "metadata": {"path": "x"}})
    assert "give it another name" in problem(answer, 422)["detail"]
    assert client.get("/v1/items", params={"limit": 100}).json()["total"] == COUNT + 1
