"""HEAD, compressed answers and thumbnails that browsers keep, of a running server."""

import gzip
import json
import random
import re
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server import answer_forms
from limner.server.answer_forms import takes_gzip
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.store.erase import erase
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import COUNT, HOME, problem
from tests.server.test_counters import value
from tests.server.test_routes import routes_of

TOKEN = "0123456789abcdef"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
QUESTION = {"text": "a red coat", "k": 3}
LATER = re.compile(r"^(date|x-request-id|content-length|etag)$")


def keys_of(url: str) -> list[str]:
    return [item["id"] for item in httpx.get(f"{url}/v1/items").json()["items"]]


# HEAD


def test_head_is_answered_as_get_wherever_get_is(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(rate=0, audit=tmp_path / "audit", thumbnail_seconds=60)
    app = create_app(Store(engine), settings)
    gets = sorted(path.split()[1] for path in routes_of(app) if path.startswith("GET "))
    assert len(gets) >= 12
    with running(app, settings) as url, httpx.Client(base_url=url) as client:
        key = keys_of(url)[0]
        for path in gets:
            address = path.format(id=key, name="app.js")
            got, head = client.get(address), client.head(address)
            assert (head.status_code, head.content) == (200, b""), path
            # times and numbers in a body move its length
            assert headers_of(head) == headers_of(got), path
        assert client.head("/v1/images/" + key).headers["content-length"] == str(
            len(client.get("/v1/images/" + key).content)
        )
        # on the same connection: a body behind the head would be taken for the next answer
        assert client.head(f"/v1/items/{'0' * 32}").status_code == 404
        refused = client.head("/v1/search")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert set(client.put("/v1/items").headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
        assert client.post("/v1/search", json=QUESTION).status_code == 200
        counted = client.get("/metrics").text
    assert value(counted, "limner_requests_total", route="/v1/items/{id}", method="HEAD", status="404") == 1
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    # HEAD tells that a picture is there, and how large it is
    of_images = [line for line in lines if line["request"] == "image"]
    assert [line["found"] for line in of_images] == [[key]] * 4


def headers_of(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if not LATER.match(name)}


def test_head_needs_the_right_of_get(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(token=SecretStr(TOKEN))))
    assert client.head("/v1/items").status_code == 401
    assert client.head("/v1/items", headers=BEARER).status_code == 200


def test_head_of_pictures_has_no_rate(engine: Engine) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(rate=0.001, burst=2)))
    key = client.get("/v1/items").json()["items"][0]["id"]
    assert [client.head(f"/v1/thumbnails/{key}").status_code for _ in range(4)] == [200] * 4
    assert [client.head("/v1/items").status_code for _ in range(2)] == [200, 429]


# gzip


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br, gzip;q=0.1", True),
        ("gzip; q=0", False),
        ("gzip;q=0.000, *", False),
        ("*", True),
        ("*;q=0", False),
        ("", False),
        ("identity", False),
        ("xgzip, gzipper", False),
        ("gzip;q=", False),
        (",;,gzip", True),
    ],
)
def test_who_takes_gzip(accepted: str, takes: bool) -> None:
    assert takes_gzip(accepted) == takes


def test_text_is_compressed_for_those_who_take_it(engine: Engine, tmp_path: Path) -> None:
    picture = draw(tmp_path / "new" / "a.png", 30)
    index_pictures(engine.encoder, engine.files, [picture], metadata={str(picture): {"note": "x" * 200_000}})
    settings = ServerSettings(rate=0)
    with running(create_app(Store(engine), settings), settings) as url, httpx.Client(base_url=url) as client:
        for path in ("/", "/page/app.js", "/page/style.css", "/openapi.json", "/v1/items"):
            plain = client.get(path, headers={"Accept-Encoding": "identity"})
            assert "content-encoding" not in plain.headers
            packed = client.get(path, headers={"Accept-Encoding": "br, gzip"})
            assert packed.headers["content-encoding"] == "gzip"
            # or a cache would hand the one out for the other
            assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
            assert packed.content == plain.content
            assert int(packed.headers["content-length"]) < 0.6 * len(plain.content)
        key = client.get("/v1/items").json()["items"][0]["id"]
        # pictures, what is small, and problems, which may repeat what a client has sent
        for path in (f"/v1/images/{key}", f"/v1/thumbnails/{key}", "/livez", "/metrics"):
            assert "content-encoding" not in client.get(path).headers, path
        refused = client.post("/v1/search", json={f"x{number}": "y" * 100 for number in range(20)})
        assert len(refused.content) > 1024
        assert "content-encoding" not in refused.headers
        problem(refused, 422)


def test_what_is_open_to_all_is_compressed_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compress = gzip.compress

    def counting(body: bytes, *args: Any, **kwargs: Any) -> bytes:
        made.append(len(body))
        return compress(body, *args, **kwargs)

    monkeypatch.setattr(gzip, "compress", counting)
    answer_forms._kept.cache_clear()
    client = TestClient(create_app(Store(engine), ServerSettings(token=SecretStr(TOKEN))))
    for _ in range(3):
        assert client.get("/page/style.css").headers["content-encoding"] == "gzip"
    assert len(made) == 1


