"""A store and its model together: queries as text or picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from limner.errors import SettingsError
from limner.search.hits import Attention, Hit
from limner.search.store import Store
from limner.types import Encoder, Judge, Judgement

_BLOCK = 256
"""Maps read from the store at once."""


class Engine:
    """Answers queries; refuses a model that the store was not built with (`StoreError`)."""

    def __init__(self, store: Store, encoder: Encoder) -> None:
        store.check_model(encoder.fingerprint, encoder.dim)
        self.store = store
        self.encoder = encoder

    def search(
        self, text: str, k: int = 10, *, rerank: int | Literal["all"] | None = None, explain: bool = False
    ) -> list[Hit]:
        """The k pictures that fit a description best.

        Where the model has a matcher, the first of the embedding's ranking are re-ranked by it, from the maps in the
        store: `rerank` of them, None = as many as the recipe says, 0 = none; the rest keep their order below. With
        `explain`, re-ranked hits carry the matcher's attention.

        Raises `DataError` when the model knows no word of it, `SettingsError` for re-ranking without a matcher, and
        what `Store.search` raises.
        """
        self.encoder.check_query(text)
        judge = self.encoder.judge if self.store.map_shape is not None else None
        first = self.encoder.rerank if rerank is None else rerank
        if judge is None:
            if rerank or explain:
                raise SettingsError(f"{self.store.folder}: {self._why_not()}")
            first = 0
        elif first != "all" and first < explain:
            raise SettingsError(f"rerank: expected at least {int(explain)} or 'all', got {first}")
        count = len(self.store) if first == "all" else first
        query = self.encoder.encode_texts([text])[0]
        hits = self.store.search(query, k if k < 1 else max(k, count))
        if judge is None or not count or not hits:
            return hits[:k]
        found = [*self._reranked(judge, text, hits[:count]), *hits[count:]][:k]
        return self._explained(judge, text, found) if explain else found

    def search_image(self, path: str | Path, k: int = 10) -> list[Hit]:
        """The k pictures most like a picture file. Raises `ImageError` for one that cannot be read."""
        return self.store.search(self.encoder.encode_images([path])[0], k)

    def _why_not(self) -> str:
        if self.encoder.judge is None:
            return "its model has no matcher that could re-rank or explain"
        return "keeps no maps to re-rank from; index into a new folder"

    def _reranked(self, judge: Judge, text: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits by their confidence; equal ones keep their order."""
        blocks = (hits[start : start + _BLOCK] for start in range(0, len(hits), _BLOCK))
        logits = np.concatenate(
            [judge.judge(text, self.store.maps([hit.id for hit in block])).logits for block in blocks]
        )
        scores = judge.scores(np.array([hit.score for hit in hits], np.float32), logits)
        order, sure = np.argsort(-scores, kind="stable"), judge.confidences(scores)
        return [
            replace(hits[place], rank=rank, confidence=float(sure[place]))
            for rank, place in enumerate(order.tolist(), start=1)
        ]

    def _explained(self, judge: Judge, text: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits with the attention of those that were re-ranked, which come first."""
        judged = [hit for hit in hits if hit.confidence is not None]
        judgement = judge.judge(text, self.store.maps([hit.id for hit in judged]))
        explained = [replace(hit, attention=_attention(judgement, place)) for place, hit in enumerate(judged)]
        return [*explained, *hits[len(judged) :]]


def _attention(judgement: Judgement, place: int) -> Attention:
    regions, words = judgement.of_regions, judgement.of_words
    return Attention(
        judgement.words,
        None if regions is None else regions[place],
        None if words is None else words[place],
        judgement.reader,
    )
