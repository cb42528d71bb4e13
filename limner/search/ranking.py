"""The ranking of a store's rows for one query, from cosines to hits."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from limner.evaluation.calibration import AROUND
from limner.inference.calibration_file import RunCalibration
from limner.requests import SearchRequest
from limner.store.contents import region_blocks
from limner.store.files import StoreFiles
from limner.store.snapshot import Snapshot, check_time
from limner.store.vectors import Vectors
from limner.types import Reranker
from limner.wire import Hit

# an angle of 0.2 between the embeddings
NEAR_DUPLICATE = 0.98
"""Cosine from which two images count as nearly the same."""

# between blocks the time limit is looked at, and no more region features than these are in memory
_BLOCK = 256
"""Number of region features that are read from the store at once."""


@dataclass
class Ranking:
    """Rows of a snapshot, best first.

    - `rows`: at least the first six of all, if there are as many, for the probabilities of the first.
    - `scores`: cosines by row of the snapshot, at least for the rows in the ranking.
    - `reranked`: the scores that the re-ranked rows are ordered by, best first.
    - `before`: the ranks of the re-ranked rows by the cosines alone, from 1; equal cosines share the best of theirs.
    - `named`: rows that stand in front because words name them; None where words were not asked.
    - `best`: the first cosines, before any re-ranking; `best_reranked`: the highest scores of the reranker.
    """

    snapshot: Snapshot
    rows: Int[np.ndarray, " ranked"]
    scores: Float[np.ndarray, " images"]
    reranked: dict[int, float] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    best_reranked: Float[np.ndarray, " first"] = field(default_factory=lambda: np.empty(0))
    named: Collection[int] | None = None

    @classmethod
    def of(
        cls, snapshot: Snapshot, rows: Int[np.ndarray, " ranked"], scores: Float[np.ndarray, " ranked"]
    ) -> "Ranking":
        """Rank rows, best first, that have these scores."""
        # the rest is never looked at; zeros, since the system gives no memory for pages that nobody writes
        by_row = np.zeros(len(snapshot.vectors), np.float32)
        by_row[rows] = scores
        return cls(snapshot, rows, by_row)

    def __post_init__(self) -> None:
        # taken now: `rerank` changes the order, and probabilities of the embedding compare with its own first hits
        self.best = self.scores[self.rows[:AROUND]].astype(np.float64)

    def rerank(
        self,
        reranker: Reranker,
        text: str,
        files: StoreFiles,
        count: int,
        *,
        around: int = 0,
        until: float | None = None,
    ) -> None:
        """Order the first rows by a reranker's scores, from the store's region features; equal ones keep their order.

        The reranker reads at least `around`, so that a hit's probability does not depend on how many are ordered.

        Raises `UnknownPictureError` for an image that was deleted since, `SearchTimeoutError` after `until`.
        """
        rows = self.rows[: max(count, around)]
        logits = np.empty(len(rows), np.float32)
        blocks = region_blocks(files, self.snapshot.keys_of(rows), _BLOCK)
        check_time(until)
        for places, region_features in blocks:
            # by places: of a large share the blocks come in the order of the table
            logits[places] = reranker.rerank(text, region_features).logits
            check_time(until)
        scores = reranker.scores(self.scores[rows], logits)
        first_rows = rows[:count]
        # the first of those with the same cosine: which of them stands first says nothing of the embedding
        ranks = 1 + np.searchsorted(-self.scores[first_rows], -self.scores[first_rows])
        self.before = dict(zip(first_rows.tolist(), ranks.tolist(), strict=True))
        # stable: equal scores keep the order of the embedding
        order = np.argsort(-scores[:count], kind="stable")
        self.rows = np.concatenate([rows[order], self.rows[count:]])
        self.reranked = dict(zip(rows[order].tolist(), scores[order].tolist(), strict=True))
        # over all that were read, not the first `count`: otherwise a smaller `rerank` would mean higher probabilities
        self.best_reranked = np.sort(scores)[::-1][:AROUND].astype(np.float64)

    def grouped(self, query: SearchRequest) -> tuple[list[int], list[int] | None]:
        """Choose the rows up to the end of the answer, with the sizes of the groups that they stand for."""
        end = query.start + query.k
        if query.group is None:
            return self.rows[:end].tolist(), None
        if query.group == "identity":
            groups = best_of_identities(self.rows, self.snapshot.columns.identities, end)
        else:
            groups = best_of_near_duplicates(self.rows, self.snapshot.vectors, end)
        return [row for row, _ in groups], [size for _, size in groups]

    def hits(
        self,
        rows: Sequence[int],
        groups: Sequence[int] | None,
        reranker: Reranker | None,
        calibration: RunCalibration | None,
        *,
        first_rank: int = 1,
    ) -> list[Hit]:
        """Turn some rows into hits, with the sizes of their groups, the reranker's confidence and a probability."""
        places = np.array(rows, np.int64)
        confidences: list[float | None] = [None] * len(rows)
        reranked = [place for place, row in enumerate(rows) if row in self.reranked]
        if reranker is not None and reranked:
            sure = reranker.confidences(
                np.array([self.reranked[rows[place]] for place in reranked], np.float32)
            )
            for place, confidence in zip(reranked, sure.tolist(), strict=True):
                confidences[place] = confidence
        return self.snapshot.hits(
            places,
            self.scores[places],
            groups=groups,
            confidences=confidences,
            probabilities=None
            if calibration is None or not rows
            else self._probabilities(rows, calibration).tolist(),
            first_rank=first_rank,
            # ranks of pictures say nothing beside those of groups
            before=None if groups is not None else [self.before.get(row) for row in rows],
        )

    def _probabilities(self, rows: Sequence[int], calibration: RunCalibration) -> Float[np.ndarray, " hits"]:
        """Probabilities by the reranker's scores of the rows that it read, else by the cosines."""
        # each kind of score has its own scale, so it is compared with the best of its own kind
        sure = calibration.embedding.probability(self.scores[list(rows)].astype(np.float64), self.best)
        reranked = [place for place, row in enumerate(rows) if row in self.reranked]
        if calibration.reranker is not None and reranked:
            scores = np.array([self.reranked[rows[place]] for place in reranked])
            sure[reranked] = calibration.reranker.probability(scores, self.best_reranked)
        return sure


