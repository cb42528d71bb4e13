"""Search of a store larger than memory: an inverted file (IVF) of int8 codes, and exact scores of what it finds.

The rows are in lists, each around a centre, and a search reads the lists whose centres are nearest to the query (Jégou
et al., 2011, section IV; here with codes of int8 in place of product quantisation). Rows that conditions leave out are
passed over, and further lists are read for them. Nothing of it is written: the store's table is the truth.

Of 5 million × 512 on one core, with any condition (docs/log/2026-11-28.md), a request takes 4 to 12 ms and finds 99.6 %
or more of the ten best. LanceDB's IVF of int8 codes took 38 to 95 ms for 99 %; faiss's 0.4 to 4 ms without what is
around it, by codes of its own beside those of exact search, 2.6 GB more. So these lists stay.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from limner.search.proposer import GROWN, RECALL, Proposer, of_usearch, own_queries
from limner.store.int8_codes import Int8Codes
from limner.store.snapshot import Snapshot
from limner.store.vectors import Found, Vectors, top
from limner.store_reports import GraphWidth

_SAMPLE = 200
"""Queries by which it is chosen how many lists are read."""

_LEARNT = 32
"""Rows a list from which the centres are learnt."""

_ROUNDS = 8
"""Rounds of k-means."""

_BLOCK = 8192
"""Rows that are compared with the centres at once."""

DEPTHS = (10, 30, 100, 300, 1000)
"""Numbers of best rows for which it is measured how many lists hold them."""

# int8 puts near neighbours in another order, by far less than the bound of its error
_MORE = 64
"""Rows that are scored exactly beside twice those that are asked for."""


class InvertedFile(Proposer):
    """Lists of a snapshot's rows around centres; the next snapshot's new rows join the lists that there are.

    A search reads as many lists as hold `recall` of the best rows that it may have to find, on average over rows with
    noise as queries. Where a share s of the rows takes part, the k best of these are about the first k/s of all: as
    many lists are read as hold those, and further ones until as many rows have taken part as if they were spread
    evenly. Where k/s is more than was measured (`DEPTHS`), the search is exact.
    """

    name = "lists"

    def __init__(self, recall: float = RECALL) -> None:
        super().__init__(recall)
        # what reads codes comes with it
        of_usearch("Index")
        self._centres: Float[np.ndarray, "lists dim"] = np.empty((0, 0), np.float32)
        self._list_of: Int[np.ndarray, " rows"] = np.empty(0, np.int32)
        self._starts: Int[np.ndarray, " ends"] = np.zeros(1, np.int64)
        self._read: dict[int, int] = {}
        self._changed = 0

    @property
    def takes_conditions(self) -> bool:
        """True: lists hold rows, and those that are left out are passed over."""
        return True

    def update(self, snapshot: Snapshot) -> int:
        """Take over a snapshot, and return how many rows are in lists anew: for the first snapshot, all.

        While it runs the codes are in memory twice: exact search reads those that were there before.
        """
        if self._snapshot is snapshot:
            return 0
        vectors = snapshot.vectors
        list_of, fresh = self._kept(snapshot)
        changed = self._changed + len(fresh)
        learns = changed > GROWN * len(vectors)
        centres = self._centres
        if learns:
            centres, fresh = self._learnt(vectors), np.arange(len(vectors))
        for part in np.array_split(vectors.as_stored(fresh), 1 + len(fresh) // _BLOCK):
            self.go_on()
            list_of[part] = (vectors[part] @ centres.T).argmax(axis=1)
        # stable: within a list the rows ascend
        order = np.argsort(list_of, kind="stable").astype(np.int32)
        counts = np.bincount(list_of, minlength=len(centres))
        vectors.arrange(order)
        # all at once: what fails before leaves the last snapshot with its own lists
        self._snapshot, self._centres, self._list_of = snapshot, centres, list_of
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._changed = 0 if learns else changed
        if learns and len(vectors):
            self._choose()
        return len(fresh)

    def _kept(self, snapshot: Snapshot) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " fresh"]]:
        """Lists of a snapshot's rows, as far as they were there before, and the rows that are left."""
        lists = np.empty(len(snapshot.vectors), np.int32)
        left = np.ones(len(lists), bool)
        # another store numbers its rows anew
        if self._snapshot is not None and self._snapshot.store == snapshot.store:
            same, places = self._snapshot.columns.places_of(snapshot.columns)
            lists[same] = self._list_of[places]
            left[same] = False
        return lists, np.flatnonzero(left)

    def _learnt(self, vectors: Vectors) -> Float[np.ndarray, "lists dim"]:
        """Centres of unit length: about as many as the root of the number of rows."""
        count = 2 ** round(math.log2(max(1.0, math.sqrt(len(vectors)))))
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.choice(len(vectors), min(len(vectors), _LEARNT * count), replace=False))
        rows: Float[np.ndarray, "lists dim"] = vectors[chosen]
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows if len(rows) <= count else spherical_kmeans(rows, count, rng, go_on=self.go_on)

    def _choose(self) -> None:
        """Measure in how many lists the best rows are, for each of `DEPTHS`."""
        assert self._snapshot is not None
        vectors, count = self._snapshot.vectors, len(self._list_of)
        depth = min(DEPTHS[-1], count)
        needed = []
        for query in own_queries(vectors, _SAMPLE):
            self.go_on()
            nearest = np.argsort(-(self._centres @ query), kind="stable")
            turn = np.empty(len(nearest), np.int64)
            turn[nearest] = np.arange(1, 1 + len(nearest))
            needed.append(turn[self._list_of[vectors.nearly_first(query, depth)]])
        turns = np.stack(needed)
        self._read = {}
        for one in DEPTHS:
            found = np.sort(turns[:, :one], axis=None)
            # so that at least the wanted share of them lies in the lists up to this one
            self._read[one] = int(found[min(len(found), math.ceil(self.wanted * len(found))) - 1])
        most = self._read[DEPTHS[0]]
        widths = sorted({*(2**power for power in range(most.bit_length()) if 2**power < most), most})
        best = turns[:, : DEPTHS[0]]
        self.tried = [GraphWidth(width=one, recall=float((best <= one).mean())) for one in widths]

    def nearest(
        self, query: Float[np.ndarray, " dim"], k: int, rows: Int[np.ndarray, " some"] | None = None
    ) -> Found:
        """Find about the k best rows of the snapshot, or of some in ascending order, as `Proposer.nearest` does."""
        assert self._snapshot is not None
        vectors, count = self._snapshot.vectors, len(self._list_of)
        taking_part = count if rows is None else len(rows)
        depth = min((one for one in DEPTHS if one * taking_part >= k * count), default=None)
        coded = vectors.coded
        # without numkong there are no codes; and few rows are sooner looked at than passed over in lists
        if depth is None or coded is None or taking_part * len(self._centres) <= self._read[depth] * count:
            return vectors.first(query, k, rows)
        takes_part = None
        if rows is not None:
            takes_part = np.zeros(count, bool)
            takes_part[rows] = True
        found = self._coarse(query, self._read[depth], coded.codes, coded.order, takes_part, taking_part)
        proposed = found[0][top(found[1], 2 * k + _MORE)]
        proposed.sort()
        return vectors.best(query, k, proposed)

    def _coarse(
        self,
        query: Float[np.ndarray, " dim"],
        lists: int,
        codes: Int8Codes,
        order: Int[np.ndarray, " rows"],
        takes_part: np.ndarray | None,
        taking_part: int,
    ) -> Found:
        """Rows of the nearest lists with their coarse products, in no order."""
        one = Int8Codes.of(query[None])
        assert one is not None
        rows, products, read, left = [], [], 0, 0
        for turn, number in enumerate(np.argsort(-(self._centres @ query), kind="stable")):
            # as many take part among those read as would, were they spread evenly
            if turn >= lists and left * len(order) >= taking_part * read:
                break
            part = slice(self._starts[number], self._starts[number + 1])
            in_list = order[part]
            # no kernel takes an empty matrix
            if not len(in_list):
                continue
            coarse = codes[part].coarse(one)
            if turn < lists:
                read += len(in_list)
            if takes_part is not None:
                stays = takes_part[in_list]
                in_list, coarse = in_list[stays], coarse[stays]
            left += len(in_list)
            rows.append(in_list)
            products.append(coarse)
        return np.concatenate(rows), np.concatenate(products)


