import errno
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.data.readers import open_dataset
from limner.data.terms import TERMS
from limner.errors import DataError, SettingsError
from limner.people import generate as module
from limner.people import generate_people


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "people"
    summary = generate_people(folder, 6, seed=3, val=1, test=2, views=(1, 2))
    assert (summary.identities, summary.drawn) == (6, 6)
    return folder


def test_form_of_cuhk_pedes(made: Path) -> None:
    records = json.loads((made / "reid_raw.json").read_text())
    for record in records:
        assert set(record) == {"split", "captions", "file_path", "processed_tokens", "id", "labels"}
        assert record["split"] in ("train", "val", "test")
        assert len(record["captions"]) == len(record["processed_tokens"]) >= 2
        assert isinstance(record["id"], int)
        assert record["labels"]
        with Image.open(made / "imgs" / record["file_path"]) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (96, 192))
    pictures = {str(path.relative_to(made / "imgs")) for path in (made / "imgs").rglob("*.jpg")}
    assert pictures == {record["file_path"] for record in records}
    assert len({Path(path).name for path in pictures}) == len(pictures)
    assert {path.name for path in made.iterdir()} == {
        "reid_raw.json",
        "attributes.json",
        "people.json",
        "terms.json",
        "imgs",
    }


def test_it_says_that_nobody_is_shown(made: Path) -> None:
    assert open_dataset(f"cuhk-pedes:{made}").terms == TERMS["people"]
    assert open_dataset(f"cuhk-pedes:{made / 'reid_raw.json'}").terms.people == "no"


def test_a_seed_gives_the_same_people_for_ever(made: Path) -> None:
    """Whoever changes what a seed gives raises `DRAWING`, so that no old set is taken for a new one.

    Results in the log are of sets that only their seed names. If Pillow alone was updated and the pixels alone differ,
    its JPEG encoder has changed: check a few pictures by eye and note the new digest.
    """
    sentences = hashlib.sha256((made / "reid_raw.json").read_bytes()).hexdigest()
    pixels = hashlib.sha256()
    for record in json.loads((made / "reid_raw.json").read_text(encoding="utf-8")):
        with Image.open(made / "imgs" / record["file_path"]) as image:
            pixels.update(np.asarray(image).tobytes())
    assert (module.DRAWING, sentences, pixels.hexdigest()) == (
        1,
        "a31e5d81797dea38e0a91b1968980990bf295e3d2fcd32f7b89db175eeb85cc7",
        "d982a4272de05bf2b49ded32ff6d471b1217ae632474c9d755a5896a00f4bf34",
    )


def test_labels_are_of_what_can_be_seen(made: Path) -> None:
    about = json.loads((made / "attributes.json").read_text())["identities"]
    views = {
        view["file_path"]: (who["attributes"], view["visible"]) for who in about for view in who["views"]
    }
    dataset = open_dataset(f"cuhk-pedes:{made}")
    for record in dataset.records:
        who, visible = views[str(record.image.relative_to(made / "imgs"))]
        assert (who["upper"] in record.labels) == ("upper" in visible)
        bag = who["bag"] and who["bag"]["kind"]
        assert (bag in record.labels) == (bag is not None and "bag" in visible)
        assert "labels" not in record.metadata


def test_splits_by_identity_with_the_numbers_asked_for(made: Path) -> None:
    identities: dict[str, set[int]] = {"train": set(), "val": set(), "test": set()}
    views: dict[int, int] = {}
    for record in json.loads((made / "reid_raw.json").read_text()):
        identities[record["split"]].add(record["id"])
        views[record["id"]] = views.get(record["id"], 0) + 1
    assert {split: len(members) for split, members in identities.items()} == {"train": 3, "val": 1, "test": 2}
    assert len(set.union(*identities.values())) == 6
    assert set(views.values()) <= {1, 2}


@pytest.mark.slow  # a spawned process imports the whole of limner
def test_same_bytes_again_and_with_several_workers(made: Path, tmp_path: Path) -> None:
    generate_people(tmp_path / "again", 6, seed=3, val=1, test=2, views=(1, 2), workers=2)
    assert contents(tmp_path / "again") == contents(made)


def test_interrupted_set_is_completed(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "people"
    drawn: list[object] = []
    draw = module._draw_one

    def stop_after_two(person: object, folder: Path, options: object) -> None:
        if len(drawn) == 2:
            raise KeyboardInterrupt
        drawn.append(person)
        draw(person, folder, options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(module, "_draw_one", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            generate_people(folder, 6, seed=3, val=1, test=2, views=(1, 2))
    assert not (folder / "reid_raw.json").exists()
    seen: list[tuple[int, int]] = []
    summary = generate_people(
        folder, 6, seed=3, val=1, test=2, views=(1, 2), progress=lambda done, all_: seen.append((done, all_))
    )
    assert summary.drawn == 4
    assert seen == [(done, 6) for done in range(3, 7)]
    assert contents(folder) == contents(made)


def test_complete_set_is_left_alone_and_a_lost_picture_is_drawn_again(made: Path) -> None:
    before = contents(made)
    times = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    assert generate_people(made, 6, seed=3, val=1, test=2, views=(1, 2)).drawn == 0
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == times
    next((made / "imgs").rglob("*.jpg")).unlink()
    generate_people(made, 6, seed=3, val=1, test=2, views=(1, 2))
    assert contents(made) == before


def test_other_folders_are_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"seed 3 there, 4 asked for"):
        generate_people(made, 6, seed=4, val=1, test=2, views=(1, 2))
    (tmp_path / "holiday.jpg").write_bytes(b"sea")
    with pytest.raises(DataError, match="not empty"):
        generate_people(tmp_path, 10)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]
    with pytest.raises(DataError, match="is a file"):
        generate_people(tmp_path / "holiday.jpg", 10)
    with pytest.raises(
        DataError, match=r"holiday\.jpg/people: people cannot be drawn here \(Not a directory\)"
    ):
        generate_people(tmp_path / "holiday.jpg" / "people", 10)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_draw_one", full)
    with pytest.raises(DataError, match=r"people cannot be drawn here \(No space left on device\)"):
        generate_people(tmp_path / "people", 3, val=1, test=1)


def test_damaged_options_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read") as caught:
        generate_people(tmp_path, 10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("identities", "options", "message"),
    [
        (0, {}, "identities must be"),
        (5, {"val": 3, "test": 3}, "together at most the 5"),
        (5, {"seed": -1}, "seed must be"),
        (5, {"views": (3, 2)}, "views must be"),
        (5, {"size": (20, 20)}, "size must be"),
        (5, {"workers": 0}, "workers must be"),
    ],
)
def test_bad_options(tmp_path: Path, identities: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        generate_people(tmp_path / "people", identities, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "people").exists()
