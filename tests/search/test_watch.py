"""`limner.search.watch`: what changes in folders is in the store within seconds, and trouble is waited out."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import pytest

from limner.errors import StoreError
from limner.search import watch as module
from limner.search.index import index_pictures
from limner.search.sync import SyncSettings, sync
from limner.search.watch import watch
from limner.store.files import StoreFiles
from limner.store.folders import TEXT, Folder, follow_folders
from limner.store_reports import SyncReport
from tests.search.fake import FakeEncoder, draw
from tests.search.test_places import made
from tests.search.test_sync import files_in, found

pytest.importorskip("watchfiles")

LONG = 60.0


class Told:
    def __init__(self) -> None:
        self.reports: list[SyncReport] = []
        self.troubles: list[str] = []

    def __call__(self, told: SyncReport | str) -> None:
        if isinstance(told, str):
            self.troubles.append(told)
        else:
            self.reports.append(told)


@contextmanager
def watched(store: StoreFiles, every: float = 1000.0) -> Iterator[Told]:
    """A thread that watches, with a handle of its own; what ends it is raised here."""
    told, stop, ended = Told(), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            watch(FakeEncoder(), StoreFiles.open(store.folder), told, every=every, stop=stop)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join(LONG)
    assert not thread.is_alive()
    if ended:
        raise ended[0]


def until(holds: Callable[[], bool], seconds: float = LONG) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    for number in range(20):
        draw(folder / f"{number // 10}" / f"{number}.png", number)
    return folder


@pytest.fixture
def store(folder: Path, tmp_path: Path) -> StoreFiles:
    # within the folder: what it writes is no news
    store = made(folder / "store")
    index_pictures(FakeEncoder(), store, [folder])
    return store


def test_what_changes_is_in_the_search(store: StoreFiles, folder: Path, tmp_path: Path) -> None:
    with watched(store) as told:
        draw(folder / "0" / "new.png", 30)
        until(lambda: found(store) == files_in(folder))
        (folder / "1").rename(folder / "2")
        until(lambda: found(store) == files_in(folder))
        (folder / "0" / "new.png").rename(tmp_path / "out.png")
        until(lambda: found(store) == files_in(folder))
        (tmp_path / "out.png").rename(folder / "back.png")
        until(lambda: found(store) == files_in(folder))
        draw(folder / "deep" / "er" / "x.png", 31)
        shutil.copy(folder / "back.png", folder / "deep" / "copy.png")
        until(lambda: found(store) == files_in(folder))
        until(lambda: sum(report.added for report in told.reports) == 2)
    assert sum(report.moved for report in told.reports) == 11
    assert not told.troubles


@pytest.mark.parametrize(("longest", "every"), [(30.0, 1000.0), (1.0, 1000.0), (1.0, 1.0)])
def test_a_file_that_is_being_written_is_waited_for(
    store: StoreFiles,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    longest: float,
    every: float,
) -> None:
    """Also where writing goes on for longer than changes are gathered, and where everything is looked through."""
    monkeypatch.setattr(module, "_LONGEST", longest)
    content = draw(tmp_path / "whole.png", 40).read_bytes()
    with watched(store, every=every) as told, (folder / "slow.png").open("wb") as file:
        for place in range(0, len(content), len(content) // 16):
            file.write(content[place : place + len(content) // 16])
            file.flush()
            time.sleep(0.4)
        until(lambda: found(store) == files_in(folder) and bool(told.reports))
        assert not [one for report in told.reports for one in report.skipped]
        assert [report.added for report in told.reports] == [1]


@pytest.mark.parametrize("away", ["gone", "empty", "a part"])
def test_a_disk_that_is_away_and_back(store: StoreFiles, folder: Path, tmp_path: Path, away: str) -> None:
    shutil.move(folder / "store", tmp_path / "store")
    store = StoreFiles.open(tmp_path / "store")
    everything = found(store)
    part = away == "a part"
    top, folder = folder, folder / "1" if part else folder
    with watched(store, every=1000.0 if part else 2.0) as told:
        until(lambda: threading.active_count() > 1)
        time.sleep(1)
        folder.rename(tmp_path / "unmounted")
        if away != "gone":
            folder.mkdir()
        until(lambda: any(report.away for report in told.reports))
        # a look at other files says nothing of it
        if part:
            everything.add(str(draw(top / "0" / "more.png", 49)))
            until(lambda: found(store) == everything)
        time.sleep(3)
        assert found(store) == everything
        if away != "gone":
            folder.rmdir()
        (tmp_path / "unmounted").rename(folder)
        draw(folder / "new.png", 50)
        until(lambda: found(store) == files_in(top) and not told.reports[-1].away)
    assert sum(bool(report.away) for report in told.reports) == 1 + part
    reason = "is not there" if away == "gone" else "is empty"
    begun, over = told.troubles
    assert begun.startswith(f"{folder} {reason}, as if its disk were away")
    assert over == f"{folder} no longer seems to be away"


def test_a_doubt_is_told_when_it_begins_and_when_it_is_over(
    store: StoreFiles, folder: Path, tmp_path: Path
) -> None:
    everything = found(store)
    with watched(store) as told:
        until(lambda: threading.active_count() > 1)
        time.sleep(1)
        (folder / "1").rename(tmp_path / "1")
        until(lambda: any(report.doubt for report in told.reports))
        # of other files: the doubt stays
        draw(folder / "0" / "new.png", 50)
        until(lambda: len(found(store)) == len(everything) + 1)
        until(lambda: any(report.added for report in told.reports))
        assert told.reports[-1].doubt
        (tmp_path / "1").rename(folder / "1")
        until(lambda: told.reports[-1].doubt is None)
    assert found(store) == files_in(folder)
    assert not told.reports[-1].added
    assert told.troubles[-1].startswith("no longer in doubt: the files of 10 of 2")


def test_what_another_process_decides_of_a_folder_that_is_away_is_seen(
    store: StoreFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN", 3.0)
    shutil.move(folder / "store", tmp_path / "store")
    store = StoreFiles.open(tmp_path / "store")
    follow_folders(store, [Folder(str(folder / "0"))])
    follow_folders(store, [Folder(str(folder / "1"))])
    (folder / "1").rename(tmp_path / "unmounted")
    with watched(store) as told:
        until(lambda: any(report.away for report in told.reports))
        sync(FakeEncoder(), StoreFiles.open(store.folder), SyncSettings(yes=True))
        until(lambda: not told.reports[-1].away, 20.0)
    assert found(store) == files_in(folder)


def test_a_flood_of_changes(store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FLOOD", 5)
    with watched(store) as told:
        (folder / "1").rename(folder / "3")
        for number in range(60, 90):
            draw(folder / "3" / f"{number}.png", number)
        until(lambda: found(store) == files_in(folder))
        until(lambda: sum(report.moved for report in told.reports) == 10)


def test_changes_of_which_nobody_tells(
    store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that overflows, a network's disk: all folders are looked through every so often."""
    monkeypatch.setattr("watchfiles.watch", lambda *folders, stop_event, **how: iter(()))
    with watched(store, every=1.0):
        draw(folder / "new.png", 70)
        (folder / "0" / "0.png").unlink()
        until(lambda: found(store) == files_in(folder))


