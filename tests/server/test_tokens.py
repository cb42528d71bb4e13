import hmac
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store
from limner.server import tokens as access_tokens
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import RIGHTS, SINGLE, Right, Tokens, add_token, read_tokens, revoke_token
from tests.search.fake import draw
from tests.server.serving import base64_of, problem


@pytest.fixture
def chowned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Owners and groups that files are given, whoever runs the test."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda handle, user, group: given.append((user, group)))
    return given


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_a_file_holds_hashes_and_no_tokens(file: Path) -> None:
    token = add_token(file, "ann", ["add", "search"])
    other = add_token(file, "camera-3", ["add"])
    assert len(token) >= 40
    assert token != other
    assert file.stat().st_mode & 0o077 == 0
    assert token not in file.read_text()
    assert [(one.name, one.rights) for one in read_tokens(file)] == [
        ("ann", ("search", "add")),
        ("camera-3", ("add",)),
    ]
    assert list(file.parent.iterdir()) == [file]
    tokens = Tokens(SecretStr("single-single-single"), file)
    found = tokens.find(token.encode())
    assert found is not None
    assert (found.name, sorted(found.rights)) == ("ann", ["add", "search"])
    single = tokens.find(b"single-single-single")
    assert single is not None
    assert (single.name, single.rights) == (SINGLE, frozenset(RIGHTS))
    assert token not in repr(found) + repr(tokens)
    for wrong in (b"", token[:-1].encode(), token.encode() + b"x", found.sha256.encode(), b"\xff"):
        assert tokens.find(wrong) is None


def test_changes_of_the_file_count_at_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    ann, bo = add_token(file, "ann", ["search"]), add_token(file, "bo", ["search"])
    tokens = Tokens(None, file)
    assert tokens.find(ann.encode())
    revoke_token(file, "ann")
    assert tokens.find(ann.encode()) is None
    assert tokens.find(bo.encode())
    cy = add_token(file, "cy", ["search"])
    assert tokens.find(cy.encode())
    # a file that is broken or gone may mean that somebody wanted to revoke one
    content = file.read_text()
    file.write_text(content[:-9])
    assert tokens.find(bo.encode()) is None
    assert tokens.find(bo.encode()) is None
    assert caplog.text.count("no file of tokens") == 1
    file.unlink()
    assert tokens.find(bo.encode()) is None
    file.write_text(content)
    assert tokens.find(bo.encode())


def test_a_file_that_was_just_written_is_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # two versions that nothing tells apart: written within one tick of the file system's clock, of one size
    states = {"state": (1, time.time_ns(), 0, 300)}
    monkeypatch.setattr(access_tokens, "_state", lambda _: states["state"])
    ann = add_token(file, "ann", ["search"])
    tokens = Tokens(None, file)
    assert tokens.find(ann.encode())
    revoke_token(file, "ann")
    bo = add_token(file, "bo", ["search"])
    assert tokens.find(ann.encode()) is None
    assert tokens.find(bo.encode())
    # one that has been lying there is not read for each request
    states["state"] = (1, time.time_ns() - 3 * 10**9, 0, 300)
    assert tokens.find(bo.encode())
    file.unlink()
    assert tokens.find(bo.encode())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcd")), max_size=12))
def test_what_was_added_and_not_revoked_is_taken(file: Path, steps: Iterable[tuple[bool, str]]) -> None:
    file.unlink(missing_ok=True)
    known: dict[str, str] = {}
    made: list[str] = [add_token(file, "first", ["erase"])]
    tokens = Tokens(None, file)
    for adds, name in steps:
        if adds == (name in known):
            with pytest.raises(SettingsError, match="exists" if adds else "there is no token"):
                add_token(file, name, ["add"]) if adds else revoke_token(file, name)
        elif adds:
            known[name] = add_token(file, name, ["add"])
            made.append(known[name])
        else:
            revoke_token(file, name)
            del known[name]
        taken = [token for token in made if tokens.find(token.encode())]
        assert set(taken) == {made[0], *known.values()}


