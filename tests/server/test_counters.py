import re
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pytest
import torch
from fastapi.testclient import TestClient

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import add_token
from limner.store.sqlite_rows import SqliteRows
from tests.server.serving import COUNT, base64_of


def value(text: str, name: str, **labels: str) -> float:
    """The value of one counter; 0 where it is not there."""
    for line in text.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")) == labels:
            return float(found[2])
    return 0.0


def test_what_is_counted(client: TestClient, engine: Engine) -> None:
    for _ in range(3):
        client.post("/v1/search", json={"text": "a"})
    client.post("/v1/search", json={"text": " "})
    client.get("/v1/items/" + "0" * 32)
    client.get("/v1/items/" + "1" * 32)
    client.get("/made/up")
    client.request("BREW", "/made/up")
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    text = response.text
    asked = {"route": "/v1/search", "method": "POST"}
    assert value(text, "limner_requests_total", **asked, status="200") == 3
    assert value(text, "limner_requests_total", **asked, status="409") == 1
    assert value(text, "limner_request_seconds_count", route="/v1/search") == 4
    missing = {"route": "/v1/items/{id}", "method": "GET", "status": "404"}
    assert value(text, "limner_requests_total", **missing) == 2
    assert value(text, "limner_requests_total", route="other", method="GET", status="404") == 1
    assert value(text, "limner_requests_total", route="other", method="other", status="404") == 1
    assert value(text, "limner_refusals_total", reason="unanswerable") == 1
    assert value(text, "limner_refusals_total", reason="unknown") == 4
    assert value(text, "limner_batch_queries_sum") == 4
    assert value(text, "limner_queue_wait_seconds_count") == 4
    for stage, times in (("search", 3), ("rerank", 0), ("decode", 0)):
        assert value(text, "limner_stage_seconds_count", stage=stage) == times
    assert 1 <= value(text, "limner_stage_seconds_count", stage="encode") <= 3
    assert value(text, "limner_model_info", fingerprint=engine.files.fingerprint) == 1
    versions = {"version": version("limner"), "python": python_version(), "torch": torch.__version__}
    assert value(text, "limner_build_info", **versions) == 1
    commit = engine.files.rows.changed_at()
    assert value(text, "limner_last_commit_timestamp_seconds") == pytest.approx(commit, abs=0.01)
    assert value(text, "limner_store_pictures") == COUNT
    assert value(text, "limner_waiting_requests") == 0


def test_what_is_refused_for_its_token_counts_under_its_route(engine: Engine, tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens", "searcher", ["search"])
    settings = ServerSettings(tokens=tmp_path / "tokens", changes=True)
    allowed = {"Authorization": f"Bearer {token}"}
    with TestClient(create_app(Store(engine), settings)) as client:
        assert client.post("/v1/items", json={}, headers=allowed).status_code == 403
        assert client.delete("/v1/items/" + "0" * 32).status_code == 401
        assert client.delete("/v1/items", headers=allowed).status_code == 405
        assert client.get("/made/up").status_code == 401
        text = client.get("/metrics", headers=allowed).text
    for route, method, status in (
        ("/v1/items", "POST", "403"),
        ("/v1/items/{id}", "DELETE", "401"),
        ("/v1/items", "DELETE", "405"),
        ("other", "GET", "401"),
    ):
        assert value(text, "limner_requests_total", route=route, method=method, status=status) == 1


def test_apps_do_not_share_counters(client: TestClient, engine: Engine) -> None:
    client.get("/health")
    other = TestClient(create_app(Store(engine))).get("/metrics").text
    assert value(other, "limner_requests_total", route="/health", method="GET", status="200") == 0


def test_seconds_of_pictures_and_reasons_of_refusals(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(rate=0, max_waiting=1)
    app = create_app(Store(engine), settings)
    with TestClient(app, raise_server_exceptions=False) as client:
        picture = base64_of(next(tmp_path.rglob("*.png")))
        assert client.post("/v1/search", json={"image": picture}).status_code == 200
        app.state.refused("slow")
        app.state.turn_away()
        assert client.post("/v1/search", json={"text": "a"}).status_code == 503
        assert client.get("/readyz").status_code == 503
        text = client.get("/metrics").text
    assert value(text, "limner_stage_seconds_count", stage="decode") == 1
    assert value(text, "limner_stage_seconds_count", stage="encode") == 1
    for reason in ("slow", "stopping", "not-ready"):
        assert value(text, "limner_refusals_total", reason=reason) == 1


def test_a_scrape_reads_no_disk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with TestClient(create_app(Store(engine), ServerSettings(probe_interval=60))) as client:
        assert client.get("/readyz").status_code == 200

        def hangs(*args: object) -> None:
            raise AssertionError("a scrape must not wait for a disk")

        monkeypatch.setattr(SqliteRows, "reading", hangs)
        monkeypatch.setattr(type(engine.files), "follow", hangs)
        assert value(client.get("/metrics").text, "limner_store_pictures") == COUNT
