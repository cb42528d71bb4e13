"""A ranking of a store's rows for one query, on its way from cosines to answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from limner.evaluation.calibration import AROUND
from limner.inference.calibration_file import RunCalibration
from limner.search.crop import crops_of
from limner.search.deadline import check_time
from limner.search.hits import Attention, Crop, Hit
from limner.search.snapshot import Snapshot
from limner.search.store import Store
from limner.types import Encoder, Judge, Judgement

_BLOCK = 256
"""Maps read from the store at once."""


@dataclass
class Ranking:
    """Rows of a snapshot, best first.

    - `rows`: at least the first six of all, where there are as many, for the probabilities of the first.
    - `scores`: cosines by row of the snapshot; of those in the ranking at least.
    - `judged`: what the rows that were re-ranked are ranked by, best first.
    - `best`: the first cosines, before any re-ranking; `best_judged`: the highest scores of a matcher.
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
        judge: Judge,
        text: str,
        store: Store,
        count: int,
        *,
        around: int = 0,
        until: float | None = None,
    ) -> None:
        """Order the first by what a matcher makes of them, from the maps in the store; equal ones keep their order.

        At least `around` are judged, so that a hit's probability does not depend on how many are ordered.

        Raises `UnknownPictureError` for one that was deleted since, `SearchTimeoutError` after `until`.
        """
        rows = self.rows[: max(count, around)]
        logits = np.empty(len(rows), np.float32)
        blocks = store.map_blocks([self.snapshot.keys[row] for row in rows.tolist()], _BLOCK)
        check_time(until)
        for places, maps in blocks:
            logits[places] = judge.judge(text, maps).logits
            check_time(until)
        scores = judge.scores(self.scores[rows], logits)
        order = np.argsort(-scores[:count], kind="stable")
        self.rows = np.concatenate([rows[order], self.rows[count:]])
        self.judged = dict(zip(rows[order].tolist(), scores[order].tolist(), strict=True))
        self.best_judged = np.sort(scores)[::-1][:AROUND].astype(np.float64)

    def hits(
        self,
        rows: Sequence[int],
        groups: Sequence[int] | None,
        judge: Judge | None,
        calibration: RunCalibration | None,
    ) -> list[Hit]:
        """Some of the rows as answers, with the sizes of their groups, the matcher's confidence, a probability."""
        places = np.array(rows, np.int64)
        hits = self.snapshot.hits(places, self.scores[places])
        if groups is not None:
            hits = [replace(hit, group=size) for hit, size in zip(hits, groups, strict=True)]
        judged = [place for place, row in enumerate(rows) if row in self.judged]
        if judge is not None and judged:
            sure = judge.confidences(np.array([self.judged[rows[place]] for place in judged], np.float32))
            for place, one in zip(judged, sure.tolist(), strict=True):
                hits[place] = replace(hits[place], confidence=one)
        if calibration is None or not hits:
            return hits
        return [
            replace(hit, probability=one)
            for hit, one in zip(hits, self._probabilities(rows, calibration).tolist(), strict=True)
        ]

    def _probabilities(self, rows: Sequence[int], calibration: RunCalibration) -> Float[np.ndarray, " hits"]:
        """Of the matcher's scores where it has judged, else of the cosines, each beside the best of its own kind."""
        sure = calibration.embedding.probability(self.scores[list(rows)].astype(np.float64), self.best)
        judged = [place for place, row in enumerate(rows) if row in self.judged]
        if calibration.matcher is not None and judged:
            scores = np.array([self.judged[rows[place]] for place in judged])
            sure[judged] = calibration.matcher.probability(scores, self.best_judged)
        return sure


def explained(encoder: Encoder, judge: Judge, text: str, store: Store, hits: Sequence[Hit]) -> list[Hit]:
    """The hits with the attention of those that were re-ranked."""
    judged = [place for place, hit in enumerate(hits) if hit.confidence is not None]
    found = list(hits)
    if judged:
        keys = [hits[place].id for place in judged]
        judgement, crops = judge.judge(text, store.maps(keys)), crops_of(encoder, store, keys)
        for number, place in enumerate(judged):
            found[place] = replace(hits[place], attention=attention_of(judgement, number, crops[number]))
    return found


def attention_of(judgement: Judgement, place: int, crop: Crop) -> Attention:
    """Where a matcher looked at one of the pictures that it judged, of which it saw this part."""
    regions, words = judgement.of_regions, judgement.of_words
    return Attention(
        judgement.words,
        None if regions is None else regions[place],
        None if words is None else words[place],
        judgement.reader,
        crop,
    )
