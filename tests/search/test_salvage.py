"""The process that reads a damaged store: its end is not taken for more damage than there is."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from limner.errors import StoreError
from limner.search import salvage
from limner.search.repair import repair
from limner.search.salvage import Salvage, SalvageProcess
from limner.search.salvage_reader import ENOUGH
from tests.search.fake import FakeEncoder
from tests.search.repairing import (
    COUNT,
    can_be_read,
    check,
    drawn,
    flip,
    opened,
    refuses,
    store_of,
    vector_bytes,
)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return drawn(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, pictures: list[Path]) -> Path:
    return store_of(tmp_path, pictures)


def test_many_rows_of_a_file_that_cannot_be_read(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is asked for the file, not for each of its rows."""
    file, _ = vector_bytes(folder, pictures[0])
    file.write_bytes(file.read_bytes()[:-20])
    asked: list[object] = []
    ask = SalvageProcess.ask

    def noted(self: SalvageProcess, *request: object) -> list[str]:
        asked.append(request[2])
        return ask(self, *request)

    monkeypatch.setattr(SalvageProcess, "ask", noted)
    refuses(folder)
    # once of the table of pictures; of the other one, too, to see that all of them are sound
    assert asked.count("rows") == 3


def test_a_process_that_died_of_what_was_before_is_begun_anew(folder: Path) -> None:
    """Only what ends a fresh process is passed over."""
    state = (str(folder), "pictures-1", "state")
    with SalvageProcess() as process:
        first = process.ask(*state)
        assert first[0].split()[:2] == ["4", str(COUNT)]
        assert process._process is not None
        process._process.kill()
        assert process.ask(*state) == first
        assert process.ask(str(folder), "pictures-1", "nonsense") == []


def test_a_process_remembers_nothing_of_what_lay_at_the_same_path(tmp_path: Path) -> None:
    """Each version of a table is tried at one path; tests read one store after the other by one process, too."""
    stores = [store_of(tmp_path / name, drawn(tmp_path / name)) for name in ("one", "other")]
    place, out = tmp_path / "place", tmp_path / "rows.arrow"

    def read(process: SalvageProcess, store: Path) -> tuple[list[str], bytes]:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(store, place)
        told = process.ask(str(place), "pictures-1", "state")
        assert process.ask(str(place), "pictures-1", "rows", str(out), 0, 256) == [ENOUGH]
        return told, out.read_bytes()

    alone = []
    for store in stores:
        with SalvageProcess() as process:
            alone.append(read(process, store))
    assert alone[0] != alone[1]
    with SalvageProcess() as process:
        assert [read(process, store) for store in (*stores, *stores)] == [*alone, *alone]


