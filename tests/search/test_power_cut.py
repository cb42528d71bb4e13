"""A power cut at any moment of a change: the store is as it was before or after it, or its last commit is whole."""

import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from limner.errors import LimnerError
from limner.search.commits import Commits
from limner.store.entry import key_of
from limner.store.erase import erase
from limner.search.repair import repair
from limner.store.files import StoreFiles
from limner.store.verify import verify
from tests.search.power_cut import Left, PowerCuts, written
from tests.search.test_store_changes import DIM, SHAPE, Held, arrays, content, make, small_sizes


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreFiles:
    """A store of several commits whose versions are all old enough to be released."""
    monkeypatch.setattr("limner.search.table._KEPT", timedelta(milliseconds=1))
    made = StoreFiles.create(tmp_path / "store", fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE)
    for names in ("ab", "cd", "ef"):
        made.add(**arrays([make(name, ord(name)) for name in names]))
    made.delete([key_of("/a")])
    return made


def join_segments(files: StoreFiles) -> None:
    with small_sizes():
        files.compact()


def mend(files: StoreFiles) -> None:
    # of an earlier version, which no search reads, and which would stop a compaction
    manifest = max(Path(str(files.folder)).glob("pictures-1.lance/_versions/*.manifest"))
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert repair(files, lambda: pytest.fail("nothing to encode")).applied


CHANGES: dict[str, Callable[[StoreFiles], object]] = {
    "compact": StoreFiles.compact,
    "join segments": join_segments,
    "delete": lambda files: files.delete([key_of("/b")]),
    "update": lambda files: files.add(**arrays([make("c", 0), make("g", 1)])),
    "erase": lambda files: erase(files, ids=[key_of("/d")]),
    "repair": mend,
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_removed_that_a_power_cut_would_make_needed(
    files: StoreFiles, tmp_path: Path, change: str
) -> None:
    """LanceDB waits for no file of its own, so limner does, before anything of the state before is removed."""
    before = content(files)
    cuts = PowerCuts(tmp_path / "store", tmp_path / "held")
    with cuts.followed():
        CHANGES[change](files)
    after = content(files)
    for number, left in enumerate(cuts.left):
        check(written(left, tmp_path / f"cut-{number}"), left, (before, after))
    for number, left in enumerate(cuts.now()):
        assert content(StoreFiles.open(written(left, tmp_path / f"end-{number}"))) == after


def check(folder: Path, left: Left, states: tuple[dict[str, Held], ...]) -> None:
    try:
        files = StoreFiles.open(folder)
        found = content(files)
    except LimnerError:
        # the names of a commit that was not answered, whose bytes are lost: a repair goes back to the one before
        record = Commits(folder, "pictures-1").read()
        assert record is not None
        assert record.pending is not None
        for name, expected in record.done.files.items():
            file = left.get(f"pictures-1.lance/{name}", b"")
            assert (len(file), f"{zlib.crc32(file):08x}") == expected, name
    else:
        assert found in states
        assert verify(files).sound
        with files.writing():
            assert content(files) == found
