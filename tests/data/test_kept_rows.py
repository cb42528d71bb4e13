from pathlib import Path

import numpy as np
import pytest

from limner.data.kept_rows import KeptRows, Note, checksums
from limner.errors import DataError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Values of 6 × 3 rows of 4 numbers."""
    path = tmp_path / "values"
    path.write_bytes(np.random.default_rng(0).normal(size=(6, 3, 4)).astype("<f2").tobytes())
    return path


def _opened(file: Path) -> tuple[KeptRows, np.ndarray]:
    values = np.memmap(file, "<f2", "r", shape=(6, 3, 4))
    return KeptRows(values, checksums(values, 2), file), np.array(values)


INDICES = [
    np.s_[:],
    np.s_[2],
    np.s_[1:5:2],
    np.s_[:, :1],
    np.s_[:, 1],
    np.s_[:, 1, None],
    np.s_[4, 2],
    np.s_[np.array([5, 0, 5])],
    np.s_[np.array([1, 4]), 0],
    np.s_[np.array([1, 4]), np.array([2, 0])],
    np.s_[2:2],
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_indexing_is_that_of_numpy(file: Path, index: object) -> None:
    kept, values = _opened(file)
    found = kept[index]
    assert (found.shape, found.dtype) == (values[index].shape, values.dtype)  # type: ignore[call-overload]
    np.testing.assert_array_equal(np.asarray(found), values[index])  # type: ignore[call-overload]
    assert np.asarray(found, np.float32).dtype == np.float32
    # a further index on top of the first
    if len(found.shape) > 1 and len(found):
        np.testing.assert_array_equal(np.asarray(found[:1]), values[index][:1])  # type: ignore[call-overload]


@pytest.mark.parametrize("index", [np.s_[..., 0], np.s_[0, 0, 0], np.s_[:, :, :2]], ids=repr)
def test_part_of_a_row_cannot_be_had(file: Path, index: object) -> None:
    kept, _ = _opened(file)
    with pytest.raises(IndexError):
        kept[index]


@pytest.mark.parametrize("place", range(0, 6 * 3 * 4 * 2, 5))
def test_a_row_that_is_changed_while_the_file_is_open_is_never_read(file: Path, place: int) -> None:
    kept, values = _opened(file)
    with file.open("r+b") as handle:
        handle.seek(place)
        byte = handle.read(1)[0]
        handle.seek(place)
        handle.write(bytes([byte ^ 4]))
    row, view = divmod(place // 8, 3)
    for index in (np.s_[:], np.s_[row], np.s_[:, view], (np.array([row]), np.array([view]))):
        with pytest.raises(DataError, match=r"values: was damaged while it was in use; .* --resume"):
            np.asarray(kept[index])
    others = np.setdiff1d(np.arange(6), [row])
    np.testing.assert_array_equal(np.asarray(kept[others]), values[others])


@pytest.mark.parametrize("index", [np.s_[:], np.array([5])], ids=repr)
def test_a_file_that_is_cut_while_it_is_open_ends_no_process(file: Path, index: object) -> None:
    kept, _ = _opened(file)
    with file.open("r+b") as handle:
        handle.truncate(0)
    with pytest.raises(DataError, match="was damaged while it was in use"):
        np.asarray(kept[index])


def test_a_file_that_is_removed_is_still_read(file: Path) -> None:
    kept, values = _opened(file)
    file.unlink()
    np.testing.assert_array_equal(np.asarray(kept), values)


def test_a_note_is_read_back_and_no_byte_of_it_may_change() -> None:
    sums = np.arange(10, 16, dtype=np.uint32).reshape(2, 3)
    content = Note("key", (6, 3, 4), "<f2", 7, sums).to_bytes()
    found = Note.from_bytes(content, 2)
    assert (found.key, found.shape, found.dtype, found.upto) == ("key", (6, 3, 4), "<f2", 7)
    np.testing.assert_array_equal(found.sums, sums)
    for place in range(len(content)):
        for other in (content[:place], content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]):
            with pytest.raises(ValueError, match="its checksum is another"):
                Note.from_bytes(other, 2)