def test_a_slow_reader_of_a_compressed_answer_holds_up_nobody(engine: Engine, tmp_path: Path) -> None:
    """Ten clients read a few bytes of a large answer now and then; the others are answered."""
    pictures = [draw(tmp_path / "new" / f"{seed}.png", seed) for seed in range(30, 34)]
    # what gzip cannot make small
    notes = {str(path): {"note": random_text(700_000, seed)} for seed, path in enumerate(pictures)}
    index_pictures(engine.encoder, engine.files, pictures, metadata=notes)
    settings = ServerSettings(rate=0, max_answer=2**23, answer_seconds=3)
    app = create_app(Store(engine), settings)
    with running(app, settings) as url:
        host, port = url.removeprefix("http://").split(":")
        slow = []
        for _ in range(10):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(20)
            one.connect((host, int(port)))
            one.sendall(b"GET /v1/items HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
            slow.append(one)
        for one in slow:
            assert b"content-encoding: gzip" in one.recv(1000)
        for _ in range(5):
            # each of them waits for the next piece of an answer that is not read
            assert httpx.post(f"{url}/v1/search", json=QUESTION, timeout=20).status_code == 200
            for one in slow:
                one.recv(100)
        # no byte that is read moves the limit of a whole answer
        until = time.monotonic() + 20
        while time.monotonic() < until and app.state.unread():
            for one in slow:
                one.recv(100)
            time.sleep(0.1)
        assert not app.state.unread()
        for one in slow:
            one.close()
        assert len(httpx.get(f"{url}/v1/items", timeout=20).json()["items"]) == COUNT + 4


def random_text(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


# thumbnails


def test_thumbnails_are_not_kept_unless_the_owner_says_so(client: TestClient) -> None:
    key = client.get("/v1/items").json()["items"][0]["id"]
    answer = client.get(f"/v1/thumbnails/{key}", headers={"If-None-Match": "*"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert "etag" not in answer.headers


def test_a_browser_that_has_a_thumbnail_is_told_so(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(rate=0, thumbnail_seconds=600, audit=tmp_path / "audit", token=SecretStr(TOKEN))
    with (
        running(create_app(Store(engine), settings), settings) as url,
        httpx.Client(base_url=url, headers=BEARER) as client,
    ):
        keys = [item["id"] for item in client.get("/v1/items").json()["items"]]
        first, other = (client.get(f"/v1/thumbnails/{key}") for key in keys[:2])
        tag = first.headers["etag"]
        assert first.headers["cache-control"] == "private, max-age=600"
        assert first.headers["vary"] == "Authorization, Cookie"
        assert (first.headers["content-type"], tag != other.headers["etag"]) == ("image/jpeg", True)
        address = f"/v1/thumbnails/{keys[0]}"
        for asked in (tag, f'"x", W/{tag}', "*"):
            same = client.get(address, headers={"If-None-Match": asked})
            assert (same.status_code, same.content) == (304, b"")
            assert {name: same.headers[name] for name in ("etag", "cache-control", "vary")} == {
                name: first.headers[name] for name in ("etag", "cache-control", "vary")
            }
            assert client.head(address, headers={"If-None-Match": asked}).status_code == 304
        for asked in ('"x"', "", other.headers["etag"]):
            assert client.get(address, headers={"If-None-Match": asked}).content == first.content
        # nobody learns without the token that the picture is the same
        assert httpx.get(url + address, headers={"If-None-Match": tag}).status_code == 401
        # the pictures themselves stay on no disk
        assert client.get(f"/v1/images/{keys[0]}").headers["cache-control"] == "no-store"
        assert client.get(f"/v1/thumbnails/{'0' * 32}").headers["cache-control"] == "no-store"
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["found"] for line in lines if line.get("status") == 304] == [[keys[0]]] * 6


def test_304_is_for_no_picture_that_was_replaced_deleted_or_erased(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(rate=0, thumbnail_seconds=600, changes=True)
    with running(create_app(Store(engine), settings), settings) as url, httpx.Client(base_url=url) as client:
        keys = keys_of(url)
        tags = [client.get(f"/v1/thumbnails/{key}").headers["etag"] for key in keys]

        def asked_again(place: int) -> httpx.Response:
            return client.get(f"/v1/thumbnails/{keys[place]}", headers={"If-None-Match": tags[place]})

        assert asked_again(0).status_code == 304
        replaced = draw(tmp_path / HOME / "0.png", 99)
        index_pictures(engine.encoder, engine.files, [replaced])
        new = asked_again(0)
        assert (new.status_code, new.headers["etag"] != tags[0]) == (200, True)
        assert client.delete(f"/v1/items/{keys[1]}").status_code == 200
        problem(asked_again(1), 404)
        assert client.post("/v1/erase", json={"ids": [keys[2]]}).json()["pictures"] == 1
        problem(asked_again(2), 404)
        # by another process
        erase(engine.files, [keys[3]])
        problem(asked_again(3), 404)
        assert asked_again(4).status_code == 304
