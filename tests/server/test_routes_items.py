import base64
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from limner.data.images import encoded_anew
from limner.search.engine import Engine
from limner.search.store import Store
from limner.search.sync import sync
from limner.server import turns
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.uploads import Changes
from limner.store.folders import Folder, follow_folders
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import COUNT, HOME, added_to, base64_of, problem


@pytest.fixture
def changing(engine: Engine, tmp_path: Path) -> TestClient:
    settings = ServerSettings(changes=True, uploads=tmp_path / "uploads")
    return TestClient(create_app(Store(engine), settings), raise_server_exceptions=False)


def test_lists_in_parts(client: TestClient) -> None:
    body = client.get("/v1/items").json()
    assert body["total"] == COUNT
    assert [item["name"] for item in body["items"]] == [f"{seed}.png" for seed in range(COUNT)]
    first = body["items"][0]
    assert first == {
        "id": first["id"],
        "name": "0.png",
        "identity": "even",
        "metadata": {"camera": 1},
        "taken": "2026-11-10T08:00:00",
        "taken_from": "told",
    }
    assert client.get(f"/v1/items/{first['id']}").json() == first
    part = client.get("/v1/items", params={"offset": 6, "limit": 5}).json()
    assert ([item["name"] for item in part["items"]], part["total"]) == (["6.png", "7.png"], COUNT)
    assert client.get("/v1/items", params={"offset": 2**53}).json() == {"items": [], "total": COUNT}
    some = client.get("/v1/items", params={"where": ["camera=2", "taken>=2026-11-14"], "limit": 1}).json()
    assert ([item["name"] for item in some["items"]], some["total"]) == (["5.png"], 2)


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1",
        "limit=0",
        "limit=501",
        "offset=a",
        "offset=99999999999999999999",
        "where=camera",
        f"where=a={'1' * 200}",
    ],
)
def test_parts_that_are_none(client: TestClient, query: str) -> None:
    problem(client.get(f"/v1/items?{query}"), 422)


@pytest.mark.parametrize("kind", ["items", "images", "thumbnails"])
@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("0" * 32, 404),
        ("F" * 32, 422),
        ("0.png", 422),
        ("%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
        ("..%5c..%5cboot.ini", 422),
        ("../../etc/passwd", 404),
        ("0" * 32 + "%00", 422),
        ("0" * 32 + "%0a", 422),
        ("%27%20OR%201=1--", 422),
    ],
)
def test_keys_that_are_none(client: TestClient, kind: str, key: str, status: int) -> None:
    problem(client.get(f"/v1/{kind}/{key}"), status)


def test_methods_that_are_not_there(client: TestClient) -> None:
    response = client.put("/v1/items", json={})
    problem(response, 405)
    assert {one.strip() for one in response.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}
    response = client.post("/v1/items/" + "0" * 32)
    problem(response, 405)
    assert {one.strip() for one in response.headers["allow"].split(",")} == {"GET", "HEAD", "DELETE"}
    problem(client.post("/page/app.js"), 405)


def test_changes_are_off(client: TestClient, engine: Engine, tmp_path: Path) -> None:
    key = client.get("/v1/items").json()["items"][0]["id"]
    added = {"name": "a.png", "image": base64_of(tmp_path / HOME / "0.png")}
    assert "--allow-changes" in problem(client.delete(f"/v1/items/{key}"), 403)["detail"]
    assert "--allow-changes" in problem(client.post("/v1/items", json=added), 403)["detail"]
    deleting = TestClient(create_app(Store(engine), ServerSettings(changes=True)))
    assert "--uploads" in problem(deleting.post("/v1/items", json=added), 403)["detail"]
    assert len(engine.files) == COUNT


def test_delete(changing: TestClient, engine: Engine, tmp_path: Path) -> None:
    item = changing.get("/v1/items").json()["items"][3]
    response = changing.delete(f"/v1/items/{item['id']}")
    assert (response.status_code, response.json()) == (200, {"returning": 0})
    assert (tmp_path / HOME / item["name"]).exists()
    for again in (changing.delete, changing.get):
        problem(again(f"/v1/items/{item['id']}"), 404)
    problem(changing.get(f"/v1/images/{item['id']}"), 404)
    found = changing.post("/v1/search", json={"text": "a", "k": 50}).json()
    assert item["id"] not in [hit["id"] for hit in found["hits"]]
    assert found["total"] == len(engine.files) == COUNT - 1


