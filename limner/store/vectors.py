"""Vectors in memory or a file, searched exactly: the highest scores, found without scoring every row exactly.

The score of a row is a sum of its own: it depends on the row and the query alone, not on the row's place, the other
rows, or what else is asked for. A fast pass scores all rows with an error that has a bound, and the rows that may be
among the first by it are scored exactly. So every way to ask gives the same rows, order and scores.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from limner.store.int8_codes import Int8Codes, rounding
from limner.store.vector_rows import VectorRows

Found = tuple[Int[np.ndarray, " found"], Float[np.ndarray, " found"]]
"""Rows, best first and equal scores by row, and their scores."""

# fewer are scored in two milliseconds: a store of photographs at home needs no codes
CODED_FROM = 16_384
"""Rows from which the fast pass reads codes."""

_FEW = 16
"""Where only one row of so many takes part, each is scored at once."""

_MANY = 8
"""Where one row of so many may be among the first, a fast pass saves nothing."""

_BLOCK = 1024
"""Rows that are copied at once to be scored: a few MiB, which stay in a core's cache."""

# a pass over the codes reads 51 MB of 100,000 × 512 for each query, the product 205 MB for all of them together
_TOGETHER = 8
"""Queries from which one product in float32 for all is faster than a pass over the codes for each."""

# of 1 << 18 two threads of BLAS took twice as long, each waiting for the other
_PRODUCTS = 1 << 20
"""Products in memory at once, 4 MiB, where several queries are asked together."""

_WAITING = 1 << 20
"""Pairs of a query and a row, 20 MiB, that wait for their exact score before the worse of them are dropped."""

# a row is a read of its own from a disk
_READ = 1024
"""Rows of a matrix on disk that are scored at once; of more, codes say which."""


@dataclass(frozen=True, eq=False)
class Coded:
    """Codes of all rows in an order of their own: `order` has their rows, and `places` where a row's codes are."""

    codes: Int8Codes
    order: Int[np.ndarray, " rows"]
    places: Int[np.ndarray, " rows"]


_Known = tuple[Int8Codes, Int[np.ndarray, " rows"]]
"""Codes, and where in them those of each row are, or -1."""


