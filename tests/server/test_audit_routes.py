import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from limner.errors import SettingsError, StoreError
from limner.search.engine import Engine
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.server import audit_routes, routes_items
from limner.server.app import create_app
from limner.server.audit import AuditLog, ErasableLog, verify
from limner.server.audit_routes import asked_of
from limner.server.problems import ENDED
from limner.server.routes_search import SearchBody
from limner.server.settings import ServerSettings
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store_reports import ErasureReport
from tests.search.fake import draw
from tests.server.serving import COUNT, HOME, added_to, base64_of, problem
from tests.store.erasing import left_of

TOKEN = "s3cret-s3cret-s3cret"


def lines(file: Path) -> list[dict[str, Any]]:
    """The lines of requests."""
    assert verify(file).sound
    read = [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]
    return [line for line in read if line["request"] != "begin"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def client(engine: Engine, file: Path, tmp_path: Path) -> TestClient:
    settings = ServerSettings(audit=file, changes=True, uploads=tmp_path / "uploads", rate=0)
    return TestClient(create_app(Store(engine), settings), raise_server_exceptions=False)


def test_each_query_is_recorded(client: TestClient, file: Path, tmp_path: Path) -> None:
    assert lines(file) == []
    body = {"text": "a “coat”\nand more", "k": 2, "where": ["camera=1|2"], "after": "2026-11-11"}
    found = [hit["id"] for hit in client.post("/v1/search", json=body).json()["hits"]]
    (line,) = lines(file)
    assert line.pop("time").endswith("+00:00")
    assert len(line.pop("previous")) == 64
    assert len(line.pop("salt")) == 32
    assert line.pop("number") == 2
    assert line == {
        "who": None,
        "client": "testclient",
        "request": "search",
        "kind": "text",
        "text": "a “coat”\nand more",
        "k": 2,
        "where": ["camera=1|2"],
        "after": "2026-11-11",
        "explain": False,
        "literal": False,
        "status": 200,
        "found": found,
        "count": 2,
    }
    client.post("/v1/search", json={"image": base64_of(tmp_path / HOME / "0.png")})
    client.post("/v1/search", json={"text": " "})
    client.post("/v1/search", json={"like": "0" * 32})
    client.post("/v1/search", content=b"{")
    client.post("/v1/search", json={"text": 3})
    assert [line.get("kind") for line in lines(file)[1:]] == ["image", "text", "like", None, None]
    none, empty, unknown, malformed, invalid = [line.get("refused") for line in lines(file)[1:]]
    assert (none, empty) == (None, "the query is empty")
    assert "holds no picture" in str(unknown)
    assert "no JSON" in str(malformed) or "application/json" in str(malformed)
    assert "text" in str(invalid)
    assert not any("image" in line for line in lines(file))


def test_marks_are_recorded_by_their_keys_and_forgotten_with_them(
    client: TestClient, engine: Engine, file: Path
) -> None:
    kept, gone = engine.files.snapshot().keys[:2]
    client.post("/v1/search", json={"text": "a coat", "marks": {gone: "wrong", kept: "right"}})
    (line,) = lines(file)
    assert line["marked"] == sorted([kept, gone])
    assert "marks" not in line
    erase(engine.files, gone, audit=ErasableLog(file))
    (line,) = lines(file)
    assert line["marked"] == [kept]
    assert gone not in file.read_text()


def test_every_way_to_ask_is_recorded(engine: Engine, file: Path) -> None:
    app = create_app(Store(engine), ServerSettings(audit=file))
    client = TestClient(app, raise_server_exceptions=False, client=("2001:db8::17", 1))
    keys = [item["id"] for item in client.get("/v1/items").json()["items"]]
    key = keys[0]
    client.post("/v1/explain", json={"text": "a coat", "id": key})
    client.get("/v1/items", params={"where": "identity=even", "limit": 1})
    client.post("/v1/sentences", json={"like": key})
    client.get(f"/v1/items/{key}")
    client.get(f"/v1/images/{key}")
    client.get("/v1/thumbnails/" + "0" * 32)
    client.get("/v1/thumbnails/secret-of-another-kind")
    client.get("/v1/info")
    client.post("/v1/search", json={"text": "a", "where": ["path~*"]})
    client.get("/v1/items", params={"where": "path~*"})
    client.post("/v1/search", json={"text": "a", "k": 1000})
    assert {line["client"] for line in lines(file)} == {"2001:db8::17"}
    assert [(line["request"], line["status"], line.get("found")) for line in lines(file)] == [
        ("items", 200, keys),
        ("explain", 200, [key]),
        ("items", 200, [key]),
        ("sentences", 200, []),
        ("item", 200, [key]),
        ("image", 200, [key]),
        ("thumbnail", 404, None),
        ("thumbnail", 422, None),
        ("info", 200, []),
        ("search", 403, None),
        ("items", 403, None),
        ("search", 422, None),
    ]
    assert [line.get("count") for line in lines(file)][8] == COUNT
    assert [line.get("id") for line in lines(file)][4:8] == [key, key, None, None]
    assert "at most 100" in lines(file)[-1]["refused"]
    assert lines(file)[1]["text"] == "a coat"
    # text in an address could be anything
    assert "secret" not in file.read_text()


def test_changes_leave_a_line_before_and_behind(client: TestClient, file: Path, tmp_path: Path) -> None:
    body = {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99))}
    key = client.post("/v1/items", json=body).json()["id"]
    assert client.delete(f"/v1/items/{key}").status_code == 200
    client.delete(f"/v1/items/{key}")
    told = [
        (line["request"], line.get("begun"), line.get("status"), line.get("found")) for line in lines(file)
    ]
    assert told == [
        ("add", True, None, None),
        ("add", None, 201, [key]),
        ("delete", True, None, None),
        ("delete", None, 200, [key]),
        ("delete", None, 404, None),
    ]
    assert lines(file)[2]["id"] == key


