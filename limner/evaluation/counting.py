"""Counts the scores that reach bounds: exactly, many at once, and fewer where a model ranks well."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

# 4 MiB of float32.
_CHUNK = 1 << 20
"""Scores compared at once on a CPU: few enough to stay in its cache until each bound has been compared."""

_COUNT_BY_SORTING = 11
"""From this many bounds a query on, sorting a row costs less than one comparison pass for each."""

_WORD = 8
"""Comparisons, a byte each, that are looked at together."""

_MOST = 1 / 16
"""The share of words with a score that reaches a bound, for each bound, up to which such scores are picked out."""

_PICKED = 1 << 18
"""Scores that are picked out before they are counted: 3 MiB."""


def at_least(
    scores: Float[Tensor, "queries gallery"], bounds: Float[Tensor, "queries bounds"]
) -> Int[Tensor, "queries bounds"]:
    """For each bound the number of items in its row that reach it. May leave `scores` sorted."""
    # Captions have one to five matches a query, classes and labels hundreds: neither way serves both.
    if bounds.shape[1] < _COUNT_BY_SORTING:
        # All bounds are compared while a few rows are in the cache: 0.3 s in place of 0.9 s for 5,000 × 25,000.
        rows = max(1, _CHUNK // scores.shape[1]) if scores.device.type == "cpu" else len(scores)
        counts = [
            _compared(chunk, of_rows.T[:, :, None], 1)
            for chunk, of_rows in zip(torch.split(scores, rows), torch.split(bounds, rows), strict=True)
        ]
        return torch.cat(counts)
    if scores.device.type == "cpu":
        scores.numpy().sort(axis=1)  # several times faster than torch's on a CPU
    else:
        scores = scores.sort(1).values
    return scores.shape[1] - torch.searchsorted(scores, bounds)


def at_least_sorted(
    trues: Float[Tensor, "queries most"], bounds: Float[Tensor, "queries bounds"]
) -> Int[Tensor, "queries bounds"]:
    """For each bound the number of its row's descending scores that reach it."""
    # `searchsorted` needs ascending rows; its left side counts equal scores as reached.
    return trues.shape[1] - torch.searchsorted(trues.flip(1).contiguous(), bounds)


def _compared(scores: Tensor, bounds: Tensor, axis: int) -> Int[Tensor, "queries bounds"]:
    """Numbers of scores along an axis that reach bounds, one comparison of all for each bound."""
    # Counting in the scores' own type is many times faster than in booleans, and exact below 2**24 items.
    exact = scores.dtype if scores.shape[axis] < 2**24 else torch.float64
    room = torch.empty_like(scores)
    counts = [torch.ge(scores, bound, out=room).sum(axis, dtype=exact) for bound in bounds]
    return torch.stack(counts, dim=1).long()


class Reached:
    """How many scores reach each bound of their query, from chunks of a matrix in the memory of a CPU.

    Where a model ranks well, few scores reach even the lowest bound of their query. They are picked out by one
    comparison, and all other bounds are compared with them alone. Queries are the rows (`axis` 0) or the columns (1).
    """

    def __init__(self, bounds: Float[Tensor, "queries bounds"], *, axis: int) -> None:
        self._bounds, self._axis = bounds, axis
        self._counts = torch.zeros(bounds.shape, dtype=torch.long)
        # Bounds of matches that a query does not have are reached by all, and nobody asks for them.
        void = bounds <= torch.finfo(bounds.dtype).min
        self._least = bounds.masked_fill(void, torch.inf).numpy().min(axis=1, initial=np.inf)
        self._picked: list[tuple[Int[np.ndarray, " picked"], Float[np.ndarray, " picked"]]] = []
        self._mask = np.empty(0, np.bool_)
        self._room = _PICKED

    def add(self, scores: Float[Tensor, "rows columns"], start: int) -> None:
        """Count a chunk, whose first query is `start`. May leave its rows sorted if queries are rows."""
        values = scores.numpy()
        part = slice(start, start + values.shape[self._axis])
        if values.size > len(self._mask):
            self._mask = np.zeros(-(-values.size // _WORD) * _WORD, np.bool_)
        self._mask[values.size :] = False
        least = self._least[part]
        mask = self._mask[: values.size].reshape(values.shape)
        np.greater_equal(values, least if self._axis else least[:, None], out=mask)
        words = np.flatnonzero(self._mask.view(np.uint64) != 0)
        if _WORD * len(words) > _MOST * self._bounds.shape[1] * values.size:
            self._counts[part] += self._all(scores, self._bounds[part])
            return
        places = (_WORD * words[:, None] + np.arange(_WORD)).ravel()
        places = places[self._mask[places]]
        at = np.divmod(places, values.shape[1])[self._axis]
        self._picked.append((start + at, values.ravel()[places]))
        self._room -= len(at)
        if self._room < 0:
            self._count()

    def counts(self) -> Int[Tensor, "queries bounds"]:
        """The counts of all chunks."""
        self._count()
        return self._counts

    def _count(self) -> None:
        if self._picked:
            queries, values = (np.concatenate(parts) for parts in zip(*self._picked, strict=True))
            for place, bounds in enumerate(self._bounds.numpy().T):
                found = queries[values >= bounds[queries]]
                self._counts[:, place] += torch.from_numpy(np.bincount(found, minlength=len(bounds)))
            self._picked.clear()
        self._room = _PICKED

    def _all(self, scores: Tensor, bounds: Tensor) -> Int[Tensor, "queries bounds"]:
        if not self._axis:
            return at_least(scores, bounds)
        if bounds.shape[1] < _COUNT_BY_SORTING:
            return _compared(scores, bounds.T, 0)
        return at_least(scores.T.clone(memory_format=torch.contiguous_format), bounds)