def test_files_that_are_none(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Tokens(None, file)
    for content in (
        b"",
        b"\xff",
        b"[]",
        b'{"version": 2, "tokens": []}',
        b'{"version": 1, "tokens": [{"name": "a"}]}',
        json.dumps(
            {"version": 1, "tokens": [{"name": "--x", "rights": ["add"], "sha256": "0" * 64, "created": ""}]}
        ).encode(),
    ):
        file.write_bytes(content)
        for act in (lambda: Tokens(None, file), lambda: add_token(file, "a", ["add"])):
            with pytest.raises(SettingsError, match="limner token add"):
                act()
    twice = {"name": "a", "rights": ["add"], "sha256": "0" * 64, "created": ""}
    file.write_text(json.dumps({"version": 1, "tokens": [twice, twice]}))
    with pytest.raises(SettingsError, match="same name"):
        read_tokens(file)
    for name in ("", "a b", SINGLE, "a" * 65, "ä", "a\n"):
        with pytest.raises(SettingsError, match="expected a name"):
            add_token(tmp_path / "new.json", name, ["add"])
    with pytest.raises(SettingsError, match="cannot be written"):
        add_token(tmp_path / "missing" / "tokens.json", "a", ["add"])


def test_every_token_is_compared_in_constant_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [add_token(file, name, ["search"]) for name in "abc"]
    tokens = Tokens(SecretStr("single-single-single"), file)
    compared: list[str] = []
    real = hmac.compare_digest

    def seen(digest: str, known: str) -> bool:
        compared.append(known)
        return real(digest, known)

    monkeypatch.setattr(hmac, "compare_digest", seen)
    for token in (made[0], made[2], "single-single-single", "wrong"):
        compared.clear()
        tokens.find(token.encode())
        # the right one does not end it sooner
        assert len(compared) == 4


@pytest.mark.parametrize("right", [*RIGHTS, None])
def test_a_right_opens_its_routes_and_no_other(
    engine: Engine, file: Path, tmp_path: Path, right: str | None
) -> None:
    others = [one for one in RIGHTS if one != right]
    token = add_token(file, "ann", [one for one in RIGHTS if one == right] or others)
    settings = ServerSettings(tokens=file, changes=True, uploads=tmp_path / "uploads", rate=0)
    client = TestClient(create_app(Store(engine), settings))
    headers = {"Authorization": f"Bearer {token}"}
    may = {right} if right else set(others)
    key = next(iter(engine.files.entries().values())).id
    for route, rules in client.app.state.routes.declared.items():  # type: ignore[attr-defined]
        needed, (method, path) = rules.right, route.split()
        # this server takes none, and saving one needs two rights: `test_routes_alerts.py`
        if "/alerts" in path:
            continue
        if rules.is_open:
            continue
        path = path.format(id="0" * 32 if method == "DELETE" else key, name="none")
        # a client keeps the cookie of `POST /v1/token`
        client.cookies.clear()
        problem(client.request(method, path), 401)
        answer = client.request(method, path, headers=headers)
        if needed is None or needed in may:
            assert answer.status_code not in (401, 403), (route, answer.text)
        else:
            assert f"lacks the right '{needed}'" in problem(answer, 403)["detail"]
    # a body that may not be sent is not read
    if "add" not in may:
        problem(client.post("/v1/items", content=b"x" * 20_000_000, headers=headers), 403)
    assert not TestClient(create_app(Store(engine), settings)).get("/").is_error


def test_info_says_what_the_token_allows(engine: Engine, file: Path, tmp_path: Path) -> None:
    settings = ServerSettings(tokens=file, changes=True, uploads=tmp_path / "uploads")
    some: tuple[tuple[Right, ...], ...] = (("search",), ("search", "add"), ("search", "erase"))
    tokens = {rights: add_token(file, "-".join(rights), rights) for rights in some}
    client = TestClient(create_app(Store(engine), settings))
    told = {}
    for rights, token in tokens.items():
        info = client.get("/v1/info", headers={"Authorization": f"Bearer {token}"}).json()
        told[rights] = (info["changes"], info["adds"])
    assert list(told.values()) == [(False, False), (False, True), (True, False)]
    # the server's own limits hold for every token
    bare = TestClient(create_app(Store(engine), ServerSettings(tokens=file)))
    body = {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99))}
    adding = {"Authorization": f"Bearer {tokens['search', 'add']}"}
    assert "--allow-changes" in problem(bare.post("/v1/items", json=body, headers=adding), 403)["detail"]


def test_revoked_while_the_server_runs(engine: Engine, file: Path) -> None:
    token = add_token(file, "ann", ["search"])
    log = file.with_name("audit.jsonl")
    client = TestClient(create_app(Store(engine), ServerSettings(tokens=file, audit=log)))
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/v1/info", headers=headers).status_code == 200
    revoke_token(file, "ann")
    problem(client.get("/v1/info", headers=headers), 401)
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert [(line["who"], line["status"]) for line in lines] == [("ann", 200), (None, 401)]
    assert token not in log.read_text()


def test_the_file_is_looked_at_by_more_than_its_time(file: Path) -> None:
    token = add_token(file, "ann", ["search"])
    tokens = Tokens(None, file)
    before = file.stat()
    revoke_token(file, "ann")
    bo = add_token(file, "bob", ["search"])
    os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert tokens.find(token.encode()) is None
    assert tokens.find(bo.encode())


_OF_NOTHING: dict[str, object] = {
    **dict.fromkeys(("pictures", "sentences", "uploads", "leftovers", "traced"), 0),
    **{name: list[str]() for name in ("unknown", "unmet", "similar", "naming", "found")},
    "traces": dict.fromkeys(("searched", "visible", "shared", "short", "model"), 0),
    "audit_lines": None,
    "learnt": None,
    "dry_run": False,
}
_CLUES = {"unmet", "similar", "naming"}
KNOWN, PLATE = "Grete Geheim", "M-XY 4711"


