"""The truth about generated people, for measures of explanations: their colours, and where each garment shows.

The colours are those of the set's attributes.json. The pixels are drawn again from the set's seed, and count only if
the picture that is drawn with them is the file to the byte.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Bool

from limner.data.picture_truth import PictureTruth
from limner.data.records import Dataset
from limner.data.words import words
from limner.errors import DataError
from limner.people.camera import Drawing, draw_numbered
from limner.people.cast import Person, sample_people
from limner.people.generate import ATTRIBUTES, DRAWING, views_of
from limner.people.palette import COLOURS
from limner.people.phrases import NAMES

_PARTS: Final = ("upper", "lower", "shoes", "bag", "carried", "headwear", "worn")
"""Details with a noun of their own; hair has none that is its alone."""

_SHOWN_BY: Final = {"upper": ("upper", "pattern")}
"""Detail → the canvas's names for its pixels, where they are others: a print is cloth as well."""


def truth_of(dataset: Dataset) -> list[PictureTruth]:
    """The truth about each picture, in the records' order.

    Raises `DataError` for a set that `limner data people` did not draw, or another version of limner did.
    """
    folder = _folder(dataset)
    about = json.loads((folder / ATTRIBUTES).read_text(encoding="utf-8"))
    options = about["options"]
    if options["drawing"] != DRAWING:
        raise DataError(
            f"{dataset.source}: its people were drawn by another version of limner; draw the set again with "
            "`limner data people`"
        )
    val, test = options["val"], options["test"]
    counts = {"train": options["identities"] - val - test, "val": val, "test": test}
    people = {person.number: person for person in sample_people(counts, options["seed"])}
    known = {
        view["file_path"]: (one, index)
        for one in about["identities"]
        for index, view in enumerate(one["views"])
    }
    found = []
    for record in dataset.records:
        name = record.image.relative_to(folder / "imgs").as_posix()
        if name not in known:
            raise DataError(f"{record.image}: {ATTRIBUTES} does not name this picture")
        one, index = known[name]
        found.append(_truth(record.image, one["attributes"], people[one["id"]], index, options))
    return found


def _folder(dataset: Dataset) -> Path:
    for record in dataset.records[:1]:
        for folder in record.image.parents:
            if (folder / ATTRIBUTES).is_file():
                return folder
    raise DataError(
        f"{dataset.source}: explanations are measured where it is known what each picture shows; "
        "`limner data people` draws such a set"
    )


def _truth(
    image: Path, attributes: dict[str, Any], person: Person, index: int, options: dict[str, Any]
) -> PictureTruth:
    colours = {
        value
        for name, detail in attributes.items()
        for value in (detail.get("colour") if isinstance(detail, dict) else detail,)
        if value in COLOURS and (isinstance(detail, dict) or "colour" in name or name == "inner")
    }
    # the last word of a name is its noun: "sweatshirt" of "hooded sweatshirt"
    nouns = {
        part: {words(name)[-1] for name in NAMES[kind]}
        for part in _PARTS
        if (kind := _kind(attributes[part]))
    }
    # what two details may be called, such as a top under a jacket, says nothing of either
    under = {"top", "shirt"} if attributes["inner"] else set()
    parts = {
        noun: part
        for part, own in nouns.items()
        for noun in own - under
        if sum(noun in other for other in nouns.values()) == 1
    }

    @cache
    def shows() -> dict[str, Bool[np.ndarray, "height width"]]:
        drawing = _drawn_again(person, index, options)
        if drawing.view.jpeg != image.read_bytes():
            raise DataError(
                f"{image}: is not the picture that its seed draws here (another Pillow or NumPy draws other pixels); "
                "draw the set again with `limner data people`"
            )
        return {
            part: np.isin(
                drawing.canvas.parts(),
                [
                    number
                    for number, name in enumerate(drawing.canvas.part_names)
                    if name in _SHOWN_BY.get(part, (part,))
                ],
            )
            for part in nouns
        }

    return PictureTruth(frozenset(colours), tuple(COLOURS), parts, shows)


def _kind(detail: Any) -> str | None:
    kind = detail["kind"] if isinstance(detail, dict) else detail
    return None if kind is None else str(kind)


def _drawn_again(person: Person, index: int, options: dict[str, Any]) -> Drawing:
    rng = np.random.default_rng([options["seed"], person.number, 0, 2])
    fewest, most = options["views"]
    _, start = views_of((fewest, most), rng)
    height, width = options["size"]
    return draw_numbered(person, index, options["seed"], (height, width), start)
