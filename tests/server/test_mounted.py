"""The server inside another app: its page, limits and token at another path."""

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.routes import route_path
from limner.server.settings import ServerSettings
from tests.server.serving import base64_of, problem

TOKEN = "0123456789abcdef"


def mounted(engine: Engine, **settings: object) -> TestClient:
    outer = FastAPI()
    outer.mount("/pictures", create_app(Store(engine), ServerSettings.parse(settings)))

    @outer.get("/")
    def home() -> str:
        return "somebody else's"

    return TestClient(outer, raise_server_exceptions=False)


def test_it_answers_below_its_path(engine: Engine, tmp_path: Path) -> None:
    client = mounted(engine)
    assert client.get("/").json() == "somebody else's"
    answer = client.post("/pictures/v1/search", json={"text": "a red coat", "k": 2}).json()
    assert [hit["id"] for hit in answer["hits"]] == [
        hit.id for hit in Store(engine).search("a red coat", k=2)
    ]
    page = client.get("/pictures/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    # all that the page asks for is relative to where it lies
    assert 'src="/' not in page.text
    assert 'href="/' not in page.text
    assert client.get("/pictures/page/app.js").status_code == 200
    problem(client.put("/pictures/v1/items"), 405)
    assert client.put("/pictures/v1/items").headers["allow"] == "GET, POST, HEAD"
    # a body with a picture may be larger than 64 KiB there, too
    large = {"image": base64_of(next(tmp_path.rglob("*.png"))), "text": "a " * 100}
    assert client.post("/pictures/v1/search", json=large).status_code == 200
    assert client.post("/pictures/v1/search", content=b" " * 100_000).status_code == 422


def test_limits_and_token_hold_there(engine: Engine) -> None:
    client = mounted(engine, rate=0.001, burst=1)
    assert client.get("/pictures/v1/info").status_code == 200
    problem(client.get("/pictures/v1/info"), 429)
    client = mounted(engine, token=SecretStr(TOKEN))
    problem(client.get("/pictures/v1/info"), 401)
    assert client.get("/pictures/health").status_code == 200
    assert client.get("/pictures/page/app.js").status_code == 200


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [("/v1", "", "/v1"), ("/a/v1", "/a", "/v1"), ("/ab/v1", "/a", "/ab/v1"), ("/a", "/a", "/a")],
)
def test_the_path_below_the_mount(path: str, root: str, expected: str) -> None:
    assert route_path({"path": path, "root_path": root}) == expected