def test_a_system_that_watches_no_more_folders(
    store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit(*folders: str, **how: object) -> None:
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles.watch", limit)
    # a minute, in place of the ten that are asked for
    monkeypatch.setattr(module, "_SILENT", 1.0)
    with watched(store, every=1000.0) as told:
        until(lambda: bool(told.reports))
        draw(folder / "new.png", 70)
        until(lambda: found(store) == files_in(folder))
        assert len(told.troubles) == 1
        assert "limit reached" in told.troubles[0]


def test_another_writer_is_waited_for(
    store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN", 1.0)
    with watched(store) as told:
        until(lambda: threading.active_count() > 1)
        with store.writing():
            draw(folder / "new.png", 70)
            time.sleep(5)
            assert str(folder / "new.png") not in found(store)
        until(lambda: found(store) == files_in(folder))
        assert not told.troubles


def test_a_store_that_is_away_is_waited_for(
    store: StoreFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN", 1.0)
    shutil.move(folder / "store", tmp_path / "store")
    store = StoreFiles.open(tmp_path / "store")
    with watched(store, every=1.0) as told:
        time.sleep(1)
        (tmp_path / "store").rename(tmp_path / "away")
        draw(folder / "new.png", 70)
        until(lambda: bool(told.troubles))
        time.sleep(3)
        (tmp_path / "away").rename(tmp_path / "store")
        until(lambda: found(store) == files_in(folder))
        assert len(told.troubles) == 1
        # that it is over is told, also where nothing has changed
        until(lambda: bool(told.reports))


def test_a_damaged_store_ends_it(store: StoreFiles, folder: Path) -> None:
    store.rows.set_text(TEXT, "nothing")
    with pytest.raises(StoreError, match="damaged"), watched(store):
        time.sleep(3)


def test_a_clock_that_jumps_erases_nothing(
    store: StoreFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "0" / "0.png").unlink()
    now = time.time
    with watched(store, every=1.0) as told:
        until(lambda: len(found(store)) == 19)
        monkeypatch.setattr("time.time", lambda: now() + 365 * 86400)
        # for several looks
        time.sleep(4)
        monkeypatch.setattr("time.time", now)
        time.sleep(3)
        assert len(store.images()) == 20
    assert not any(report.erased for report in told.reports)


def test_for_an_hour_behind_a_jump_nothing_is_erased_and_the_clock_is_read_once(
    store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, steady = [1e9], [1e4]
    monkeypatch.setattr("time.time", lambda: wall[0])
    monkeypatch.setattr("time.monotonic", lambda: steady[0])
    asked = list[tuple[float, float]]()

    def look(how: SyncSettings, *, now: float, **named: Any) -> SyncReport:
        asked.append((how.kept_days, now))
        return SyncReport()

    rounds = module._Rounds(store, look, lambda told: None, SyncSettings(), 600.0)
    year = 365 * 86400.0
    steps = ((600, 0, 30), (600, year, inf), (1800, 0, inf), (1700, 0, inf), (600, 0, 30), (600, -year, inf))
    for passed, jump, expected in steps:
        steady[0] += passed
        wall[0] += passed + jump
        rounds.take((), threading.Event())
        assert asked.pop() == (expected, wall[0])


def test_a_network_is_known_by_the_list_of_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        "/dev/sda / ext4 rw\nnas:/p /mnt/nas nfs4 rw\nx /mnt/nas/local tmpfs rw\ns /home/a fuse.sshfs rw\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda path, **how: mounts)
    for folder, silent in (
        ("/srv", False),
        ("/mnt/nas/pictures", True),
        ("/mnt/nas", True),
        ("/mnt/nasty", False),
        ("/mnt/nas/local/x", False),
        ("/home/a/b", True),
    ):
        assert module._is_silent(folder) is silent


def test_hidden_files_are_no_news(store: StoreFiles, folder: Path) -> None:
    with watched(store) as told:
        time.sleep(2)
        draw(folder / ".trash" / "x.png", 80)
        draw(folder / ".y.png", 81)
        time.sleep(5)
        assert not told.reports
