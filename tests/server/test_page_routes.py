from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from limner.server.answer_forms import Guarded
from limner.server.page import page_routes
from limner.server.problems import install_handlers
from limner.server.routes import Routes, Ruled
from tests.server.serving import problem


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "app.js").write_text("let a")
    (folder / "notes.txt").write_text("secret")
    (tmp_path / "other.js").write_text("secret")
    app = FastAPI(redirect_slashes=False)
    router, routes = page_routes(folder), Routes()
    app.include_router(router)
    routes.add(router.routes)
    app.add_middleware(Guarded)
    app.add_middleware(Ruled, routes=routes)
    install_handlers(app, [])
    (folder / "late.js").write_text("secret")
    return TestClient(app)


def test_the_page(client: TestClient) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/page/index.html", "text/html"),
        ("/page/app.js", "text/javascript"),
    ):
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == f"{kind}; charset=utf-8"
        policy = response.headers["content-security-policy"]
        for part in (
            "default-src 'self'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "frame-ancestors 'none'",
        ):
            assert part in policy.split("; ")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "/page/notes.txt",
        "/page/late.js",
        "/page/../other.js",
        "/page/%2e%2e%2fother.js",
        "/page/..%5cother.js",
        "/page//etc/passwd",
        "/page/",
        "/page/app.js/",
        "/index.html",
    ],
)
def test_other_files(client: TestClient, path: str) -> None:
    assert "secret" not in client.get(path).text
    problem(client.get(path), 404)


def test_a_page_that_is_not_there(tmp_path: Path) -> None:
    app = FastAPI()
    app.include_router(page_routes(tmp_path / "missing"))
    install_handlers(app, [])
    problem(TestClient(app).get("/"), 404)
