"""What every part works with: toys, and two small runs."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.torture.commands import called
from limner.data.readers import open_dataset
from limner.library import train
from tests.toy import draw_toys, toy_recipe, toy_reranking

SENTENCES = ("a red square on white", "on black ground, a bar in blue", "a green circle on grey")
"""Queries whose answers tell whether two stores hold the same embeddings and region features."""


@dataclass(frozen=True)
class Workshop:
    """A scratch folder, toys with a `captions.jsonl`, a run that re-ranks, and a run of another model."""

    folder: Path
    pictures: Path
    run: Path
    other: Path

    @property
    def data(self) -> str:
        """The toys as a dataset."""
        return f"folder:{self.pictures}"

    def fresh(self, name: str) -> Path:
        """An empty folder of this name."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def recipe(self, folder: Path) -> Path:
        """Write the toy recipe as a file that `limner train` takes."""
        file = folder / "recipe.json"
        file.write_text(toy_recipe().model_dump_json(), encoding="utf-8")
        return file

    def copy_of_toys(self, folder: Path) -> list[Path]:
        """Copy the toys and return the paths of the copies, in order."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.pictures.glob("*.png")):
            shutil.copyfile(path, folder / path.name)
        return sorted(folder.glob("*.png"))


def facts_of(paths: list[Path], file: Path, **facts: object) -> Path:
    """Write a metadata file in which each picture has an identity and these facts."""
    rows = [{"file": str(path), "identity": path.stem[:1], **facts} for path in paths]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return file


def indexed(shop: Workshop, folder: Path, *, batch: int = 36) -> tuple[Path, list[Path]]:
    """Make a store of the toys' copies, with their identities; return it and the copies."""
    paths = shop.copy_of_toys(folder / "pictures")
    notes = facts_of(paths, folder / "facts.jsonl")
    store = folder / "store"
    made = called(
        "index", shop.run, store, folder / "pictures", "--metadata", notes, "--batch", batch, "--cpu"
    )
    assert made.code == 0, made
    return store, paths


def exchange(paths: list[Path]) -> None:
    """Give each picture the content of its neighbour, as if it had been taken anew."""
    contents = [path.read_bytes() for path in paths]
    # by one place, so that no picture keeps its own content
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)


@contextmanager
def workshop() -> Iterator[Workshop]:
    """Draw toys and train two small runs, in a folder that goes afterwards."""
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="limner-torture-") as scratch:
        folder = Path(scratch)
        os.environ["LIMNER_CACHE"] = str(folder / "cache")
        dataset = open_dataset(f"folder:{draw_toys(folder / 'toys')}")
        run, other = folder / "run", folder / "other"
        train(toy_reranking(), dataset, run, cpu=True)
        train(toy_recipe(), dataset, other, cpu=True)
        yield Workshop(folder, folder / "toys", run, other)