@given(
    identity=st.sampled_from(
        [None, "nobody", "even", "EVEN", "evening", KNOWN, KNOWN.upper(), PLATE, "e-XY 47"]
    ),
    where=st.lists(
        st.sampled_from(
            (
                *(f'plate="{PLATE}"', "plate~M*", "plate~K*", "camera=1", "camera=7", "camera>=1", "none=1"),
                *(f'identity="{KNOWN}"', 'identity="grete geheim"', "identity~G*", "identity!=even"),
            )
        ),
        max_size=3,
        unique=True,
    ),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_erasure_of_nothing_answers_no_question(
    erasing: dict[str, TestClient], identity: str | None, where: list[str]
) -> None:
    """Without the right `search` it answers the same whatever is asked; with it, its line says what it has told."""
    # nothing meets the last condition, so nothing is erased, however the others are met
    body = {"identity": identity, "where": [*where, "none=2"]}
    bare, told = (erasing[name].post("/v1/erase", json=body).json() for name in ("erase", "search"))
    assert bare == {**bare, **_OF_NOTHING}
    assert told["unmet"]
    assert bare.keys() == {"left", "files", "bytes", *_OF_NOTHING}
    assert {**told, "traces": 0, "unmet": [], "similar": [], "naming": []} == {**bare, "traces": 0}
    file = Path(str(erasing["erase"].headers["log"]))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    line = [line for line in lines if line.get("who") == "search"][-1]
    assert [line.get(name, []) for name in _CLUES] == [told[name] for name in _CLUES]
    assert not any(_CLUES & line.keys() for line in lines if line.get("who") == "erase")


@pytest.fixture
def erasing(engine: Engine, file: Path, tmp_path: Path) -> dict[str, TestClient]:
    """Clients of a store with a named person, with the right `erase` and with `search` beside it."""
    log = tmp_path / "audit.jsonl"
    rights: dict[str, list[Right]] = {"add": ["add"], "erase": ["erase"], "search": ["search", "erase"]}
    tokens = {name: add_token(file, name, some) for name, some in rights.items()}
    # an identity that no picture has may be asked for, to see what sentences say
    SentenceTable(engine.files).index(engine.encoder, [Sentence("nobody walks, in a red coat")])
    given = ServerSettings(tokens=file, changes=True, uploads=tmp_path / "uploads", audit=log, rate=0)
    app = create_app(Store(engine), given)
    clients = {
        name: TestClient(app, headers={"Authorization": f"Bearer {token}", "log": str(log)})
        for name, token in tokens.items()
    }
    body = {"name": "a.png", "image": base64_of(draw(tmp_path / "a.png", 99)), "identity": KNOWN}
    assert clients["add"].post("/v1/items", json={**body, "metadata": {"plate": PLATE}}).status_code == 201
    assert clients["erase"].post("/v1/erase", json={}).json()["found"] == []
    return clients


def test_what_an_erasure_shares_with_others_is_not_told(
    erasing: dict[str, TestClient], tmp_path: Path
) -> None:
    """Nor for a picture of one's own, which somebody adds with a guess in its metadata and erases."""
    for number, guess in enumerate(["Grete Ge", "M-XY 471", "Hans Gu", "K-XY 471"]):
        body = {
            "name": "b.png",
            "image": base64_of(draw(tmp_path / "b.png", 100 + number)),
            "identity": guess,
        }
        key = erasing["add"].post("/v1/items", json=body).json()["id"]
        report = erasing["erase"].post("/v1/erase", json={"ids": [key]}).json()
        assert (report["pictures"], report["found"]) == (1, [])
        assert not any(report["traces"].values())
    key = erasing["add"].post("/v1/items", json=body).json()["id"]
    assert erasing["search"].post("/v1/erase", json={"ids": [key]}).json()["traces"]["visible"] > 0


def test_a_file_stays_that_of_the_server(file: Path, chowned: list[tuple[int, int]]) -> None:
    """Root changes it, and the server's user still reads it: systemd's has the rights of the group alone."""
    add_token(file, "ann", ["search"])
    assert chowned == []
    file.chmod(0o640)
    add_token(file, "ben", ["search"])
    revoke_token(file, "ann")
    assert file.stat().st_mode & 0o777 == 0o640
    assert chowned == [(file.stat().st_uid, file.stat().st_gid)] * 2


def test_a_user_who_may_not_give_files_away(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    add_token(file, "ann", ["search"])
    file.chmod(0o640)
    monkeypatch.setattr(os, "fchown", refuse)
    add_token(file, "ben", ["search"])
    # the group is another one now
    assert file.stat().st_mode & 0o777 == 0o600
