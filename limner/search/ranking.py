"""A ranking of a store's rows for one query, on its way from cosines to answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from limner.evaluation.calibration import AROUND
from limner.inference.calibration import RunCalibration
from limner.search.snapshot import Snapshot, check_time
from limner.search.store_files import StoreFiles
from limner.types import Reranker
from limner.wire import Hit

NEAR_DUPLICATE = 0.98
"""Cosine from which two pictures count as nearly the same."""

_BLOCK = 256
"""Maps read from the store at once."""


@dataclass
class Ranking:
    """Rows of a snapshot, best first.

    - `rows`: at least the first six of all, where there are as many, for the probabilities of the first.
    - `scores`: cosines by row of the snapshot; of those in the ranking at least.
    - `judged`: what the rows that were re-ranked are ranked by, best first.
    - `best`: the first cosines, before any re-ranking; `best_judged`: the highest scores of a reranker.
    """

    snapshot: Snapshot
    rows: Int[np.ndarray, " ranked"]
    scores: Float[np.ndarray, " images"]
    judged: dict[int, float] = field(default_factory=dict)
    best_judged: Float[np.ndarray, " first"] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
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
        """Order the first by what a reranker makes of them, from the maps in the store; equal ones keep their order.

        At least `around` are judged, so that a hit's probability does not depend on how many are ordered.

        Raises `UnknownPictureError` for one that was deleted since, `SearchTimeoutError` after `until`.
        """
        rows = self.rows[: max(count, around)]
        logits = np.empty(len(rows), np.float32)
        blocks = files.map_blocks([self.snapshot.keys[row] for row in rows.tolist()], _BLOCK)
        check_time(until)
        for places, maps in blocks:
            logits[places] = reranker.rerank(text, maps).logits
            check_time(until)
        scores = reranker.scores(self.scores[rows], logits)
        # stable: equal scores keep the order of the embedding
        order = np.argsort(-scores[:count], kind="stable")
        self.rows = np.concatenate([rows[order], self.rows[count:]])
        self.judged = dict(zip(rows[order].tolist(), scores[order].tolist(), strict=True))
        self.best_judged = np.sort(scores)[::-1][:AROUND].astype(np.float64)

    def hits(
        self,
        rows: Sequence[int],
        groups: Sequence[int] | None,
        reranker: Reranker | None,
        calibration: RunCalibration | None,
    ) -> list[Hit]:
        """Some of the rows as hits, with the sizes of their groups, the reranker's confidence, a probability."""
        places = np.array(rows, np.int64)
        confidences: list[float | None] = [None] * len(rows)
        judged = [place for place, row in enumerate(rows) if row in self.judged]
        if reranker is not None and judged:
            sure = reranker.confidences(np.array([self.judged[rows[place]] for place in judged], np.float32))
            for place, one in zip(judged, sure.tolist(), strict=True):
                confidences[place] = one
        return self.snapshot.hits(
            places,
            self.scores[places],
            groups=groups,
            confidences=confidences,
            probabilities=None
            if calibration is None or not rows
            else self._probabilities(rows, calibration).tolist(),
        )

    def _probabilities(self, rows: Sequence[int], calibration: RunCalibration) -> Float[np.ndarray, " hits"]:
        """Of the reranker's scores where it has judged, else of the cosines, each beside the best of its own kind."""
        sure = calibration.embedding.probability(self.scores[list(rows)].astype(np.float64), self.best)
        judged = [place for place, row in enumerate(rows) if row in self.judged]
        if calibration.reranker is not None and judged:
            scores = np.array([self.judged[rows[place]] for place in judged])
            sure[judged] = calibration.reranker.probability(scores, self.best_judged)
        return sure


def best_of_identities(
    ranked: Int[np.ndarray, " ranked"], identities: Sequence[str | None], k: int
) -> list[tuple[int, int]]:
    """The best row of each of the first k identities, with how many of the ranked rows show it.

    A row without an identity is a group of its own.
    """
    names = [identities[row] for row in ranked.tolist()]
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
    matrix: Float[np.ndarray, "images dim"],
    k: int,
    near: float = NEAR_DUPLICATE,
) -> list[tuple[int, int]]:
    """The best row of each of the first k groups of nearly equal pictures, with the size of the group.

    Going down the ranking, a row that is in no group yet begins one, which takes all rows below it that have a cosine
    of at least `near` with it and no group: one product with the matrix a group.
    """
    free = np.ones(len(ranked), bool)
    best: list[tuple[int, int]] = []
    # of the whole gallery a copy in the order of the ranking would be as large as the store
    few = matrix[ranked] if 2 * len(ranked) < len(matrix) else None
    for place in range(len(ranked)):
        if len(best) == k:
            break
        if free[place]:
            centre = matrix[ranked[place]]
            cosines = (matrix @ centre)[ranked] if few is None else few @ centre
            alike = free & (cosines >= near)
            alike[place] = True  # whatever rounding says
            free &= ~alike
            best.append((int(ranked[place]), int(alike.sum())))
    return best
