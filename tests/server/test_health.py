"""Health of a real server: faults are planted and mended, and it says so without a restart."""

import errno
import logging
import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.testclient import TestClient

from limner.errors import StoreError
from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.health import Probe
from limner.server.settings import ServerSettings
from limner.store.files import StoreFiles
from limner.store.lock import WriterLock
from limner.store.path import expect_writable
from tests.search.fake import DIM, FakeEncoder, draw
from tests.server.running import running
from tests.server.serving import COUNT, problem, toy_engine
from tests.server.test_counters import value

OFTEN: dict[str, Any] = {"probe_interval": 0.05, "rate": 0}
QUESTION = {"text": "a red coat"}


def wait_for(url: str, status: int, reason: str = "", path: str = "readyz") -> httpx.Response:
    """The answer of `/readyz`, as soon as it has this status and reason."""
    until = time.monotonic() + 20
    while True:
        answer = httpx.get(f"{url}/{path}", timeout=20)
        if (answer.status_code == status and reason in answer.text) or time.monotonic() > until:
            assert (answer.status_code, reason in answer.text) == (status, True), answer.text
            return answer
        time.sleep(0.02)


def wait_for_log(caplog: pytest.LogCaptureFixture, text: str) -> None:
    until = time.monotonic() + 20
    while text not in caplog.text and time.monotonic() < until:
        time.sleep(0.02)
    assert text in caplog.text


