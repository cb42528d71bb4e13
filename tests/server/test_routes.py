"""No route by accident: each is in the docs, and somebody has decided whether it is audited."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.routing import Route

import limner
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.access import NEEDED, needs_token
from limner.server.app import create_app
from limner.server.audit import verify
from limner.server.audit_routes import AUDITED, CHANGES, NOT_AUDITED
from limner.server.settings import ServerSettings
from tests.search.fake import draw
from tests.server.serving import base64_of

DOCS = Path(limner.__file__).parents[1] / "docs"


def all_of(routes: Any) -> Iterator[Route]:
    """Every route, also of included routers."""
    for route in routes:
        if hasattr(route, "methods") and hasattr(route, "path"):
            yield route
        else:  # FastAPI keeps an included router as one
            yield from all_of(route.effective_candidates())


def routes_of(app: Any) -> set[str]:
    """Every method and path that an app answers, those outside of its description among them."""

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
    assert not AUDITED.keys() & NOT_AUDITED.keys()
    assert routes == AUDITED.keys() | NOT_AUDITED.keys()
    assert all(len(reason.split()) > 2 for reason in NOT_AUDITED.values())
    # a name for each of them, and for nothing else
    assert len(set(AUDITED.values())) == len(AUDITED)
    assert set(AUDITED.values()) >= CHANGES


def test_every_route_behind_the_token_has_a_decision_on_its_right(routes: set[str]) -> None:
    assert {route for route in routes if needs_token(route.split()[1])} == NEEDED.keys()
    # what tells or changes something of a picture needs a right of its own
    assert {route for route, right in NEEDED.items() if right is not None} == AUDITED.keys()
    for route, right in NEEDED.items():
        if right is not None:
            changing = {"add": "add", "erase": "delete"}.get(right)
            assert (AUDITED[route] in CHANGES) == (changing is not None)


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

    assert routes_of(app) - AUDITED.keys() - NOT_AUDITED.keys() == {"GET /v1/persons"}


def test_what_is_audited_leaves_a_line_and_nothing_else_does(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    settings = ServerSettings(audit=file, docs=True, changes=True, uploads=tmp_path / "uploads", rate=0)
    client = TestClient(create_app(Store(engine), settings), raise_server_exceptions=False)
    key = client.get("/v1/items").json()["items"][0]["id"]
    asked: dict[str, dict[str, Any]] = {
        "POST /v1/search": {"json": {"text": "a"}},
        "POST /v1/sentences": {"json": {"text": "a"}},
        "POST /v1/explain": {"json": {"text": "a", "id": key}},
        "POST /v1/export": {
            "json": {"form": "csv", "searches": [{"text": "a", "pictures": [{"id": key, "mark": "right"}]}]}
        },
        "POST /v1/erase": {"json": {}},
        "POST /v1/items": {
            "json": {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99)), "metadata": {"a": 1}}
        },
    }
    # the deletion last, after which the key is unknown
    for route in sorted(AUDITED.keys() | NOT_AUDITED.keys(), key=lambda route: (route[0] == "D", route)):
        before = len(file.read_text().splitlines())
        method, path = route.split()
        answer = client.request(method, path.format(id=key, name="app.js"), **asked.get(route, {}))
        assert answer.status_code < 300, answer.text
        lines = [json.loads(line) for line in file.read_text().splitlines()[before:]]
        name = AUDITED.get(route)
        assert [line["request"] for line in lines] == [name] * (0 if name is None else 1 + (name in CHANGES))
        if name is not None:
            # who, what, when, how many
            assert (lines[-1]["who"], lines[-1]["client"]) == (None, "testclient")
            assert lines[-1]["status"] == answer.status_code
            assert lines[-1]["count"] >= (name not in ("sentences", "erase"))
            assert (lines[0].get("id") == key) == ("{id}" in path or name == "explain")
    assert verify(file).sound


def test_refused_requests_leave_a_line_too(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    settings = ServerSettings(audit=file, token=SecretStr("0123456789abcdef"), rate=0)
    client = TestClient(create_app(Store(engine), settings))
    right = {"Authorization": "Bearer 0123456789abcdef"}
    for route, name in AUDITED.items():
        method, path = route.split()
        for headers, status, who in (({}, 401, None), (right, None, "--token-file")):
            before = len(file.read_text().splitlines())
            # an id that nothing has, or no body
            answer = client.request(method, path.format(id="0" * 32), headers=headers)
            (line,) = [json.loads(line) for line in file.read_text().splitlines()[before:]]
            assert (line["request"], line["status"], line["who"]) == (name, answer.status_code, who)
            assert status in (None, answer.status_code)
            assert ("refused" in line) == (answer.status_code >= 400)
            assert "found" not in line or answer.status_code < 400
