"""Faults of the machine below a running server: a clock that jumps, and a disk that hangs."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server import audit, pictures
from limner.server.app import create_app
from limner.server.audit import verify
from limner.server.settings import ServerSettings
from limner.store import contents
from limner.store.files import StoreFiles
from tests.server.running import running
from tests.server.serving import COUNT, HOME, problem
from tests.server.test_counters import value
from tests.server.test_health import wait_for

TOKEN = "0123456789abcdef"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
QUESTION = {"text": "a red coat"}
YEAR = 365 * 86_400.0


# a clock that jumps


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock of this process to the true time and so many seconds; the monotonic one goes on."""
    ahead = 0.0
    now = time.time

    def set_to(seconds: float) -> None:
        nonlocal ahead
        ahead = seconds

    def told() -> str:
        return datetime.fromtimestamp(now() + ahead, UTC).isoformat(timespec="milliseconds")

    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * (now() + ahead)))
    # what `datetime.now` says cannot be replaced; this is its only use while requests are answered
    monkeypatch.setattr(audit, "_now", told)
    return set_to


@pytest.mark.parametrize("seconds", [YEAR, -YEAR])
def test_a_clock_that_jumps(
    engine: Engine, tmp_path: Path, jump: Callable[[float], None], seconds: float
) -> None:
    log = tmp_path / "audit"
    settings = ServerSettings(
        token=SecretStr(TOKEN), audit=log, rate=0.001, burst=5, probe_interval=0.05, request_seconds=3
    )
    with (
        running(create_app(Store(engine), settings), settings) as url,
        httpx.Client(base_url=url, headers=BEARER, timeout=20) as client,
        ExitStack() as ending,
    ):
        wait_for(url, 200)
        assert client.post("/v1/search", json=QUESTION).status_code == 200
        host, port = url.removeprefix("http://").split(":")
        late = ending.enter_context(socket.create_connection((host, int(port)), timeout=20))
        head = f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        late.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        begun = time.monotonic()
        jump(seconds)
        # no query is late that has just come, and no bucket is filled anew, nor empty for a year
        answers = [client.post("/v1/search", json=QUESTION) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 1000
        ready = wait_for(url, 200).json()
        assert all(0 <= probe["age_seconds"] < 60 and probe["took_ms"] < 60_000 for probe in ready["probes"])
        counted = client.get("/metrics").text
        for name in ("limner_request_seconds", "limner_queue_wait_seconds"):
            sums = [line.split()[-1] for line in counted.splitlines() if line.startswith(f"{name}_sum")]
            assert sums
            assert all(0 <= float(one) < 60 for one in sums)
        # of the disk's own clock
        changed = value(counted, "limner_last_commit_timestamp_seconds")
        assert abs(changed - (time.time() - seconds)) < 600
        # the body that does not come ends at its time: neither at once nor in a year
        assert late.recv(200).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - begun >= 2.5
        jump(0)
        # on a connection of its own: the client's has waited as long as the late one, and closes in the same sweep
        assert httpx.get(f"{url}/livez").status_code == 200
    # times go back in it, and it is whole all the same
    assert verify(log).sound
    times = [json.loads(line)["time"] for line in log.read_text().splitlines()]
    assert len({time[:4] for time in times}) == 2


# a disk that hangs


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Set as long as the disk answers."""
    answers = threading.Event()
    answers.set()
    yield answers
    answers.set()


def others_are_answered(url: str) -> None:
    """Searches, lists and probes, each of which needs a thread, or none."""
    for _ in range(3):
        assert httpx.get(f"{url}/livez", timeout=10).status_code == 200
        assert httpx.get(f"{url}/metrics", timeout=10).status_code == 200
        assert len(httpx.post(f"{url}/v1/search", json=QUESTION, timeout=10).json()["hits"]) == COUNT
        assert httpx.get(f"{url}/v1/items", timeout=10).json()["total"] == COUNT


@pytest.mark.parametrize("route", ["images", "thumbnails"])
def test_a_disk_of_pictures_that_hangs_holds_up_no_search(
    engine: Engine, tmp_path: Path, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """60 requests for pictures wait: more than asyncio has threads for all that is done beside it."""
    if route == "images":
        opened = os.open

        def slow(path: Any, *args: Any, **kwargs: Any) -> int:
            # of pictures alone: the audit log lies on another disk
            assert HOME not in str(path) or hanging.wait(60)
            return opened(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", slow)
    else:
        thumbnails = contents.thumbnails

        def reading(files: StoreFiles, keys: Any) -> Any:
            assert hanging.wait(60)
            return thumbnails(files, keys)

        monkeypatch.setattr(pictures, "thumbnails", reading)
    settings = ServerSettings(rate=0, probe_interval=0.05, audit=tmp_path / "audit")
    with running(create_app(Store(engine), settings), settings) as url, ThreadPoolExecutor(60) as threads:
        wait_for(url, 200)
        keys = [item["id"] for item in httpx.get(f"{url}/v1/items").json()["items"]]
        hanging.clear()
        waiting = [
            threads.submit(httpx.get, f"{url}/v1/{route}/{keys[number % COUNT]}", timeout=60)
            for number in range(60)
        ]
        time.sleep(0.5)
        others_are_answered(url)
        assert not any(one.done() for one in waiting)
        hanging.set()
        assert {one.result().status_code for one in waiting} == {200}


def test_a_store_that_hangs_ends_searches_at_their_time(
    engine: Engine, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in memory, but each search looks whether they still are those of the disk."""
    answers = Engine.begin

    def slow(self: Engine, *args: Any) -> Any:
        assert hanging.wait(60)
        return answers(self, *args)

    monkeypatch.setattr(Engine, "begin", slow)
    settings = ServerSettings(rate=0, query_seconds=0.5, probe_interval=0.05, probe_limit=0.5)
    with running(create_app(Store(engine), settings), settings) as url, ThreadPoolExecutor(8) as threads:
        wait_for(url, 200)
        hanging.clear()
        waiting = [
            threads.submit(httpx.post, f"{url}/v1/search", json=QUESTION, timeout=60) for _ in range(8)
        ]
        # the model's thread is the one that hangs
        wait_for(url, 503, "model: no answer within 0.5 s")
        assert httpx.get(f"{url}/livez", timeout=10).status_code == 200
        for one in waiting:
            assert "no answer within 0.5 s" in problem(one.result(), 503)["detail"]
        counted = httpx.get(f"{url}/metrics", timeout=10).text
        assert value(counted, "limner_refusals_total", reason="timeout") == 8
        hanging.set()
        wait_for(url, 200)
        assert len(httpx.post(f"{url}/v1/search", json=QUESTION, timeout=20).json()["hits"]) == COUNT
