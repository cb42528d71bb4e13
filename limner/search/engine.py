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
                raise SettingsError(
                    f"{self.store.folder}: its model has no matcher that could re-rank or explain"
                )
            first = 0
        count = len(self.store) if first == "all" else first
        if count < 0:
            raise SettingsError(f"rerank: expected at least 0, got {count}")
        query = self.encoder.encode_texts([text])[0]
        hits = self.store.search(query, k if k < 1 else max(k, count))
        if judge is None or not count or not hits:
            return hits[:k]
        return [*self._reranked(judge, text, hits[:count], explain), *hits[count:]][:k]

    def search_image(self, path: str | Path, k: int = 10) -> list[Hit]:
        """The k pictures most like a picture file. Raises `ImageError` for one that cannot be read."""
        return self.store.search(self.encoder.encode_images([path])[0], k)

    def _reranked(self, judge: Judge, text: str, hits: Sequence[Hit], explain: bool) -> list[Hit]:
        """The hits by their confidence; equal ones keep their order."""
        judgement = judge.judge(text, self.store.maps([hit.id for hit in hits]))
        order = np.argsort(-judgement.logits, kind="stable")
        return [
            replace(
                hits[place],
                rank=rank,
                confidence=float(1 / (1 + np.exp(-np.float64(judgement.logits[place])))),
                attention=_attention(judgement, place) if explain else None,
            )
            for rank, place in enumerate(order.tolist(), start=1)
        ]


def _attention(judgement: Judgement, place: int) -> Attention:
    regions, words = judgement.of_regions, judgement.of_words
    return Attention(
        judgement.words,
        None if regions is None else regions[place],
        None if words is None else words[place],
    )
