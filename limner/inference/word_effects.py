"""The effect of each word of a text on its score for an image, by three methods with one interface.

A method names variants of the text, and how the scores of the text and its variants make a number for each word:
`effects = matrix @ scores`. Encoders of other packages and engines need no gradients for it.

Sources: leaving out one word, Li, Monroe and Jurafsky, "Understanding Neural Networks through Representation Erasure",
arXiv 1612.08220; regression on random masks, Ribeiro, Singh and Guestrin, "Why Should I Trust You?" (LIME), KDD 2016,
and Lundberg and Lee, "A Unified Approach to Interpreting Model Predictions" (SHAP), NIPS 2017. Replacing a word by
others of its kind is the contrast of minimal pairs, in the mean over pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from limner.data.word_kinds import EMPTY, others_of_kind, phrases_of
from limner.types import Encoder
from limner.wire import Phrase

Words = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Regression:
    """The parts of a regression from which its error follows.

    - `x`: masks, centred; `weights`: of each; `solved`: effects = solved @ scores of the masks.
    """

    x: Float[np.ndarray, "masks words"]
    weights: Float[np.ndarray, " masks"]
    solved: Float[np.ndarray, "words masks"]

    def errors(
        self, scores: Float[np.ndarray, " masks"], groups: Bool[np.ndarray, "groups words"]
    ) -> Float[np.ndarray, " groups"] | None:
        """Standard errors of the sums of coefficients; None where there are no more masks than coefficients."""
        masks, words = self.x.shape
        free = masks - words - 1
        if free < 1:
            return None
        centred = scores - self.weights @ scores / self.weights.sum()
        residuals = centred - self.x @ (self.solved @ scores)
        variance = self.weights @ residuals**2 / free
        rows = groups @ self.solved
        return np.asarray(np.sqrt(variance * (rows**2 / self.weights).sum(1)))


@dataclass(frozen=True, eq=False)
class Design:
    """The texts to score, and how their scores make the effect of each word.

    - `variants`: texts as words; the first is the text itself.
    - `matrix`: effects = matrix @ scores.
    - `regression`: that of the scores of all variants but the first; None for a method without an error of its own.
    """

    variants: Sequence[Words]
    matrix: Float[np.ndarray, "words variants"]
    regression: Regression | None = None

    def noise(
        self, scores: Float[np.ndarray, " variants"], groups: Bool[np.ndarray, "groups words"] | None = None
    ) -> Float[np.ndarray, " groups"] | None:
        """How large an effect may be and still say nothing, of each word or of the sum over each group of words.

        **Decided**: the larger of half the 95 % interval of the regression, and the largest effect in this text of a
        word without a meaning ("a", "the", "and"; English). None where neither is known.
        """
        words = self.variants[0]
        each = np.eye(len(words), dtype=bool) if groups is None else groups
        errors = None if self.regression is None else self.regression.errors(scores[1:], each)
        empty = [place for place, word in enumerate(words) if word in EMPTY]
        if errors is None and not empty:
            return None
        least = np.abs(self.matrix[empty] @ scores).max() if empty else 0.0
        return np.asarray(np.maximum(0.0 if errors is None else 1.96 * errors, np.full(len(each), least)))


@runtime_checkable
class WordMethod(Protocol):
    """A method that gives each word of a text an effect: positive = the word raises the score."""

    def design(self, words: Words, known: Callable[[str], bool]) -> Design:
        """The texts to score. `known` says whether the model has a meaning for a word."""


@dataclass(frozen=True)
class LeaveOneOut:
    """How much the score falls without the word. As many passes as words."""

    def design(self, words: Words, known: Callable[[str], bool]) -> Design:
        """The text without each of its words; one word alone has no effect, since nothing is left without it."""
        if len(words) < 2:
            return Design([words], np.zeros((len(words), 1)))
        variants = [words, *(words[:place] + words[place + 1 :] for place in range(len(words)))]
        return Design(variants, np.hstack([np.ones((len(words), 1)), -np.eye(len(words))]))


@dataclass(frozen=True)
class MaskedRegression:
    """The word's coefficient in a ridge regression of the score on random masks of words.

    Every word is kept with the probability `keep`, and each mask comes with one that leaves out others. A text without
    any word has no score, so that mask is never drawn. Where there are no more than `masks` masks at all, each of them
    counts once, by its probability. A long text has four masks a word.

    - `masks`: texts that are scored; `ridge`: penalty of the sum of squares, as a share of the masks.
    """

    masks: int = 128
    keep: float = 0.6
    ridge: float = 0.01

    def design(self, words: Words, known: Callable[[str], bool]) -> Design:
        """The text and masks of it, the same for every text of as many words."""
        # at least four masks a word, else a long text's coefficients would be all error
        kept, weights = _masks(len(words), max(self.masks, 4 * len(words)), self.keep)
        variants = [words, *(tuple(w for w, k in zip(words, row, strict=True) if k) for row in kept)]
        # centred by the weighted means, which is a free intercept without a column of its own
        x = kept - weights @ kept / weights.sum()
        scaled = x * weights[:, None]
        solved = np.linalg.pinv(scaled.T @ x + self.ridge * len(kept) * np.eye(len(words))) @ scaled.T
        matrix = np.hstack([np.zeros((len(words), 1)), solved])
        return Design(variants, matrix, Regression(x, weights, solved))


@lru_cache(maxsize=64)
def _masks(
    words: int, count: int, keep: float
) -> tuple[Bool[np.ndarray, "masks words"], Float[np.ndarray, " masks"]]:
    """Masks that keep a word at least, and their weights, which sum to their number."""
    if 2**words - 1 <= count:
        numbers = np.arange(1, 2**words)[:, None]
        kept = (numbers >> np.arange(words) & 1).astype(bool)
        sizes = kept.sum(1)
        weights = keep**sizes * (1 - keep) ** (words - sizes)
        return kept, weights * len(kept) / weights.sum()
    # by the number of words alone: the same text has the same explanation, whoever asks
    draws = np.random.default_rng([words, count]).random((count // 2, words))
    # antithetic: a word that one mask leaves out is kept by the other, unless both keep it
    kept = np.concatenate([draws < keep, 1 - draws < keep])
    kept = kept[kept.any(1)]
    return kept, np.ones(len(kept))


@dataclass(frozen=True)
class Substitution:
    """How much the score falls, in the mean, with other words of the same kind in the word's place.

    A colour is held against other colours, a garment against other garments (`limner.data.word_kinds`), as far as the
    model knows them. A word without a kind is left out instead.

    - `most`: words that one word is held against; more than these are thinned out evenly.
    """

    most: int = 12

    def design(self, words: Words, known: Callable[[str], bool]) -> Design:
        """The text with each word replaced by each of the others of its kind."""
        variants: list[Words] = [words]
        rows: list[range] = []
        for place, word in enumerate(words):
            others = [other for other in others_of_kind(word) if known(other)]
            if len(others) > self.most:
                others = [others[number * len(others) // self.most] for number in range(self.most)]
            # two words of one kind in a text ("red … blue"): the other's word is as good a rival as any
            left_out: list[Words] = [()] if words[1:] else []
            instead: list[Words] = [(other,) for other in others] or left_out
            rows.append(range(len(variants), len(variants) + len(instead)))
            variants += [words[:place] + new + words[place + 1 :] for new in instead]
        matrix = np.zeros((len(words), len(variants)))
        for place, row in enumerate(rows):
            if row:
                matrix[place, 0] = 1
                matrix[place, row] = -1 / len(row)
        return Design(variants, matrix)


METHODS: Final[Mapping[str, WordMethod]] = {
    "leave-one-out": LeaveOneOut(),
    "masked-regression": MaskedRegression(),
    "substitution": Substitution(),
}
"""The methods by name."""

# best of the three by each measure of `limner evaluate --explanations` (docs/log/2026-11-24.md)
DEFAULT: Final = "masked-regression"
"""The method of search, server and library."""


def joined(
    design: Design, scores: Float[np.ndarray, " variants"], *, each_word: bool = False
) -> tuple[tuple[float, ...], tuple[Phrase, ...]]:
    """Effects of the words, and those of phrases with their noise; with `each_word` every word is a phrase by itself.

    `scores` are those of the design's variants.
    """
    words = design.variants[0]
    spans = [(place, place + 1) for place in range(len(words))] if each_word else phrases_of(words)
    groups = np.zeros((len(spans), len(words)), dtype=bool)
    for row, (start, stop) in zip(groups, spans, strict=True):
        row[start:stop] = True
    weights = design.matrix @ scores
    # of the sum and not the sum of theirs: coefficients of a regression depend on each other
    noise = design.noise(scores, groups)
    phrases = tuple(
        Phrase(
            text=" ".join(words[start:stop]),
            weight=float(weights[start:stop].sum()),
            noise=None if noise is None else float(noise[number]),
        )
        for number, (start, stop) in enumerate(spans)
    )
    return tuple(weights.tolist()), phrases


def within_noise(phrase: Phrase) -> bool:
    """True if a phrase's weight says nothing; False also where its noise is not known."""
    return phrase.noise is not None and abs(phrase.weight) <= phrase.noise


def known_to(encoder: Encoder) -> Callable[[str], bool]:
    """Say of single words whether they have a meaning to a model; remembers what it was asked."""

    @lru_cache(maxsize=4096)
    def known(word: str) -> bool:
        return bool(encoder.known_words(word))

    return known