@pytest.mark.parametrize("token", [None, "wrong", TOKEN])
def test_what_is_asked_for_behind_an_erasure(engine: Engine, file: Path, token: str | None) -> None:
    """Let in or not, whoever names an erased picture does not bring its key back into the log."""
    settings = ServerSettings(audit=file, changes=True, token=SecretStr(TOKEN), rate=0)
    client = TestClient(create_app(Store(engine), settings), raise_server_exceptions=False)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    kept, gone = engine.files.snapshot().keys[:2]
    erase(engine.files, gone, audit=ErasableLog(file))
    for key in (gone, kept):
        client.get(f"/v1/items/{key}", headers=headers)
        client.get(f"/v1/images/{key}", headers=headers)
        client.post("/v1/search", json={"like": key}, headers=headers)
        client.post("/v1/search", json={"text": "a", "marks": {key: "right"}}, headers=headers)
        client.post("/v1/explain", json={"text": "a", "id": key}, headers=headers)
        client.delete(f"/v1/items/{key}", headers=headers)
    assert gone not in file.read_text()
    assert ErasableLog(file).left([gone]) == 0
    assert kept in file.read_text()
    assert len(lines(file)) == (13 if token == TOKEN else 12)


def test_a_bug_is_recorded(engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*given: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(engine, "begin", bug)
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file)), raise_server_exceptions=False)
    problem(client.post("/v1/search", json={"text": "a"}), 500)
    (line,) = lines(file)
    assert line["status"] == 500
    assert "ZeroDivisionError" in line["refused"]


def test_no_line_no_answer_and_no_change(
    client: TestClient, engine: Engine, file: Path, tmp_path: Path
) -> None:
    key = client.get("/v1/items").json()["items"][0]["id"]
    file.unlink()
    file.mkdir()
    added = {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99))}
    for answer in (
        client.post("/v1/search", json={"text": "a"}),
        client.get(f"/v1/images/{key}"),
        client.get(f"/v1/thumbnails/{key}"),
        client.get("/v1/items"),
        client.get(f"/v1/items/{'0' * 32}"),
        client.delete(f"/v1/items/{key}"),
        client.post("/v1/items", json=added),
    ):
        assert "the record of requests" in problem(answer, 503)["detail"]
    assert len(engine.files) == COUNT
    assert added_to(tmp_path / "uploads") == []
    # what tells nothing of a picture goes on, and says so
    assert client.get("/livez").status_code == 200
    assert problem(client.get("/health"), 503)["errors"][0]["loc"] == ["audit"]
    assert client.get("/metrics").status_code == 200
    file.rmdir()
    file.write_text("no audit log\n")
    answer = client.get("/v1/items")
    problem(answer, 503)
    # a body that was not read would be taken for the next request
    assert answer.headers["Connection"] == "close"
    file.unlink()
    assert client.get("/v1/items").status_code == 200
    assert len(lines(file)) == 1


