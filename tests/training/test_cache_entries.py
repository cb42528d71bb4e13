"""Entries of the feature cache that were damaged, exchanged or left unfinished."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from limner.data.kept_rows import KeptRows, Note
from limner.data.records import Dataset
from limner.errors import DataError
from limner.training.cache_entries import kept_array
from limner.training.log import EpochEnded, Event
from limner.training.loop import train
from tests.toy import toy_recipe

SHAPE = (40, 3, 8)
STEPS = 4
"""Rows of one step of the computation are 10."""


class KilledError(Exception):
    """The end of a computation in its middle."""


def _values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def _kept(
    folder: Path,
    key: str = "a",
    *,
    shape: tuple[int, ...] = SHAPE,
    kill_at: int | None = None,
    calls: list[int] | None = None,
) -> KeptRows:
    """The entry of a key, whose values depend on it; `calls` notes the steps that were computed."""

    def fill(store: np.ndarray, done: int, complete: Callable[[int, int], None]) -> None:
        values = _values(ord(key), shape)
        for step in range(done, STEPS):
            rows = slice(step * shape[0] // STEPS, (step + 1) * shape[0] // STEPS)
            store[rows] = values[rows]
            if calls is not None:
                calls.append(step)
            complete(step + 1, rows.stop)
            if step + 1 == kill_at:
                raise KilledError

    return kept_array(key, lambda: shape, fill, axes=2, what="features", remedy="fewer", folder=folder)


def _killed(folder: Path, key: str = "a", **more: int) -> None:
    with pytest.raises(KilledError):
        _kept(folder, key, kill_at=2, **more)  # type: ignore[arg-type]


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 8
    path.unlink()
    path.write_bytes(content)


def test_an_undamaged_part_goes_on_where_it_stopped(tmp_path: Path) -> None:
    _killed(tmp_path)
    calls: list[int] = []
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path, calls=calls)), _values(ord("a"), SHAPE))
    assert calls == [2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.crc32", "a.lock", "a.npy"]


def test_an_entry_is_a_numpy_file(tmp_path: Path) -> None:
    """Other programs read it, and its length is what NumPy would write."""
    _kept(tmp_path)
    expected = io.BytesIO()
    np.save(expected, _values(ord("a"), SHAPE))
    assert (tmp_path / "a.npy").read_bytes() == expected.getvalue()


@pytest.mark.parametrize("place", [*range(0, 128, 3), *range(128, 128 + 20 * 3 * 8 * 2, 37)])
def test_a_bit_of_a_killed_part_is_never_taken_over(tmp_path: Path, place: int) -> None:
    """In NumPy's header (128 bytes) and in the rows that were complete."""
    _killed(tmp_path)
    _flip(tmp_path / "a.part", place)
    calls: list[int] = []
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path, calls=calls)), _values(ord("a"), SHAPE))
    assert calls == [0, 1, 2, 3]


@pytest.mark.parametrize("length", [0, 5, 64, 128, 500, 128 + 20 * 48, 128 + 40 * 48 - 1])
@pytest.mark.parametrize("name", ["a.part", "a.done"])
def test_a_part_or_its_note_that_is_cut_is_computed_anew(tmp_path: Path, name: str, length: int) -> None:
    _killed(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: min(length, len(content) - 1)])
    calls: list[int] = []
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path, calls=calls)), _values(ord("a"), SHAPE))
    assert calls == [0, 1, 2, 3]


def test_a_part_of_another_key_or_shape_is_computed_anew(tmp_path: Path) -> None:
    _killed(tmp_path, "a")
    _killed(tmp_path, "b")
    for suffix in (".part", ".done"):
        shutil.copy(tmp_path / f"b{suffix}", tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path)), _values(ord("a"), SHAPE))
    _killed(tmp_path, "c")
    calls: list[int] = []
    other = (40, 2, 12)  # as many bytes
    found = _kept(tmp_path, "c", shape=other, calls=calls)
    np.testing.assert_array_equal(np.asarray(found), _values(ord("c"), other))
    assert calls == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", [SHAPE, (8, 3, 8), (40, 1, 24)])
