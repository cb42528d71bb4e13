"""A server on a socket file."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from limner.client import Client
from limner.errors import SettingsError
from limner.server.audit import verify
from limner.server.listening import listen_at
from tests.cli.command import Limner, refused
from tests.cli.served import TIMEOUT, served

TOKEN = "0123456789abcdef"


def test_a_server_on_a_socket_file(store: Path, tmp_path: Path) -> None:
    file, audit = tmp_path / "limner.sock", tmp_path / "audit.jsonl"
    with served(tmp_path, store, "--cpu", "--uds", file, "--audit", audit) as server:
        assert server.url == f"unix:{file}"
        state = file.stat()
        assert stat.S_ISSOCK(state.st_mode)
        assert stat.S_IMODE(state.st_mode) == 0o660
        with Client(server.url) as client:
            assert client.search("a red square", k=2).total == 36
            server.hang_up("read anew")
            assert len(client) == 36
        # a header that anybody may send
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(file))) as client:
            answer = client.get("http://localhost/v1/info", headers={"X-Forwarded-For": "192.0.2.7"})
            assert answer.status_code == 200
            # foreign names are refused, as on a port
            assert client.get("http://example.org/v1/info").status_code == 421
    assert not file.exists()
    assert verify(audit).sound
    assert '"client": "unix"' in audit.read_text()
    assert "192.0.2.7" not in audit.read_text()


def test_a_proxy_before_a_socket_file_names_the_client(store: Path, tmp_path: Path) -> None:
    file, audit, token = tmp_path / "limner.sock", tmp_path / "audit.jsonl", tmp_path / "token"
    token.write_text(TOKEN)
    options = ("--uds", file, "--behind-proxy", "unix", "--token-file", token, "--audit", audit)
    headers = {"X-Forwarded-For": "192.0.2.7", "Authorization": f"Bearer {TOKEN}"}
    with (
        served(tmp_path, store, "--cpu", *options),
        httpx.Client(transport=httpx.HTTPTransport(uds=str(file)), headers=headers) as client,
    ):
        assert client.get("http://example.org/v1/info").status_code == 200
    assert '"client": "192.0.2.7"' in audit.read_text()


def test_the_file_of_a_dead_server_is_replaced_and_that_of_a_live_one_is_not(
    store: Path, tmp_path: Path, limner: Limner
) -> None:
    file = tmp_path / "limner.sock"
    command = [sys.executable, "-m", "limner", "serve", str(store), "--cpu", "--uds", str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert "unix:" in killed.stdout.readline()
        refused(limner("serve", store, "--cpu", "--uds", file), "a server listens there already")
        killed.send_signal(signal.SIGKILL)
        killed.wait(TIMEOUT)
    assert stat.S_ISSOCK(file.stat().st_mode)
    with served(tmp_path, store, "--cpu", "--uds", file) as server, Client(server.url) as client:
        assert len(client) == 36


def test_refusals(limner: Limner, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "limner.sock"
    refused(limner("serve", store, "--uds", file, "--port", 0), "--uds.*leave port out")
    refused(limner("serve", store, "--uds", file, "--host", "127.0.0.1"), "--uds.*leave host out")
    refused(limner("serve", store, "--uds", file, "--behind-proxy", "127.0.0.1"), "write --behind-proxy unix")
    refused(limner("serve", store, "--behind-proxy", "unix"), "only with --uds FILE")
    refused(limner("serve", store, "--uds", tmp_path / "no" / "limner.sock"), "No such file")
    refused(limner("serve", store, "--uds", tmp_path / ("x" * 120)), "too long")
    file.write_text("precious")
    refused(limner("serve", store, "--uds", file), "this is no socket")
    assert file.read_text() == "precious"
    file.unlink()
    # a link may lead to anything
    (tmp_path / "other").write_text("precious")
    file.symlink_to(tmp_path / "other")
    refused(limner("serve", store, "--uds", file), "this is no socket")


def test_a_server_whose_line_is_full_is_alive(tmp_path: Path) -> None:
    file = tmp_path / "limner.sock"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(file))
        busy.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(str(file))
        with pytest.raises(SettingsError, match="listens there already"), listen_at(file):
            pass
        for one in waiting:
            one.close()
    assert file.exists()


def test_the_file_of_another_server_is_not_removed(tmp_path: Path) -> None:
    file = tmp_path / "limner.sock"
    with listen_at(file):
        file.unlink()
        with listen_at(file):
            inode = file.stat().st_ino
            assert inode
        assert not file.exists()
        file.write_text("another")
    assert file.read_text() == "another"