def test_strangers_are_counted_and_their_tokens_never_written(
    engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_routes, "_LINES", 1e-9)
    monkeypatch.setattr(audit_routes, "_BURST", 5)
    settings = ServerSettings(audit=file, token=SecretStr(TOKEN), rate=0)
    client = TestClient(create_app(Store(engine), settings))
    for number in range(12):
        guess = f"guess-{number}-{TOKEN}"
        path = ("/v1/info", "/metrics", f"/v1/{guess}", "/v1/images/" + "0" * 32)[number % 4]
        problem(client.get(path, headers={"Authorization": f"Bearer {guess}"}), 401)
    assert [line["request"] for line in lines(file)] == ["info", "other", "other", "image", "info"]
    assert {(line["who"], line["status"]) for line in lines(file)} == {(None, 401)}
    assert client.get("/v1/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert (lines(file)[-1]["who"], lines(file)[-1]["unrecorded"]) == ("--token-file", 7)
    assert "s3cret" not in file.read_text()
    # a valid token on an address that is none tells nothing
    problem(client.get("/v1/none", headers={"Authorization": f"Bearer {TOKEN}"}), 404)
    assert len(lines(file)) == 6


@pytest.mark.parametrize(("status", "token"), [(408, None), (503, None), (503, TOKEN)])
def test_strangers_whose_connection_was_closed_are_counted(
    engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch, status: int, token: str | None
) -> None:
    """They cause it themselves, by opening others; whoever has the token has lines of all requests."""
    monkeypatch.setattr(audit_routes, "_LINES", 1e-9)
    monkeypatch.setattr(audit_routes, "_BURST", 5)
    app = create_app(Store(engine), ServerSettings(audit=file, token=SecretStr(TOKEN), rate=0))

    class Closing:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            scope[ENDED] = (status, "closed")
            await self.app(scope, receive, send)

    app.add_middleware(Closing)
    client = TestClient(app, headers={"Authorization": f"Bearer {token}"} if token else {})
    for _ in range(12):
        client.get("/v1/items/" + "0" * 32)
    assert [line["status"] for line in lines(file)] == [status] * (12 if token else 5)


def test_what_the_app_refuses_itself_leaves_all_of_its_lines(
    engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no token is needed, and everybody is nameless."""
    monkeypatch.setattr(audit_routes, "_LINES", 1e-9)
    monkeypatch.setattr(audit_routes, "_BURST", 5)
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file, rate=0)))

    def broken(*_: object, **__: object) -> None:
        raise StoreError("it cannot be used")

    monkeypatch.setattr("limner.server.app.store_info", broken)
    for _ in range(12):
        problem(client.get("/v1/info"), 503)
    assert [line["status"] for line in lines(file)] == [503] * 12


def test_an_erasure_that_is_held_up_says_so_and_names_what_it_has_deleted(
    client: TestClient, engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limner.store.sqlite_file.WAIT", 0.1)
    even = [item["id"] for item in client.get("/v1/items?where=identity=even").json()["items"]]
    with StoreFiles.open(engine.files.folder).rows.reading() as reading:
        assert reading.state("pictures").rows == COUNT
        answer = problem(client.post("/v1/erase", json={"identity": "even"}), 503)
    assert (
        "deleted, but its bytes may still be on the disk: another process has been reading"
        in answer["detail"]
    )
    assert answer["detail"].endswith("; call it again")
    line = lines(file)[-1]
    assert (line["status"], sorted(line["found"]), line["count"]) == (503, sorted(even), COUNT // 2)
    assert client.post("/v1/erase", json={"identity": "even"}).json()["found"] == []
    assert not left_of(engine.files.folder, [key.encode() for key in even])


def test_a_sentence_is_erased_by_the_key_that_a_search_tells(
    client: TestClient, engine: Engine, file: Path
) -> None:
    table = SentenceTable(engine.files)
    table.index(engine.encoder, [Sentence("even walks"), Sentence("a red coat")])
    told = client.post("/v1/sentences", json={"text": "a coat", "k": 9}).json()["sentences"]
    keys = {one["text"]: one["key"] for one in told}
    report = client.post("/v1/erase", json={"identity": "even"}).json()
    assert report["naming"] == lines(file)[-1]["naming"] == [keys["even walks"]]
    report = client.post("/v1/erase", json={"ids": [keys["even walks"], "0" * 32]}).json()
    assert (report["sentences"], report["unknown"], report["found"]) == (1, ["0" * 32], [])
    assert (lines(file)[-1]["found"], lines(file)[-1]["count"]) == ([keys["even walks"]], 1)
    assert len(table) == 1
    # the lines of both erasures name it
    with ErasableLog(file).forgetting([keys["even walks"]], []) as changed:
        assert changed == 2
    assert keys["even walks"] not in file.read_text()


def test_too_many_requests_are_recorded(engine: Engine, file: Path) -> None:
    client = TestClient(create_app(Store(engine), ServerSettings(audit=file, rate=0.01, burst=1)))
    client.get("/v1/info")
    problem(client.get("/v1/info"), 429)
    assert [line["status"] for line in lines(file)] == [200, 429]


def test_a_record_that_cannot_be_written(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        create_app(Store(engine), ServerSettings(audit=tmp_path / "missing" / "audit.jsonl"))


def test_the_settings_reach_the_log(engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AuditLog] = []
    real = AuditLog.__init__

    def seen(self: AuditLog, *given: Any, **settings: Any) -> None:
        real(self, *given, **settings)
        made.append(self)

    monkeypatch.setattr(AuditLog, "__init__", seen)
    settings = ServerSettings(audit=file, audit_days=7, audit_fsync=True)
    with TestClient(create_app(Store(engine), settings)) as client:
        assert client.get("/v1/info").status_code == 200
    (log,) = made
    assert (log.days, log.fsync) == (7, True)
    # it no longer wakes up after the app has ended
    assert log._closed.is_set()


def test_kinds() -> None:
    key = "0" * 32
    assert asked_of(SearchBody(text="a"))["kind"] == "text"
    assert asked_of(SearchBody(text="a", like=key))["kind"] == "text+like"
    assert asked_of(SearchBody.model_validate({"text": "a", "image": "AAAA"}))["kind"] == "text+image"


def test_an_erasure_is_recorded_before_and_after(client: TestClient, file: Path) -> None:
    key = client.get("/v1/items").json()["items"][0]["id"]
    assert client.post("/v1/erase", json={"ids": [key], "identity": "even"}).json()["pictures"] == 4
    before, after = lines(file)[1:]
    assert (before["request"], before["begun"], before["where"]) == ("erase", True, ['identity="even"'])
    assert (after["status"], len(set(after["found"])), after["count"]) == (200, 4, 4)
    assert key in after["found"]
    # an identity alone leaves the keys, too, but not without end; a key that the store does not hold is not found
    left = [item["id"] for item in client.get("/v1/items").json()["items"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes_items, "_NAMED", 2)
        report = client.post("/v1/erase", json={"ids": ["0" * 32], "where": ["camera=2"]}).json()
    assert (report["pictures"], report["unknown"]) == (4, ["0" * 32])
    last = lines(file)[-1]
    assert (last["count"], len(last["found"]), set(last["found"]) < set(left)) == (4, 2, True)


@pytest.mark.parametrize("by", ["log and store", "request"])
def test_a_search_that_ends_behind_an_erasure(
    client: TestClient, engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """It has found the pictures before, and its line comes when the log was rewritten."""
    doomed = {
        item["id"] for item in client.get("/v1/items", params={"where": "identity=even"}).json()["items"]
    }
    append = AuditLog.append
    reports: list[ErasureReport] = []

    def late(log: AuditLog, facts: dict[str, Any], *others: Any) -> None:
        if facts["request"] == "search" and not reports:
            files = StoreFiles.open(engine.files.folder)
            if by == "request":
                reports.append(erase(files, identity="even"))
            else:
                reports.append(erase(files, identity="even", audit=ErasableLog(file)))
        append(log, facts, *others)

    monkeypatch.setattr(AuditLog, "append", late)
    answer = client.post("/v1/search", json={"text": "a purple coat", "k": COUNT})
    assert doomed < {hit["id"] for hit in answer.json()["hits"]}
    [report] = reports
    assert report.found == ()
    last = lines(file)[-1]
    assert (last["request"], last["forgotten"], last["count"]) == ("search", True, COUNT)
    assert doomed.isdisjoint(last["found"])
    assert len(last["found"]) == COUNT - 4
    if by != "request":
        text = file.read_text(encoding="ascii")
        assert not any(key in text for key in doomed)
        assert "purple" not in text
    # a generation that has erased none of its pictures takes nothing from a line
    erase(StoreFiles.open(engine.files.folder), last["found"][0])
    assert client.post("/v1/search", json={"text": "a purple coat"}).status_code == 200
    assert lines(file)[-1]["text"] == "a purple coat"