@pytest.mark.parametrize("names", [(".npy", ".crc32"), (".npy",), (".crc32",)], ids=str)
def test_entries_that_were_exchanged_are_computed_anew(
    tmp_path: Path, shape: tuple[int, ...], names: tuple[str, ...]
) -> None:
    _kept(tmp_path, "a")
    _kept(tmp_path, "b", shape=shape)
    for suffix in names:
        (tmp_path / f"a{suffix}").rename(tmp_path / "aside")
        (tmp_path / f"b{suffix}").rename(tmp_path / f"a{suffix}")
        (tmp_path / "aside").rename(tmp_path / f"b{suffix}")
    for key, own in (("a", SHAPE), ("b", shape)):
        np.testing.assert_array_equal(np.asarray(_kept(tmp_path, key, shape=own)), _values(ord(key), own))


def test_a_note_of_part_of_the_rows_seals_no_entry(tmp_path: Path) -> None:
    _killed(tmp_path)
    (tmp_path / "a.part").rename(tmp_path / "a.npy")
    (tmp_path / "a.done").rename(tmp_path / "a.crc32")
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path)), _values(ord("a"), SHAPE))


def test_rows_that_are_said_to_be_incomplete_are_computed_anew(tmp_path: Path) -> None:
    """As the feature cache does where a picture was changed meanwhile."""

    def fill(store: np.ndarray, done: int, complete: Callable[[int, int], None]) -> None:
        store[:] = 1
        complete(STEPS, 40)
        complete(0, 0)
        raise KilledError

    with pytest.raises(KilledError):
        kept_array("a", lambda: SHAPE, fill, axes=2, what="features", remedy="fewer", folder=tmp_path)
    calls: list[int] = []
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path, calls=calls)), _values(ord("a"), SHAPE))
    assert calls == [0, 1, 2, 3]


def test_a_process_that_dies_before_the_last_rename_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            raise KilledError
        return plain(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KilledError):
        _kept(tmp_path)
    monkeypatch.undo()
    calls: list[int] = []
    np.testing.assert_array_equal(np.asarray(_kept(tmp_path, calls=calls)), _values(ord("a"), SHAPE))
    assert calls == []


def test_what_makes_room_goes_with_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMNER_CACHE_GB", str(1.5 * (128 + 40 * 3 * 8 * 2) / 1e9))
    _killed(tmp_path, "a")
    (tmp_path / "a.crc32.new").touch()  # of a process that was killed while it wrote the checksums
    os.utime(tmp_path / "a.part", (1, 1))
    _kept(tmp_path, "b")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["b.crc32", "b.npy"]


def test_checksums_count_as_the_cache_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMNER_CACHE_GB", str((40 * 3 * 8 * 2 + 40 * 3 * 4 - 1) / 1e9))
    with pytest.raises(DataError, match="set LIMNER_CACHE_GB"):
        _kept(tmp_path)


def test_an_entry_that_is_damaged_while_a_training_has_it_open_changes_no_weight(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMNER_CACHE", str(tmp_path / "cache"))
    recipe = toy_recipe()
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    damaged: list[Path] = []

    def listen(event: Event) -> None:
        if isinstance(event, EpochEnded) and not damaged:
            damaged.extend((tmp_path / "cache").glob("*.npy"))
            for path in damaged:
                with path.open("r+b") as file:
                    for place in range(1000, path.stat().st_size, 50):
                        file.seek(place)
                        file.write(b"?")

    run = tmp_path / "run"
    with pytest.raises(DataError, match="was damaged while it was in use"):
        train(recipe, toys.split("train"), toys.split("val"), run, cpu=True, listener=listen)
    assert damaged
    train(recipe, toys.split("train"), toys.split("val"), run, cpu=True, resume=True)
    ours, theirs = load_file(run / "stage-2.safetensors"), load_file(tmp_path / "whole/stage-2.safetensors")
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name])


def test_the_note_names_the_key(tmp_path: Path) -> None:
    _kept(tmp_path)
    note = Note.from_bytes((tmp_path / "a.crc32").read_bytes(), 2)
    assert (note.key, note.shape, note.sums.shape) == ("a", SHAPE, SHAPE[:2])
