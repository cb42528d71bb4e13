"""Stores from which something is erased, and what is left of it."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.search.sentences import Sentence, SentenceTable
from limner.store.contents import region_features, thumbnails
from limner.store.entry import StoredImage, key_of
from limner.store.erase import ERASURES
from limner.store.files import StoreFiles
from limner.store.path import StorePath
from tests.search.fake import DIM, FakeEncoder, Rows, nearest, unit, vectors_of

SHAPE = (2, 2, 32)


class Log:
    """An audit log that notes what it must forget, and the rows of the store while it is held."""

    def __init__(self, files: StoreFiles, told: list[Any], left: int = 0) -> None:
        self.files, self.told, self.lines = files, told, left
        self.held: list[tuple[int, int]] = []
        self.marks: list[str | None] = []

    @contextmanager
    def forgetting(self, keys: Collection[str], texts: Collection[str]) -> Iterator[int]:
        self.told.append((keys, texts))
        before = len(self.files)
        self.marks.append(self.files.rows.text(ERASURES))
        yield 5
        self.held.append((before, len(self.files)))
        self.marks.append(self.files.rows.text(ERASURES))

    def left(self, keys: Collection[str]) -> int:
        return self.lines


class Encoder(FakeEncoder):
    """Gives each sentence an embedding that no other has."""

    def encode_texts(self, sentences: str | Iterable[str], *, check: bool = True) -> Rows:
        several = [sentences] if isinstance(sentences, str) else list(sentences)
        seeds = [list(sentence.encode()) for sentence in several]
        return unit(np.stack([np.random.default_rng(seed).standard_normal(self.dim) for seed in seeds]))


@dataclass(frozen=True)
class Made:
    """One image, with all that a store holds of it."""

    entry: StoredImage
    vector: np.ndarray
    regions: np.ndarray | None
    thumbnail: bytes | None
    sentence: str

    @property
    def needles(self) -> list[bytes]:
        """What must not be found anywhere once it is erased."""
        path, digest = self.entry.path, self.entry.sha256
        vector = self.vector.tobytes()
        sentence = Sentence(self.sentence, path)
        found = [vector, vector[:32], path.encode(), key_of(path).encode(), digest.encode()]
        found += [bytes.fromhex(digest), str(self.entry.metadata["note"]).encode(), self.sentence.encode()]
        found += [sentence.id.encode(), Encoder().encode_texts([self.sentence])[0].tobytes()]
        for content in (None if self.regions is None else self.regions.tobytes(), self.thumbnail):
            if content:
                found += [content, content[len(content) // 2 :][:40]]
        return found


def made(number: int, seed: int, regions: bool) -> Made:
    rng = np.random.default_rng([seed, number])
    entry = StoredImage(
        f"/people/camera {number % 3}/{rng.bytes(8).hex()}.jpg",
        rng.bytes(32).hex(),
        1,
        seed,
        identity=f"person {number // 3} of {seed}",
        metadata={"camera": number % 3, "note": f"note {rng.bytes(8).hex()}"},
    )
    thumbnail = None if number % 7 == 6 else rng.bytes(int(rng.integers(90, 300)))
    features = rng.standard_normal(SHAPE).astype(np.float16) if regions else None
    vector = rng.standard_normal(DIM).astype(np.float32)
    return Made(entry, vector, features, thumbnail, f"somebody in {rng.bytes(8).hex()}")


def store_of(folder: Path, some: list[Made], commits: int = 1, sentences: bool = True) -> StoreFiles:
    regions = some[0].regions is not None
    files = StoreFiles.create(
        folder, fingerprint="a" * 64, dim=DIM, run="run", region_shape=SHAPE if regions else None
    )
    for part in np.array_split(np.arange(len(some)), commits):
        add(files, [some[place] for place in part])
    if sentences:
        told = [Sentence(one.sentence, one.entry.path) for one in some]
        SentenceTable(files).index(Encoder(), [*told, Sentence("of nobody")])
    return files


def add(files: StoreFiles, some: list[Made]) -> None:
    if some:
        files.add(
            [one.entry for one in some],
            np.stack([one.vector for one in some]),
            np.stack([one.regions for one in some if one.regions is not None])
            if files.region_shape
            else None,
            [one.thumbnail for one in some],
        )


def left_of(folder: StorePath | Path, needles: Iterable[bytes]) -> set[tuple[str, bytes]]:
    """Files below a folder that hold one of some bytes, by `in` alone."""
    files = {str(path): path.read_bytes() for path in Path(str(folder)).rglob("*") if path.is_file()}
    wanted = set(needles)
    return {(path, needle) for path, content in files.items() for needle in wanted if needle in content}


def answers(files: StoreFiles, some: list[Made]) -> dict[str, Any]:
    """What a store answers of some images, to the last bit."""
    ids = [one.entry.id for one in some]
    entries = files.entries()
    rows = [row for row in files.snapshot().items(np.arange(len(files))) if row.id in set(ids)]
    sentences, vectors = SentenceTable(files).describing()
    told = {sentence: vector.tobytes() for sentence, vector in zip(sentences, vectors, strict=True)}
    return {
        "items": rows,
        "entries": [entries[one.entry.path] for one in some],
        "vectors": vectors_of(files, ids).tobytes() if ids else b"",
        "thumbnails": thumbnails(files, ids),
        "regions": region_features(files, ids).tobytes() if files.region_shape and ids else b"",
        "sentences": [told.get(Sentence(one.sentence, one.entry.path)) for one in some],
    }


def ranking(files: StoreFiles, some: list[Made]) -> list[tuple[str, Any]]:
    ids = {one.entry.id for one in some}
    query = np.linspace(-1, 1, DIM, dtype=np.float32)
    hits = nearest(files, query, max(len(files), 1)) if len(files) else []
    return [(hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in hits if hit.id in ids]
