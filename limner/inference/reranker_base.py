"""The part of a reranker around its network: pairs by position, sums to scores, words for tokens. It needs no torch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from limner.data.token_rows import by_word
from limner.types import PairScorer, RegionFeatures, RerankScores, TokenBatch

Attended = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]
"""Of one sentence and some images: logits, the attention over regions (images, tokens, regions), and over the tokens
(images, readers, tokens), each None without such attention."""


@dataclass(frozen=True)
class Scoring:
    """How a kind of reranker makes scores of similarities and logits, and shows attention.

    - `weights`: of similarity and logit in a score.
    - `highest`: the score whose confidence is 1; None = a score is a logit, and its sigmoid the confidence.
    - `reader`: as `RerankScores.reader`.
    - `alphanumeric`: punctuation is not shown, which has no place of its own to point to.
    """

    weights: tuple[float, float]
    highest: float | None
    reader: Literal["step", "region"] = "step"
    alphanumeric: bool = False


class RerankerBase(ABC):
    """Scores, confidences and pairs of a `limner.types.Reranker`: what all kinds share."""

    @property
    @abstractmethod
    def scoring(self) -> Scoring:
        """How scores are made."""

    @property
    def class_mean(self) -> Literal["confidences", "scores"]:
        """As `limner.types.Reranker` has it."""
        # a picture outside a sentence's shortlist counts as 0: the lowest confidence, but a middling logit. A weighted
        # sum is no probability, and classes have the mean of what ranks pairs
        return "confidences" if self.scoring.highest is None else "scores"

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The weighted sum of both."""
        similarity, logit = self.scoring.weights
        return np.asarray(similarity * similarities + logit * logits, np.float32)

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """The probability of a logit, or the weighted mean of what is summed, at least 0, which is no probability."""
        highest = self.scoring.highest
        if highest is None:
            return 1 / (1 + np.exp(-scores.astype(np.float64)))
        # a cosine may be negative, and all weights may be 0
        return np.asarray(np.clip(scores / max(highest, 1e-9), 0, 1))

    def pair_scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        regions: RegionFeatures,
        sentences: Sequence[str],
    ) -> PairScorer:
        """Scores of pairs given by positions; each sentence is read once a scorer."""
        # of the scorer, not of the call: evaluation calls it for each block of queries
        read = self._read(sentences)

        def score(
            of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
        ) -> Float[np.ndarray, " pairs"]:
            logits = self.logits(regions, read, of_images, of_sentences)
            # of the pairs alone: the product of all pictures and sentences would be thrown away for the most part
            return self.scores(np.einsum("pd,pd->p", images[of_images], texts[of_sentences]), logits)

        return score

    @abstractmethod
    def _tokenized(self, sentences: Sequence[str], *, words: bool = False) -> TokenBatch:
        """Sentences as the network takes them."""

    def _read(self, sentences: Sequence[str]) -> Any:
        """Whatever `logits` needs of a scorer's sentences."""
        return self._tokenized(sentences)

    @abstractmethod
    def logits(
        self,
        regions: RegionFeatures,
        read: Any,
        of_images: Int[np.ndarray, " pairs"],
        of_sentences: Int[np.ndarray, " pairs"],
    ) -> Float[np.ndarray, " pairs"]:
        """Logits of pairs given by positions in regions and in what `_read` gave."""

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """Score a sentence with every image, and say where each word looks: the mean over its tokens."""
        read = self._tokenized([sentence], words=True)
        assert read.words is not None
        # a word that the model does not know has no token, and so no attention to show
        words = [word for word in read.words[0] if word.tokens]
        if self.scoring.alphanumeric:
            words = [word for word in words if any(map(str.isalnum, word.text))]
        logits, of_regions, of_words = self._attended(regions, read)
        if of_regions is not None:
            # each token's attention sums to 1, so that of a word of several is their mean; below, what all give it
            of_regions = by_word(of_regions, words, 1, mean=True)
            of_regions = of_regions.reshape(len(regions), len(words), *regions.shape[1:3])
        if of_words is not None:
            of_words = by_word(of_words, words, 2)
        known = tuple(word.text for word in words)
        return RerankScores(logits, known, of_regions, of_words, self.scoring.reader)

    # not abstract: a kind without attention by tokens has a `rerank` of its own
    def _attended(self, regions: RegionFeatures, read: TokenBatch) -> Attended:
        """Logits and attention of one sentence with every image, by its tokens."""
        raise NotImplementedError
