"""Groups of pictures that are alike: what is found, what is to be kept, and why."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.errors import SettingsError
from limner.search.duplicates import DuplicateGroup, find_duplicates
from limner.search.index import index_pictures
from limner.search.sentences import Sentence, SentenceTable
from limner.store.files import StoreFiles
from tests.data.test_alike import scene
from tests.search.fake import DIM, FakeEncoder, unit


class Embedded(FakeEncoder):
    """An encoder whose embedding of a file is an angle, by its bytes."""

    def __init__(self, files: dict[Path, float]) -> None:
        super().__init__()
        self.angles = list(files.values())
        self.known = [path.read_bytes() for path in files]

    def prepare_image(self, source: Any) -> Any:
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        return np.full((8, 8, 3), self.known.index(bytes(content)), np.uint8)

    def encode_pixels(self, pixels: np.ndarray) -> Any:
        angles = np.array(self.angles)[pixels[:, 0, 0, 0]]
        rows = np.zeros((len(pixels), DIM))
        rows[:, 0], rows[:, 1] = np.cos(angles), np.sin(angles)
        return unit(rows)


ANGLES = {
    # cosines 0.995, 0.96 and 0.91 with the first: near, similar, and less
    "burst-1.jpg": 0.0,
    "burst-2.jpg": 0.1,
    "later.jpg": 0.28,
    "much-later.jpg": 0.43,
    # the same picture, whose embeddings are far apart
    "large.png": 2.0,
    "small.jpg": 2.6,
    "alone.jpg": 4.0,
}


@pytest.fixture
def files(tmp_path: Path) -> StoreFiles:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for seed, name in enumerate(ANGLES):
        scene(4 if name == "small.jpg" else seed).resize(
            (160, 120) if name == "small.jpg" else (320, 240)
        ).save(folder / name, quality=95)
    shutil.copy(folder / "alone.jpg", folder / "copy.jpg")
    encoder = embedded(tmp_path)
    store = StoreFiles.create(tmp_path / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    index_pictures(encoder, store, [folder], metadata={str(folder / "burst-1.jpg"): {"place": "hall"}})
    return store


def embedded(tmp_path: Path) -> Embedded:
    return Embedded({tmp_path / "pictures" / name: angle for name, angle in ANGLES.items()})


def told(groups: tuple[DuplicateGroup, ...]) -> dict[str, dict[str, str]]:
    return {group.path.name: {one.path.name: one.level for one in group.others} for group in groups}


def test_levels_and_no_chains(files: StoreFiles) -> None:
    found = find_duplicates(files)
    assert found.pictures == 7
    assert told(found.groups) == {
        "alone.jpg": {"copy.jpg": "bytes"},
        "burst-1.jpg": {"burst-2.jpg": "near", "later.jpg": "similar"},
        "large.png": {"small.jpg": "same"},
    }


def test_what_is_kept_and_why(files: StoreFiles, tmp_path: Path) -> None:
    groups = {group.path.name: group for group in find_duplicates(files).groups}
    assert groups["large.png"].why[0] == "larger"
    path = str(tmp_path / "pictures" / "small.jpg")
    index_pictures(embedded(tmp_path), files, [path], metadata={path: {"place": "gate"}})
    groups = {group.path.name: group for group in find_duplicates(files).groups}
    assert groups["small.jpg"].why == ("facts",)
    SentenceTable(files).index(FakeEncoder(), [Sentence("two men", str(tmp_path / "pictures" / "large.png"))])
    assert "sentences" in {group.path.name: group for group in find_duplicates(files).groups}["large.png"].why


@pytest.mark.parametrize(("least", "names"), [(0.9, 4), (0.99, 2), (1.0, 0)])
def test_another_cosine(files: StoreFiles, least: float, names: int) -> None:
    alike = [
        g
        for g in find_duplicates(files, least).groups
        if any(one.level in ("near", "similar") for one in g.others)
    ]
    assert sum(1 + len(group.others) for group in alike) == names


@pytest.mark.parametrize("least", [0.0, -1.0, 1.1])
def test_cosines_that_are_none(files: StoreFiles, least: float) -> None:
    with pytest.raises(SettingsError, match="above 0 and at most 1"):
        find_duplicates(files, least)


def test_a_disk_that_is_away_and_an_empty_store(files: StoreFiles, tmp_path: Path) -> None:
    shutil.move(tmp_path / "pictures", tmp_path / "away")
    assert len(find_duplicates(files).groups) == 3
    encoder = FakeEncoder()
    empty = StoreFiles.create(tmp_path / "empty", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    assert find_duplicates(empty).groups == ()
