"""Tiny datasets in every published form, with real pictures, for the readers and the doctor to read."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Row:
    file: str
    captions: tuple[str, ...]
    split: str | None
    identity: str


ROWS = (
    Row("a1.jpg", ("a man in a red coat", "the coat of the man is red"), "train", "1"),
    Row("a2.jpg", ("a tall man with a bag",), "train", "1"),
    Row("b1.jpg", ("a woman in a blue dress",), "train", "2"),
    Row("c1.jpg", ("a boy on a bike", "he rides a bike"), "val", "3"),
    Row("d1.jpg", ("two dogs run in the snow",), "test", "4"),
)
"""Without any fault."""


def draw(file: Path, seed: int = 0) -> None:
    """A picture that no other seed gives, noisy enough that half of its file is visibly cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file)


def write_karpathy(root: Path, rows: Sequence[Row]) -> str:
    images = [
        {
            "filename": row.file,
            "imgid": number,
            "split": row.split,
            "sentences": [{"raw": text, "tokens": text.split()} for text in row.captions],
        }
        for number, row in enumerate(rows)
    ]
    _pictures(root / "images", rows)
    (root / "dataset_flickr8k.json").write_text(json.dumps({"images": images, "dataset": "flickr8k"}))
    return f"flickr8k:{root}"


def write_flickr8k_text(root: Path, rows: Sequence[Row]) -> str:
    lines = [f"{row.file}#{n}\t{text}\n" for row in rows for n, text in enumerate(row.captions)]
    _pictures(root / "Flicker8k_Dataset", rows)
    (root / "Flickr8k.token.txt").write_text("".join(lines))
    for split, name in (("train", "train"), ("val", "dev"), ("test", "test")):
        listed = [f"{row.file}\n" for row in rows if row.split == split]
        (root / f"Flickr_8k.{name}Images.txt").write_text("".join(listed))
    return f"flickr8k:{root}"


def write_cuhk_pedes(root: Path, rows: Sequence[Row]) -> str:
    entries = [
        {
            "file_path": f"cam_a/{row.file}",
            "id": int(row.identity),
            "captions": list(row.captions),
            **({"split": row.split} if row.split else {}),
        }
        for row in rows
    ]
    _pictures(root / "imgs" / "cam_a", rows)
    (root / "reid_raw.json").write_text(json.dumps(entries))
    return f"cuhk-pedes:{root}"


def write_csv(root: Path, rows: Sequence[Row]) -> str:
    _pictures(root, rows)
    with (root / "captions.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "caption", "identity", "split"])
        for row in rows:
            for text in row.captions or ("",):
                table.writerow([row.file, text, row.identity, row.split or ""])
    return f"folder:{root}"


def write_jsonl(root: Path, rows: Sequence[Row]) -> str:
    _pictures(root, rows)
    lines = [
        json.dumps({"file": row.file, "captions": list(row.captions), "split": row.split}) for row in rows
    ]
    (root / "captions.jsonl").write_text("\n".join(lines))
    return f"folder:{root}"


FORMS: dict[str, Callable[[Path, Sequence[Row]], str]] = {
    "karpathy": write_karpathy,
    "flickr8k_text": write_flickr8k_text,
    "cuhk_pedes": write_cuhk_pedes,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
"""Each writes a tree and returns what opens it."""

WITH_IDENTITIES = ("cuhk_pedes", "csv")


def _pictures(folder: Path, rows: Sequence[Row]) -> None:
    for seed, file in enumerate(dict.fromkeys(row.file for row in rows)):
        draw(folder / file, seed)
