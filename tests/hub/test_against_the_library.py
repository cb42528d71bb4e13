"""The hub's own library against a small hub on this machine: its requests, and its errors as they really are."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import limner
from limner.hub.push import push
from limner.inference.load import load_model
from tests.hub.cache import COMMIT

pytest.importorskip("huggingface_hub")

TOKEN = "hf_verysecrettoken"
CODES = {
    "me/missing": (401, "RepoNotFound"),
    "me/gated": (403, "GatedRepo"),
    "me/broken": (503, None),
    "me/pair": (404, "EntryNotFound"),
}


class Hub(ThreadingHTTPServer):
    """A hub with one repository, `me/toys`, and some that refuse; it keeps what it was asked."""

    def __init__(self, files: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.asked: list[tuple[str, str, Any, str | None]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(self.path.partition("?")[0])
        said = json.loads(body) if body.startswith(b"{") else None
        self.server.asked.append((self.command, path, said, self.headers.get("Authorization")))
        repository = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        if repository in CODES:
            status, code = CODES[repository]
            self._answer(status, b"", **({"X_Error_Code": code} if code else {}))
        elif path.startswith("/me/toys/resolve/"):
            revision, name = path.removeprefix("/me/toys/resolve/").split("/", 1)
            file = self.server.files / name
            if revision not in ("main", COMMIT):
                self._answer(404, b"", X_Error_Code="RevisionNotFound")
            elif not file.is_file():
                self._answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            else:
                content = file.read_bytes()
                self._answer(200, content, X_Repo_Commit=COMMIT, ETag=f'"{len(content):040x}"')
        elif path == "/api/repos/create":
            self._answer(
                200, json.dumps({"url": f"{self.server.address}/me/toys", "name": "me/toys"}).encode()
            )
        elif path == "/api/models/me/toys/settings":
            self._answer(200, b"{}")
        else:
            # what an upload asks first
            self._answer(403, b'{"error": "no"}')

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815 - the standard library's names


@pytest.fixture(scope="module")
def published(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "run"
    push(toy_run, str(folder), accept_terms=True)
    return folder


@pytest.fixture
def hub(published: Path) -> Iterator[Hub]:
    with Hub(published) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ran(code: str, hub: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, with the variables that a user sets."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": hub,
        "HF_HOME": str(cache),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": str(Path(limner.__file__).parents[1]),
    }
    # between its six tries of a hub that does not answer the library sleeps for 23 s
    awake = "import time; time.sleep = lambda seconds: None\n"
    return subprocess.run(
        [sys.executable, "-c", awake + code],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )


LOAD = """
import limner
for name in {names!r}:
    try:
        print(limner.load(name, device="cpu").fingerprint)
    except limner.LimnerError as error:
        print(str(error))
"""


def test_runs_are_fetched_and_refused_in_our_words(hub: Hub, toy_run: Path, tmp_path: Path) -> None:
    names = ["me/toys", "me/toys@v9", "me/missing", "me/gated", "me/broken", "me/pair", "me/toys"]
    done = ran(LOAD.format(names=[f"hf:{name}" for name in names]), hub.address, tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    fingerprint = load_model(toy_run, device="cpu").fingerprint
    assert (said[0], said[6]) == (fingerprint, fingerprint)
    assert said[1].startswith("hf:me/toys@v9: no such revision")
    assert said[2].startswith("hf:me/missing: no such repository on the hub, or a private one")
    assert said[3].startswith("hf:me/gated: is gated: ask for access")
    assert said[4].startswith("hf:me/broken: ")
    assert said[5].startswith("hf:me/pair: holds no run of limner")
    assert len(said) == 7
    # the token goes to the hub, and nowhere else
    # but for the question whether the hub is there at all
    assert {token for _, path, _, token in hub.asked if path != "/"} == {f"Bearer {TOKEN}"}
    assert {token for _, path, _, token in hub.asked if path == "/"} == {None}
    assert TOKEN not in done.stdout + done.stderr
    assert not [
        file for file in tmp_path.rglob("*") if file.is_file() and TOKEN.encode() in file.read_bytes()
    ]
    # of a repository nothing is fetched but the listing and the checkpoint, the second once
    fetched = [
        path.rpartition("/")[2]
        for method, path, *_ in hub.asked
        if method == "GET" and "toys/resolve" in path
    ]
    assert sorted(set(fetched)) == ["model.safetensors", "run.json"]
    assert fetched.count("model.safetensors") == 1


def test_what_was_fetched_is_used_when_the_hub_is_gone(hub: Hub, toy_run: Path, tmp_path: Path) -> None:
    code = LOAD.format(names=["hf:me/toys"])
    first = ran(code, hub.address, tmp_path)
    # nobody listens on the port of discard
    second = ran(code, "http://127.0.0.1:9", tmp_path)
    assert second.stdout == first.stdout == f"{load_model(toy_run, device='cpu').fingerprint}\n", (
        second.stderr
    )
    missing = ran(LOAD.format(names=["hf:me/other"]), "http://127.0.0.1:9", tmp_path)
    assert missing.stdout.startswith("hf:me/other: is not in the local cache, and the hub cannot be reached")
    assert TOKEN not in missing.stdout + missing.stderr


def test_a_push_makes_the_repository_private_and_gated_first(hub: Hub, toy_run: Path, tmp_path: Path) -> None:
    code = f"""
import limner
try:
    limner.push({str(toy_run)!r}, "me/toys", accept_terms=True)
except limner.LimnerError as error:
    print(str(error))
"""
    done = ran(code, hub.address, tmp_path)
    assert "me/toys: the hub forbids it to this account" in done.stdout, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    changes = [(method, path, said) for method, path, said, _ in hub.asked if method != "GET"][:2]
    (_, created, repository), (method, settings, access) = changes
    assert (created, repository["name"], repository["organization"]) == ("/api/repos/create", "toys", "me")
    assert repository.get("private") is True or repository.get("visibility") == "private"
    assert (method, settings, access["gated"]) == ("PUT", "/api/models/me/toys/settings", "manual")
    assert access.get("private") is True or access.get("visibility") == "private"
