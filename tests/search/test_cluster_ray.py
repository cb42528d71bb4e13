"""Indexing by processes of Ray: skipped without it, since it is an extra that the development tools do not bring."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.search.index import index_pictures
from limner.store.files import StoreFiles
from limner.store_reports import IndexReport
from tests.search.fake import FakeEncoder, draw, vectors_of
from tests.search.test_batch_look import check_equal, made

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

# in a process of its own: one that has opened a store should not start Ray, and Ray does not close all its files
SCRIPT = """
import json, os, sys, time
from limner.search.cluster import Share, connected
from tests.search.fake import FakeEncoder

class Slow(FakeEncoder):
    def __init__(self, pids):
        super().__init__()
        open(os.path.join(pids, str(os.getpid())), "w").close()

    def encode_pixels(self, pixels):
        time.sleep(0.3)
        return super().encode_pixels(pixels)

store, folder, pids = sys.argv[1:]
with connected("local") as cluster:
    from limner.store import writer as store_writer
    from limner.search.index import index_pictures
    from limner.store.files import StoreFiles

    store_writer.IMAGES = 4
    workers = cluster.workers(lambda: Slow(pids), "a" * 64, shares=[Share(1), Share(1)])
    report = index_pictures(FakeEncoder(), StoreFiles.open(store), [folder], batch_size=4, cluster=workers,
                            progress=lambda done, total: print(done, flush=True))
    print(report.model_dump_json())
"""


@pytest.fixture(scope="module", autouse=True)
def ray() -> None:
    pytest.importorskip("ray")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 pictures, and three files that are none."""
    for number in range(60):
        draw(tmp_path / "pictures" / f"{number:02}.png", number)
    for name in ("00x.jpg", "31x.jpg", "zz.jpg"):
        (tmp_path / "pictures" / name).write_bytes(b"no picture")
    (tmp_path / "pids").mkdir()
    return tmp_path / "pictures"


@pytest.fixture
def alone(tmp_path: Path, folder: Path) -> tuple[StoreFiles, IndexReport]:
    """The store and the report of one process."""
    store = made(tmp_path / "alone")
    return store, index_pictures(FakeEncoder(), store, [folder], batch_size=4)


def started(store: StoreFiles, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(store.folder), str(folder), str(folder.parent / "pids")]
    # Ray's workers are to find the classes of the tests, too
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def wait_for(process: subprocess.Popen[str], done: int) -> None:
    """Read the progress until so many pictures are done."""
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= done:
            return
    pytest.fail("it ended before")


def told(process: subprocess.Popen[str]) -> IndexReport:
    output = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 0, output
    # Ray tells of dead workers on stdout, also later
    return IndexReport.model_validate_json(next(line for line in output if line.startswith("{")))


def test_a_killed_worker_costs_nothing(
    tmp_path: Path, folder: Path, alone: tuple[StoreFiles, IndexReport]
) -> None:
    store = made(tmp_path / "store")
    with started(store, folder) as process:
        wait_for(process, 12)
        pids = [int(file.name) for file in (tmp_path / "pids").iterdir()]
        # all of them: beside one that lives, the work may be done before its successor has started
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        report = told(process)
    assert report == alone[1]
    assert [Path(path).name for path, _ in report.skipped] == ["00x.jpg", "31x.jpg", "zz.jpg"]
    check_equal(store, alone[0])
    # others took their places
    assert len(list((tmp_path / "pids").iterdir())) > len(pids)


def test_after_a_kill_the_same_command_goes_on(
    tmp_path: Path, folder: Path, alone: tuple[StoreFiles, IndexReport]
) -> None:
    store = made(tmp_path / "store")
    with started(store, folder) as process:
        wait_for(process, 20)
        process.kill()
    before = len(StoreFiles.open(store.folder))
    assert 0 < before < 60
    with started(store, folder) as process:
        report = told(process)
    assert report == alone[1].model_copy(update={"added": 60 - before, "unchanged": before})
    check_equal(store, alone[0])


def limner(where: Path, *words: object) -> dict[str, object]:
    """The result of a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "limner", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_command(toy_run: Path, tmp_path: Path, folder: Path) -> None:
    def run(store: str, *more: str) -> dict[str, object]:
        return limner(tmp_path, "index", toy_run, store, folder, *more)

    alone, together = run("alone"), run("together", "--cluster", "local")
    assert {**together, "store": "alone"} == alone
    one, other = StoreFiles.open(tmp_path / "alone"), StoreFiles.open(tmp_path / "together")
    assert one.entries() == other.entries()
    ids = [entry.id for entry in one.entries().values()]
    # beside a file that is no picture a batch is smaller there, and products of other sizes differ in the last bits
    np.testing.assert_allclose(vectors_of(one, ids), vectors_of(other, ids), rtol=0, atol=1e-6)
    assert run("together", "--cluster", "local")["unchanged"] == 60


def test_reindex_and_evaluate(toy_run: Path, toys: Dataset, tmp_path: Path) -> None:
    pictures = toys.records[0].image.parent
    limner(tmp_path, "index", toy_run, "old", pictures)
    found = []
    for name, more in (("alone", []), ("together", ["--cluster", "local"])):
        again = limner(tmp_path, "reindex", "old", toy_run, name, *more)
        # a copy: an evaluation is noted in the run's folder
        run = shutil.copytree(toy_run, tmp_path / f"run-{name}")
        report = limner(tmp_path, "evaluate", run, "--data", f"folder:{pictures}", "--cpu", *more)
        store = StoreFiles.open(tmp_path / name)
        entries = store.entries()
        found.append((again["added"], entries, report))
        vectors = vectors_of(store, [entry.id for entry in entries.values()])
        other = vectors_of(StoreFiles.open(tmp_path / "old"), [entry.id for entry in entries.values()])
        np.testing.assert_allclose(vectors, other, rtol=0, atol=1e-6)
    assert found[0] == found[1]
    assert found[0][0] == len(toys)
