"""The vectors of a snapshot's rows, in memory in their order, or in slots of a file that the next snapshot shares."""

import weakref
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from limner.store.scratch import ScratchFile, is_for_disk, scratch_matrix

_COPIED = 8192
"""Rows that are copied at once from one snapshot to the next."""

_BLOCK = 1024
"""Rows that are read at once: a few MiB, which stay in a core's cache."""

R = TypeVar("R", bound="VectorRows")


class VectorRows:
    """Rows of float32; `on_disk` says that they are in a file (`limner.store.scratch`), which has an order of its own.

    `stored[slots]` are the rows; without slots `stored` has these rows alone, in order.
    """

    def __init__(
        self,
        stored: Float[np.ndarray, "stored dim"],
        *,
        on_disk: bool = False,
        slots: Int[np.ndarray, " rows"] | None = None,
        file: ScratchFile | None = None,
    ) -> None:
        self.stored = stored
        self.on_disk = on_disk
        self.slots = slots
        self._file = file

    @classmethod
    def following(
        cls: type[R],
        before: "VectorRows | None",
        dim: int,
        same: Int[np.ndarray, " same"],
        held: Int[np.ndarray, " same"],
        others: Int[np.ndarray, " others"],
    ) -> R:
        """Make rows, of which `same` have the vectors of rows `held` of `before`; the caller writes the `others`.

        In memory those are copied. On disk both share a file as long as it has room. Raises `StoreError` without room
        for a new file.
        """
        count = len(same) + len(others)
        if before is not None and before.slots is not None:
            # what is copied is read as it lies
            order = np.argsort(before.slots[held])
            same, held = same[order], held[order]
        if not is_for_disk(count, dim):
            # filled in place: at its peak a first reading takes 2.2 times the vectors, where it took 3.8 before. The
            # query after a commit at 100,000 × 512 takes 0.3 to 0.75 s more for the copy; reading all took up to 1.4
            made = cls(np.empty((count, dim), np.float32))
            made._copy(before, same, held)
            return made
        slots = np.empty(count, np.int32)
        if before is not None and before.slots is not None and before._file is not None:
            slots[same] = before.slots[held]
            free = before._file.take(slots[same], len(others))
            if free is not None:
                slots[others] = free
                return cls._of_file(before._file, slots)
        file = ScratchFile(count, dim)
        taken = file.take(slots[:0], count)
        assert taken is not None
        # written in the order in which they are read
        slots[same], slots[others] = taken[: len(same)], taken[len(same) :]
        made = cls._of_file(file, slots)
        made._copy(before, same, held)
        return made

    @classmethod
    def _of_file(cls: type[R], file: ScratchFile, slots: Int[np.ndarray, " rows"]) -> R:
        made = cls(file.matrix, on_disk=True, slots=slots, file=file)
        # when nobody searches these rows any more: those that later snapshots do not have are overwritten then
        weakref.finalize(made, file.drop, slots).atexit = False
        return made

    def _copy(
        self, before: "VectorRows | None", same: Int[np.ndarray, " same"], held: Int[np.ndarray, " same"]
    ) -> None:
        if before is not None:
            # in parts: indexing by an array makes a copy of the right side first
            for start in range(0, len(same), _COPIED):
                part = slice(start, start + _COPIED)
                self.stored[self.places(same[part])] = before[held[part]]

    def __len__(self) -> int:
        return len(self.stored if self.slots is None else self.slots)

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        dim: int = self.stored.shape[1]
        return dim

    def __getitem__(self, rows: Any) -> Float[np.ndarray, "*some dim"]:
        """Vectors of some rows, in the order given, by what numpy takes for an index; those of a file are a copy."""
        found: Float[np.ndarray, "*some dim"]
        if self.slots is None:
            found = self.stored[rows]
            return found
        slots = np.asarray(self.slots[rows])
        if not slots.ndim:
            # no view: the slot may be another vector's when these rows are gone
            found = self.stored[slots].copy()
            return found
        found = np.empty((len(slots), self.dim), np.float32)
        order = np.argsort(slots)
        for start in range(0, len(slots), _BLOCK):
            part = order[start : start + _BLOCK]
            found[part] = self.stored[slots[part]]
        return found

    def places(self, rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"]:
        """Where in `stored` some rows are."""
        return rows if self.slots is None else self.slots[rows]

    def as_stored(self, rows: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"]:
        """Bring rows into the order in which they are read soonest."""
        return rows if self.slots is None else rows[np.argsort(self.slots[rows])]

    @property
    def matrix(self) -> Float[np.ndarray, "rows dim"]:
        """All vectors in the order of the rows, valid as long as this is.

        Those of a file that has another order are copied into a file of their own, whenever this is asked for. Raises
        `StoreError` without room for that.
        """
        if self.slots is None:
            return self.stored
        if np.array_equal(self.slots, np.arange(len(self))):
            return self.stored[: len(self)]
        copied = scratch_matrix(len(self), self.dim)
        rows = self.as_stored(np.arange(len(self)))
        for start in range(0, len(rows), _COPIED):
            part = rows[start : start + _COPIED]
            copied[part] = self[part]
        return copied
