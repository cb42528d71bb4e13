"""What `limner.durable` promises: whole or not at all, on the disk when it says so, and JSON that is checked."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.durable import (
    expect_new,
    from_json,
    opened,
    part_of,
    read_json,
    sealed,
    sync_all,
    whole_folder,
    write_text,
    write_whole,
)
from limner.errors import CheckpointError, SettingsError

_KILLED = """
import os, signal, sys
from pathlib import Path
from limner import durable

left = int(sys.argv[2])

def counted(event, *_):
    # every call of the system that the audit hooks of Python see, and those that move bytes to the disk
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

fsync = os.fsync
os.fsync = lambda handle: (counted("fsync"), fsync(handle))
file, folder = Path(sys.argv[1]) / "a.json", Path(sys.argv[1]) / "folder"
sys.addaudithook(lambda event, args: event in ("open", "os.rename", "os.remove", "os.mkdir") and counted(event))
durable.write_whole(file, "new" * 10_000)
with durable.whole_folder(folder) as part:
    durable.write_whole(part / "one", b"1")
    durable.write_whole(part / "two", b"2")
print("done")
"""


def test_a_kill_anywhere_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    ended = False
    for calls in range(60):
        (tmp_path / "a.json").write_text("old")
        shutil.rmtree(tmp_path / "folder", ignore_errors=True)
        # leftovers of the kills before are in nobody's way
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(tmp_path), str(calls)], capture_output=True, timeout=60
        )
        text = (tmp_path / "a.json").read_text()
        assert text in ("old", "new" * 10_000)
        if (tmp_path / "folder").exists():
            assert text != "old"
            assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["one", "two"]
        assert {path.name for path in tmp_path.iterdir()} <= {
            "a.json",
            "a.json.part",
            "folder",
            "folder.part",
        }
        if done.returncode == 0:
            ended = True
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert ended
    assert calls > 15
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "folder"]


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        state = os.fstat(handle)
        steps.append("folder" if stat.S_ISDIR(state.st_mode) else state.st_size)
        fsync(handle)

    def replaced(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write_whole(tmp_path / "a", b"twelve bytes")
    assert steps == [12, "rename", "folder"]


@pytest.mark.parametrize("at", ["os.fsync", "pathlib.Path.replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    write_whole(tmp_path / "a", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(at, full)
        with pytest.raises(OSError, match="No space"):
            write_whole(tmp_path / "a", "new")
        with pytest.raises(CheckpointError, match=r"a: cannot be written \(No space left on device\)"):
            write_text(tmp_path / "a", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path) -> None:
    # what a killed call has left may be open to others
    part_of(tmp_path / "a").write_bytes(b"left")
    seen = []
    write_whole(
        tmp_path / "a", b"x", mode=0o600, opened=lambda handle: seen.append(os.fstat(handle).st_mode & 0o777)
    )
    assert seen == [0o600]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_folder_that_fails_is_not_there(tmp_path: Path) -> None:
    def stopped() -> None:
        with whole_folder(tmp_path / "deep" / "out") as part:
            (part / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert list((tmp_path / "deep").iterdir()) == []
    with whole_folder(tmp_path / "deep" / "out") as part:
        (part / "whole").write_text("x")
        sync_all(part)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    with pytest.raises(SettingsError, match="it exists; give a new folder for the site"):
        expect_new(tmp_path / "deep" / "out", "the site")


_VALUES = st.dictionaries(
    st.text(max_size=5).filter(lambda name: name != "digest"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inside: (
            st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3)
        ),
        max_leaves=5,
    ),
    max_size=4,
)


@given(values=_VALUES, place=st.floats(0, 1, exclude_max=True), other=st.integers(32, 126))
def test_sealed_json_opens_and_a_changed_character_is_found(
    values: dict[str, object], place: float, other: int
) -> None:
    text = sealed(values)
    assert opened(from_json(text)) == values
    at = int(place * len(text))
    changed = text[:at] + chr(other) + text[at + 1 :]
    try:
        found = opened(from_json(changed))
    except ValueError:
        return
    # white space, or another spelling of the same value
    assert json.dumps(found, sort_keys=True) == json.dumps(values, sort_keys=True)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "", "1" * 5_000])
def test_what_is_no_json_is_a_value_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    why = r"nested too deeply|Expecting|4300"
    with pytest.raises(ValueError, match=why):
        read_json(tmp_path / "a.json")
    with pytest.raises(ValueError, match=why):
        from_json(text.encode())


@pytest.mark.parametrize("values", [[], None, 1, "a", {}])
def test_values_without_their_digest_are_not_opened(values: object) -> None:
    with pytest.raises(ValueError, match=r"no JSON object|digest"):
        opened(values)


def test_a_digest_that_is_not_required_is_compared_where_it_is() -> None:
    assert opened({"dim": 1}, required=False) == {"dim": 1}
    with pytest.raises(ValueError, match="digest"):
        opened({"dim": 1, "digest": "0" * 32}, required=False)
