"""`limner watch` and `limner store sync` as commands; `watch` in a process of its own until it is stopped."""

import io
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from limner.search.store import open_store
from limner.store.files import StoreFiles
from limner.store_reports import SyncReport
from tests.cli.command import Limner, refused
from tests.forked import run_python, started

LONG = 120.0


@pytest.fixture
def own(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> Path:
    """A store of a copy of the toys in `photos`, beside it."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted(pictures.glob("*.png"))[:24]:
        shutil.copy(path, photos)
    assert limner("index", toy_run, tmp_path / "store", photos, "--cpu").code == 0
    return tmp_path / "store"


def test_sync_says_what_changed(limner: Limner, own: Path, pictures: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    assert limner("store", "sync", own, "--cpu").out == f"{own}: nothing new, 24 unchanged\n"
    shutil.copy(sorted(pictures.glob("*.png"))[30], photos / "new.png")
    first, second, third = sorted(photos.glob("0*.png"))[:3]
    first.rename(photos / "renamed.png")
    second.unlink()
    (photos / "odd.jpg").write_bytes(b"odd")
    # what `limner index` tells of a folder
    whole = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(whole, "JPEG")
    (photos / "cut.jpg").write_bytes(whole.getvalue()[:-2])
    for name in ("raw.cr2", "notes.txt", "@eaDir/x.png"):
        (photos / name).parent.mkdir(exist_ok=True)
        (photos / name).write_bytes(b"other")
    others = ", 2 passed over (1 .cr2, 1 .txt), left out: 1 @eaDir"
    planned = limner("store", "sync", own, "--cpu", "--dry-run")
    assert planned.out.splitlines() == [
        f"{own}: dry run: 3 to read, 1 moved, 1 gone, 22 unchanged{others}",
        f"gone: {second}",
    ]
    done = limner("store", "sync", own, "--cpu")
    counts = "2 added, 1 moved, 1 gone, 1 skipped, 22 unchanged"
    assert done.out == f"{own}: {counts}{others}; 1 picture waits for its file\n"
    assert f"skipped {photos / 'odd.jpg'}: not a picture" in done.err
    assert f"read without its end, which is missing: {photos / 'cut.jpg'}" in done.err
    assert "pictures that cannot be read here: 1 .cr2" in done.err
    report = json.loads(limner("store", "sync", own, "--cpu", "--json").out)
    assert SyncReport.model_validate(report).waiting == 1
    third.unlink()
    assert "2 erased" in limner("store", "sync", own, "--cpu", "--kept-days", 0).out


def test_pictures_that_wait_are_counted_by_themselves(
    limner: Limner, own: Path, toy_run: Path, tmp_path: Path
) -> None:
    photos = sorted((tmp_path / "photos").glob("*.png"))
    shutil.copy(photos[3], tmp_path / "photos" / "copy.png")
    limner("store", "sync", own, "--cpu")
    waiting, copy, kept = photos[:2], photos[3], photos[4]
    for path in (*waiting, copy):
        path.unlink()
    limner("store", "sync", own, "--cpu")
    assert limner("store", "info", own).out.startswith(
        f"{own}: 22 pictures; 2 pictures wait for their files, "
    )
    facts = json.loads(limner("store", "info", own, "--json").out)
    assert (facts["pictures"], facts["waiting"]) == (22, 2)
    assert facts["folders"] == [str(tmp_path / "photos")]
    assert limner("store", "info", own).out.endswith(f"follows {tmp_path / 'photos'}\n")
    assert (
        "22 pictures; 2 pictures wait for their files; 0 added"
        in limner("index", toy_run, own, kept, "--cpu").out
    )
    with open_store(own) as opened:
        assert (len(opened), len(list(opened))) == (22, 22)
    checked = limner("store", "verify", own)
    assert checked.out.startswith("stale: pictures that are out of the search, and wait for their files")
    assert "--missing" not in checked.out
    # no doubt about those that wait, and none of them is a tenth more
    kept.unlink()
    planned = limner("store", "delete", own, "--missing", "--dry-run")
    assert planned.out.splitlines()[-1] == (
        f"{own}: would delete 3 of 24 pictures, 2 pictures of them out of the search already"
    )
    assert planned.err == ""
    assert limner("store", "delete", own, "--missing").out.startswith(
        f"{own}: 3 deleted, 21 left, 2 pictures of"
    )


def test_copies_and_doubts_are_counted_before_a_deletion(limner: Limner, own: Path, tmp_path: Path) -> None:
    photos = sorted((tmp_path / "photos").glob("*.png"))
    shutil.copy(photos[5], tmp_path / "photos" / "copy.png")
    limner("store", "sync", own, "--cpu")
    for path in photos[3:6]:
        path.unlink()
    checked = limner("store", "verify", own).out
    assert (
        "pictures whose file is gone, or whose disk is away: bring that back, and nothing is lost" in checked
    )
    assert (
        "copies that are gone of pictures whose other files are there (`limner store sync STORE`): 1"
        in checked
    )
    said = r"would delete 2 of 24 pictures, and 1 copy of others, but that is more than a tenth"
    refused(limner("store", "delete", own, "--missing"), said)
    planned = limner("store", "delete", own, "--missing", "--dry-run")
    assert re.search(said, planned.err)


def test_pictures_that_would_come_back_are_told(limner: Limner, own: Path, tmp_path: Path) -> None:
    first, second = sorted((tmp_path / "photos").glob("*.png"))[:2]
    told = f"1 file in folders that the store follows, e.g. {first}: the next look at these"
    assert told in limner("store", "delete", own, first, "--dry-run").err
    assert told in limner("store", "delete", own, first).err
    limner("store", "sync", own, "--cpu")
    key = StoreFiles.open(own).entries()[str(first)].id
    assert told in limner("store", "erase", own, "--id", key).err
    (tmp_path / "photos" / ".limnerignore").write_text(second.name, encoding="utf-8")
    assert "the next look" not in limner("store", "delete", own, second).err


def test_sync_waits_for_a_word_where_a_disk_may_be_away(limner: Limner, own: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for path in sorted(photos.glob("*.png"))[:5]:
        path.unlink()
    done = limner("store", "sync", own, "--cpu")
    assert done.out.splitlines()[0] == f"{own}: 5 gone, which stay, 19 unchanged"
    assert "5 of 24 pictures are gone, more than a tenth" in done.err
    assert done.code == 1
    photos.rename(tmp_path / "away")
    done = limner("store", "sync", own, "--cpu")
    assert (done.code, done.out) == (1, f"{own}: nothing new, 0 unchanged, 1 folder away\n")
    assert f"{photos} is not there, as if its disk were away" in done.err
    assert f"`limner store sync {own} --yes`" in done.err
    # a folder in it is there and empty
    (tmp_path / "away").rename(photos)
    (photos / "inner").mkdir()
    for path in sorted(photos.glob("*.png"))[:10]:
        path.rename(photos / "inner" / path.name)
    limner("store", "sync", own, "--cpu", "--yes")
    for path in (photos / "inner").iterdir():
        path.unlink()
    for more in ((), ("--dry-run",)):
        done = limner("store", "sync", own, "--cpu", *more)
        assert (done.code, "nothing new, 9 unchanged, 1 folder away" in done.out) == (1, True)
        assert f"{photos / 'inner'} is empty, as if its disk were away" in done.err
    done = limner("store", "sync", own, "--cpu", "--yes")
    assert (done.code, done.out.startswith(f"{own}: 10 gone")) == (0, True)


def test_a_store_without_folders_is_refused(limner: Limner, own: Path, toy_run: Path, tmp_path: Path) -> None:
    one = next((tmp_path / "photos").glob("*.png"))
    assert limner("index", toy_run, tmp_path / "other", one, "--cpu").code == 0
    for command in (("store", "sync"), ("watch",)):
        refused(limner(*command, tmp_path / "other", "--cpu"), "follows no folder; index one with")
    refused(limner("store", "sync", own, "--kept-days", -1), "kept-days")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_watch_tells_of_each_change_in_a_line_of_json(
    own: Path, pictures: Path, tmp_path: Path, end: signal.Signals
) -> None:
    pytest.importorskip("watchfiles")
    log, photos = tmp_path / "log", tmp_path / "photos"
    process = started(run_python, ("-m", "limner", "watch", str(own), "--cpu", "--json"), log, environment={})

    def reports() -> list[SyncReport]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [SyncReport.model_validate_json(line) for line in lines if line.startswith("{")]

    def until(holds: Callable[[], bool]) -> None:
        late = time.monotonic() + LONG
        while not holds():
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < late, log.read_text()
            time.sleep(0.1)

    try:
        until(lambda: len(reports()) == 1)
        assert reports()[0].unchanged == 24
        shutil.copy(sorted(pictures.glob("*.png"))[30], photos / "new.png")
        until(lambda: sum(one.added for one in reports()) == 1)
        (photos / "new.png").unlink()
        until(lambda: [one.gone for one in reports()][-1] == (str(photos / "new.png"),))
        assert process.pid is not None
        os.kill(process.pid, end)
        process.join(LONG)
        assert process.exitcode is not None
    finally:
        process.kill()
    if end == signal.SIGINT:
        assert process.exitcode == 130
        assert "stopped; " in log.read_text()
    assert not re.search("Traceback", log.read_text())
