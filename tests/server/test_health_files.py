"""Probes do what a request does: files that cannot be used are told, in a folder where everything can be written."""

import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from limner.errors import StoreError
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import RIGHTS, add_token
from limner.store.lock import WriterLock
from tests.server.running import running
from tests.server.serving import problem
from tests.server.test_audit_routes import lines
from tests.server.test_counters import value
from tests.server.test_health import OFTEN, QUESTION, search, wait_for, wait_for_log


def _of_root(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As log rotation makes it that runs as root: these tests may do so, too, whom no mode keeps out."""
    file.touch()
    opened = os.open

    def refusing(path: str | Path, *given: int, **more: int) -> int:
        if Path(path) == file:
            raise PermissionError(13, "Permission denied")
        return opened(path, *given, **more)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.parametrize(
    ("spoil", "reason", "logged"),
    [
        (_of_root, "the server has no right to it", "give the user who runs limner the right to it"),
        (lambda file, _: file.mkdir(), "it cannot be used at the moment", "Is a directory"),
        (lambda file, _: file.write_text("other\n"), "the server's log says why", "it is no audit log"),
    ],
    ids=["of root", "a folder", "of another program"],
)
def test_a_log_that_no_line_can_be_added_to(
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    reason: str,
    logged: str,
) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    file.parent.mkdir()
    with running(create_app(Store(engine), ServerSettings(**OFTEN, audit=file))) as url:
        wait_for(url, 200)
        file.rename(tmp_path / "audit.1")
        spoil(file, monkeypatch)
        assert wait_for(url, 503, f"audit: {reason}").json()["errors"] == [{"loc": ["audit"], "msg": reason}]
        problem(search(url), 503)
        wait_for_log(caplog, logged)
        monkeypatch.undo()
        os.rename(file, tmp_path / "spoilt")  # noqa: PTH104 - a folder, too
        wait_for(url, 200)
        assert search(url).status_code == 200
        # the line of its beginning and that of the search: probes leave none
        assert len(file.read_text().splitlines()) == 2


def test_a_log_in_a_folder_that_is_not_the_servers(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are added to it all the same."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and access(path, mode))
    with running(create_app(Store(engine), ServerSettings(**OFTEN, audit=tmp_path / "audit.jsonl"))) as url:
        wait_for(url, 200)
        assert search(url).status_code == 200


@pytest.mark.parametrize("name", ["store.sqlite", "store.sqlite-wal", ".store.lock"])
def test_a_store_with_a_file_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).touch()
    WriterLock(tmp_path).check()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != name)
    with pytest.raises(StoreError, match=name) as caught:
        WriterLock(tmp_path).check()
    assert caught.value.trouble == "forbidden"


def test_tokens_that_cannot_be_read(engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A browser would forget a token that is called wrong. Strangers fill no log by it."""
    file, audit = tmp_path / "tokens.json", tmp_path / "audit.jsonl"
    token = {"Authorization": f"Bearer {add_token(file, 'ann', RIGHTS)}"}
    settings = ServerSettings(tokens=file, audit=audit, probe_interval=0.05, rate=1.0, burst=80)
    with running(create_app(Store(engine), settings)) as url:
        wait_for(url, 200)
        assert httpx.post(f"{url}/v1/search", json=QUESTION, headers=token).status_code == 200
        whole = file.read_bytes()
        file.write_bytes(whole[:-20])
        wait_for(url, 503, "tokens: the server's log says why")
        wait_for_log(caplog, "is no file of tokens")
        said = problem(httpx.post(f"{url}/v1/search", json=QUESTION, headers=token), 503)
        assert "the tokens cannot be read" in said["detail"]
        # without a token nothing is different
        problem(httpx.post(f"{url}/v1/search", json=QUESTION), 401)
        with httpx.Client(base_url=url, headers=token) as client:
            seen = [client.post("/v1/search", json=QUESTION).status_code for _ in range(100)]
        assert set(seen) == {503, 429}
        assert 50 < sum(line.get("status") == 503 for line in lines(audit)) < 70 < seen.count(503)
        file.write_bytes(whole)
        wait_for(url, 200)
        text = httpx.get(f"{url}/metrics", headers=token).text
        assert value(text, "limner_refusals_total", reason="tokens") == 1 + seen.count(503)