def spherical_kmeans(
    rows: Float[np.ndarray, "rows dim"],
    count: int,
    rng: np.random.Generator,
    rounds: int = _ROUNDS,
    go_on: Callable[[], None] = lambda: None,
) -> Float[np.ndarray, "lists dim"]:
    """Find centres of unit length among rows of unit length, from random ones of them by Lloyd's algorithm.

    Each round gives a row to the centre of the highest cosine, and a centre becomes its rows' mean, at unit length
    (Dhillon and Modha, 2001); one that has lost all of its rows stays. The same generator gives the same centres.
    `go_on` is called before each round.
    """
    # usearch's own takes a seed and has other centres each time: two servers of one store would find other rows
    centres = rows[np.sort(rng.choice(len(rows), count, replace=False))]
    for _ in range(rounds):
        go_on()
        blocks = range(0, len(rows), _BLOCK)
        nearest = np.concatenate(
            [(rows[start : start + _BLOCK] @ centres.T).argmax(axis=1) for start in blocks]
        )
        counts = np.bincount(nearest, minlength=count)
        held = np.flatnonzero(counts)
        starts = np.cumsum(counts) - counts
        sums = np.add.reduceat(rows[np.argsort(nearest, kind="stable")], starts[held])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # rows that cancel out have no direction
        turned = lengths[:, 0] > 1e-6
        centres[held[turned]] = sums[turned] / lengths[turned]
    return centres
