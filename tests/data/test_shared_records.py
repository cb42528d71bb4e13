"""What two datasets share is counted by the numbers in file names, by bytes and by words, for any pictures."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limner.data.records import Dataset, Record
from limner.data.shared_records import number_of, shared_records

SPLITS = ("train", "val", "test")
# small numbers, so that two sets share some; the last form is nobody's
NAMES = st.tuples(st.integers(10_000, 10_012), st.sampled_from(("flickr8k", "flickr30k", "coco", "own")))
Row = tuple[tuple[int, str], str, int, list[str]]
"""Number and form of the name, split, content and captions."""
RECORDS = st.lists(
    st.tuples(
        NAMES,
        st.sampled_from(SPLITS),
        st.integers(0, 5),
        st.lists(
            st.sampled_from(("A dog runs .", "a dog, runs", "Two cats", "...", "A red coat!")), max_size=3
        ),
    ),
    max_size=8,
    unique_by=lambda row: row[0],
)


def name_of(number: int, form: str) -> str:
    return {
        "flickr8k": f"{number}_0123456789.jpg",
        "flickr30k": f"{number}.jpg",
        "coco": f"COCO_val2014_{number:012d}.jpg",
        "own": f"own-{number}.jpg",
    }[form]


def made(folder: Path, rows: list[Row]) -> Dataset:
    folder.mkdir()
    records = []
    for (number, form), split, content, captions in rows:
        image = folder / name_of(number, form)
        # content 5: the picture is not there
        if content < 5:
            image.write_bytes(bytes([content]))
        records.append(Record(image, tuple(captions), image.name, split))
    return Dataset(f"folder:{folder}", "image", tuple(records))


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalpha())


@given(RECORDS, RECORDS)
def test_every_shared_picture_and_caption_is_counted(own: list[Row], others: list[Row]) -> None:
    with TemporaryDirectory() as folder:
        found = shared_records(made(Path(folder) / "a", own), made(Path(folder) / "b", others))
    whose = {"flickr8k": "F", "flickr30k": "F", "coco": "C", "own": ""}
    numbers = {(whose[form], number) for (number, form), *_ in others if whose[form]}
    contents = {content for _, _, content, _ in others if content < 5}
    texts = {plain(text) for *_, captions in others for text in captions} - {""}
    assert [row.split for row in found] == list(dict.fromkeys(split for _, split, _, _ in own))
    for row in found:
        mine = [one for one in own if one[1] == row.split]
        same = [one for one in mine if (whose[one[0][1]], one[0][0]) in numbers]
        assert (row.pictures, row.numbered) == (len(mine), sum(bool(whose[one[0][1]]) for one in mine))
        assert row.same_number == len(same) == sum(row.in_splits.values())
        assert row.same_bytes == sum(one[2] in contents for one in mine)
        captions = [text for one in mine for text in one[3]]
        assert (row.captions, row.same_caption) == (
            len(captions),
            sum(plain(text) in texts for text in captions),
        )


def test_without_reading_files_their_bytes_are_unknown(tmp_path: Path) -> None:
    data = made(tmp_path / "a", [((10_000, "own"), "test", 1, ["A dog runs"])])
    assert [row.same_bytes for row in shared_records(data, data, read_files=False)] == [None]
    assert [row.same_bytes for row in shared_records(data, data)] == [1]


@pytest.mark.parametrize("name", ["0001.jpg", "12.jpg", "000123.png", "12345_0123456789.txt", "a12345.jpg"])
def test_other_names_have_no_number_of_flickr_or_mscoco(name: str) -> None:
    assert number_of(Path(name)) is None