_COPIED = 1 << 15
"""Rows of a disk that are brought into memory to find near duplicates; more are read again for each group."""


def best_of_identities(
    ranked: Int[np.ndarray, " ranked"], identities: Sequence[str | None], k: int
) -> list[tuple[int, int]]:
    """Find the best row of each of the first k identities, with the number of ranked rows that show it.

    A row without an identity is a group of its own.
    """
    names = [identities[row] for row in ranked.tolist()]
    # over the whole ranking, since the loop below ends at k
    counts = Counter(name for name in names if name is not None)
    seen: set[str] = set()
    best: list[tuple[int, int]] = []
    for row, name in zip(ranked.tolist(), names, strict=True):
        if name is None:
            best.append((row, 1))
        elif name not in seen:
            seen.add(name)
            best.append((row, counts[name]))
        if len(best) == k:
            break
    return best


def best_of_near_duplicates(
    ranked: Int[np.ndarray, " ranked"],
    vectors: Vectors,
    k: int,
    near: float = NEAR_DUPLICATE,
) -> list[tuple[int, int]]:
    """Find the best row of each of the first k groups of nearly equal images, with the size of the group.

    Down the ranking, each row without a group begins one. The group takes all rows below without a group whose cosine
    with it is at least `near`, at the cost of a score of each.
    """
    free = np.ones(len(ranked), bool)
    best: list[tuple[int, int]] = []
    # a copy in the order of the ranking makes the products short, but for the whole gallery it would be as large as it
    is_few = len(ranked) <= _COPIED if vectors.on_disk else 2 * len(ranked) < len(vectors)
    ranked_vectors = vectors[ranked] if is_few else None
    for place in range(len(ranked)):
        if len(best) == k:
            break
        if free[place]:
            centre = vectors[ranked[place]]
            cosines = vectors.scores(centre, ranked) if ranked_vectors is None else ranked_vectors @ centre
            alike = free & (cosines >= near)
            alike[place] = True  # the product with itself may round below `near`
            free &= ~alike
            best.append((int(ranked[place]), int(alike.sum())))
    return best
