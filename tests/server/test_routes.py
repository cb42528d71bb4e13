"""No route by accident: each is in the docs and declares its rules, which hold."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.routing import Route

import limner
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.audit import verify
from limner.server.routes import Routes, Rules
from limner.server.settings import ServerSettings
from limner.store.folders import Folder, follow_folders
from tests.search.fake import draw
from tests.server.serving import HOME, base64_of

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
def app(engine: Engine, tmp_path: Path) -> FastAPI:
    settings = ServerSettings(docs=True, changes=True, uploads=tmp_path / "uploads")
    return create_app(Store(engine), settings)


@pytest.fixture
def routes(app: FastAPI) -> set[str]:
    return routes_of(app)


OPEN = {
    "GET /ping",
    *("GET /livez", "GET /readyz", "GET /health", "GET /openapi.json", "GET /docs"),
    *("GET /", "GET /page/{name}", "DELETE /v1/token"),
}
"""What tells nothing of a picture."""


def test_every_route_declares_its_rules(app: FastAPI, routes: set[str]) -> None:
    declared: dict[str, Rules] = app.state.routes.declared
    assert declared.keys() == routes - {"HEAD /"}
    assert {route for route, rules in declared.items() if rules.is_open} == OPEN
    audited = {route: rules for route, rules in declared.items() if rules.audit is not None}
    # of all that needs a token, only counts of requests and of files, and the token itself, leave no line
    assert audited.keys() == declared.keys() - OPEN - {"GET /metrics", "GET /v1/following", "POST /v1/token"}
    # a name for each of them, and a right of its own
    assert len({rules.audit for rules in audited.values()}) == len(audited)
    assert all(rules.right is not None for rules in audited.values())
    for route, rules in declared.items():
        method, path = route.split()
        reads = method == "GET" or path in (
            "/v1/search",
            "/v1/sentences",
            "/v1/explain",
            "/v1/export",
            "/v1/token",
            "/v1/embeddings",
            "/predict",
        )
        assert rules.changes == (rules.right in ("add", "erase")) == (not reads)
        # what may be long is a picture, and the judgements of an export
        body = app.openapi()["paths"].get(path, {}).get(method.lower(), {}).get("requestBody")
        schema = "" if body is None else body["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
        fields = app.openapi()["components"]["schemas"].get(schema, {}).get("properties", {})
        assert rules.large == ("image" in fields or path in ("/v1/export", "/v1/embeddings", "/predict"))
        # nothing of the page and the description is anybody's secret, so that these alone may run scripts
        assert ("sandbox" in (rules.policy or "")) == (path not in ("/", "/page/{name}", "/docs"))


def test_every_request_of_the_audit_log_is_in_the_docs(app: FastAPI) -> None:
    page = (DOCS / "server.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `request` \| (.*?); `alert-found`", page, re.MULTILINE)
    names = {rules.audit for rules in app.state.routes.declared.values()}
    assert set(re.findall(r"`([a-z-]+)`", row)) == names - {None}


def test_every_route_is_in_the_docs(routes: set[str]) -> None:
    page = next(DOCS.rglob("server.md")).read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", page, re.MULTILINE))
    own = {route for route in routes if "/page/" not in route and route.split()[1] not in ("/", "/docs")}
    assert documented == own - {"GET /openapi.json"}
    assert "/openapi.json" in page
    assert "/docs" in page


def test_a_route_that_declares_nothing_is_refused_and_an_unknown_address_needs_a_token(app: FastAPI) -> None:
    router = APIRouter()

    @router.get("/v1/persons")
    def persons() -> None:
        """A new route."""

    with pytest.raises(TypeError, match=r"/v1/persons: declares no rules"):
        Routes().add(router.routes)
    unknown: Rules = app.state.routes.find({"method": "GET", "path": "/v1/persons"})
    assert unknown == Rules()
    assert not unknown.is_open


@pytest.mark.parametrize("root", ["", "/pictures"])
def test_what_changes_the_store_is_known_before_it_is_routed(engine: Engine, root: str) -> None:
    changes = create_app(Store(engine), ServerSettings(root_path=root)).state.changes
    for method, path, expected in (
        ("POST", "/v1/items", True),
        ("POST", "/v1/erase", True),
        ("DELETE", "/v1/items/" + "0" * 32, True),
        ("GET", "/v1/items", False),
        ("POST", "/v1/search", False),
        ("POST", "/other/v1/items", False),
    ):
        assert changes({"method": method, "path": root + path}) is expected


def test_what_is_audited_leaves_a_line_and_nothing_else_does(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    allowed = {"changes": True, "uploads": tmp_path / "uploads", "watch": True, "alerts": True}
    follow_folders(engine.files, [Folder(str(tmp_path / HOME))])
    app = create_app(Store(engine), ServerSettings(audit=file, docs=True, rate=0, **allowed))
    declared: dict[str, Rules] = app.state.routes.declared
    client = TestClient(app, raise_server_exceptions=False)
    key = client.get("/v1/items").json()["items"][0]["id"]
    asked: dict[str, dict[str, Any]] = {
        "POST /v1/search": {"json": {"text": "a"}},
        "POST /v1/sentences": {"json": {"text": "a"}},
        "POST /v1/explain": {"json": {"text": "a", "id": key}},
        "POST /v1/export": {
            "json": {"form": "csv", "searches": [{"text": "a", "pictures": [{"id": key, "mark": "right"}]}]}
        },
        "POST /v1/embeddings": {"json": {"input": "a"}},
        "POST /predict": {"data": {"entries": '{"clip": {}}', "text": "a"}},
        "POST /v1/erase": {"json": {}},
        "POST /v1/alerts": {"json": {"name": "app.js", "text": "a", "at_least": 1.0}},
        "POST /v1/items": {
            "json": {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99)), "metadata": {"a": 1}}
        },
    }
    # the deletion last, after which the key is unknown
    for route in sorted(declared, key=lambda route: (route[0] == "D", route)):
        before = len(file.read_text().splitlines())
        method, path = route.split()
        answer = client.request(method, path.format(id=key, name="app.js"), **asked.get(route, {}))
        assert answer.status_code < 300, answer.text
        lines = [json.loads(line) for line in file.read_text().splitlines()[before:]]
        name = declared[route].audit
        expected = 0 if name is None else 1 + declared[route].changes
        assert [line["request"] for line in lines] == [name] * expected
        if name is not None:
            # who, what, when, how many
            assert (lines[-1]["who"], lines[-1]["client"]) == (None, "testclient")
            assert lines[-1]["status"] == answer.status_code
            none = "sentences", "erase", "embeddings", "predict"
            assert lines[-1]["count"] >= (name not in none and "alert" not in name)
            assert (lines[0].get("id") == key) == ("{id}" in path or name == "explain")
    assert verify(file).sound


def test_refused_requests_leave_a_line_too(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    settings = ServerSettings(audit=file, token=SecretStr("0123456789abcdef"), rate=0)
    app = create_app(Store(engine), settings)
    client = TestClient(app)
    right = {"Authorization": "Bearer 0123456789abcdef"}
    audited = {route: rules.audit for route, rules in app.state.routes.declared.items() if rules.audit}
    for route, name in audited.items():
        method, path = route.split()
        for headers, status, who in (({}, 401, None), (right, None, "--token-file")):
            before = len(file.read_text().splitlines())
            # an id that nothing has, or no body
            answer = client.request(method, path.format(id="0" * 32, name="a"), headers=headers)
            (line,) = [json.loads(line) for line in file.read_text().splitlines()[before:]]
            assert (line["request"], line["status"], line["who"]) == (name, answer.status_code, who)
            assert status in (None, answer.status_code)
            assert ("refused" in line) == (answer.status_code >= 400)
            assert "found" not in line or answer.status_code < 400


def test_no_route_takes_a_parameter_that_it_has_not(app: FastAPI, routes: set[str]) -> None:
    """But for the page and FastAPI's own description."""
    client = TestClient(app, headers={"Content-Type": "application/json"})
    outside = {"GET /", "HEAD /", "GET /page/{name}", "GET /docs", "GET /openapi.json"}
    assert outside <= routes
    for route in sorted(routes):
        method, path = route.split()
        answer = client.request(method, re.sub("{.*?}", "x", path), params={"limt": 3})
        if route not in outside:
            assert answer.status_code == 422, route
            assert answer.json()["errors"][0]["loc"] == ["query", "limt"], route
        else:
            assert answer.status_code in (200, 404), route
    told = client.get("/v1/items", params={"limt": 3}).json()["detail"]
    assert told == "limt: unknown parameter; did you mean 'limit'?"
    told = client.get("/v1/info", params={"limt": 3}).json()["detail"]
    assert told == "limt: unknown parameter; known here: none"