def test_add_and_find(changing: TestClient, tmp_path: Path) -> None:
    picture = draw(tmp_path / "elsewhere" / "new.png", 99)
    body = {
        "name": "../../new.png",
        "image": base64_of(picture),
        "identity": "17",
        "metadata": {"camera": 9, "taken": "2026-12-01T10:00:00"},
    }
    response = changing.post("/v1/items", json=body)
    assert response.status_code == 201, response.text
    item = response.json()
    assert item == {
        "id": item["id"],
        "name": "../../new.png",
        "identity": "17",
        "metadata": {"camera": 9, "name": "../../new.png"},
        "taken": "2026-12-01T10:00:00",
        "taken_from": "told",
    }
    (file,) = added_to(tmp_path / "uploads")
    assert len(file.stem) == 64
    assert file.suffix == ".png"
    best = changing.post("/v1/search", json={"image": body["image"], "k": 1}).json()["hits"][0]
    assert (best["id"], best["name"]) == (item["id"], "../../new.png")
    assert changing.get(f"/v1/images/{item['id']}").content == encoded_anew(picture.read_bytes())[0]
    # the same bytes: what is not sent stays
    plain = {name: body[name] for name in ("image", "name")}
    assert changing.post("/v1/items", json=plain).json() == item
    assert changing.post("/v1/items", json={**plain, "metadata": {"camera": 8}}).json()["identity"] == "17"
    assert changing.post("/v1/items", json={**plain, "identity": "18"}).json()["metadata"]["camera"] == 8
    again = changing.post("/v1/items", json={**body, "name": "b.png", "identity": None}).json()
    assert (again["id"], again["name"], again["identity"]) == (item["id"], "b.png", None)
    assert changing.post("/v1/items", json={**body, "identity": ""}).json()["identity"] is None
    assert changing.get("/v1/info").json()["pictures"] == COUNT + 1
    assert changing.delete(f"/v1/items/{item['id']}").status_code == 200
    assert not file.exists()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"image": base64.b64encode(b"no picture").decode()}, 409),
        ({"image": "AAA"}, 422),
        ({"image": "****"}, 422),
        ({"name": ""}, 422),
        ({"name": "a" * 201}, 422),
        ({"path": "/etc/passwd"}, 422),
        ({"metadata": {"taken": "yesterday"}}, 409),
        ({"metadata": []}, 422),
        ({"metadata": {"path": "/etc/passwd"}}, 422),
        *(
            ({"metadata": {name: 1}}, 422)
            for name in ("", " ", "path ", " path", "\tnote", "note\n", "a\u00a0")
        ),
        ({"metadata": {"note": "x" * 17_000}}, 413),
        ({"metadata": {str(number): 1 for number in range(51)}}, 422),
        ({"identity": 17}, 422),
    ],
)
def test_what_cannot_be_added(
    changing: TestClient, engine: Engine, tmp_path: Path, change: dict[str, object], status: int
) -> None:
    body = {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99)), **change}
    problem(changing.post("/v1/items", json=body), status)
    assert len(engine.files) == COUNT
    assert added_to(tmp_path / "uploads") == []


def test_erase(changing: TestClient, engine: Engine, tmp_path: Path) -> None:
    picture = draw(tmp_path / "elsewhere" / "new.png", 99)
    body = {"name": "new.png", "image": base64_of(picture), "identity": "anybody else"}
    added = changing.post("/v1/items", json=body).json()
    (file,) = added_to(tmp_path / "uploads")
    owned = changing.get("/v1/items").json()["items"][0]
    owner = next(path for path in (tmp_path / HOME).iterdir() if path.name == owned["name"])
    response = changing.post("/v1/erase", json={"ids": [owned["id"]], "identity": "anybody else"})
    report = response.json()
    assert (response.status_code, report["pictures"], report["uploads"], report["found"]) == (200, 2, 1, [])
    assert str(tmp_path) not in response.text
    assert (file.exists(), owner.exists()) == (False, True)
    below = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    for one in (added, owned):
        assert one["id"].encode() not in below
        problem(changing.get(f"/v1/items/{one['id']}"), 404)
    found = changing.post("/v1/search", json={"text": "a", "k": 50}).json()
    assert found["total"] == len(found["hits"]) == len(engine.files) == COUNT - 1
    # what was deleted alone is still there
    gone = changing.get("/v1/items").json()["items"][0]["id"]
    assert changing.delete(f"/v1/items/{gone}").status_code == 200
    assert changing.post("/v1/erase", json={}).json()["left"] == COUNT - 2
    below = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert gone.encode() not in below


