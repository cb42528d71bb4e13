"""Composed queries of the toys, in the form of CIRR: the same shape on the same ground, in another colour."""

import json
from pathlib import Path

from PIL import Image

from tests.toy import COLOURS, GROUNDS, SHAPES


def toy_triplets(toys: Path, folder: Path) -> Path:
    """Write them for the toys in a folder; squares are for validation, circles for testing, bars for training."""
    numbers: dict[tuple[str, str, str], str] = {}
    for colour in COLOURS:
        for shape in SHAPES:
            for ground in GROUNDS:
                numbers[colour, shape, ground] = f"{len(numbers):02d}-0"
    for split, shape in (("val", "square"), ("test", "circle"), ("train", "bar")):
        names = {number: f"./{split}/{number}.png" for key, number in numbers.items() if key[1] == shape}
        (folder / "img_raw" / split).mkdir(parents=True)
        for name, path in names.items():
            # saved again: the toys' own splits are others, so a run of theirs has learnt from some of these pictures
            Image.open(toys / f"{name}.png").save(folder / "img_raw" / path, compress_level=1)
        entries: list[dict[str, object]] = []
        for ground in GROUNDS:
            members = [numbers[colour, shape, ground] for colour in COLOURS]
            for before in COLOURS:
                for after in COLOURS:
                    if before != after:
                        target = numbers[after, shape, ground]
                        entries.append(
                            {
                                "pairid": len(entries),
                                "reference": numbers[before, shape, ground],
                                "target_hard": target,
                                "target_soft": {target: 1.0},
                                "caption": f"a {shape} in {after}",
                                "img_set": {"id": 0, "members": members},
                            }
                        )
        for kind, begin, value in (("captions", "cap", entries), ("image_splits", "split", names)):
            (folder / kind).mkdir(exist_ok=True)
            file = folder / kind / f"{begin}.rc2.{split}.json"
            file.write_text(json.dumps(value), encoding="utf-8")
    return folder
