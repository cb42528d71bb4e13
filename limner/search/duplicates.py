"""Pictures of a store that are the same, or nearly so: copies, other sizes and formats, shots of one burst.

Two looks find the pairs. The same picture in another size, format or quality is told by the thumbnails, as small
pictures: embeddings of a copy at half the size may be as far apart as those of any two pictures (a cosine of 0.66 was
the middle of 40, docs/log/2026-11-29.md). Shots of one scene are told by the embeddings. Both look for close rows of a
matrix, all pairs of them (`close_pairs`).
"""

import io
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from limner.data.alike import VALUES, close_pairs, same_pictures, small_copy
from limner.documented import Result
from limner.errors import SettingsError
from limner.search.ranking import NEAR_DUPLICATE
from limner.search.sentences import SentenceTable
from limner.store.contents import thumbnails
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot

SIMILAR = 0.95
"""Cosine from which pictures are similar, unless another one is asked for."""

_BLOCK = 2048
"""Rows whose thumbnails are read together."""

Level = Literal["bytes", "same", "near", "similar"]
"""How alike: equal bytes; the same picture in another size, format or quality; nearly the same; similar."""


_LEVELS: tuple[Level, ...] = get_args(Level)


class Duplicate(Result):
    """One picture of a group, beside the one to keep."""

    id: str
    """Its key; of equal bytes that of the picture to keep."""
    path: Path
    """Its file."""
    level: Level
    """How alike to the picture to keep: `bytes`, `same` (another size, format or quality), `near` or `similar`."""
    cosine: float
    """Cosine of both."""


class DuplicateGroup(Result):
    """Pictures that are alike."""

    keep: str
    """Key of the picture to keep."""
    path: Path
    """Its file."""
    why: tuple[str, ...]
    """Reasons, each as another has less: "sentences", "facts", "larger", "earlier", "heavier" (its file)."""
    others: tuple[Duplicate, ...]
    """The others, the most alike first."""


class Duplicates(Result):
    """The groups of a store, as `limner store duplicates` prints them."""

    pictures: int
    """Pictures that were compared."""
    least: float
    """Cosine from which they count as alike."""
    groups: tuple[DuplicateGroup, ...]
    """The groups, in the order of the paths to keep."""


def find_duplicates(
    files: StoreFiles, least: float = SIMILAR, progress: Callable[[int, int], None] | None = None
) -> Duplicates:
    """Find groups of pictures that are alike, each with one to keep and the reasons for it.

    A group is one picture to keep and all that are alike to it, so that no chain of small steps joins others. To keep
    is what has sentences, then more facts, then more pixels, then the earlier time. `progress` is called with the
    pictures whose thumbnails were read and their number.

    Raises `SettingsError` for a cosine that is not above 0 and at most 1.
    """
    if not 0 < least <= 1:
        raise SettingsError(f"expected a cosine above 0 and at most 1, got {least:g}")
    snapshot = files.snapshot()
    vectors, own = snapshot.vectors, snapshot.columns
    alike: defaultdict[int, dict[int, Level]] = defaultdict(dict)
    for first, second in close_pairs(vectors.__getitem__, len(vectors), 2 - 2 * least):
        near: Level = "near" if float(vectors[first] @ vectors[second]) >= NEAR_DUPLICATE else "similar"
        alike[first][second] = alike[second][first] = near
    places, small = _small_pictures(files, snapshot, progress)
    for one, other in same_pictures(small):
        first, second = int(places[one]), int(places[other])
        alike[first][second] = alike[second][first] = "same"
    worth = _Worth(files, snapshot)
    copies = [row for row, others in enumerate(own.others) if others]
    groups: list[DuplicateGroup] = []
    taken: set[int] = set()
    for row in sorted({*alike, *copies}, key=worth.rank):
        if row in taken:
            continue
        others = {other: level for other, level in alike[row].items() if other not in taken}
        taken.update((row, *others))
        if others or own.others[row]:
            groups.append(_group(snapshot, worth, row, others))
    return Duplicates(
        pictures=len(vectors), least=least, groups=tuple(sorted(groups, key=lambda group: group.path))
    )


def _small_pictures(
    files: StoreFiles, snapshot: Snapshot, progress: Callable[[int, int], None] | None
) -> tuple[Int[np.ndarray, " some"], UInt8[np.ndarray, "some values"]]:
    """The rows that have a thumbnail, and these as small pictures."""
    every = np.arange(len(snapshot.vectors))
    places: list[int] = []
    small: list[UInt8[np.ndarray, " values"]] = []
    with ThreadPoolExecutor() as threads:
        for start in range(0, len(every), _BLOCK):
            block = every[start : start + _BLOCK]
            contents = thumbnails(files, snapshot.keys_of(block))
            for row, look in zip(block.tolist(), threads.map(_small, contents), strict=True):
                if look is not None:
                    places.append(row)
                    small.append(look)
            if progress is not None:
                progress(start + len(block), len(every))
    return np.array(places, np.int64), np.array(small, np.uint8).reshape(len(small), VALUES)


def _small(content: bytes | None) -> UInt8[np.ndarray, " values"] | None:
    if content is None:
        return None
    with Image.open(io.BytesIO(content)) as image:
        return small_copy(image)


class _Worth:
    """Reasons for keeping a picture."""

    def __init__(self, files: StoreFiles, snapshot: Snapshot) -> None:
        self._columns = snapshot.columns
        self._said = SentenceTable(files).by_picture()

    def of(self, row: int) -> dict[str, int | float]:
        """Reasons by their name, the more the better."""
        own = self._columns
        paths = (own.paths[row], *own.others[row])
        taken = own.taken[row]
        pixels, size = self._size(paths[0])
        return {
            "sentences": sum(len(self._said.get(path, ())) for path in paths),
            "facts": (own.identities[row] is not None) + len(json.loads(own.metadata[row])),
            "larger": pixels,
            "earlier": float("-inf") if np.isnat(taken) else -float(taken.astype(np.int64)),
            "heavier": size,
        }

    def rank(self, row: int) -> tuple[int | float | str, ...]:
        """The order in which pictures are kept."""
        return (*(-value for value in self.of(row).values()), self._columns.paths[row])

    @cache  # noqa: B019 - it lives as long as one call
    def _size(self, path: str) -> tuple[int, int]:
        """Pixels and bytes of a file; 0 where its disk is away, or another library reads its format."""
        try:
            with Image.open(path) as image:
                return image.width * image.height, Path(path).stat().st_size
        except (OSError, ValueError):
            return 0, 0


def _group(snapshot: Snapshot, worth: _Worth, row: int, others: Mapping[int, Level]) -> DuplicateGroup:
    own = snapshot.columns
    keep, *keys = snapshot.keys_of(np.array([row, *others], np.int64))
    found = [Duplicate(id=keep, path=Path(path), level="bytes", cosine=1.0) for path in own.others[row]]
    for key, (other, level) in zip(keys, others.items(), strict=True):
        cosine = min(1.0, float(snapshot.vectors[row] @ snapshot.vectors[other]))
        found.append(Duplicate(id=key, path=Path(own.paths[other]), level=level, cosine=cosine))
    found.sort(key=lambda one: (_LEVELS.index(one.level), -one.cosine, one.path))
    mine = worth.of(row)
    why = tuple(
        name for name, value in mine.items() if any(value > worth.of(other)[name] for other in others)
    )
    return DuplicateGroup(keep=keep, path=Path(own.paths[row]), why=why, others=tuple(found))
