from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.access import LOCAL, is_loopback, read_token
from limner.server.app import create_app
from limner.server.page import FOLDER
from limner.server.settings import ServerSettings
from tests.server.serving import problem

TOKEN = "s3cret-s3cret-s3cret"


@pytest.fixture
def guarded(engine: Engine) -> TestClient:
    return TestClient(create_app(Store(engine), ServerSettings(token=SecretStr(TOKEN))))


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer ümläut",
    ],
)
@pytest.mark.parametrize("path", ["/v1/info", "/v1/images/" + "0" * 32, "/v1/nothing", "/metrics", "/page"])
def test_nothing_of_the_store_without_the_token(guarded: TestClient, path: str, given: str | None) -> None:
    headers = {} if given is None else {b"Authorization": given.encode()}
    response = guarded.get(path, headers=headers)
    body = problem(response, 401)
    assert response.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in response.text
    assert ("missing" in body["detail"]) == (given is None)


def test_the_token_opens(guarded: TestClient) -> None:
    for scheme in ("Bearer", "bearer"):
        assert guarded.get("/v1/info", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200
    assert guarded.get("/livez").json() == {"status": "ok"}
    assert guarded.get("/readyz").json()["status"] == "ok"
    assert guarded.get("/openapi.json").status_code == 200


def test_an_unauthorised_body_is_not_read(guarded: TestClient) -> None:
    # one that is too large would be 413 otherwise
    problem(guarded.post("/v1/search", content=b"x" * 20_000_000), 401)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "",
        "localhost.evil.example",
        "[::1",
        "evil@127.0.0.1",
        "localhost/evil",
        "localhost?evil",
        "127.0.0.1:80:90",
    ],
)
def test_other_names_are_refused_where_there_is_no_token(engine: Engine, host: str) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(hosts=LOCAL)))
    problem(client.get("/v1/info", headers={"Host": host}), 421)
    problem(client.get("/", headers={"Host": host}), 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:9", "[::1]:8000"])
def test_own_names_are_served(engine: Engine, host: str) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(hosts=LOCAL)))
    assert client.get("/v1/info", headers={"Host": host}).status_code == 200


def test_a_missing_root_path_is_hinted_at(guarded: TestClient) -> None:
    """As behind a proxy that serves it below a path, and tells it the whole one."""
    hint = "look at its root_path"
    assert hint in problem(guarded.get("/photos/v1/info"), 401)["detail"]
    assert hint not in problem(guarded.get("/v1/info"), 401)["detail"]


def test_what_needs_the_token(engine: Engine) -> None:
    routes = create_app(Store(engine), ServerSettings(docs=True)).state.routes

    def is_open(path: str, method: str = "GET") -> bool:
        found: bool = routes.find({"path": path, "method": method}).is_open
        return found

    for path in ("/", "/livez", "/readyz", "/health", "/docs", "/openapi.json", "/page/app.js"):
        assert is_open(path)
        assert is_open(path, "HEAD")
        assert is_open(path, "PUT")
    for path in ("/v1/info", "/metrics", "/page", "//", "/docs/", "", "/page/", "/page/a/b", "/v1/search"):
        assert not is_open(path)


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "localhost.example.org")))


def test_token_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {TOKEN}\n")
    assert read_token(file).get_secret_value() == TOKEN
    assert TOKEN not in repr(ServerSettings(token=read_token(file)))
    for content in (
        b"",
        b"short\n",
        b"two words are not a token",
        "schlüssel-schlüssel".encode(),
        b"\xff" * 20,
    ):
        file.write_bytes(content)
        with pytest.raises(SettingsError, match=r"at least 16 .*openssl"):
            read_token(file)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_token(tmp_path / "missing")


def test_requests_without_a_token_cost_the_right_one_nothing(engine: Engine) -> None:
    settings = ServerSettings(token=SecretStr(TOKEN), rate=0.1, burst=3)
    client = TestClient(create_app(Store(engine), settings))
    right = {"Authorization": f"Bearer {TOKEN}"}
    for _ in range(20):
        problem(client.get("/v1/info"), 401)
        problem(client.post("/v1/search", content=b"{"), 401)
    for _ in range(3):
        assert client.get("/v1/info", headers=right).status_code == 200
    problem(client.get("/v1/info", headers=right), 429)


def test_addresses_that_need_no_token_have_a_limit_of_their_own(engine: Engine) -> None:
    settings = ServerSettings(token=SecretStr(TOKEN), rate=0.1, burst=3)
    client = TestClient(create_app(Store(engine), settings))
    # a page has many files: four of them count as one request
    for path in ("/page/api.js", "/", "/page/app.js", "/page/app.js", "/", "/page/api.js"):
        assert client.get(path).status_code == 200
    problem(client.get("/page/app.js"), 429)
    problem(client.get("/"), 429)
    problem(client.get("/openapi.json"), 429)
    # load balancers, which strangers at their address must not keep out
    for path in ("/livez", "/readyz", "/health") * 3:
        assert client.get(path).status_code == 200
    assert client.get("/v1/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_ten_people_behind_one_address_load_the_page_at_once(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine)))
    for _ in range(10):
        assert client.get("/").status_code == 200
        assert {client.get(f"/page/{part.name}").status_code for part in FOLDER.iterdir()} == {200}


def test_guesses_are_counted_wherever_they_are_made(engine: Engine) -> None:
    settings = ServerSettings(token=SecretStr(TOKEN), rate=0.1, burst=3)
    client = TestClient(create_app(Store(engine), settings))
    right = {"Authorization": f"Bearer {TOKEN}"}
    for _ in range(5):
        assert client.get("/metrics", headers=right).status_code == 200
    for path in ("/metrics", "/v1/thumbnails/" + "0" * 32, "/v1/images/" + "0" * 32):
        problem(client.get(path, headers={"Authorization": "Bearer guess"}), 401)
    # further ones are refused more cheaply, and the right one is let in whatever others send from its address
    response = client.get("/metrics", headers={"Authorization": "Bearer guess"})
    problem(response, 429)
    assert response.headers["retry-after"] == "10"
    problem(client.get("/metrics"), 401)
    assert client.get("/metrics", headers=right).status_code == 200
    assert client.get("/health").status_code == 200