def search(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/search", json=QUESTION, timeout=30)


def handles_in(folder: Path) -> list[str]:
    """Files of this process that are open below a folder, which would keep its disk from being unmounted."""
    open_ones = []
    for one in Path("/proc/self/fd").iterdir():
        try:
            open_ones.append(str(one.readlink()))
        except OSError:
            continue
    return [name for name in open_ones if name.startswith(f"{folder}/")]


def test_a_server_that_can_answer(engine: Engine) -> None:
    app = create_app(Store(engine), ServerSettings(**OFTEN))
    with running(app) as url:
        body = wait_for(url, 200).json()
        assert body["status"] == "ok"
        assert [(one["name"], one["reason"]) for one in body["probes"]] == [("store", None), ("model", None)]
        assert all(one["took_ms"] >= 0 and one["age_seconds"] >= 0 for one in body["probes"])
        assert httpx.get(f"{url}/health").json().keys() == body.keys()
        assert httpx.get(f"{url}/livez").json() == {"status": "ok"}
        text = httpx.get(f"{url}/metrics").text
        assert value(text, "limner_ready") == 1
        assert value(text, "limner_probe_up", probe="store") == 1


@pytest.mark.parametrize("mount_point_stays", [False, True])
def test_a_disk_that_is_unmounted_and_mounted_again(
    engine: Engine, tmp_path: Path, mount_point_stays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "store"
    with running(create_app(Store(engine), ServerSettings(**OFTEN))) as url:
        wait_for(url, 200)
        before = search(url).json()["hits"]
        assert len(before) == COUNT
        # idle, but for the probes of each moment
        assert any(not handles_in(folder) for _ in range(100))
        folder.rename(tmp_path / "away")
        if mount_point_stays:
            folder.mkdir()
        answer = wait_for(url, 503, "the folder is not there; its disk may not be mounted")
        assert [fault["loc"] for fault in problem(answer, 503)["errors"]] == [["store"]]
        problem(httpx.get(f"{url}/health"), 503)
        assert httpx.get(f"{url}/livez").status_code == 200
        detail = problem(search(url), 503)["detail"]
        assert "its disk may not be mounted" in detail
        text = httpx.get(f"{url}/metrics").text
        assert (value(text, "limner_ready"), value(text, "limner_probe_up", probe="store")) == (0, 0)
        for gauge in ("limner_store_pictures", "limner_last_commit_timestamp_seconds"):
            assert value(text, gauge) != value(text, gauge), "a number of a store that nobody can read"
        assert value(text, "limner_refusals_total", reason="store") == 1
        lost = "is empty" if mount_point_stays else "is gone"
        wait_for_log(
            caplog, f"not ready: store: {folder}: the folder of the store {lost}; is its disk mounted?"
        )
        # advice for somebody who never had a store
        assert "limner index" not in caplog.text
        # or the disk could not be unmounted
        assert handles_in(folder) == handles_in(tmp_path / "away") == []
        if mount_point_stays:
            folder.rmdir()
        (tmp_path / "away").rename(folder)
        wait_for(url, 200)
        assert search(url).json()["hits"] == before
        assert value(httpx.get(f"{url}/metrics").text, "limner_store_pictures") == COUNT
        wait_for_log(caplog, "ready again after ")
    said = [record.message for record in caplog.records if "ready" in record.message]
    # A probe between two of the changes above may see a folder that is gone before one that is empty, or after it.
    assert all(line.startswith(f"not ready: store: {folder}: ") for line in said[:-1])
    assert len(said) > 1
    assert said[-1].startswith("ready again after ")


def test_a_store_that_comes_back_from_a_copy(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with running(create_app(Store(engine), ServerSettings(**OFTEN))) as url:
        before = search(url).json()["hits"]
        shutil.copytree(folder, tmp_path / "copy")
        shutil.rmtree(folder)
        wait_for(url, 503)
        (tmp_path / "copy").rename(folder)
        wait_for(url, 200)
        assert search(url).json()["hits"] == before
        index_pictures(engine.encoder, StoreFiles.open(folder), [draw(tmp_path / "new.png", 77)])
        assert len(search(url).json()["hits"]) == COUNT + 1


@pytest.mark.parametrize(
    ("number", "told", "advice"),
    [
        (errno.EACCES, "the server has no right to it", "give the user who runs limner the right to it"),
        (errno.EIO, "the disk, or the connection to it, fails", "look at the system's log"),
        (errno.ESTALE, "the disk, or the connection to it, fails", "look at the system's log"),
    ],
)
def test_advice_that_fits_the_cause(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    told: str,
    advice: str,
) -> None:
    look = Path.stat

    def failing(path: Path, **kwargs: Any) -> os.stat_result:
        if path.name == "store.sqlite":
            raise OSError(number, os.strerror(number))
        return look(path, **kwargs)

    with running(create_app(Store(engine), ServerSettings(**OFTEN))) as url:
        wait_for(url, 200)
        monkeypatch.setattr(Path, "stat", failing)
        wait_for(url, 503, told)
        assert told in problem(search(url), 503)["detail"]
        monkeypatch.undo()
        wait_for(url, 200)
        assert search(url).status_code == 200
    assert advice in caplog.text
    assert "limner index" not in caplog.text


def test_a_damaged_store_and_one_of_another_model(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(create_app(Store(engine), ServerSettings(**OFTEN))) as url:
        wait_for(url, 200)
        (tmp_path / "store").rename(tmp_path / "whole")
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "store.sqlite").write_bytes(b"nonsense" * 100)
        wait_for(url, 503, "it is damaged")
        wait_for_log(caplog, "put back a copy of the store")
        shutil.rmtree(tmp_path / "store")
        wait_for_log(caplog, "the folder of the store is gone; is its disk mounted")
        (tmp_path / "whole").rename(tmp_path / "store")
        wait_for(url, 200)
        other = FakeEncoder(fingerprint="b" * 64)
        (tmp_path / "store").rename(tmp_path / "away")
        StoreFiles.create(tmp_path / "store", fingerprint=other.fingerprint, dim=DIM, run="run")
        wait_for(url, 503, "it was replaced by a store of another model")


def test_a_slow_disk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    go, length = threading.Event(), StoreFiles.__len__

    def slow(files: StoreFiles) -> int:
        go.wait(30)
        return length(files)

    settings = ServerSettings(**OFTEN, probe_limit=0.3)
    with running(create_app(Store(engine), settings)) as url:
        wait_for(url, 200)
        monkeypatch.setattr(StoreFiles, "__len__", slow)
        wait_for(url, 503, "store: no answer within 0.3 s")
        # what is remembered, and no thread that waits with the disk
        assert httpx.get(f"{url}/livez", timeout=5).status_code == 200
        assert value(httpx.get(f"{url}/metrics", timeout=5).text, "limner_ready") == 0
        asked = [one.name for one in threading.enumerate() if one.name == "limner-probe-store"]
        assert len(asked) == 1
        # whoever asks all the same is not refused for what a probe says
        assert search(url).status_code == 200
        go.set()
        wait_for(url, 200)


def test_a_model_that_hangs(tmp_path: Path) -> None:
    go = threading.Event()
    go.set()

    class Hanging(FakeEncoder):
        def encode_texts(self, sentences: Any, *, check: bool = True) -> Any:
            go.wait(30)
            return super().encode_texts(sentences, check=check)

    engine = toy_engine(tmp_path)
    engine.encoder = Hanging()
    with running(create_app(Store(engine), ServerSettings(**OFTEN, probe_limit=0.3))) as url:
        wait_for(url, 200)
        go.clear()
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(search(url).status_code))
        wait_for(url, 503, "model: no answer within 0.3 s")
        waiting.start()
        assert httpx.get(f"{url}/livez", timeout=5).status_code == 200
        go.set()
        wait_for(url, 200)
        waiting.join(20)
        # it has waited, and was not refused
        assert answers == [200]


def test_a_model_that_gives_no_numbers(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeEncoder):
        def encode_texts(self, sentences: Any, *, check: bool = True) -> Any:
            return super().encode_texts(sentences, check=check) * float("nan")

    engine.encoder = Broken()
    with running(create_app(Store(engine), ServerSettings(**OFTEN))) as url:
        wait_for(url, 503, "model: the server's log says why")
        wait_for_log(caplog, "not ready: model: the model's embeddings hold NaN or infinite values")


def test_a_batch_that_takes_long_is_no_failure(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe waits for the batch that has begun, not for all requests that wait behind it."""
    answers, seen = Engine.begin, Counter[int]()

    def slow(self: Engine, *args: Any) -> Any:
        time.sleep(0.1)
        return answers(self, *args)

    monkeypatch.setattr(Engine, "begin", slow)
    settings = ServerSettings(**OFTEN, probe_limit=1.0, max_batch=1)

    def ask(url: str) -> None:
        seen[search(url).status_code] += 1

    with running(create_app(Store(engine), settings)) as url:
        wait_for(url, 200)
        clients = [threading.Thread(target=ask, args=(url,)) for _ in range(30)]
        for one in clients:
            one.start()
        while any(one.is_alive() for one in clients):
            assert httpx.get(f"{url}/readyz").status_code == 200
            time.sleep(0.02)
    assert seen == {200: 30}


def test_a_store_that_changes_is_read_first(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, prepare = threading.Event(), Engine.prepare

    def slow(self: Engine) -> None:
        go.wait(20)
        prepare(self)

    other = toy_engine(tmp_path / "other")
    index_pictures(other.encoder, other.files, [draw(tmp_path / "new.png", 77)])
    with running(create_app(Store(engine), ServerSettings(**OFTEN, probe_limit=10))) as url:
        wait_for(url, 200)
        monkeypatch.setattr(Engine, "prepare", slow)
        (tmp_path / "store").rename(tmp_path / "away")
        (tmp_path / "other" / "store").rename(tmp_path / "store")
        wait_for(url, 503, "the store has changed and is being read")
        go.set()
        wait_for(url, 200)
        assert len(search(url).json()["hits"]) == COUNT + 1
        assert value(httpx.get(f"{url}/metrics").text, "limner_store_pictures") == COUNT + 1


def test_where_the_server_may_write(engine: Engine, tmp_path: Path) -> None:
    uploads, logs = tmp_path / "uploads", tmp_path / "logs"
    logs.mkdir()
    settings = ServerSettings(**OFTEN, changes=True, uploads=uploads, audit=logs / "audit.jsonl")
    with running(create_app(Store(engine), settings)) as url:
        names = [one["name"] for one in wait_for(url, 200).json()["probes"]]
        assert names == ["store", "model", "writer", "uploads", "audit"]
        # nothing is answered without a line; uploads are needed by those who add alone
        for folder, name, path in (
            (uploads, "uploads", "readyz?changes=true"),
            (logs, "audit", "readyz"),
            (logs, "audit", "health"),
        ):
            folder.rename(tmp_path / "away")
            wait_for(url, 503, f"{name}: the folder is not there", path)
            if name == "uploads":
                wait_for(url, 200, "the folder is not there")
            (tmp_path / "away").rename(folder)
            wait_for(url, 200, path=path)


def test_a_probe_refuses_no_writer(engine: Engine) -> None:
    settings = ServerSettings(probe_interval=0.001, rate=0, changes=True)
    # another process, as far as the lock is concerned
    files = StoreFiles.open(engine.files.folder)
    with running(create_app(Store(engine), settings)) as url:
        wait_for(url, 200)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            with files.writing():
                # nor is the server unready while somebody else writes
                assert httpx.get(f"{url}/readyz").status_code == 200


@pytest.mark.parametrize(
    ("access", "free", "trouble"), [(False, 9, "forbidden"), (True, 0, "full"), (True, 9, None)]
)
def test_what_keeps_a_folder_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: bool, free: int, trouble: str | None
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: access)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((0, 0, 0, 0, free, 0, 0, 0, 0, 0)))
    if trouble is None:
        expect_writable(tmp_path)
        WriterLock(tmp_path).check()
        assert list(tmp_path.iterdir()) == []
        return
    with pytest.raises(StoreError, match="cannot be written") as caught:
        expect_writable(tmp_path)
    assert caught.value.trouble == trouble
    assert "\n" not in str(caught.value)


def test_a_flood_keeps_no_probe_out_and_makes_none(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    touched, length = Counter[str](), StoreFiles.__len__

    def counted(files: StoreFiles) -> int:
        touched["store"] += files is engine.files
        return length(files)

    monkeypatch.setattr(StoreFiles, "__len__", counted)
    settings = ServerSettings(token=SecretStr("0123456789abcdef"), rate=0.1, burst=2, probe_interval=60)
    stop, refused = threading.Event(), Counter[int]()

    def flood(url: str, path: str) -> None:
        while not stop.is_set():
            try:
                answer = httpx.get(f"{url}{path}", headers={"Authorization": "Bearer wrong"}, timeout=10)
                refused[answer.status_code] += 1
            except httpx.HTTPError:
                refused[0] += 1

    with running(create_app(Store(engine), settings), settings) as url:
        wait_for(url, 200)
        strangers = [
            threading.Thread(target=flood, args=(url, path))
            for path in ("/v1/info", "/", "/openapi.json") * 2
        ]
        for one in strangers:
            one.start()
        seen = Counter(
            httpx.get(f"{url}{path}", timeout=10).status_code for path in ("/livez", "/readyz") * 15
        )
        stop.set()
        for one in strangers:
            one.join(20)
    assert seen == {200: 30}
    assert refused[429] > 3
    assert touched["store"] == 1


def test_a_server_that_drains(engine: Engine) -> None:
    """While it stops, a load balancer is told so, and nobody's request fails."""
    settings = ServerSettings(**OFTEN, drain_seconds=1.5)
    seen: Counter[object] = Counter()
    stopped = threading.Event()

    def load(url: str) -> None:
        with httpx.Client(timeout=20) as client:
            while not stopped.is_set():
                # as a load balancer does: no new request to a server that is not ready
                if client.get(f"{url}/readyz").status_code == 503:
                    seen["unready"] += 1
                    seen[client.post(f"{url}/v1/search", json=QUESTION).status_code] += 1
                    return
                seen[client.post(f"{url}/v1/search", json=QUESTION).status_code] += 1

    with running(create_app(Store(engine), settings), settings) as url:
        wait_for(url, 200)
        clients = [threading.Thread(target=load, args=(url,)) for _ in range(6)]
        for one in clients:
            one.start()
        time.sleep(0.3)
    stopped.set()
    for one in clients:
        one.join(20)
    assert seen["unready"] == 6
    assert set(seen) == {"unready", 200}


def test_a_mounted_app_is_probed_when_it_is_asked(engine: Engine, tmp_path: Path) -> None:
    outer = FastAPI()
    outer.mount("/pictures", create_app(Store(engine), ServerSettings(**OFTEN)))
    # without `with`: no lifespan, and no timer
    client = TestClient(outer, raise_server_exceptions=False)
    assert client.get("/pictures/readyz").json()["status"] == "ok"
    assert value(client.get("/pictures/metrics").text, "limner_store_pictures") == COUNT
    (tmp_path / "store").rename(tmp_path / "away")
    until = time.monotonic() + 20
    while client.get("/pictures/readyz").status_code == 200 and time.monotonic() < until:
        time.sleep(0.05)
    problem(client.get("/pictures/readyz"), 503)


def test_a_probe_that_takes_long_rests_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def slow() -> None:
        asked.append(time.monotonic())
        time.sleep(0.05)

    probe = Probe("store", slow, interval=0.001, limit=9.0)
    until = time.monotonic() + 0.8
    while time.monotonic() < until:
        probe.begin()
        time.sleep(0.005)
    # ten times as long as it takes
    assert 1 <= len(asked) <= 2


def test_stopping_goes_before_all_else(engine: Engine) -> None:
    app = create_app(Store(engine), ServerSettings(**OFTEN))
    with TestClient(app) as client:
        assert client.get("/readyz").status_code == 200
        app.state.stopping()
        assert problem(client.get("/readyz"), 503)["detail"] == "not ready: server: it is stopping"
        assert client.post("/v1/search", json=QUESTION).status_code == 200


def test_the_log_has_a_line_a_change_and_not_a_line_a_probe(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "limner.server")
    with running(create_app(Store(engine), ServerSettings(**OFTEN))) as url:
        wait_for(url, 200)
        (tmp_path / "store").rename(tmp_path / "away")
        wait_for(url, 503)
        time.sleep(1)
        assert sum("not ready" in record.message for record in caplog.records) == 1


def test_health_of_an_app_that_nobody_asks_does_nothing(engine: Engine) -> None:
    before = threading.active_count()
    app = create_app(Store(engine), ServerSettings(**OFTEN))
    assert "/readyz" in app.openapi()["paths"]
    assert threading.active_count() == before