def test_a_process_that_was_killed_once_from_outside_is_asked_again(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a system without memory; taken for damage, it would cost a version of the table."""
    start, killed = salvage._started, list[object]()

    def started() -> "subprocess.Popen[str]":
        process = start()
        if not killed:
            process.kill()
            process.wait()
            killed.append(process)
        return process

    flip(*vector_bytes(folder, pictures[4]))
    monkeypatch.setattr("limner.search.salvage._started", started)
    report = repair(opened(folder), FakeEncoder)
    assert (len(killed), report.repaired, report.loses) == (1, (str(pictures[4]),), False)
    check(folder, pictures)


def test_a_version_of_which_the_process_dies_each_time_is_passed_over(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies without a line, and the next version is asked for."""
    ask = SalvageProcess.ask
    states: list[object] = []

    def dying(self: SalvageProcess, *request: object) -> list[str]:
        if request[1:] == ("pictures-1", "state"):
            states.append(request)
            if len(states) == 1:
                return ask(self, *request[:2], "nonsense")
        return ask(self, *request)

    flip(*vector_bytes(folder, pictures[4]))
    monkeypatch.setattr(SalvageProcess, "ask", dying)
    assert refuses(folder).missing == can_be_read(6)


def test_nothing_of_the_working_folder_is_run(
    folder: Path, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets.py").write_text("raise SystemExit('of the working folder')")
    monkeypatch.chdir(tmp_path)
    flip(*vector_bytes(folder, pictures[4]))
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


def test_without_the_process_nothing_is_called_lost(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(*vector_bytes(folder, pictures[4]))
    monkeypatch.setattr("limner.search.salvage.sys.executable", shutil.which("false"))
    with pytest.raises(StoreError, match="cannot be started"):
        repair(opened(folder), FakeEncoder, accept_loss=True)
    monkeypatch.undo()
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


def test_what_may_not_be_read_or_written_is_no_damage(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rights, and a full disk: in place of rows of which nobody knows anything, one error."""
    flip(*vector_bytes(folder, pictures[4]))

    opens = Path.open

    def denied(self: Path, *rest: Any, **named: Any) -> Any:
        if self.parent.name == "data":
            raise PermissionError(13, "Permission denied", str(self))
        return opens(self, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", denied)
        with pytest.raises(StoreError, match=r"pictures-1\.lance.*: cannot be read \(Permission denied\)"):
            repair(opened(folder), FakeEncoder, accept_loss=True)
    written = Salvage._ask

    def full(self: Salvage, copy: Path, *request: object) -> list[str]:
        # a device that is always full takes the place of the file for the rows
        return written(self, copy, *("/dev/full" if "rows.arrow" in str(one) else one for one in request))

    with monkeypatch.context() as patched:
        patched.setattr(Salvage, "_ask", full)
        with pytest.raises(StoreError, match=r"cannot be written .*No space left on device"):
            repair(opened(folder), FakeEncoder, accept_loss=True)
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


def test_a_file_system_without_links(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    flip(*vector_bytes(folder, pictures[4]))
    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


def test_what_hinders_lancedb_in_a_folder_is_no_damage(
    folder: Path, pictures: list[Path], tmp_path: Path
) -> None:
    """A name that it cannot take, as too long a path would be: all rows would be called lost."""
    flip(*vector_bytes(folder, pictures[4]))
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/name-\xff"))
    try:
        folder.rename(odd)
    except OSError:
        pytest.skip("a file system that takes names in UTF-8 alone")
    before = sorted(odd.rglob("*"))
    with pytest.raises(StoreError, match="LanceDB cannot read a new table here"):
        repair(opened(odd), FakeEncoder, accept_loss=True)
    assert [path for path in sorted(odd.rglob("*")) if path.suffix != ".partial"] == before
    odd.rename(folder)
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_an_interrupt_leaves_no_thread_to_wait_for(
    folder: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Python would wait for the time limit of the answer, minutes after it has said that it stopped."""
    answered = salvage._lines_until
    calls: list[str] = []

    def interrupted(process: "subprocess.Popen[str]", last: str) -> list[str]:
        calls.append(last)
        if len(calls) == moment:
            raise KeyboardInterrupt
        return answered(process, last)

    flip(*vector_bytes(folder, pictures[4]))
    with monkeypatch.context() as patched:
        patched.setattr(salvage, "_lines_until", interrupted)
        with pytest.raises(KeyboardInterrupt):
            repair(opened(folder), FakeEncoder)
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for timer in timers:
        # it was cancelled, and ends at once
        timer.join(timeout=10)
    assert not any(timer.is_alive() for timer in timers)
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


def test_a_process_that_does_not_start_is_not_waited_for(
    folder: Path, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    flip(*vector_bytes(folder, pictures[4]))
    with monkeypatch.context() as patched:
        patched.setattr("limner.search.salvage.sys.executable", str(slow))
        patched.setattr(salvage, "_SECONDS", 0.2)
        with pytest.raises(StoreError, match="cannot be started"):
            repair(opened(folder), FakeEncoder)
    # nor does the encoding that a user chose for terminals hide its first line
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    assert not repair(opened(folder), FakeEncoder).loses
    check(folder, pictures)


def test_a_control_that_is_asked_for_again(tmp_path: Path) -> None:
    """The process may die behind the table that it wrote and before its answer."""
    with SalvageProcess() as process:
        for _ in range(2):
            assert process.ask(str(tmp_path), "pictures-1", "control") == [ENOUGH]
