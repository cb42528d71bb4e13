import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from limner.data.tokenizers import WordTokenizer
from limner.errors import SearchTimeoutError, StoreError, UnknownPictureError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.wire import Answer, Attention, Explanation, Hit
from tests.search.fake import answer_of, calibration, hit_of
from tests.server.serving import COUNT, HOME, base64_of, problem


def told(hits: tuple[Hit, ...]) -> list[dict[str, Any]]:
    """Hits of the library as HTTP has them."""
    values = [hit.model_dump(mode="json") for hit in hits]
    return [{"name": Path(one.pop("path")).name, **one} for one in values]


def test_http_answers_as_the_library(client: TestClient, engine: Engine, tmp_path: Path) -> None:
    picture = tmp_path / HOME / "3.png"
    key, other = [hit.id for hit in engine.answer(SearchRequest(image=picture, k=2)).hits]
    for body, query in (
        ({"text": "a red coat"}, SearchRequest(text="a red coat")),
        (
            {"text": "a red coat", "k": 2, "group": "identity"},
            SearchRequest(text="a red coat", k=2, group="identity"),
        ),
        ({"image": base64_of(picture), "k": 3}, SearchRequest(image=picture, k=3)),
        ({"like": key, "group": "near"}, SearchRequest(like=key, group="near")),
        (
            {"text": "coat", "like": key, "text_weight": 0.25},
            SearchRequest(text="coat", like=key, text_weight=0.25),
        ),
        ({"text": "coat", "rerank": 0}, SearchRequest(text="coat", rerank=0)),
        ({"text": "a coat", "marks": {key: "right"}}, SearchRequest(text="a coat", marks={key: "right"})),
        ({"like": key, "marks": {other: "wrong"}}, SearchRequest(like=key, marks={other: "wrong"})),
    ):
        response = client.post("/v1/search", json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        expected = engine.answer(query)
        assert answer["hits"] == told(expected.hits)
        assert (answer["total"], answer["matching"]) == (expected.total, expected.matching)
        assert answer["good"] is answer["threshold"] is None
        assert answer["took_ms"] >= 0
        assert "path" not in response.text
        assert HOME not in response.text


def test_parts_of_a_list(client: TestClient) -> None:
    def part(**body: Any) -> Any:
        return client.post("/v1/search", json={"text": "a red coat", **body})

    whole = part(k=8).json()
    first, second = (part(k=5, offset=offset).json() for offset in (0, 5))
    assert first["hits"] + second["hits"] == whole["hits"]
    assert first["snapshot"] == second["snapshot"] == whole["snapshot"]
    assert part(offset=10_000).json()["hits"] == []
    for wrong in (-1, 10_001, "5", 1.5):
        problem(part(offset=wrong), 422)


def test_conditions_and_times(client: TestClient) -> None:
    def found(**body: Any) -> list[str]:
        answer = client.post("/v1/search", json={"text": "a red coat", **body}).json()
        assert answer["matching"] == len(answer["hits"])
        return sorted(hit["name"] for hit in answer["hits"])

    assert found(where=["camera=1"]) == ["0.png", "2.png", "4.png", "6.png"]
    assert found(where=["camera=1", "identity!=even"]) == []
    assert found(after="2026-11-12T08:00:00", before="2026-11-14T08:00:00") == ["2.png", "3.png"]
    assert found(after="2026-11-16") == ["6.png", "7.png"]
    assert found(after="2026-11-16T08:00:00+05:00") == ["6.png", "7.png"]


def test_whole_numbers_with_a_point(client: TestClient) -> None:
    response = client.post("/v1/search", content=b'{"text": "a", "k": 2.0, "rerank": 0.0}', headers=JSON)
    assert len(response.json()["hits"]) == 2


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give a text"),
        ({"k": 3}, "give a text"),
        ({"image": "AAAA", "like": "0" * 32}, "one picture"),
        ({"text": ""}, "text: "),
        ({"text": "a" * 2001}, "text: "),
        ({"text": 3}, "text: "),
        ({"text": "a", "k": 0}, "k: "),
        ({"text": "a", "k": 101}, "at most 100"),
        ({"text": "a", "k": "10"}, "k: "),
        ({"text": "a", "k": 1.5}, "k: "),
        ({"text": "a", "k": True}, "k: "),
        ({"text": "a", "text_weight": 1.01}, "text_weight: "),
        ({"text": "a", "where": ["camera"]}, "where.0: "),
        ({"text": "a", "where": ["camera=" + "1" * 2000]}, "where.0: "),
        ({"text": "a", "where": ["camera=" + "|".join("1" * 101)]}, "at most 100 values"),
        ({"text": "a", "where": ["camera=1"] * 21}, "where: "),
        ({"text": "a", "where": "camera=1"}, "where: "),
        ({"text": "a", "after": "yesterday"}, "after: "),
        ({"text": "a", "before": 20261120}, "before: "),
        ({"text": "a", "group": "camera"}, "group: "),
        ({"text": "a", "rerank": -1}, "rerank: "),
        ({"text": "a", "rerank": 10_001}, "at most 10,000"),
        ({"text": "a", "rerank": "some"}, "rerank: "),
        ({"text": "a", "kk": 3}, "kk: "),
        ({"image": "AA*A"}, "base64"),
        ({"image": "AAAAA"}, "base64"),
        ({"like": "../../etc/passwd"}, "like: "),
        ({"like": "A" * 32}, "like: "),
        ([], "body: "),
        ("text", "body: "),
    ],
)
def test_bodies_of_another_form(client: TestClient, body: Any, said: str) -> None:
    assert said in problem(client.post("/v1/search", json=body), 422)["detail"]


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", JSON, 422),
        (b"{", JSON, 400),
        (b"{\xff}", JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"text": "a", "k": ' + b"1" * 5000 + b"}", JSON, 400),
        (b'{"text": "a", "text_weight": NaN}', JSON, 422),
        (b'{"text": "\\ud800"}', JSON, 422),
        (b'{"\\ud800": 1}', JSON, 422),
        # what a page of elsewhere can send without asking the browser's leave
        (b'{"text": "a"}', {"Content-Type": "text/plain"}, 422),
        (b'{"text": "a"}', {}, 422),
        (b"text=a", {"Content-Type": "application/x-www-form-urlencoded"}, 422),
    ],
)
def test_bodies_that_are_no_json(
    client: TestClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    found = problem(client.post("/v1/search", content=content, headers=headers), status)
    assert ("Content-Type: application/json" in found["detail"]) is (headers != JSON)


@pytest.mark.parametrize(
    "body",
    [
        {"text": "  "},
        {"image": "AAAA"},
        {"text": "a", "explain": True},
        {"text": "a", "rerank": "all"},
        {"text": "a", "explain": True, "rerank": 0},
        {"image": "AAAA", "explain": True},
    ],
)
def test_what_this_store_cannot_answer(client: TestClient, body: dict[str, Any]) -> None:
    problem(client.post("/v1/search", json=body), 409)


def test_a_query_without_blanks_between_words_is_answered_as_one_without_known_words(
    client: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.encoder, "check_query", WordTokenizer.build(["a red coat"]).check)
    unknown = problem(client.post("/v1/search", json={"text": "zebra"}), 409)
    unspaced = problem(client.post("/v1/search", json={"text": "红色大衣"}), 409)
    assert unspaced["type"] == unknown["type"]
    assert "written without blanks between words" in unspaced["detail"]
    assert client.post("/v1/search", json={"text": "a red coat 大衣"}).status_code == 200


def test_pictures_that_are_not_there(client: TestClient) -> None:
    problem(client.post("/v1/search", json={"like": "0" * 32}), 404)
    problem(client.post("/v1/explain", json={"text": "a", "id": "0" * 32}), 404)


@pytest.mark.parametrize("where", ["path~/home/*", " path =x", "path!=x"])
def test_paths_cannot_be_guessed(client: TestClient, where: str) -> None:
    problem(client.post("/v1/search", json={"text": "a", "where": [where]}), 403)
    problem(client.get("/v1/items", params={"where": where}), 403)


def test_explanations(client: TestClient, engine: Engine) -> None:
    key = client.post("/v1/search", json={"text": "a red coat"}).json()["hits"][0]["id"]
    body = client.post("/v1/explain", json={"text": "a red coat", "id": key}).json()
    expected = engine.explain("a red coat", key)
    assert body == {
        "words": ["a", "red", "coat"],
        "weights": list(expected.weights or ()),
        "phrases": [phrase.model_dump() for phrase in expected.phrases],
        "method": "masked-regression",
        "attention": None,
        "score": expected.score,
        "confidence": None,
        "unknown": [],
    }
    assert [phrase["text"] for phrase in body["phrases"]] == ["a", "red coat"]
    left_out = {"text": "a red coat", "id": key, "method": "leave-one-out"}
    assert client.post("/v1/explain", json=left_out).json() == engine.explain(
        "a red coat", key, "leave-one-out"
    ).model_dump(mode="json")
    problem(client.post("/v1/explain", json={**left_out, "method": "guess"}), 422)
    problem(client.post("/v1/explain", json={"text": "a red coat"}), 422)
    problem(client.post("/v1/explain", json={"text": " ", "id": key}), 409)


def test_64_clients_at_once(engine: Engine) -> None:
    texts = [f"word{number} and {number}" for number in range(64)]
    expected = [told(engine.answer(SearchRequest(text=text, k=COUNT)).hits) for text in texts]
    app = create_app(Store(engine), ServerSettings(rate=0))

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(
                *(client.post("/v1/search", json={"text": text, "k": COUNT}) for text in texts)
            )

    answers = asyncio.run(ask_all())
    assert {answer.status_code for answer in answers} == {200}
    for answer, hits in zip(answers, expected, strict=True):
        for one, other in zip(answer.json()["hits"], hits, strict=True):
            assert one.pop("score") == pytest.approx(other.pop("score"), abs=1e-6)
            assert one == other


def test_a_broken_store_is_not_explained_to_clients(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise StoreError("/home/ann/store: its table is damaged")

    monkeypatch.setattr(engine, "begin", broken)
    client = TestClient(create_app(Store(engine)))
    problem(client.post("/v1/search", json={"text": "a"}), 503)
    assert "/home/ann/store" in caplog.text


def test_a_bug_is_a_problem_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*given: object) -> None:
        raise ZeroDivisionError("/home/ann/secret")

    monkeypatch.setattr(engine, "begin", bug)
    client = TestClient(create_app(Store(engine)), raise_server_exceptions=False)
    response = client.post("/v1/search", json={"text": "a"})
    assert "secret" not in json.dumps(problem(response, 500))
    assert 'status="500"' in client.get("/metrics").text


def test_sentences_of_a_picture(client: TestClient, engine: Engine, tmp_path: Path) -> None:
    picture = tmp_path / HOME / "3.png"
    none = client.post("/v1/sentences", json={"image": base64_of(picture)})
    assert none.json() == {"sentences": [], "total": 0}
    own = [Sentence("a red coat", str(picture)), Sentence("grey shoes", "/gone.png"), Sentence("blue")]
    SentenceTable(engine.files).index(engine.encoder, own)
    info = client.get("/v1/info").json()
    assert info["sentences"] == 3
    assert info["examples"]
    assert set(info["examples"]) <= {one.text for one in own}
    key = engine.answer(SearchRequest(image=picture, k=1)).hits[0].id
    for body, query in (
        ({"image": base64_of(picture)}, SearchRequest(image=picture)),
        ({"like": key, "k": 2}, SearchRequest(like=key, k=2)),
        ({"text": "a blue coat", "like": key}, SearchRequest(text="a blue coat", like=key)),
    ):
        answer = client.post("/v1/sentences", json=body).json()
        expected = engine.sentences(query)
        assert [(hit["text"], hit["score"]) for hit in answer["sentences"]] == [
            (hit.text, hit.score) for hit in expected
        ]
        assert answer["total"] == 3
        assert {hit["text"]: hit["id"] for hit in answer["sentences"]}.get("a red coat", key) == key
    assert "/gone.png" not in client.post("/v1/sentences", json={"text": "grey shoes"}).text
    problem(client.post("/v1/sentences", json={"k": 3}), 422)
    problem(client.post("/v1/sentences", json={"text": "x", "k": 10_000}), 422)
    problem(client.post("/v1/sentences", json={"like": "0" * 32}), 404)


def test_a_body_of_very_many_faults(client: TestClient) -> None:
    began = time.monotonic()
    many = problem(client.post("/v1/search", json={"text": "a", **{f"a{n}": 1 for n in range(200_000)}}), 422)
    assert time.monotonic() - began < 3
    assert "at most 50 names" in many["detail"]
    some = problem(client.post("/v1/search", json={"text": "a", **{f"a{n}": 1 for n in range(40)}}), 422)
    assert len(some["errors"]) == 20
    assert "and 35 more" in some["detail"]


def test_a_body_that_is_cut_off(client: TestClient) -> None:
    cut = problem(client.post("/v1/search", content=b'{"text": "a', headers=JSON), 400)
    assert cut["type"] == "limner:malformed"
    assert "no JSON" in cut["detail"]


def test_re_ranking_all_of_a_large_store(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(max_rerank=COUNT - 1)))
    problem(client.post("/v1/search", json={"text": "a", "rerank": "all"}), 422)


