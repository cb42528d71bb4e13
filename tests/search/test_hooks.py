"""`limner.search.hooks`: web hooks of a real server that takes, hangs, drips, redirects and refuses."""

import base64
import io
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import limner
from limner.alert_reports import AlertReport
from limner.search import hooks as module
from limner.search.alerts import Alerting
from limner.search.hooks import post
from limner.store.erase import erase
from limner.store.files import StoreFiles
from tests.search.test_alerts import Told, engine_of, folder, paint, saved, store, synced
from tests.search.test_watch import until

__all__ = ["folder", "store"]

Answer = Callable[[BaseHTTPRequestHandler], None]


class Receiver:
    """A server whose answers are given by a function."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answer: Answer = lambda request: answer_with(request, 200)
        self.url = ""


def answer_with(request: BaseHTTPRequestHandler, status: int, **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", "0")
    request.end_headers()


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.paths.append(self.path)
            receiver.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            receiver.answer(self)

        def do_GET(self) -> None:
            receiver.paths.append(self.path)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.search.alerts._EVERY", 0.0)
    monkeypatch.setattr(module, "_AGAIN", (0.1, 0.2, 0.3))
    monkeypatch.setattr(module, "_SECONDS", 1.0)


def alerting(store: StoreFiles, folder: Path, count: int = 1) -> tuple[Alerting, Told]:
    """What looks after so many pictures have come."""
    for number in range(count):
        paint(folder / f"new-{number}.png", "red", 100 + number)
    synced(store)
    told = Told()
    return Alerting(engine_of(store), told), told


def test_what_a_web_hook_gets(store: StoreFiles, folder: Path, receiver: Receiver) -> None:
    """Names and facts of the pictures and no path; a picture only where it is asked for."""
    saved(store, hook=f"{receiver.url}/in?key=1")
    saved(store, "pictures", hook=receiver.url, send_picture=True)
    looking, told = alerting(store, folder, 45)
    looking.look()
    until(lambda: len(receiver.bodies) == 6)
    looking.close()
    parts = [AlertReport.model_validate(one) for one in receiver.bodies]
    plain = [one for one in parts if one.alert == "reds"]
    assert [len(one.hits) for one in plain] == [20, 20, 5]
    assert {hit.name for one in plain for hit in one.hits} == {f"new-{number}.png" for number in range(45)}
    assert all(hit.picture is None for one in plain for hit in one.hits)
    with_picture = next(one for one in parts if one.alert == "pictures")
    content = base64.b64decode(with_picture.hits[0].picture or "")
    assert Image.open(io.BytesIO(content)).format == "JPEG"
    # as docs/watch.md shows it, in that order
    page = (Path(limner.__file__).parents[1] / "docs" / "watch.md").read_text(encoding="utf-8")
    (example,) = (json.loads(one) for one in re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    assert {tuple(body) for body in receiver.bodies} == {tuple(example)}
    fields = tuple(example["hits"][0])
    assert {tuple(hit) for body in receiver.bodies for hit in body["hits"]} == {fields, (*fields, "picture")}
    assert (plain[0].where, plain[0].by, plain[0].at_least) == ((), "cosine", 0.9)
    assert str(folder) not in json.dumps(receiver.bodies)
    assert set(receiver.paths) == {"/in?key=1", "/"}
    assert not told.lines


def test_a_redirect_is_not_followed(store: StoreFiles, folder: Path, receiver: Receiver) -> None:
    with receiving() as other:
        receiver.answer = lambda request: answer_with(request, 307, Location=other.url)
        saved(store, hook=f"{receiver.url}/secret")
        looking, told = alerting(store, folder)
        looking.look()
        until(lambda: bool(told.lines))
        assert told.lines == [
            f"alert reds: 1 picture not delivered to {receiver.url[7:]}: it redirects (307), which is not followed; "
            "give the address that it leads to"
        ]
        assert (len(receiver.bodies), other.paths) == (1, [])


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (403, 1), (500, 4), (429, 4)])
def test_one_that_refuses(
    store: StoreFiles, folder: Path, receiver: Receiver, status: int, tries: int
) -> None:
    receiver.answer = lambda request: answer_with(request, status)
    saved(store, hook=receiver.url)
    looking, told = alerting(store, folder)
    looking.look()
    until(lambda: bool(told.lines))
    assert told.lines == [f"alert reds: 1 picture not delivered to {receiver.url[7:]}: it answers {status}"]
    assert len(receiver.bodies) == tries


def test_one_that_is_back_gets_it(store: StoreFiles, folder: Path, receiver: Receiver) -> None:
    receiver.answer = lambda request: answer_with(request, 200 if len(receiver.bodies) == 3 else 503)
    saved(store, hook=receiver.url)
    looking, told = alerting(store, folder)
    looking.look()
    until(lambda: len(receiver.bodies) == 3)
    time.sleep(0.5)
    looking.close()
    assert (len(receiver.bodies), told.lines) == (3, [])


def _drip(request: BaseHTTPRequestHandler) -> None:
    for letter in b"HTTP/1.1 200 OK\r\n" * 100:
        try:
            request.wfile.write(bytes([letter]))
            request.wfile.flush()
        except OSError:
            return
        time.sleep(0.2)


@pytest.mark.parametrize("answer", [_drip, lambda request: time.sleep(20)], ids=["drips", "hangs"])
def test_one_that_hangs_holds_up_nothing(
    store: StoreFiles, folder: Path, receiver: Receiver, answer: Answer
) -> None:
    """Neither the look, nor the web hook of another alert."""
    receiver.answer = answer
    with receiving() as other:
        saved(store, "a", hook=receiver.url)
        saved(store, "b", hook=other.url)
        looking, told = alerting(store, folder)
        began = time.monotonic()
        looking.look()
        assert time.monotonic() - began < 2
        assert len(told.reports) == 2
        until(lambda: len(other.bodies) == 1, 3)
        until(lambda: bool(told.lines), 15)
        assert told.lines == [
            f"alert a: 1 picture not delivered to {receiver.url[7:]}: no answer within 1 seconds"
        ]
        assert len(receiver.bodies) == 4


def test_very_many_wait_in_bounds(
    store: StoreFiles, folder: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAITING", 3)
    monkeypatch.setattr(module, "_TOGETHER", 1)
    receiver.answer = lambda request: time.sleep(20)
    saved(store, hook=receiver.url)
    looking, told = alerting(store, folder, 30)
    looking.look()
    where = f"not delivered to {receiver.url[7:]}"
    (line,) = told.lines
    assert line in {f"alert reds: {left} pictures {where}: too many wait for it" for left in (26, 27)}
    looking.close()
    assert all("limner has ended" in line or "no answer" in line for line in told.lines[1:])
    counts = [int(re.findall(r"(\d+) picture", line)[0]) for line in told.lines]
    assert sum(counts) == 30


def test_what_is_found_while_limner_ends_is_told(store: StoreFiles, folder: Path, receiver: Receiver) -> None:
    saved(store, hook=receiver.url)
    looking, told = alerting(store, folder)
    looking.close()
    looking.look()
    assert told.lines == [f"alert reds: 1 picture not delivered to {receiver.url[7:]}: limner has ended"]
    assert receiver.bodies == []


def test_what_is_erased_meanwhile_is_not_sent(store: StoreFiles, folder: Path, receiver: Receiver) -> None:
    began, go = threading.Event(), threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        began.set()
        go.wait()
        answer_with(request, 503)

    receiver.answer = answer
    saved(store, hook=receiver.url)
    looking, _ = alerting(store, folder, 2)
    looking.look()
    assert began.wait(10)
    erase(store, paths=folder / "new-0.png")
    go.set()
    until(lambda: len(receiver.bodies) > 1)
    assert [sorted(hit["name"] for hit in body["hits"]) for body in receiver.bodies[:2]] == [
        ["new-0.png", "new-1.png"],
        ["new-1.png"],
    ]


def test_nobody_is_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="refused"):
            post(f"http://127.0.0.1:{free.getsockname()[1]}/", "{}")


def test_a_notification(
    store: StoreFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done >> "$TOLD"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    saved(store, notify=True)
    paint(folder / "<b>.png", "red", 99)
    looking, _ = alerting(store, folder)
    looking.look()
    until(lambda: (tmp_path / "told").exists() and len((tmp_path / "told").read_text().splitlines()) == 4)
    name, between, alert, body = (tmp_path / "told").read_text().splitlines()
    assert (name, between, alert) == ("--app-name=limner", "--", "reds")
    assert body in ("&lt;b&gt;.png and 1 more", "new-0.png and 1 more")
