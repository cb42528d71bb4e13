import re

from fastapi.testclient import TestClient

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from tests.server.serving import COUNT


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
    assert value(text, "limner_batch_queries_sum") == 4
    assert value(text, "limner_store_pictures") == COUNT
    assert value(text, "limner_waiting_requests") == 0


def test_apps_do_not_share_counters(client: TestClient, engine: Engine) -> None:
    client.get("/health")
    other = TestClient(create_app(Store(engine))).get("/metrics").text
    assert value(other, "limner_requests_total", route="/health", method="GET", status="200") == 0