class Vectors(VectorRows):
    """Rows of float32, searched by dot product.

    The second search of many rows makes their codes (`limner.store.int8_codes`), a quarter of the matrix: for one
    search they cost more than they save. `prepare` makes them before. Without numkong all rows are scored. From a file
    rows are read where codes do not rule them out, and the codes of rows that stay are those of the rows before.
    """

    _codes: Int8Codes | None = None
    coded: Coded | None = None
    """Codes in another order, from `arrange` on."""
    # those of the rows before, until there are codes of these rows
    _codes_before: _Known | None = None
    _is_searched = False

    def take_codes(
        self, before: "Vectors", same: Int[np.ndarray, " same"], held: Int[np.ndarray, " same"]
    ) -> None:
        """Note that rows `same` have the vectors of rows `held` of `before`: on disk their codes are not made anew."""
        if self.on_disk and (known := before._available_codes()) is not None:
            codes, places = known
            places_in_codes = np.full(len(self), -1, np.int32)
            places_in_codes[same] = places[held]
            self._codes_before = codes, places_in_codes

    def prepare(self) -> None:
        """Make the codes, unless the rows are few; those of 100,000 × 512 take 0.15 s."""
        if self._codes is None and self.coded is None and len(self) >= CODED_FROM:
            self._codes = self._make_codes() if self.on_disk else Int8Codes.of(self.stored)
            self._codes_before = None
            # another thread may have arranged them meanwhile: once is enough
            if self.coded is not None:
                self._codes = None

    def arrange(self, order: Int[np.ndarray, " rows"]) -> None:
        """Bring the codes into this order of the rows, in place of those that there are; make what is not there."""
        places = np.empty_like(order)
        places[order] = np.arange(len(order), dtype=order.dtype)
        codes = self._make_codes(order)
        self.coded = None if codes is None else Coded(codes, order, places)
        self._codes = None
        self._codes_before = None

    def _available_codes(self) -> _Known | None:
        """The codes that there are."""
        # in this order: another thread may bring them from the first state to the last, and sets before it removes
        before, codes, coded = self._codes_before, self._codes, self.coded
        if coded is not None:
            return coded.codes, coded.places
        return before if codes is None else (codes, np.arange(len(self), dtype=np.int32))

    def _make_codes(self, order: Int[np.ndarray, " rows"] | None = None) -> Int8Codes | None:
        """Codes of all rows in some order, or in their own; None without a kernel to read them with."""
        rows = np.arange(len(self)) if order is None else order
        known = self._available_codes()
        if known is not None and len(known[0].codes):
            places = known[1][rows]
            # one index for all: what -1 brings, of the last row, is written over
            codes, fresh = known[0][places], np.flatnonzero(places < 0)
        elif (made := Int8Codes.empty(len(self), self.dim)) is not None:
            codes, fresh = made, np.arange(len(self))
        else:
            return None
        if self.slots is not None:
            fresh = fresh[np.argsort(self.slots[rows[fresh]])]
        for start in range(0, len(fresh), codes.at_once):
            part = fresh[start : start + codes.at_once]
            codes.put(part, self[rows[part]])
        return codes

    def scores(
        self, query: Float[np.ndarray, " dim"], rows: Int[np.ndarray, " some"] | None = None
    ) -> Float[np.ndarray, " some"]:
        """Dot products of a query with some rows, or with all; each is a sum of its own, so copies score equally."""
        stored_places = self.slots if rows is None else self.places(rows)
        # numpy sums a row of up to 8,192 numbers in one way wherever it stands; longer ones only beside other rows.
        # not `matrix @ query`: BLAS sums the last rows of odd sizes in another order, which would order copies. On one
        # thread it takes 17 ms of 100,000 × 512 where this takes 11
        if stored_places is None or 2 * len(stored_places) > len(self.stored):
            scores: Float[np.ndarray, " rows"] = np.einsum("nd,d->n", self.stored, query)
            return scores if stored_places is None else scores[stored_places]
        scores = np.empty(len(stored_places), np.float32)
        order = None if self.slots is None else np.argsort(stored_places)
        for start in range(0, len(stored_places), _BLOCK):
            part = slice(start, start + _BLOCK) if order is None else order[start : start + _BLOCK]
            scores[part] = np.einsum("nd,d->n", self.stored[stored_places[part]], query)
        return scores

    def first(
        self, query: Float[np.ndarray, " dim"], k: int, rows: Int[np.ndarray, " some"] | None = None
    ) -> Found:
        """Find the k best of all rows, or of some in ascending order: the `top` of their `scores`."""
        if rows is not None and len(rows) == len(self):
            rows = None
        count = len(self) if rows is None else len(rows)
        few = count <= _READ if self.on_disk else _FEW * count <= len(self)
        if few or _MANY * k >= count:
            return self.best(query, k, rows)
        return self.best(query, k, self._near(query, k, rows))

    def nearly_first(self, query: Float[np.ndarray, " dim"], k: int) -> Int[np.ndarray, " found"]:
        """Find about the k best rows by the codes alone, best first; by their scores where there are no codes."""
        if (coded := self.coded) is None:
            return self.first(query, k)[0]
        coarse, _ = coded.codes.products(query)
        found: Int[np.ndarray, " found"] = coded.order[top(coarse, k)]
        return found

    def _near(
        self, query: Float[np.ndarray, " dim"], k: int, rows: Int[np.ndarray, " some"] | None
    ) -> Int[np.ndarray, " near"] | None:
        """Find rows that the first k are among, by the codes; without codes return all that were given."""
        # with the codes of the rows before, those of these rows take little time
        if self._is_searched or self._codes_before is not None:
            self.prepare()
        self._is_searched = True
        # another thread may arrange them meanwhile
        codes, coded = self._codes, self.coded
        if coded is not None:
            codes = coded.codes
        if codes is None:
            return rows
        # where the codes of the rows are
        places = rows if rows is None or coded is None else coded.places[rows]
        # LanceDB's own exact scan takes 230 ms for 100,000 × 512, this pass 2.5 to 4
        if places is not None and _FEW * len(places) <= len(self):
            coarse, error = codes[places].products(query)
        else:
            coarse, error = codes.products(query)
            if places is not None:
                coarse, error = coarse[places], error[places]
        if rows is None and coded is not None:
            rows = coded.order
        # the k-th best score is at least the lowest of any k rows; the k rows of the best products come near it
        seeds = np.flatnonzero(coarse >= _kth(coarse, k))[:k]
        reached = self.scores(query, seeds if rows is None else rows[seeds]).min()
        near = np.flatnonzero(coarse + error >= reached)
        # in ascending order, which decides between equal scores
        return near if rows is None else np.sort(rows[near])

    def first_of_each(self, queries: Float[np.ndarray, "queries dim"], k: int) -> list[Found]:
        """Find the k best rows for each of some queries, as `first` does, by one product for many of them."""
        count, asked = len(self), len(queries)
        if asked < _TOGETHER or _MANY * k >= count or self.on_disk:
            return [self.first(query, k) for query in queries]
        # product and score are both sums in float32; twice, since the norms are such sums, too
        errors = 2 * rounding(queries.shape[1]) * self._longest * np.linalg.norm(queries, axis=1)
        waiting = _Waiting(k, errors)
        block = min(count, max(k, _PRODUCTS // asked))
        # one memory for all blocks: the system hands out each page of new memory by itself
        memory = np.empty(asked * block, np.float32)
        for start in range(0, count, block):
            rows_of_block = self.stored[start : start + block]
            products = memory[: asked * len(rows_of_block)].reshape(-1, asked)
            # rows first: two threads of OpenBLAS take 52 ms for 100,000 × 512 and 64 queries, queries first 60
            waiting.add(start, np.matmul(rows_of_block, queries.T, out=products))
            # of rows that are nearly all the same nearly all may be among the first
            if waiting.count > _WAITING:
                return [self.first(query, k) for query in queries]
        rows, owners = waiting.left()
        # all of them at once, since 64 times `best` took a thirtieth of the product's time
        scores = np.einsum("nd,nd->n", self.stored[rows], queries[owners])
        order = np.lexsort((rows, -scores, owners))
        rows, scores, ends = rows[order], scores[order], _ends(owners, asked)
        return [
            (of_query[:k], own[:k])
            for of_query, own in zip(np.split(rows, ends), np.split(scores, ends), strict=True)
        ]

    def best(self, query: Float[np.ndarray, " dim"], k: int, rows: Int[np.ndarray, " some"] | None) -> Found:
        """Find the k best of all rows, or of some in ascending order, by scoring each."""
        scores = self.scores(query, rows)
        best = top(scores, k)
        return best if rows is None else rows[best], scores[best]

    @cached_property
    def _longest(self) -> float:
        """The norm of the longest row."""
        return float(np.sqrt(np.einsum("nd,nd->n", self.stored, self.stored).max(initial=0)))


class _Waiting:
    """Rows that may be among the first k of their query, by products whose error has a bound for each query."""

    def __init__(self, k: int, errors: Float[np.ndarray, " queries"]) -> None:
        self.k = k
        self.errors = errors
        self.count = 0
        self._floors: Float[np.ndarray, " queries"] | None = None
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, start: int, products: Float[np.ndarray, "rows queries"]) -> None:
        """Take the products of the rows from `start` on; the first ones are of at least k rows."""
        if self._floors is None:
            # some are enough to begin with: `_sift` raises it
            self._floors = self._reached(products[: max(self.k, 4 * _BLOCK)].T)
        places = np.flatnonzero(products >= self._floors)
        rows, queries = np.divmod(places, products.shape[1])
        self._parts.append((start + rows, queries, products.ravel()[places]))
        self.count += len(places)
        if self.count > _WAITING:
            self._sift()

    def left(self) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
        """Return rows and their queries, ordered by query."""
        self._sift()
        ((rows, queries, _),) = self._parts
        return rows, queries

    def _sift(self) -> None:
        """Raise what products have to reach to what all so far say, and drop what does not."""
        rows, queries, products = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        # a tenth of the time: numpy sorts small integers by their digits
        order = np.argsort(queries.astype(np.min_scalar_type(len(self.errors))), kind="stable")
        rows, queries, products = rows[order], queries[order], products[order]
        self._floors = self._reached(np.split(products, _ends(queries, len(self.errors))))
        stays = products >= self._floors[queries]
        self._parts = [(rows[stays], queries[stays], products[stays])]
        self.count = int(stays.sum())

    def _reached(self, products: Iterable[np.ndarray]) -> Float[np.ndarray, " queries"]:
        # the k-th best score is at least the k-th best product less an error, and a product may lie one below its score
        floors: Float[np.ndarray, " queries"] = np.array([_kth(one, self.k) for one in products])
        floors -= 2 * self.errors
        return floors


def _ends(queries: Int[np.ndarray, " pairs"], count: int) -> Int[np.ndarray, " inner"]:
    """Places where the pairs of the next query begin."""
    ends: Int[np.ndarray, " inner"] = np.searchsorted(queries, np.arange(1, count))
    return ends


def _kth(values: Float[np.ndarray, " some"], k: int) -> np.floating:
    """The k-th highest value."""
    kth: np.floating = np.partition(values, len(values) - k)[len(values) - k]
    return kth


def top(scores: Float[np.ndarray, " rows"], k: int) -> Int[np.ndarray, " best"]:
    """Find the positions of the k highest scores, best first, equal scores by position, without sorting the rest.

    >>> top(np.array([0.5, 0.9, 0.5, 0.5], dtype=np.float32), 3).tolist()
    [1, 0, 2]
    """
    k = min(k, len(scores))
    if not k:
        return np.empty(0, np.int64)
    # a partition takes any of the scores that tie for the last place: so all above it, then the first that tie
    last = _kth(scores, k)
    above = np.flatnonzero(scores > last)
    level = np.flatnonzero(scores == last)[: k - len(above)]
    chosen = np.concatenate([above, level])
    # the last key of lexsort counts first
    return chosen[np.lexsort((chosen, -scores[chosen]))]