def test_a_recipe_that_re_ranks_all_is_cut(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SearchRequest] = []

    def answers(queries: list[SearchRequest], until: list[float]) -> list[Answer]:
        asked.extend(queries)
        return [answer_of((), COUNT, COUNT)]

    monkeypatch.setattr(engine, "begin", answers)
    monkeypatch.setattr(engine.encoder, "rerank", "all")
    monkeypatch.setattr(engine.encoder, "reranker", object())
    for most, expected in ((COUNT - 1, COUNT - 1), (COUNT, None)):
        client = TestClient(create_app(Store(engine), ServerSettings(max_rerank=most)))
        assert client.post("/v1/search", json={"text": "a"}).status_code == 200
        assert asked[-1].rerank == expected
    key = engine.files.snapshot().keys[0]
    assert client.post("/v1/search", json={"text": "a", "like": key}).status_code == 200
    assert asked[-1].rerank is None
    # a reranker knows no marks, so that the server asks for none in their presence
    client = TestClient(create_app(Store(engine), ServerSettings(max_rerank=COUNT - 1)))
    assert client.post("/v1/search", json={"text": "a", "marks": {key: "right"}}).status_code == 200
    assert (asked[-1].rerank, asked[-1].right) == (None, (key,))


def test_marks_that_make_no_sense(client: TestClient, engine: Engine) -> None:
    key = engine.files.snapshot().keys[0]
    for marks in (
        {key: "good"},
        {"no key": "right"},
        {f"{number:032x}": "wrong" for number in range(501)},
        [key],
    ):
        problem(client.post("/v1/search", json={"text": "a", "marks": marks}), 422)
    problem(client.post("/v1/search", json={"text": "a", "marks": {"0" * 32: "right"}}), 404)
    problem(client.post("/v1/search", json={"text": "a", "marks": {key: "right"}, "rerank": 3}), 409)