def test_what_the_next_look_at_the_folders_brings_back_is_said(
    changing: TestClient, engine: Engine, tmp_path: Path
) -> None:
    """Without what was told of it: an erasure by identity would miss it."""
    home, uploads = tmp_path / HOME, tmp_path / "uploads"
    upload = base64_of(draw(tmp_path / "new.png", 99))
    added = changing.post("/v1/items", json={"name": "new.png", "image": upload}).json()
    follow_folders(engine.files, [Folder(str(home)), Folder(str(uploads))])
    keys = {item["name"]: item["id"] for item in changing.get("/v1/items").json()["items"]}
    (home / "3.png").unlink()
    (home / ".limnerignore").write_text("5.png")
    for name, returning in (("1.png", 1), ("3.png", 0), ("5.png", 0)):
        assert changing.delete(f"/v1/items/{keys[name]}").json() == {"returning": returning}
    report = changing.post("/v1/erase", json={"ids": [added["id"]], "identity": "even"}).json()
    assert (report["pictures"], report["returning"], report["found"]) == (5, 4, [])
    # and with the deleted one so it is
    assert sync(engine.encoder, engine.files).added == 5
    assert changing.get("/v1/items", params={"where": "identity=even"}).json()["total"] == 0


def test_what_cannot_be_erased(changing: TestClient, client: TestClient, engine: Engine) -> None:
    assert "--allow-changes" in problem(client.post("/v1/erase", json={}), 403)["detail"]
    for body, status in (
        ({"ids": ["x"]}, 422),
        ({"paths": ["/"]}, 422),
        ({"where": ["camera"]}, 422),
        ({"where": ["path~*"]}, 403),
        ({"identity": 17}, 422),
        ([], 422),
    ):
        problem(changing.post("/v1/erase", json=body), status)
    with engine.files.writing():
        problem(changing.post("/v1/erase", json={}), 503)
    assert len(engine.files) == COUNT


def test_a_store_that_is_being_written(
    changing: TestClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = changing.get("/v1/items").json()["items"][0]["id"]
    with engine.files.writing():
        with monkeypatch.context() as patch:
            patch.setattr(turns, "WAIT", 0.3)
            refused = changing.delete(f"/v1/items/{key}")
        assert "another process has been changing it for 0.3 s" in problem(refused, 503)["detail"]
        assert refused.headers["Retry-After"] == "10"
    with ThreadPoolExecutor(1) as thread:
        # what ends in time is waited for
        with engine.files.writing():
            waiting = thread.submit(changing.delete, f"/v1/items/{key}")
            time.sleep(0.5)
            assert not waiting.done()
        assert waiting.result().status_code == 200


def test_erasures_beside_clients_that_add(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(changes=True, uploads=tmp_path / "uploads", rate=0)
    images = [base64_of(draw(tmp_path / f"{number}.png", 90 + number)) for number in range(4)]
    with running(create_app(Store(engine), settings), settings) as url, ThreadPoolExecutor(4) as threads:

        def changed(number: int) -> list[int]:
            body = {"name": "new.png", "image": images[number], "identity": str(number)}
            return [
                *(httpx.post(f"{url}/v1/items", json=body, timeout=60).status_code for _ in range(3)),
                httpx.post(f"{url}/v1/erase", json={"identity": str(number)}, timeout=60).status_code,
            ]

        assert list(threads.map(changed, range(4))) == [[201, 201, 201, 200]] * 4
    assert len(engine.files) == COUNT


def test_many_add_the_same_bytes_at_once(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Changes.add

    def slow(*given: Any) -> Any:
        time.sleep(0.2)
        return add(*given)

    # twice as long as a query may take
    monkeypatch.setattr(Changes, "add", slow)
    settings = ServerSettings(changes=True, uploads=tmp_path / "uploads", query_seconds=0.1, rate=0)
    image = base64_of(draw(tmp_path / "new.png", 99))
    with running(create_app(Store(engine), settings), settings) as url, ThreadPoolExecutor(12) as threads:
        bodies = [{"name": f"{number}.png", "image": image} for number in range(12)]
        answers = list(threads.map(lambda body: httpx.post(f"{url}/v1/items", json=body, timeout=60), bodies))
    assert [answer.status_code for answer in answers] == [201] * 12
    assert {answer.json()["id"] for answer in answers} == {answers[0].json()["id"]}
    assert [answer.json()["name"] for answer in answers] == [body["name"] for body in bodies]
    assert len(engine.files) == COUNT + 1


def test_what_is_unavailable_leaves_a_line(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(Store(engine), ServerSettings(changes=True))
    client = TestClient(app, raise_server_exceptions=False)
    app.state.turn_away()
    key = client.get("/v1/items").json()["items"][0]["id"]
    problem(client.delete(f"/v1/items/{key}"), 503)
    assert "503 for DELETE /v1/items/{id}: " in caplog.text
    assert "the server is stopping" in caplog.text
