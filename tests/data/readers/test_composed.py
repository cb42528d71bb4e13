"""CIRR, FashionIQ and ITCPR in the layout in which they are published, with rows of our own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from limner.data.readers.composed import FORMATS, open_composed
from limner.errors import DataError

Value = Any


def write(file: Path, value: Value) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), encoding="utf-8")


def picture(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(file)


def cirr(folder: Path) -> Path:
    names = [f"dev-{number}-0-img0" for number in range(4)]
    for name in names:
        picture(folder / "img_raw" / "dev" / f"{name}.png")
    write(folder / "image_splits" / "split.rc2.val.json", {name: f"./dev/{name}.png" for name in names})
    entry = {
        "pairid": 7,
        "reference": names[0],
        "target_hard": names[2],
        "target_soft": {names[2]: 1.0, names[1]: 0.5, names[3]: 1.0},
        "caption": "two of them, on grass",
        "img_set": {"id": 1, "members": names[:3], "reference_rank": 0, "target_rank": 2},
    }
    write(folder / "captions" / "cap.rc2.val.json", [entry])
    write(folder / "image_splits" / "split.rc2.test1.json", {name: f"./dev/{name}.png" for name in names})
    hidden = {name: value for name, value in entry.items() if not name.startswith("target")}
    hidden["img_set"] = {"id": 1, "members": names[:3]}
    write(folder / "captions" / "cap.rc2.test1.json", [hidden])
    return folder


def fashioniq(folder: Path) -> Path:
    for category in ("dress", "shirt", "toptee"):
        names = [f"B00{category[0].upper()}{number}" for number in range(3)]
        for name in names:
            picture(folder / "images" / f"{name}.jpg")
        write(folder / "image_splits" / f"split.{category}.val.json", names)
        entry = {"candidate": names[0], "target": names[1], "captions": ["is blue", " has no sleeves "]}
        write(folder / "captions" / f"cap.{category}.val.json", [entry])
    return folder


def itcpr(folder: Path) -> Path:
    paths = [f"Celeb-reID/001/{number}_1_0.jpg" for number in range(4)]
    for path in paths:
        picture(folder / path)
    row = {"datasets": "Celeb-reID", "person_id": 1}
    gallery = [
        {**row, "file_path": path, "instance_id": instance}
        for path, instance in zip(paths[1:], (5, -1, 5), strict=True)
    ]
    write(folder / "gallery.json", gallery)
    write(
        folder / "query.json", [{**row, "file_path": paths[0], "instance_id": 5, "caption": "in a grey coat"}]
    )
    return folder


def test_cirr(tmp_path: Path) -> None:
    composed = open_composed(f"cirr:{cirr(tmp_path)}", "val")
    (gallery,) = composed.galleries
    (triplet,) = gallery.triplets
    assert (triplet.name, triplet.reference, triplet.text) == ("7", 0, "two of them, on grass")
    # a target that somebody called right as well, but the one of the caption first; a half-right one is none
    assert triplet.targets == (2, 3)
    assert triplet.members == (1, 2)
    assert gallery.images[2] == tmp_path / "img_raw" / "dev" / "dev-2-0-img0.png"
    assert composed.has_targets
    assert composed.deviations == ("1 queries, published 4,181", "4 pictures, published 2,297")
    assert composed.terms.licence.startswith("annotations: MIT")


def test_the_hidden_split_of_cirr_has_no_targets(tmp_path: Path) -> None:
    composed = open_composed(f"cirr:{cirr(tmp_path)}", "test1")
    assert not composed.has_targets
    assert composed.galleries[0].triplets[0].members == (1, 2)


def test_fashioniq(tmp_path: Path) -> None:
    composed = open_composed(f"fashioniq:{fashioniq(tmp_path)}", "val")
    assert [gallery.name for gallery in composed.galleries] == ["dress", "shirt", "toptee"]
    triplet = composed.galleries[1].triplets[0]
    assert (triplet.reference, triplet.targets, triplet.text) == (0, (1,), "is blue and has no sleeves")
    assert composed.galleries[1].images[1] == tmp_path / "images" / "B00S1.jpg"
    assert "shirt: 1 queries, published 2,038" in composed.deviations


def test_itcpr(tmp_path: Path) -> None:
    composed = open_composed(f"itcpr:{itcpr(tmp_path)}", "test")
    (gallery,) = composed.galleries
    assert gallery.size == 3
    assert gallery.triplets[0].targets == (0, 2)
    # the reference is behind the gallery, and never ranked
    assert gallery.triplets[0].reference == 3
    assert gallery.images[3] == tmp_path / "Celeb-reID" / "001" / "0_1_0.jpg"
    with pytest.raises(DataError, match="one split, test"):
        open_composed(f"itcpr:{tmp_path}", "val")


def test_fingerprints_tell_sets_apart(tmp_path: Path) -> None:
    first = open_composed(f"cirr:{cirr(tmp_path)}", "val").fingerprint
    assert open_composed(f"cirr:{tmp_path}", "val").fingerprint == first
    file = tmp_path / "captions" / "cap.rc2.val.json"
    changed = json.loads(file.read_text(encoding="utf-8"))
    changed[0]["caption"] = "three of them"
    write(file, changed)
    assert open_composed(f"cirr:{tmp_path}", "val").fingerprint != first


def change(file: str, **values: Value) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        entries = json.loads((folder / file).read_text(encoding="utf-8"))
        write(folder / file, [{**entries[0], **values}])

    return apply


CAPTIONS = "captions/cap.rc2.val.json"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change(CAPTIONS, reference="dev-9"), r"\[0\]: 'dev-9' is no picture of the split's image list"),
        (change(CAPTIONS, target_hard="x"), "'x' is no picture"),
        (change(CAPTIONS, caption=3), "'caption' must be a string"),
        (change(CAPTIONS, img_set={"members": [4]}), "must be a string"),
        (lambda folder: write(folder / CAPTIONS, {}), "a list of queries or pictures was expected"),
        (lambda folder: write(folder / CAPTIONS, []), "a list of queries or pictures was expected"),
        (lambda folder: (folder / CAPTIONS).unlink(), "no such file; splits here: test1"),
        (lambda folder: (folder / CAPTIONS).write_text("{", encoding="utf-8"), "JSON was expected"),
        (
            lambda folder: write(folder / "image_splits/split.rc2.val.json", []),
            "an object of names and paths",
        ),
        (
            lambda folder: write(folder / "image_splits/split.rc2.val.json", {"a": "../../etc/passwd"}),
            "must be a path inside",
        ),
        (
            lambda folder: write(folder / "image_splits/split.rc2.val.json", {"a": "./dev/none.png"}),
            "none of its pictures was found",
        ),
    ],
)
def test_mistakes_in_cirr(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    folder = cirr(tmp_path)
    spoil(folder)
    with pytest.raises(DataError, match=message):
        open_composed(f"cirr:{folder}", "val")


def test_mistakes_in_the_others(tmp_path: Path) -> None:
    folder = fashioniq(tmp_path / "fashion")
    change("captions/cap.shirt.val.json", captions=[" "])(folder)
    with pytest.raises(DataError, match="'captions' must hold a text"):
        open_composed(f"fashioniq:{folder}", "val")
    (folder / "images" / "B00D0.jpg").unlink()
    with pytest.raises(DataError, match="its first picture 'B00D0' was not found"):
        open_composed(f"fashioniq:{folder}", "val")
    folder = itcpr(tmp_path / "itcpr")
    change("query.json", instance_id=9)(folder)
    with pytest.raises(DataError, match=r"no picture of gallery\.json has the instance_id '9'"):
        open_composed(f"itcpr:{folder}", "test")
    (folder / "gallery.json").unlink()
    with pytest.raises(DataError, match="ITCPR's annotation file was expected"):
        open_composed(f"itcpr:{folder}", "test")


@pytest.mark.parametrize("source", ["cirr", "cirr:", "coco:x", "/tmp"])
def test_what_is_no_set(source: str) -> None:
    with pytest.raises(DataError, match="composed queries: expected one of cirr:DIR"):
        open_composed(source, "val")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for name in FORMATS:
        with pytest.raises(DataError, match="there is no such folder"):
            open_composed(f"{name}:{tmp_path / 'none'}", "val")
