"""Which pairs of a picture and a sentence are right, judged by how well a network tells them from others.

Source: Qin et al., "Noisy-Correspondence Learning for Text-to-Image Person Re-identification" (RDE), CVPR 2024,
confident consensus division, and their code. Wrong pairs are learnt late, so that for a while their losses are higher;
a mixture of two normal distributions is fitted to the losses, and the one of the lower mean is that of right pairs.

Departures: RDE divides twice, by the embedding and by one of selected tokens, and drops a pair that both find wrong
(and half of those that one does); here there is one embedding. And RDE leaves a dropped pair in its batch, with weight
0, where it still is a negative of the others; a stage with `division` does not draw it at all, so that any loss can be
used.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from limner.losses.tal import TALLoss

_ROUNDS = 200
"""Rounds of fitting at most; a fit ends when a round moves no probability by more than `_SETTLED`."""
_SETTLED = 1e-5
_LEAST_VARIANCE = 1e-6
"""Least variance of a distribution, of losses in 0 … 1: those of pairs with loss 0 are all alike."""


def pair_losses(
    images: Float[Tensor, "images dim"],
    texts: Float[Tensor, "sentences dim"],
    of_image: Int64[np.ndarray, " sentences"],
    groups: Int64[np.ndarray, " images"],
    batch: int,
    random: np.random.Generator,
) -> Float[np.ndarray, " sentences"]:
    """The loss TAL of each sentence with its picture `of_image`, among random others.

    `batch` is how many pairs are held against each other at once. Embeddings need not be normalised; the settings are
    those of RDE, with which a loss lies in 0 … 4.5.
    """
    loss, found = TALLoss(), np.empty(len(texts))
    order = random.permutation(len(found))
    # Shares of nearly equal size: a last one of a single pair would have no negative, and so no loss.
    for rows in np.array_split(order, max(1, len(order) // batch)):
        shown = of_image[rows]
        found[rows] = loss.of_pairs(images[shown], texts[rows], torch.from_numpy(groups[shown])).numpy()
    return found


def probability_of_right(losses: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " pairs"]:
    """The probability of each pair to be right: of the normal distribution of lower mean, of two that are fitted.

    1 for all where the losses are all alike.
    """
    low, high = losses.min(), losses.max()
    if high - low < 1e-9:
        return np.ones(len(losses))
    scaled = (losses - low) / (high - low)
    # From the halves below and above the middle, so that a fit depends on the losses alone.
    right = (scaled <= np.median(scaled)).astype(float)
    # Where more than half have the lowest loss, all of them lie below the middle.
    if right.all():
        right = (scaled <= scaled.mean()).astype(float)
    for _ in range(_ROUNDS):
        before = right
        both = _Normal.of(scaled, right), _Normal.of(scaled, 1 - right)
        right = _probability(scaled, *both)
        if np.abs(right - before).max() < _SETTLED:
            break
    lower, upper = sorted(both, key=lambda one: one.mean)
    # Beyond both means the wider one would win on either side, and the best of all pairs could be called wrong.
    return _probability(scaled.clip(lower.mean, upper.mean), lower, upper)


@dataclass(frozen=True)
class _Normal:
    """One of the two distributions."""

    weight: float
    mean: float
    variance: float

    @classmethod
    def of(cls, values: Float[np.ndarray, " pairs"], shares: Float[np.ndarray, " pairs"]) -> "_Normal":
        weight = max(float(shares.sum()), 1e-12)
        mean = float(shares @ values) / weight
        return cls(weight, mean, float(shares @ (values - mean) ** 2) / weight + _LEAST_VARIANCE)

    def log(self, values: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " pairs"]:
        """Logarithm of weight and density, but for what both have in common."""
        squares: np.ndarray = (values - self.mean) ** 2
        return squares / (-2 * self.variance) + math.log(self.weight) - 0.5 * math.log(self.variance)


def _probability(
    values: Float[np.ndarray, " pairs"], one: _Normal, other: _Normal
) -> Float[np.ndarray, " pairs"]:
    """That each value is of the one, and not of the other."""
    found: np.ndarray = 1 / (1 + np.exp((other.log(values) - one.log(values)).clip(-700, 700)))
    return found
