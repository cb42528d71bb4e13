"""Folders of minimal pairs: written and read back, and what is wrong with others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from limner.data.minimal_pairs import FILE, FORMAT, MinimalPair, PairSet, read_pairs
from limner.errors import DataError

PAIRS = PairSet(
    name="toys",
    version="3",
    images=[b"one", b"two"],
    image_names=["pictures/a.jpg", "pictures/b.jpg"],
    image_groups=[1, 2],
    sentences=["A red circle.", "A blue circle.", "A rde circle."],
    sentence_groups=[1, None, None],
    pairs=[
        MinimalPair("colour", "shape", 1, 0, 0, 0, 1),
        MinimalPair("twins", "", 1, 0, 0, 1, 0),
        MinimalPair("typing", "", 1, 0, 2, 0, 1),
    ],
    kinds={"colour": "another colour", "twins": "another picture", "typing": "with an error"},
    noisy=["typing"],
)


def test_a_set_is_read_as_it_was_written(tmp_path: Path) -> None:
    PAIRS.write(tmp_path / "set")
    found = read_pairs(tmp_path / "set")
    assert found.digest == PAIRS.digest
    assert list(found.pairs) == list(PAIRS.pairs)
    assert [Path(str(image)).read_bytes() for image in found.images] == list(PAIRS.images)
    with pytest.raises(DataError, match="not an empty folder"):
        PAIRS.write(tmp_path / "set")
    with pytest.raises(DataError, match="not an empty folder"):
        PAIRS.write(tmp_path / "set" / FILE)


def test_a_set_that_was_written_once_is_read_for_ever() -> None:
    folder = Path(__file__).parent / "minimal_pairs"
    assert sorted(path.name for path in folder.iterdir()) == [f"format-{n}" for n in range(1, FORMAT + 1)]
    for written in folder.iterdir():
        assert read_pairs(written).digest == PAIRS.digest


def test_the_digest_is_of_names_sentences_and_cases() -> None:
    others = (
        replace(PAIRS, version="4"),
        replace(PAIRS, sentences=["A red circle.", "A green circle.", "A rde circle."]),
        replace(PAIRS, pairs=PAIRS.pairs[:1]),
        replace(PAIRS, image_names=["pictures/b.jpg", "pictures/a.jpg"]),
    )
    assert len({PAIRS.digest, *(other.digest for other in others)}) == 5


def _write(folder: Path, **changes: Any) -> Path:
    PAIRS.write(folder)
    content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    content.pop("digest")
    (folder / FILE).write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return folder


def test_own_sets_need_no_digest(tmp_path: Path) -> None:
    assert read_pairs(_write(tmp_path / "own", name="own")).name == "own"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digest": "0"}, "was changed after it was written"),
        ({"format": 9}, "of format 9, this limner reads 1"),
        ({"cases": []}, "has no cases"),
        ({"cases": [{"kind": "colour"}]}, "not a set of minimal pairs .*'detail'"),
        ({"kinds": {"twins": ""}}, "case 0 is of kind 'colour', which 'kinds' does not have"),
        ({"sentences": ["A red circle."]}, "expected a group for each of 2 pictures and 1 sentences"),
        (
            {"sentences": ["A."], "sentence_groups": [1]},
            "case 0 names a picture or sentence that is not there",
        ),
        ({"kinds": 7}, "not a set of minimal pairs"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(_write(tmp_path / "set", **changes))


def test_a_case_must_differ(tmp_path: Path) -> None:
    same = {"kind": "colour", "detail": "", "cluster": 1}
    same |= dict.fromkeys(("picture", "sentence", "false_picture", "false_sentence"), 0)
    with pytest.raises(DataError, match="case 0 has the same picture and sentence"):
        read_pairs(_write(tmp_path / "set", cases=[same]))


def test_folders_without_a_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no cases\.json here; `limner bench --write"):
        read_pairs(tmp_path)
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not JSON, or damaged"):
        read_pairs(tmp_path)
