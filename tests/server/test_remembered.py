"""A token that the browser remembers in a cookie, what other sites can do with it, and tokens that expire."""

import json
from datetime import UTC, date, datetime, timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.access import COOKIE
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import Token, add_token, read_tokens
from tests.search.fake import draw
from tests.server.serving import base64_of, problem

SIGNS = 'odd;signs,"in=a\\token'
"""A token with signs that no cookie may have."""


def served(engine: Engine, tmp_path: Path, **more: Any) -> FastAPI:
    settings = ServerSettings(token=SecretStr(SIGNS), changes=True, uploads=tmp_path / "uploads", **more)
    return create_app(Store(engine), settings)


def remembered(client: TestClient) -> SimpleCookie:
    response = client.post("/v1/token", headers={"Authorization": f"Bearer {SIGNS}"})
    assert (response.status_code, response.content) == (204, b"")
    return SimpleCookie(response.headers["set-cookie"])


@pytest.mark.parametrize(("root", "base"), [("", "http://testserver"), ("/photos", "https://testserver")])
def test_the_cookie_is_of_this_server_alone_and_no_script_reads_it(
    engine: Engine, tmp_path: Path, root: str, base: str
) -> None:
    with TestClient(served(engine, tmp_path, root_path=root, thumbnail_seconds=60), base_url=base) as client:
        (cookie,) = remembered(client).values()
        assert (cookie.key, cookie["path"], cookie["samesite"]) == (COOKIE, f"{root}/", "strict")
        assert cookie["httponly"] is True
        assert bool(cookie["secure"]) == base.startswith("https")
        assert SIGNS not in cookie.value
        assert int(cookie["max-age"]) == 90 * 86_400
        # by the cookie alone, for what the browser asks for by itself, too
        key = client.get(f"{root}/v1/items").json()["items"][0]["id"]
        assert client.get(f"{root}/v1/thumbnails/{key}").status_code == 200
        assert client.get(f"{root}/v1/thumbnails/{key}").headers["vary"] == "Authorization, Cookie"
        # a header counts before it
        problem(client.get(f"{root}/v1/info", headers={"Authorization": "Bearer wrong"}), 401)
        assert client.delete(f"{root}/v1/token").status_code == 204
        assert not client.cookies
        problem(client.get(f"{root}/v1/info"), 401)


def test_nothing_is_remembered_without_the_token(engine: Engine, tmp_path: Path) -> None:
    with TestClient(served(engine, tmp_path, rate=1, burst=3)) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            response = client.post("/v1/token", headers=headers)
            problem(response, 401)
            assert "set-cookie" not in response.headers
        # guesses by cookies are slowed down as others are
        codes = [
            client.get("/v1/info", headers={"Cookie": f"{COOKIE}=d3Jvbmc="}).status_code for _ in range(5)
        ]
        assert codes[-1] == 429
    with TestClient(create_app(Store(engine))) as client:
        response = client.post("/v1/token", headers={"Host": "localhost"})
        assert "set-cookie" not in response.headers


@pytest.mark.parametrize("where", ["cross-site", "same-site"])
def test_another_site_cannot_use_the_cookie(engine: Engine, tmp_path: Path, where: str) -> None:
    """`SameSite=Strict` keeps it from other sites; here is what a browser sends for another port of the same host."""
    picture = base64_of(draw(tmp_path / "new.png", 9))
    body = json.dumps({"name": "new.png", "image": picture})
    with TestClient(served(engine, tmp_path)) as client:
        remembered(client)
        there = client.get("/v1/items").json()
        key = there["items"][0]["id"]
        theirs = {"Sec-Fetch-Site": where}
        problem(client.get("/v1/info", headers=theirs), 401)
        problem(client.delete(f"/v1/items/{key}", headers=theirs), 401)
        problem(
            client.post("/v1/items", content=body, headers=theirs | {"Content-Type": "application/json"}), 401
        )
        # a browser that does not say where a request is from: a form has no JSON, and whatever has it is asked about
        # first
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            problem(client.post("/v1/items", content=body, headers={"Content-Type": kind}), 422)
            problem(client.post("/v1/erase", content="{}", headers={"Content-Type": kind}), 422)
        asked = {"Origin": "http://other.test", "Access-Control-Request-Method": "DELETE"}
        for path in (f"/v1/items/{key}", "/v1/items", "/v1/erase"):
            answer = client.options(path, headers=asked)
            assert answer.status_code >= 400
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert client.get("/v1/items").json() == there


def test_a_token_expires_after_its_last_day(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = datetime.now(UTC).date()
    file = tmp_path / "tokens.json"
    token = add_token(file, "ann", ["search"], expires=today)
    add_token(file, "bob", ["search"])
    assert [one.expires for one in read_tokens(file)] == [today, None]
    with pytest.raises(SettingsError, match="would have expired already"):
        add_token(file, "eve", ["search"], expires=today - timedelta(days=1))
    with TestClient(create_app(Store(engine), ServerSettings(tokens=file, rate=0))) as client:
        held = {"Authorization": f"Bearer {token}"}
        assert client.get("/v1/info", headers=held).status_code == 200
        assert client.post("/v1/token", headers=held).status_code == 204
        file.write_text(file.read_text().replace(str(today), str(today - timedelta(days=1))))
        for headers in (held, {}):
            assert "has expired" in problem(client.get("/v1/info", headers=headers), 401)["detail"]
    assert not Token("ann", frozenset(), "", None).has_expired
    assert not Token("ann", frozenset(), "", date.max).has_expired
