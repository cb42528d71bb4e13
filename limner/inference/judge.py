"""A run's matcher as search sees it: a sentence and the maps of some pictures in, confidences and attention out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from limner.data.token_rows import by_word
from limner.data.transforms import ImageSettings
from limner.inference.matching import Matching
from limner.types import Judgement, Maps, Tokenizer, Word


class RunJudge:
    """A `limner.types.Judge`."""

    def __init__(self, matching: Matching, tokenizer: Tokenizer, length: int, images: ImageSettings) -> None:
        self._matching = matching
        self._tokenizer = tokenizer
        self._length = length
        self._images = images

    @property
    def map_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture's map."""
        height, width, channels = self.maps(np.zeros((1, *self._images.crop, 3), np.uint8)).shape[1:]
        return height, width, channels

    def maps(self, pixels: UInt8[np.ndarray, "images height width 3"]) -> Maps:
        """The maps of pictures that `Encoder.prepare_image` gave, float16."""
        return self._matching.maps(pixels)

    def judge(self, sentence: str, maps: Maps) -> Judgement:
        """Match a sentence with every map: one batched forward, or several where memory should not hold it."""
        token_ids, words = read_words(self._tokenizer, sentence, self._length)
        step = self._matching.at_once(maps, token_ids)
        parts = [
            self._part(token_ids, maps[start : start + step], words) for start in range(0, len(maps), step)
        ]
        logits, of_regions, of_words = zip(*parts, strict=True)
        known = tuple(word.text for word in words)
        return Judgement(np.concatenate(logits), known, _joined(of_regions), _joined(of_words))

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The logits: of the embedding the matcher takes nothing but the shortlist."""
        return logits

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """The matching confidence C (Li et al., ICCV 2017, Eq. 12)."""
        return 1 / (1 + np.exp(-scores.astype(np.float64)))

    def _part(
        self, token_ids: Int64[np.ndarray, "1 length"], maps: Maps, words: Sequence[Word]
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Logits and both attentions of some maps."""
        match = self._matching.match(maps, token_ids, np.zeros(len(maps), np.int64))
        of_regions, of_words = _array(match.of_regions), _array(match.of_words)
        if of_regions is not None:
            # Each token's attention sums to 1, so that of a word of several is their mean; below, what all give it.
            of_regions = by_word(of_regions, words, 1, mean=True)
            of_regions = of_regions.reshape(len(maps), len(words), *maps.shape[1:3])
        if of_words is not None:
            of_words = by_word(of_words, words, 2)
        return _array(match.logits), of_regions, of_words


def read_words(
    tokenizer: Tokenizer, sentence: str, length: int
) -> tuple[Int64[np.ndarray, "1 length"], tuple[Word, ...]]:
    """The token ids of a sentence, and the words that they make."""
    batch = tokenizer.encode([sentence], length, words=True)
    assert batch.words is not None
    return batch.token_ids, tuple(word for word in batch.words[0] if word.tokens)


def _array(values: Tensor | None) -> Any:
    return None if values is None else values.float().cpu().numpy()


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None
