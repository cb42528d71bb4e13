import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from limner.cli.serve import ending_well
from limner.client import Client
from limner.errors import ServerError
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.connections import Server
from limner.server.listening import listen
from limner.server.settings import ServerSettings
from limner.server.tokens import add_token, revoke_token
from tests.cli.command import Limner, refused
from tests.server.serving import toy_engine

TOKEN = "0123456789abcdef"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serve_and_stop(store: Path, tmp_path: Path, stop: signal.Signals) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    command = ["-m", "limner", "serve", store, "--port", "0", "--cpu", "--token-file", token]
    command += ["--approximate-from", "30", "--audit", tmp_path / "audit.jsonl", "--audit-days", "30"]
    command += ["--audit-fsync", "--tokens", tmp_path / "tokens.json", "--keep-metadata"]
    command += ["--max-metadata", "8", "--max-answer", "1"]
    named = add_token(tmp_path / "tokens.json", "ann", ["search"])
    with _started(*command) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r".*: 36 pictures at (http://127\.0\.0\.1:\d+/) \(Ctrl-C stops\)\n", said)
            assert found, said
            with Client(found[1], TOKEN) as client:
                assert len(client.search("a red square", k=4).hits) == 4
                assert client.info().model.system == "dual-path"
            with Client(found[1], named) as client:
                assert len(client) == 36
            revoke_token(tmp_path / "tokens.json", "ann")
            with Client(found[1], named) as client, pytest.raises(ServerError, match="token is wrong"):
                client.info()
            with Client(found[1]) as client, pytest.raises(ServerError, match="token is missing"):
                client.info()
            process.send_signal(stop)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line.get("who") for line in lines] == [None, "--token-file", "--token-file", "ann", None, None]


_SLOW = """
import sys, time
from limner.cli.main import main
from limner.search.engine import Engine
Engine.begin = lambda self, queries, until: print("begun", flush=True) or time.sleep(120)
from limner.server import connections
connections.GRACE = 1
main()
"""


def test_a_query_that_does_not_end_does_not_keep_the_server(store: Path) -> None:
    with _started("-c", _SLOW, "serve", store, "--port", "0", "--cpu") as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+/", process.stdout.readline())
            assert found
            with ThreadPoolExecutor(1) as thread, Client(found[0]) as client:
                answer = thread.submit(client.search, "a")
                assert process.stdout.readline() == "begun\n"
                process.send_signal(signal.SIGTERM)
                began = time.monotonic()
                with pytest.raises(ServerError, match="the server is stopping") as refusal:
                    answer.result(60)
                assert refusal.value.status == 503
            _, err = process.communicate(timeout=60)
            assert time.monotonic() - began < 20
        finally:
            process.kill()
    assert process.returncode == 0
    assert re.search(
        r" WARNING limner\.server [0-9a-f]{32} 503 for POST /v1/search: the server is stopping\n", err
    )


def test_refusals(limner: Limner, store: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        refused(limner("serve", store, "--host", host), "--token-file FILE")
    refused(limner("serve", store, "--token-file", tmp_path / "missing"), "cannot be read")
    token.write_text("short")
    refused(limner("serve", store, "--token-file", token), "at least 16")
    refused(limner("serve", store, "--uploads", tmp_path / "uploads"), "--allow-changes")
    refused(limner("serve", tmp_path / "no store", "--port", 0), "no store|not a store|no such")
    refused(limner("serve", store, "--port", 0, "--cpu", "--audit", tmp_path / "no" / "log"), "audit log")
    refused(limner("serve", store, "--port", 99999), "port")
    refused(limner("serve", store, "--port", 0, "--cpu", "--tokens", tmp_path / "missing"), "cannot be read")
    for option in (("--audit-days", 3), ("--audit-fsync",)):
        refused(limner("serve", store, *option), "--audit FILE")


def test_a_port_that_is_taken(limner: Limner, store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(limner("serve", store, "--port", port), rf"127\.0\.0\.1:{port}: .*--port")


def test_without_fastapi(limner: Limner, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # importing it anew would leave the package with a module that has none of its parts
    monkeypatch.setattr(importlib.import_module("limner"), "server", importlib.import_module("limner.server"))
    for name in [name for name in sys.modules if name.startswith("limner.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    refused(limner("serve", store), r"needs fastapi: pip install '\.\[server\]' in the checkout, or")


def test_other_commands_do_without() -> None:
    code = (
        "import sys; sys.modules.update(fastapi=None, uvicorn=None, httpx=None, prometheus_client=None); "
        "import limner.cli.main, limner.client, limner"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_before_the_server_listens_to_it_counts(tmp_path: Path, stop: signal.Signals) -> None:
    """Between the line with the address and uvicorn's own handlers."""
    settings = ServerSettings()
    server = Server(create_app(Store(toy_engine(tmp_path)), settings), settings, None)

    def late(*_: object) -> None:
        server.should_exit = True
        lost.append(stop)

    lost: list[int] = []
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    try:
        with listen("127.0.0.1", 0) as listening, ending_well(server, lambda: None):
            signal.raise_signal(stop)
            server.run(sockets=[listening])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not lost
