import threading
from pathlib import Path

import httpx
from fastapi.testclient import TestClient

from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.store.files import StoreFiles
from tests.search.fake import FakeEncoder, draw
from tests.server.running import running
from tests.server.serving import COUNT, problem


def test_what_it_says_of_itself(engine: Engine, tmp_path: Path) -> None:
    allowed = ServerSettings(changes=True, uploads=tmp_path / "uploads", max_k=9)
    client = TestClient(create_app(Store(engine), allowed))
    assert client.get("/v1/info").json() == {
        "id": engine.files.manifest.id,
        "pictures": COUNT,
        "model": {"fingerprint": "a" * 64, "system": None, "dim": engine.files.dim, "languages": []},
        "reranks": False,
        "calibrated": False,
        "composes": False,
        "explains": "words",
        "max_k": 9,
        "changes": True,
        "adds": True,
        "fields": [{"name": "camera", "values": ["1", "2"], "kind": "number"}],
        "sentences": 0,
        "examples": [],
        "identities": True,
        "times": ["2026-11-10T08:00:00", "2026-11-17T08:00:00"],
        "approximate": None,
    }


def test_an_empty_store(tmp_path: Path) -> None:
    encoder = FakeEncoder()
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=encoder.dim, run="run")
    client = TestClient(create_app(Store(Engine(store, encoder))))
    info = client.get("/v1/info").json()
    assert (info["pictures"], info["fields"], info["identities"], info["times"]) == (0, [], False, None)
    assert client.post("/v1/search", json={"text": "a"}).json()["hits"] == []
    assert client.get("/v1/items").json() == {"items": [], "total": 0}


def test_pictures_that_another_process_adds_are_found_at_once(
    client: TestClient, engine: Engine, tmp_path: Path
) -> None:
    assert client.get("/v1/info").json()["pictures"] == COUNT
    index_pictures(engine.encoder, StoreFiles.open(engine.files.folder), [draw(tmp_path / "new.png", 77)])
    assert client.get("/v1/info").json()["pictures"] == COUNT + 1
    assert client.post("/v1/search", json={"text": "a"}).json()["total"] == COUNT + 1


def test_what_is_not_there(client: TestClient) -> None:
    for path in ("/nothing", "/v1", "/v1/search/", "/v2/search", "/v1//info"):
        problem(client.get(path), 404)
    problem(client.get("/v1/search"), 405)
    for path in ("/docs", "/redoc"):
        problem(client.get(path), 404)


def test_the_shown_description_has_to_be_asked_for(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(docs=True)))
    assert "swagger" in client.get("/docs").text
    assert "sandbox" in client.get("/openapi.json").headers["content-security-policy"]


def test_over_a_real_connection(engine: Engine) -> None:
    app = create_app(Store(engine), ServerSettings(rate=0, max_body=4096))
    with running(app) as url:
        answers: list[httpx.Response] = []

        def ask(number: int) -> None:
            body = {"text": f"word {number}", "k": 1 + number % COUNT}
            answers.append(httpx.post(f"{url}/v1/search", json=body, timeout=60))

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert {answer.status_code for answer in answers} == {200}
        assert sorted(len(answer.json()["hits"]) for answer in answers) == sorted(
            1 + number % COUNT for number in range(24)
        )
        problem(httpx.post(f"{url}/v1/search", content=b"x" * 10_000_000, timeout=60), 413)
        text = httpx.get(f"{url}/metrics").text
        assert 'route="/v1/search",status="200"} 24.0' in text
    assert problem(TestClient(app).post("/v1/search", json={"text": "a"}), 503)
