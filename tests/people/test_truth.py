"""What is known of generated people: their colours, and the pixels of what they wear."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limner.data.readers import open_dataset
from limner.data.records import Dataset
from limner.errors import DataError
from limner.people import generate_people
from limner.people.palette import COLOURS
from limner.people.truth import truth_of


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truth") / "people"
    generate_people(folder, 8, seed=5, val=2, test=2, views=(2, 3))
    return folder


def attributes(people: Path) -> dict[int, dict[str, Any]]:
    """What is known of each person, by number."""
    identities = json.loads((people / "attributes.json").read_text())["identities"]
    return {one["id"]: one["attributes"] for one in identities}


def test_colours_and_nouns_are_those_of_the_attributes(people: Path) -> None:
    dataset = open_dataset(f"cuhk-pedes:{people}")
    about = attributes(people)
    for record, truth in zip(dataset.records, truth_of(dataset), strict=True):
        who = about[int(record.group.removeprefix("id-"))]
        assert {who["upper_colour"], who["shoes_colour"]} <= truth.colours <= set(COLOURS)
        assert truth.names == tuple(COLOURS)
        # no colour that a sentence names is held for false
        said = {word for sentence in record.sentences for word in sentence.lower().replace("-", " ").split()}
        assert (said & set(COLOURS)) <= truth.colours
        assert truth.parts.get("hat") == (
            "headwear" if who["headwear"] and who["headwear"]["kind"] != "cap" else None
        )
        assert set(truth.parts.values()) <= {"upper", "lower", "shoes", "bag", "carried", "headwear", "worn"}


def test_pixels_have_the_colour_that_is_told(people: Path) -> None:
    dataset = open_dataset(f"cuhk-pedes:{people}").split("train")
    about = attributes(people)
    near, seen = 0, 0
    for record, truth in zip(dataset.records, truth_of(dataset), strict=True):
        who = about[int(record.group.removeprefix("id-"))]
        masks = truth.shows()
        for part in ("upper", "lower"):
            # a pattern has a second colour
            if who[part] is None or masks[part].sum() < 150 or who["pattern"]:
                continue
            mean = np.asarray(Image.open(record.image))[masks[part]].mean(0)
            distances = {name: np.abs(mean - COLOURS[name]).sum() for name in COLOURS}
            near += sorted(distances, key=distances.__getitem__).index(who[f"{part}_colour"]) < 3
            seen += 1
    assert seen >= 5
    assert near >= 0.8 * seen


def test_no_truth_is_one_clear_error(people: Path, toys: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`limner data people` draws such a set"):
        truth_of(toys)
    dataset = open_dataset(f"cuhk-pedes:{people}")
    first = dataset.records[0]
    content = first.image.read_bytes()
    first.image.write_bytes(content + b"0")
    try:
        truth = truth_of(dataset)[0]
        with pytest.raises(DataError, match="is not the picture that its seed draws"):
            truth.shows()
    finally:
        first.image.write_bytes(content)
    strange = dataclasses.replace(first, image=first.image.with_name("other.jpg"))
    with pytest.raises(DataError, match="does not name this picture"):
        truth_of(dataclasses.replace(dataset, records=(strange,)))
    about = json.loads((people / "attributes.json").read_text())
    about["options"]["drawing"] = 0
    (people / "attributes.json").rename(tmp_path / "kept")
    (people / "attributes.json").write_text(json.dumps(about))
    try:
        with pytest.raises(DataError, match="another version"):
            truth_of(dataset)
    finally:
        (tmp_path / "kept").replace(people / "attributes.json")