def test_a_query_that_takes_too_long(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(queries: list[SearchRequest], until: list[float]) -> list[SearchTimeoutError]:
        assert 0 < until[0] - time.monotonic() <= 5
        return [SearchTimeoutError("the search took longer than it may")]

    monkeypatch.setattr(engine, "begin", slow)
    client = TestClient(create_app(Store(engine), ServerSettings(query_seconds=5)))
    response = client.post("/v1/search", json={"text": "a"})
    assert "longer than it may" in problem(response, 503)["detail"]
    assert response.headers["retry-after"]


def test_a_picture_that_is_deleted_meanwhile(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*given: object) -> list[UnknownPictureError]:
        return [UnknownPictureError("/home/ann/store: holds no picture")]

    monkeypatch.setattr(engine, "begin", gone)
    client = TestClient(create_app(Store(engine)))
    problem(client.post("/v1/search", json={"like": client.get("/v1/items").json()["items"][0]["id"]}), 404)


def test_attention_says_of_which_part_it_is(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    crop = (0.25, 0.0, 0.75, 1.0)
    attention = Attention(words=("a",), of_regions=[[[1.0]]], of_words=None, reader="region", crop=crop)
    explained = Explanation(
        words=("a",),
        weights=None,
        phrases=(),
        method="masked-regression",
        attention=attention,
        score=0.5,
        confidence=0.9,
        unknown=(),
    )
    monkeypatch.setattr(engine, "explain", lambda *given: explained)
    hit = hit_of(Path("a.png"), attention=attention)
    monkeypatch.setattr(engine, "begin", lambda *given: [answer_of((hit,), 1, 1)])
    client = TestClient(create_app(Store(engine)))
    body = client.post("/v1/explain", json={"text": "a", "id": "0" * 32}).json()
    assert body["attention"]["crop"] == list(crop)
    body = client.post("/v1/search", json={"text": "a", "explain": True}).json()
    assert body["hits"][0]["attention"]["crop"] == list(crop)


@pytest.mark.parametrize(
    ("unusable", "told"), [({}, [False, 1.0]), ({"embedding": "too few reach it"}, [None, None])]
)
def test_a_threshold_that_cannot_be_used_is_not_told(
    unusable: dict[str, str], told: list[float | None], engine: Engine
) -> None:
    # a calibrated model; without any, `test_http_answers_as_the_library` has null for both
    engine.calibration = calibration(threshold=1.0).replace(unusable=unusable, question="fits")
    with TestClient(create_app(Store(engine))) as client:
        answer = client.post("/v1/search", json={"text": "a red coat"}).json()
        assert [answer["good"], answer["threshold"]] == told
        assert answer["hits"][0]["probability"] < 1
        info = client.get("/v1/info").json()
        assert (info["calibrated"], info["question"]) == (True, "fits")
        assert Answer.read(answer).good is told[0]


def test_a_damaged_sentence_is_the_trouble_of_the_store(client: TestClient, engine: Engine) -> None:
    SentenceTable(engine.files).index(engine.encoder, [Sentence("red shoes"), Sentence("grey shoes")])
    with closing(sqlite3.connect(f"{engine.files.folder}/store.sqlite")) as database, database:
        database.execute("UPDATE sentences SET text = x'00', vector = 5 WHERE text = 'red shoes'")
        database.execute("UPDATE states SET version = version + 1 WHERE name = 'sentences'")
    answer = problem(client.post("/v1/sentences", json={"text": "grey shoes"}), 503)
    assert "bug" not in answer["type"]
    info = client.get("/v1/info")
    assert info.status_code == 200 or "bug" not in problem(info, 503)["type"]
