"""Facts of a store's images, column by column, and what has changed of them since."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Int

from limner.store.digests import SIZE, known
from limner.store.entry import PictureRow
from limner.store.path import StorePath
from limner.store.rows import Reading
from limner.store.sound import sound

_DIGEST = f"S{SIZE}"


@dataclass(frozen=True, eq=False)
class Columns:
    """Facts of images, row by row in the order of their paths; texts of fixed length without an object for each."""

    ids: np.ndarray
    sha256: np.ndarray
    paths: list[str]
    others: list[tuple[str, ...]]
    """Further paths of each."""
    identities: list[str | None]
    metadata: list[str]
    """JSON; images of equal metadata share one text."""
    taken: np.ndarray
    """Microseconds by the camera's own clock, NaT where no time is known."""
    told: np.ndarray
    """True where somebody told that time, and it is not of the file."""
    numbers: Int[np.ndarray, " rows"]
    """Numbers of their bytes: other vectors have other numbers."""
    sums: Int[np.ndarray, " rows"]
    """Digests of their vectors (`limner.store.digests.vector_sums`)."""
    digests: np.ndarray
    """Digests of the rows."""
    gone: np.ndarray
    """True where all files are gone."""

    @classmethod
    def of(cls, rows: Iterable[PictureRow]) -> "Columns":
        """Order rows by path."""
        # column by column as they come: a hundred thousand rows would make Python's collector look at each many times
        ids, hashes, paths, others, times, told, identities, metadata, numbers, sums, digests, gone = (
            columns
        ) = [list[Any]() for _ in range(12)]
        texts: dict[str, str] = {}
        for row in rows:
            ids.append(row.id)
            hashes.append(row.sha256)
            paths.append(row.path)
            others.append(tuple(row.paths[1:]))
            times.append(row.taken)
            told.append(row.taken_told is not None)
            identities.append(row.identity)
            metadata.append(texts.setdefault(row.metadata, row.metadata))
            numbers.append(row.number)
            sums.append(row.vector_sum)
            digests.append(row.digest)
            gone.append(row.gone is not None)
        order = sorted(range(len(paths)), key=paths.__getitem__)
        ids, hashes, paths, others, times, told, identities, metadata, numbers, sums, digests, gone = (
            [column[place] for place in order] for column in columns
        )
        known = np.array([time is not None for time in times], bool)
        taken = np.array([time or 0 for time in times], np.int64).astype("datetime64[us]")
        return cls(
            ids=np.array(ids, "S32"),
            sha256=np.array(hashes, "S64"),
            paths=paths,
            others=others,
            identities=identities,
            metadata=metadata,
            taken=np.where(known, taken, np.datetime64("NaT", "us")),
            told=np.array(told, bool),
            numbers=np.array(numbers, np.int64),
            sums=np.array(sums, np.int64),
            digests=np.array(digests, _DIGEST),
            gone=np.array(gone, bool),
        )

    def followed(self, folder: StorePath, reading: Reading) -> "Columns":
        """Facts of the images that there are now: of those whose digest is here only the digest is read."""
        stored = reading.digests()
        digests = np.array(known(stored.values()), _DIGEST)
        # half of a digest finds its row, for numpy sorts numbers fastest; the whole tells
        same, held = _found(*(some.view("<i8")[::2] for some in (self.digests, digests)))
        ids = list(stored)
        # by a key that is damaged no change finds its row
        keys = np.array(ids, object)[same] == self.ids[held].astype(str)
        same, held = (rows[(digests[same] == self.digests[held]) & keys] for rows in (same, held))
        fresh = np.delete(np.arange(len(ids)), same).tolist()
        new = Columns.of(sound(folder, reading.pictures([ids[place] for place in fresh])))
        # in their own order, which the sort finds fast
        held.sort()
        paths = [self.paths[row] for row in held.tolist()] + new.paths
        order = np.array(sorted(range(len(paths)), key=paths.__getitem__), np.int64)

        def merged(own: Any, others: Any) -> Any:
            if isinstance(own, np.ndarray):
                return np.concatenate([own[held], others])[order]
            both = [own[row] for row in held.tolist()] + others
            return [both[place] for place in order.tolist()]

        return self._each(lambda name: merged(getattr(self, name), getattr(new, name)))

    def paths_gone(self) -> frozenset[str]:
        """Paths of the images of which no file is there."""
        rows = np.flatnonzero(self.gone).tolist()
        return frozenset(path for row in rows for path in (self.paths[row], *self.others[row]))

    def present(self) -> "Columns":
        """Those of which a file is there, by the last look: what a search may find."""
        if not self.gone.any():
            return self
        rows = np.flatnonzero(~self.gone)

        def chosen(own: Any) -> Any:
            return own[rows] if isinstance(own, np.ndarray) else [own[row] for row in rows.tolist()]

        return self._each(lambda name: chosen(getattr(self, name)))

    def _each(self, made: Callable[[str], Any]) -> "Columns":
        return Columns(**{one.name: made(one.name) for one in fields(self)})

    def places_of(self, others: "Columns") -> tuple[Int[np.ndarray, " same"], Int[np.ndarray, " same"]]:
        """Find which of other rows have the vector of a row here, and where those are."""
        same, held = _found(self.numbers, others.numbers)
        # an older copy that was put back gives numbers anew that other vectors have here
        right = others.sums[same] == self.sums[held]
        return same[right], held[right]


def _found(
    own: Int[np.ndarray, " rows"], asked: Int[np.ndarray, " asked"]
) -> tuple[Int[np.ndarray, " same"], Int[np.ndarray, " same"]]:
    """Which of the numbers that are asked for are here, and where."""
    if not len(own):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(own)
    # searchsorted answers len(own) for a number above all of them; the comparison finds such rows out
    places = order[np.minimum(np.searchsorted(own, asked, sorter=order), len(own) - 1)]
    same = np.flatnonzero(own[places] == asked)
    return same, places[same]
