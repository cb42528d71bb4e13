"""No route by accident: each is in the docs, and somebody has decided whether it is audited."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.routing import Route

import limner
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.audit import AUDITED, NOT_AUDITED
from limner.server.settings import ServerSettings

DOCS = Path(limner.__file__).parents[1] / "docs"


def routes_of(app: Any) -> set[str]:
    """Every method and path that an app answers, those outside of its description among them."""

    def all_of(routes: Any) -> Iterator[Route]:
        for route in routes:
            if hasattr(route, "methods") and hasattr(route, "path"):
                yield route
            else:  # FastAPI keeps an included router as one
                yield from all_of(route.effective_candidates())

    found = set()
    for route in all_of(app.routes):
        methods = set(route.methods or ())
        # Starlette answers HEAD wherever it answers GET; only where it was asked for is it a route of its own
        if route.path != "/":
            methods -= {"HEAD"}
        found |= {f"{method} {route.path}" for method in methods}
    return found


@pytest.fixture
def routes(engine: Engine, tmp_path: Path) -> set[str]:
    settings = ServerSettings(docs=True, changes=True, uploads=tmp_path / "uploads")
    return routes_of(create_app(Store(engine), settings))


def test_every_route_has_an_audit_decision(routes: set[str]) -> None:
    assert not AUDITED & NOT_AUDITED.keys()
    assert routes == AUDITED | NOT_AUDITED.keys()
    assert all(len(reason.split()) > 2 for reason in NOT_AUDITED.values())


def test_every_route_is_in_the_docs(routes: set[str]) -> None:
    page = next(DOCS.rglob("server.md")).read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", page, re.MULTILINE))
    own = {route for route in routes if "/page/" not in route and route.split()[1] not in ("/", "/docs")}
    assert documented == own - {"GET /openapi.json"}
    assert "/openapi.json" in page
    assert "/docs" in page


def test_a_route_that_nobody_decided_on_would_be_found(engine: Engine) -> None:
    app = create_app(Store(engine))

    @app.get("/v1/persons")
    def persons() -> None:
        """A new route."""

    assert routes_of(app) - AUDITED - NOT_AUDITED.keys() == {"GET /v1/persons"}


def test_what_is_audited_leaves_a_line_and_nothing_else_does(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    settings = ServerSettings(audit=file, docs=True, changes=True, uploads=tmp_path / "uploads", rate=0)
    client = TestClient(create_app(Store(engine), settings), raise_server_exceptions=False)
    key = client.get("/v1/items").json()["items"][0]["id"]
    asked: dict[str, dict[str, Any]] = {
        "POST /v1/search": {"json": {"text": "a"}},
        "POST /v1/sentences": {"json": {"text": "a"}},
        "POST /v1/explain": {"json": {"text": "a", "id": key}},
        "GET /v1/items": {"params": {"where": "camera=1"}},
    }
    assert asked.keys() == AUDITED
    for route in sorted(AUDITED | NOT_AUDITED.keys()):
        before = len(file.read_text().splitlines())
        method, path = route.split()
        client.request(method, path.format(id=key, name="app.js"), **asked.get(route, {}))
        assert len(file.read_text().splitlines()) - before == (route in AUDITED), route
