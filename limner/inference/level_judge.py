"""HGAN's levels as search sees them: a sentence and the regions of some pictures in, similarities and attention out."""

import numpy as np
from jaxtyping import Float, UInt8

from limner.data.token_rows import by_word
from limner.inference.level_matching import LevelMatching
from limner.types import Judgement, Maps, Tokenizer


class LevelJudge:
    """A `limner.types.Judge`."""

    def __init__(self, matching: LevelMatching, tokenizer: Tokenizer) -> None:
        self._matching = matching
        self._tokenizer = tokenizer
        self._settings = matching.model.settings

    @property
    def map_shape(self) -> tuple[int, int, int]:
        """Rows and columns of the regions, and the numbers of each, both levels'."""
        return self._matching.map_shape

    def maps(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Maps:
        """The regions of pictures that `Encoder.prepare_image` gave, float16."""
        return self._matching.maps(pixels)

    def judge(self, sentence: str, maps: Maps) -> Judgement:
        """The levels' similarities, and which words and regions selected one another at word level."""
        length = self._settings.text.words
        phrases = "phrase" in self._settings.levels
        batch = self._tokenizer.encode([sentence], length, phrases=phrases, words=True)
        assert batch.words is not None
        words = [word for word in batch.words[0] if word.tokens]
        similarities, of_items, of_regions = self._matching.explained(maps, batch)
        if of_regions is not None:
            rows, columns, _ = self.map_shape
            of_regions = by_word(of_regions, words, 1, mean=True)
            of_regions = of_regions.reshape(len(maps), len(words), rows, columns)
        return Judgement(
            similarities,
            tuple(word.text for word in words),
            of_regions,
            None if of_items is None else by_word(of_items, words, 2),
            "region",
        )

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The weighted sum of all three levels."""
        return np.asarray(self._settings.scores.sentence * similarities + logits, np.float32)

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """The weighted mean of the levels, at least 0; no probability."""
        weights = self._settings.scores
        total = weights.sentence + sum(getattr(weights, level) for level in self._settings.levels)
        return np.asarray(np.clip(scores / max(total, 1e-9), 0, 1))
