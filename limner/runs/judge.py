"""A run's matcher as search sees it: a sentence and the maps of some pictures in, confidences and attention out."""

import numpy as np
from jaxtyping import UInt8

from limner.data.transforms import ImageSettings
from limner.data.vocabulary import Vocabulary, words
from limner.runs.matching import Matching
from limner.types import Judgement, Maps


class RunJudge:
    """A `limner.types.Judge`."""

    def __init__(
        self, matching: Matching, vocabulary: Vocabulary, length: int, images: ImageSettings
    ) -> None:
        self._matching = matching
        self._vocabulary = vocabulary
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
        """Match a sentence with every map in one batched forward."""
        numbers = self._vocabulary.encode([sentence], self._length)
        match = self._matching.match(maps, numbers, np.zeros(len(maps), np.int64))
        known = [word for word in words(sentence) if word in self._vocabulary][: self._length]
        of_regions, of_words = match.of_regions, match.of_words
        return Judgement(
            logits=match.logits.float().cpu().numpy(),
            words=tuple(known),
            of_regions=None
            if of_regions is None
            else of_regions[:, : len(known)].float().cpu().numpy().reshape(-1, len(known), *maps.shape[1:3]),
            of_words=None if of_words is None else of_words[:, :, : len(known)].float().cpu().numpy(),
        )
