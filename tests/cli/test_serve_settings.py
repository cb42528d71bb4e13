"""Settings of a running server: where they come from, and SIGHUP while clients ask."""

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from limner.cli.root import app
from limner.client import Client
from limner.errors import ServerError
from tests.cli.command import Limner, refused
from tests.cli.served import served

NEW, SAME = "read anew", "goes on as it was"


@contextmanager
def asking(url: str, token: str | None = None) -> Iterator[list[str | int]]:
    """Three clients that search without end; the numbers of pictures that they were told of, or the refusals."""
    seen: list[str | int] = []
    done = threading.Event()

    def ask() -> None:
        with Client(url, token=token) as client:
            while not done.is_set():
                try:
                    seen.append(client.search("a red square", k=1).total)
                except (ServerError, httpx.HTTPError) as error:
                    seen.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_every_source_in_a_running_server(store: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(f'store = "{store}"\nport = 0\nmax_k = 3\nmax_batch = 2\nrate = 7\n')
    environment = {"LIMNER_SERVE_CONFIG": str(config), "LIMNER_SERVE_MAX_K": "5", "LIMNER_SERVE_CPU": "1"}
    with served(tmp_path, environment=environment) as server, Client(server.url) as client:
        assert client.info().max_k == 5
    with served(tmp_path, "--max-k", 6, environment=environment) as server, Client(server.url) as client:
        assert client.info().max_k == 6


def test_refusals(limner: Limner, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "server.toml"
    config.write_text("max_kk = 3\n")
    refused(limner("serve", store, "--config", config), "did you mean max_k")
    refused(limner("serve", "--port", 0), "LIMNER_SERVE_STORE")
    config.write_text("uploads = 'pictures'\n")
    refused(limner("serve", store, "--config", config), "--allow-changes")
    monkeypatch.setenv("LIMNER_SERVE_PROT", "80")
    refused(limner("serve", store), "did you mean LIMNER_SERVE_PORT")


def test_new_settings_at_sighup_under_load(store: Path, tmp_path: Path) -> None:
    config, token = tmp_path / "server.toml", tmp_path / "token"
    config.write_text(f'token_file = "token"\nrate = 0\naudit = "{tmp_path}/audit.jsonl"\n')
    old = "the-first-token-0000"
    token.write_text(old)
    with served(tmp_path, store, "--port", 0, "--cpu", "--config", config) as server:
        with asking(server.url, old) as seen, Client(server.url, token=old) as client:
            # a signal that comes while the server starts may have it read all twice, which the log counts
            assert len(client) == 36
            for times in range(1, 4):
                config.write_text(
                    f'token_file = "token"\nrate = 0\nmax_k = {times}\naudit = "{tmp_path}/audit.jsonl"\n'
                )
                # as log rotation does
                (tmp_path / "audit.jsonl").rename(tmp_path / f"audit.{times}")
                server.hang_up(NEW, times)
                # on the connection that is open already
                assert client.info().max_k == times
        assert len(seen) > 3
        assert set(seen) == {36}
        assert json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[1])["who"] == "--token-file"
        # only now: a token that is no longer there is refused
        token.write_text("the-second-token-0000")
        server.hang_up(NEW, 4)
        with Client(server.url, token=old) as client, pytest.raises(ServerError, match="token is wrong"):
            client.info()
        with Client(server.url, token="the-second-token-0000") as client:
            assert len(client) == 36


def test_what_is_wrong_at_sighup_leaves_the_server_as_it_was(store: Path, tmp_path: Path) -> None:
    config, address = tmp_path / "server.toml", tmp_path / "notify"
    config.write_text("max_k = 4\nport = 0\nrate = 0\n")
    faults = [
        ("max_k = [", "is no TOML"),
        ("max_kk = 5\nport = 0", "did you mean max_k"),
        ("max_k = 0\nport = 0", "'max_k'"),
        ("max_k = 5\nport = 1", "SIGHUP: port: changes only when the server is started again"),
        ("port = 0\ntokens = 'tokens.json'", "SIGHUP: tokens: changes only"),
        ("port = 0\nallow_changes = true\naudit = 'missing/audit'", "audit log cannot be written"),
        ("port = 0\nrun = 'missing'", "missing"),
    ]
    environment = {"NOTIFY_SOCKET": str(address)}
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(address))
    manager.settimeout(60)
    with (
        manager,
        served(tmp_path, store, "--cpu", "--config", config, environment=environment) as server,
        asking(server.url) as seen,
    ):
        assert manager.recv(1000) == b"READY=1"
        for times, (text, message) in enumerate(faults, 1):
            config.write_text(text)
            server.hang_up(SAME, times)
            assert message in server.log.read_text().splitlines()[-1]
            # what `systemctl reload` waits for, and what `systemctl status` shows
            assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert message.encode() in manager.recv(2000)
            assert manager.recv(1000) == b"READY=1"
            with Client(server.url) as client:
                assert client.info().max_k == 4
        config.unlink()
        server.hang_up(SAME, len(faults) + 1)
    assert set(seen) == {36}
    assert "Traceback" not in server.log.read_text()


def test_another_store_and_model_at_sighup_under_load(
    store: Path, pictures: Path, toy_run: Path, tmp_path: Path
) -> None:
    """A link is set to a new version of the store, with a model of its own."""
    other_run, other = tmp_path / "run", tmp_path / "v2"
    shutil.copytree(toy_run, other_run)
    some = sorted(pictures.glob("*.png"))[:5] or sorted(pictures.glob("*.jpg"))[:5]
    assert CliRunner().invoke(app, ["index", str(other_run), str(other), *map(str, some)]).exit_code == 0
    current = tmp_path / "current"
    current.symlink_to(store)
    with served(tmp_path, current, "--port", 0, "--cpu", "--rate", 0) as server:
        with asking(server.url) as seen:
            new = tmp_path / "new"
            new.symlink_to(other)
            new.replace(current)
            # nothing happens before it is asked for
            with Client(server.url) as client:
                assert len(client) == 36
            server.hang_up(NEW)
            with Client(server.url) as client:
                assert len(client) == 5
                assert client.search("a red square", k=1).total == 5
        # 0 requests fail, each is answered by the one or by the other
        assert set(seen) <= {36, 5}
        # a store whose model is gone is refused, and the one before is served
        current.unlink()
        current.symlink_to(tmp_path / "nowhere")
        server.hang_up(SAME)
        with Client(server.url) as client:
            assert len(client) == 5
