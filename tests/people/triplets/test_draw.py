"""Sets of triplets: their form, what differs in them, and that they can be drawn again."""

import json
from pathlib import Path

import pytest
from PIL import Image

from limner.data.readers.composed import open_composed
from limner.errors import DataError, SettingsError
from limner.people import generate_people
from limner.people.triplets import draw_triplets


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people") / "set"
    generate_people(folder, 10, 3, val=2, test=3, views=(1, 1), size=(96, 48))
    return folder


@pytest.fixture(scope="module")
def triplets(people: Path) -> Path:
    folder = people.parent / "triplets"
    draw_triplets(people, folder, twins=3)
    return folder


def about(folder: Path) -> dict[str, dict[str, object]]:
    values: dict[str, dict[str, object]] = json.loads((folder / "twins.json").read_text(encoding="utf-8"))
    return values


def test_a_target_differs_in_the_one_attribute_that_is_asked_for(triplets: Path) -> None:
    who = about(triplets)
    for split, people in (("train", 5), ("val", 2), ("test", 3)):
        captions = json.loads((triplets / "captions" / f"cap.rc2.{split}.json").read_text(encoding="utf-8"))
        assert len({entry["reference"] for entry in captions}) == people
        for entry in captions:
            before, after = (who[entry[name]]["attributes"] for name in ("reference", "target_hard"))
            assert isinstance(before, dict)
            assert isinstance(after, dict)
            assert [name for name in before if before[name] != after[name]] == [entry["detail"]]
            # among its own: the reference, a second picture of the same person, and the other near-twins
            members = entry["img_set"]["members"]
            assert {who[name]["person"] for name in members} == {who[entry["reference"]]["person"]}
            assert sum(who[name]["attributes"] == before for name in members) == 2
            assert sum(who[name]["attributes"] == after for name in members) == 1


def test_the_reader_takes_it(triplets: Path) -> None:
    composed = open_composed(f"cirr:{triplets}", "test")
    (gallery,) = composed.galleries
    assert composed.has_targets
    assert not composed.deviations
    assert composed.terms.people == "no"
    assert all(path.is_file() for path in gallery.images)
    with Image.open(gallery.images[0]) as image:
        assert image.size == (48, 96)
    assert len(gallery.names) == len({triplet.reference for triplet in gallery.triplets}) * 5
    # the splits share no person
    splits = [set(open_composed(f"cirr:{triplets}", split).galleries[0].names) for split in ("train", "val")]
    assert not splits[0] & splits[1] & set(gallery.names)


def test_it_is_drawn_again_to_the_byte(people: Path, triplets: Path, tmp_path: Path) -> None:
    first = draw_triplets(people, triplets, twins=3)
    assert draw_triplets(people, tmp_path / "again", twins=3).digest == first.digest
    assert draw_triplets(people, tmp_path / "other", twins=3, seed=1).digest != first.digest
    with pytest.raises(DataError, match="of other options"):
        draw_triplets(people, triplets, twins=2)


def test_workers_change_nothing(people: Path, triplets: Path, tmp_path: Path) -> None:
    digest = draw_triplets(people, triplets, twins=3).digest
    assert draw_triplets(people, tmp_path / "workers", twins=3, workers=2).digest == digest


def test_what_is_refused(people: Path, triplets: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no generated people"):
        draw_triplets(tmp_path, tmp_path / "new")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match="is not empty"):
        draw_triplets(people, tmp_path / "full")
    with pytest.raises(SettingsError, match="1 ≤ twins ≤ 8"):
        draw_triplets(people, tmp_path / "new", twins=9)
    options = json.loads((people / "people.json").read_text(encoding="utf-8"))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "people.json").write_text(json.dumps({**options, "drawing": 0}), encoding="utf-8")
    with pytest.raises(DataError, match="another version"):
        draw_triplets(tmp_path / "old", tmp_path / "new")
    file = tmp_path / "damaged"
    file.mkdir()
    (file / "triplets.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="damaged"):
        draw_triplets(people, file)
