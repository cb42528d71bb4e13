"""HGAN's levels as search sees them: a sentence and the regions of some pictures in, similarities and attention out."""

import numpy as np
from jaxtyping import Float, UInt8

from limner.data.read_sentences import ReadSentences
from limner.data.vocabulary import Vocabulary, words
from limner.inference.level_matching import LevelMatching
from limner.types import Judgement, Maps


class LevelJudge:
    """A `limner.types.Judge`."""

    def __init__(self, matching: LevelMatching, vocabulary: Vocabulary) -> None:
        self._matching = matching
        self._vocabulary = vocabulary
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
        read = ReadSentences.of([sentence], self._vocabulary, length, phrases=phrases)
        known = tuple(word for word in words(sentence) if word in self._vocabulary)[:length]
        similarities, of_items, of_regions = self._matching.explained(maps, read)
        if of_regions is not None:
            rows, columns, _ = self.map_shape
            of_regions = of_regions[:, : len(known)].reshape(len(maps), len(known), rows, columns)
        return Judgement(
            similarities,
            known,
            of_regions,
            None if of_items is None else of_items[:, :, : len(known)],
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
