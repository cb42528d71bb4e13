import pytest
from fastapi.testclient import TestClient

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import limits as rate
from limner.server.app import create_app
from limner.server.limits import Buckets, address_of, client_of
from limner.server.settings import ServerSettings
from tests.server.serving import problem


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_empties_and_fills() -> None:
    clock = Clock()
    buckets = Buckets(2.0, 3, clock)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0
    clock.now += 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    clock.now += 1000
    assert [buckets.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "_CLIENTS", 5)
    buckets = Buckets(1.0, 1, Clock())
    for number in range(100):
        assert buckets.take(str(number)) == 0
    assert len(buckets._levels) == 5
    assert buckets.take("99") > 0


def test_too_many_requests(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(rate=0.1, burst=2)))
    key = client.get("/v1/items").json()["items"][0]["id"]
    assert client.get("/v1/info").status_code == 200
    response = client.get("/v1/info")
    problem(response, 429)
    assert int(response.headers["retry-after"]) == 10
    # pictures of a page of results, and what tells nothing, are not counted
    for path in (f"/v1/thumbnails/{key}", f"/v1/images/{key}", "/health", "/metrics"):
        assert client.get(path).status_code == 200
    problem(client.post("/v1/search", json={"text": "a"}), 429)


def test_no_limit(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(rate=0, burst=1)))
    assert {client.get("/v1/items").status_code for _ in range(5)} == {200}


def test_clients() -> None:
    one, other = ("2001:db8:1:2:3:4:5:6", 1), ("2001:db8:1:2:ffff::", 2)
    assert client_of({"client": one}) == client_of({"client": other}) == "2001:db8:1:2::"
    assert client_of({"client": ("10.0.0.1", 1)}) == "10.0.0.1"
    assert client_of({"client": ("::ffff:10.0.0.1", 1)}) == "10.0.0.1"
    assert client_of({"client": ("testclient", 1)}) == "testclient"
    assert client_of({"client": None}) == client_of({}) == "unknown"


@pytest.mark.parametrize(
    "told", ["2001:db8::/32", "1.2.3.4:" + "5" * 5_000, "::1%" + "z" * 90, ":", "a" * 9_000, ""]
)
def test_what_a_proxy_hands_on_may_be_no_address(told: str) -> None:
    assert len(client_of({"client": (told, 0)})) <= 45
    assert len(address_of({"client": (told, 0)})) <= 45


def test_the_record_has_the_whole_address() -> None:
    assert address_of({"client": ("2001:db8:1:2:3:4:5:6", 1)}) == "2001:db8:1:2:3:4:5:6"
    assert address_of({"client": ("::ffff:10.0.0.1", 1)}) == "10.0.0.1"
    assert address_of({}) == "unknown"
