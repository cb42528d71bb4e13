"""The routes of alerts: who may save them, what they tell, and what is recorded."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.alert_reports import AlertList
from limner.client import Client
from limner.errors import ServerError, StoreError
from limner.search.alerts import save_alert
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import add_token
from limner.store.alerts import Alert, alerts_of
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.folders import Folder, follow_folders
from tests.search.fake import calibration, draw
from tests.search.test_hooks import receiving
from tests.server.running import running
from tests.server.serving import COUNT, HOME, base64_of, problem
from tests.server.test_audit_routes import lines
from tests.server.test_following import until

pytest.importorskip("watchfiles")

BODY = {"name": "red cars", "text": "a red car", "at_least": 0.0}
SAVING = ServerSettings(watch=True, alerts=True, rate=0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.search.alerts._EVERY", 0.0)


@pytest.fixture
def folder(engine: Engine, tmp_path: Path) -> Path:
    follow_folders(engine.files, [Folder(str(tmp_path / HOME))])
    return tmp_path / HOME


def serving(engine: Engine, **changes: Any) -> TestClient:
    return TestClient(create_app(Store(engine), SAVING.replace(**changes)), raise_server_exceptions=False)


def listed(client: TestClient, **given: Any) -> AlertList:
    return AlertList.model_validate(client.get("/v1/alerts", **given).json())


def erased(engine: Engine, key: str) -> bool:
    """Erase a picture, unless the server is noting what it has told just now."""
    try:
        erase(StoreFiles.open(engine.files.folder), key)
    except StoreError as error:
        if error.trouble != "busy":
            raise
        return False
    return True


def test_an_alert_is_saved_tells_and_goes(engine: Engine, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(engine, audit=file) as client:
        assert listed(client) == AlertList(alerts=(), may_change=True)
        saved = client.post("/v1/alerts", json=BODY)
        assert saved.status_code == 201
        assert (saved.json()["fits"], saved.json()["by"], saved.json()["hook"]) == (COUNT, "cosine", None)
        assert problem(client.post("/v1/alerts", json=BODY), 409)["detail"] == (
            "there is an alert 'red cars' already; take it away, or give another name"
        )
        for number in range(25):
            draw(folder / f"new-{number}.png", 100 + number)
        until(lambda: listed(client).alerts[0].found == 25)
        (one,) = listed(client).alerts
        assert len(one.hits) == 20
        assert {hit.name for hit in one.hits} <= {f"new-{number}.png" for number in range(25)}
        assert HOME not in client.get("/v1/alerts").text
        # one that is gone is told no more
        until(lambda: erased(engine, one.hits[0].id))
        assert len(listed(client).alerts[0].hits) == 19
        assert client.delete("/v1/alerts/red%20cars").status_code == 204
        problem(client.delete("/v1/alerts/red%20cars"), 404)
        assert listed(client).alerts == ()
    assert alerts_of(engine.files) == {}
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in lines(file):
        by_name.setdefault(line["request"], []).append(line)
    found = by_name["alert-found"]
    assert sum(line["count"] for line in found) == 25
    assert all(line["text"] == "a red car" and line["found"] and line["who"] is None for line in found)
    assert one.hits[0].id in [key for line in found for key in line["found"]]
    assert [line.get("status") for line in by_name["alert"]] == [None, 201, None, 409]
    assert by_name["alert"][0]["text"] == "a red car"
    assert [line.get("status") for line in by_name["alert-delete"]] == [None, 204, 404]
    assert len(by_name["alerts"][-2]["found"]) == 19


def test_an_upload_has_the_name_that_its_client_gave(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """In the web hook, too, whose body says by what it was found."""
    engine.calibration = calibration()
    picture = base64_of(draw(tmp_path / "theirs.png", 60))
    with (
        receiving() as receiver,
        serving(engine, changes=True, uploads=tmp_path / "uploads") as client,
    ):
        kept = Alert(**BODY, where=["camera=7"], hook=receiver.url)
        assert save_alert(engine, kept)[0].by == "probability"
        asked = {"name": "theirs.png", "image": picture, "metadata": {"camera": 7}}
        assert client.post("/v1/items", json=asked).status_code == 201
        until(lambda: listed(client).alerts[0].found == 1 and bool(receiver.bodies))
        assert [hit.name for hit in listed(client).alerts[0].hits] == ["theirs.png"]
    (body,) = receiver.bodies
    assert body["hits"][0]["name"] == "theirs.png"
    assert (body["where"], body["by"], body["at_least"]) == (["camera=7"], "probability", 0.0)


def test_without_its_line_nothing_is_told(
    engine: Engine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]

    def append(self: object, line: dict[str, Any], erased: object = None) -> None:
        if full[0] and line["request"] == "alert-found":
            raise OSError("disk full")

    monkeypatch.setattr("limner.server.audit.AuditLog.append", append)
    with serving(engine, audit=tmp_path / "audit.jsonl") as client:
        client.post("/v1/alerts", json=BODY)
        draw(folder / "new.png", 100)
        until(lambda: client.get("/v1/info").json()["pictures"] == COUNT + 1)
        assert listed(client).alerts[0].found == 0
        full[0] = False
        until(lambda: listed(client).alerts[0].found == 1)


@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        ({"at_least": 2}, 422, "at_least"),
        ({"name": "a/b"}, 422, "name"),
        ({"hook": "http://127.0.0.1/"}, 422, "hook"),
        ({"text": ""}, 422, "text"),
        ({"text": " "}, 409, "empty"),
        ({"text": "-red"}, 409, "only what is not wanted"),
        ({"where": ["camra=1"]}, 409, "is it 'camera'?"),
        ({"where": ["path~*/secret/*"]}, 403, "tells nothing of where its files lie"),
    ],
)
def test_what_is_refused(engine: Engine, folder: Path, wrong: dict[str, Any], status: int, said: str) -> None:
    """A web hook, too: a client could have this server send requests into its own network."""
    with serving(engine) as client:
        assert said in json.dumps(problem(client.post("/v1/alerts", json={**BODY, **wrong}), status))
    assert alerts_of(engine.files) == {}


@pytest.mark.parametrize("changes", [{"watch": False}, {"alerts": False}])
def test_a_server_that_takes_none(engine: Engine, folder: Path, changes: dict[str, Any]) -> None:
    save_alert(engine, Alert(hook="https://example.org/secret", **BODY))
    with serving(engine, **changes) as client:
        assert not listed(client).may_change
        assert [(one.name, one.hook) for one in listed(client).alerts] == [("red cars", "example.org")]
        assert "secret" not in client.get("/v1/alerts").text
        problem(client.post("/v1/alerts", json=BODY), 403)
        problem(client.delete("/v1/alerts/red%20cars"), 403)
    assert len(alerts_of(engine.files)) == 1


@pytest.mark.parametrize(
    ("rights", "statuses", "may"),
    [
        (("search",), (200, 403, 403), False),
        (("add",), (403, 403, 204), False),
        (("erase",), (403, 403, 403), False),
        (("search", "add"), (200, 201, 204), True),
    ],
)
def test_the_rights_of_a_token(
    engine: Engine, folder: Path, tmp_path: Path, rights: Any, statuses: tuple[int, ...], may: bool
) -> None:
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "one", rights)
    save_alert(engine, Alert(**{**BODY, "name": "other"}))
    with serving(engine, tokens=tokens) as client:
        given: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"}}
        if "search" in rights:
            assert listed(client, **given).may_change == may
        got = client.get("/v1/alerts", **given), client.post("/v1/alerts", json=BODY, **given)
        assert (
            *(one.status_code for one in got),
            client.delete("/v1/alerts/other", **given).status_code,
        ) == statuses


def test_conditions_on_paths_are_told_where_paths_are(engine: Engine, folder: Path) -> None:
    save_alert(engine, Alert(where=["path~*/home*", "camera=1"], **BODY))
    for shown in (True, False):
        with serving(engine, show_paths=shown) as client:
            (one,) = listed(client).alerts
            assert one.where == (("path~*/home*", "camera=1") if shown else ("camera=1",))


def test_the_log_names_no_picture(engine: Engine, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "limner.server")
    with serving(engine) as client:
        client.post("/v1/alerts", json=BODY)
        draw(folder / "person.png", 100)
        until(lambda: listed(client).alerts[0].found == 1)
    told = [record.getMessage() for record in caplog.records if "alert" in record.getMessage()]
    assert told == ["an alert has found 1 picture"]


@pytest.fixture
def client(engine: Engine, folder: Path) -> Iterator[Client]:
    settings = SAVING.replace(token=SecretStr("s3cret-s3cret-s3cret"))
    with running(create_app(Store(engine), settings)) as url, Client(url, "s3cret-s3cret-s3cret") as client:
        yield client


def test_the_client(client: Client, folder: Path) -> None:
    assert client.save_alert("cars", "a red car", at_least=0.0, where={"camera": [1, 2]}).fits == COUNT
    assert client.save_alert("ä b", "a red car", at_least=0.0).by == "cosine"
    draw(folder / "new.png", 100)
    until(lambda: [one.found for one in client.alerts().alerts] == [0, 1])
    assert [one.where for one in client.alerts().alerts] == [("camera=1|2",), ()]
    client.delete_alert("ä b")
    client.delete_alert("cars")
    assert client.alerts().alerts == ()
    for name in ("cars", "../items"):
        with pytest.raises(ServerError):
            client.delete_alert(name)
