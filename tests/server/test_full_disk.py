"""A disk that is full below a running server: one error each, nothing lost, and all is well when there is room."""

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.audit import verify
from limner.server.settings import ServerSettings
from limner.store.verify import verify as verify_store
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import COUNT, added_to, problem, toy_engine
from tests.server.test_counters import value
from tests.server.test_health import wait_for, wait_for_log

QUESTION = {"text": "a red coat", "k": 3}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(
            "this user may mount no disk; tests/server/test_uploads.py and test_audit.py plant the error"
        )
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No byte is left on the disk within the block."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as file:
        block = 2**20
        while block:
            try:
                while file.write(bytes(block)) == block:
                    pass
            except OSError:
                pass
            block //= 2
    yield
    rest.unlink()


def settings_of(folder: Path, log: Path) -> ServerSettings:
    return ServerSettings(
        changes=True, uploads=folder / "uploads", audit=log / "audit.jsonl", rate=0, probe_interval=0.05
    )


def picture(tmp_path: Path, seed: int) -> dict[str, str]:
    content = draw(tmp_path / f"{seed}.png", seed).read_bytes()
    return {"name": f"{seed}.png", "image": base64.b64encode(content).decode()}


def test_the_store_is_on_a_full_disk(disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine: Engine = toy_engine(disk)
    settings = settings_of(disk, tmp_path)
    with (
        running(create_app(Store(engine), settings), settings) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        wait_for(url, 200)
        before = client.post("/v1/search", json=QUESTION).json()["hits"]
        assert client.post("/v1/items", json=picture(tmp_path, 50)).status_code == 201
        with filled(disk):
            changes = "readyz?changes=true"
            wait_for(url, 503, "writer: the disk is full; uploads: the disk is full", changes)
            # a load balancer goes on sending searches, which need no room
            reasons = {one["name"]: one["reason"] for one in wait_for(url, 200).json()["probes"]}
            assert (reasons["store"], reasons["writer"]) == (None, "the disk is full")
            for seed in (51, 52):
                refused = problem(client.post("/v1/items", json=picture(tmp_path, seed)), 503)
                assert "the disk is full" in refused["detail"]
            key = client.get("/v1/items").json()["items"][0]["id"]
            assert "the disk is full" in problem(client.delete(f"/v1/items/{key}"), 503)["detail"]
            # searches only read, and the log of access lies elsewhere
            assert client.post("/v1/search", json=QUESTION).status_code == 200
            assert client.get("/v1/items").json()["total"] == COUNT + 1
            counted = client.get("/metrics").text
            assert value(counted, "limner_probe_up", probe="uploads") == 0
            assert value(counted, "limner_probe_up", probe="store") == 1
            assert value(counted, "limner_ready") == 1
            assert value(counted, "limner_refusals_total", reason="store") == 3
            wait_for_log(caplog, "searches are answered, changes are not: writer: ")
            wait_for_log(caplog, "No space left on device")
        # nothing has to be started again
        wait_for(url, 200, path=changes)
        assert client.post("/v1/items", json=picture(tmp_path, 51)).status_code == 201
        assert client.get("/v1/items").json()["total"] == COUNT + 2
        found = client.post("/v1/search", json={**QUESTION, "k": 100}).json()["hits"]
        assert {hit["id"] for hit in before} <= {hit["id"] for hit in found}
        assert len(added_to(disk / "uploads")) == 2
    assert verify(tmp_path / "audit.jsonl").sound
    assert verify_store(engine.files).sound


def test_the_audit_log_is_on_a_full_disk(
    engine: Engine, disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a line nothing is answered and nothing changed, as docs/server.md says."""
    settings = settings_of(tmp_path, disk)
    with (
        running(create_app(Store(engine), settings), settings) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        wait_for(url, 200)
        with filled(disk):
            wait_for(url, 503, "audit: the disk is full")
            # the last block of the file may have room for a few lines
            answers = [client.post("/v1/search", json=QUESTION) for _ in range(40)]
            refusal = problem(answers[-1], 503)
            assert "the record of requests cannot be written" in refusal["detail"]
            # its first line is a short one, which may just fit; the second one does not
            problem(client.post("/v1/items", json=picture(tmp_path, 51)), 503)
            assert client.get("/livez").status_code == 200
            counted = client.get("/metrics").text
            assert value(counted, "limner_refusals_total", reason="audit") >= 2
            assert value(counted, "limner_probe_up", probe="audit") == 0
            added = len(added_to(tmp_path / "uploads"))
        wait_for(url, 200)
        assert client.post("/v1/items", json=picture(tmp_path, 51)).status_code == 201
        answered = sum(answer.status_code == 200 for answer in answers)
    assert "audit.jsonl" in caplog.text
    # no half line is left, and each answer has its own
    assert verify(disk / "audit.jsonl").sound
    lines = [json.loads(line) for line in (disk / "audit.jsonl").read_text().splitlines()]
    assert sum(line["request"] == "add" and "begun" in line for line in lines) == added + 1
    assert sum(line["request"] == "search" and line.get("status") == 200 for line in lines) == answered
