"""How far the similarities of true and of wrong pairs overlap."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from limner.errors import DataError

BINS = 200
"""Bins of width 0.01 over cosines from −1 to 1."""

_CHUNK = 1 << 20
"""Scores put into bins at once."""

_ROUNDING = 1e-3
"""How far beyond ±1 a cosine of half-precision rows may lie."""


@dataclass(frozen=True)
class Overlap:
    """overlap-S: the area that the distributions of true and of wrong pairs' cosines share, from 0 (apart) to 1.

    Source: dual-path TOMM 2020, section 4.2, Eq. 10: S = ∫ min(P(x), Q(x)) dx over [−1, 1], with P and Q as histograms
    of 200 bins, every pair of a query and a gallery item counted. Lower is better; the same in both directions.

    True pairs at 0.5 and 0.9, wrong ones at 0.1, 0.1 and 0.5, share half of one and a third of the other:

    >>> similarities = Similarities()
    >>> similarities.add(torch.tensor([[0.5, 0.1, 0.1, 0.9, 0.5]]), torch.tensor([0.5, 0.9]))
    >>> round(similarities.overlap, 4)
    0.3333
    """

    def __str__(self) -> str:
        return "overlap-S"


@dataclass(eq=False)
class Similarities:
    """Histograms of the cosines of true pairs and of all pairs, gathered block by block."""

    true: Int[np.ndarray, " bins"] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    every: Int[np.ndarray, " bins"] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, scores: Float[Tensor, "queries gallery"], trues: Float[Tensor, " pairs"]) -> None:
        """Count a block of scores and those of its true pairs. Raises `DataError` for scores that are no cosines."""
        self.every += _histogram(scores)
        self.true += _histogram(trues)

    @property
    def overlap(self) -> float:
        """S of Eq. 10. Raises `DataError` where there are no true or no wrong pairs."""
        wrong = self.every - self.true
        if not self.true.any() or not wrong.any():
            raise DataError("overlap-S compares true with wrong pairs, and here are none of one kind")
        return float(np.minimum(self.true / self.true.sum(), wrong / wrong.sum()).sum())

    def to_dict(self) -> dict[str, Any]:
        """The edges of the bins and the counts, as plain values."""
        edges = np.linspace(-1, 1, BINS + 1).round(2)
        return {
            "edges": edges.tolist(),
            "true": self.true.tolist(),
            "wrong": (self.every - self.true).tolist(),
        }


def _histogram(scores: Tensor) -> Int[np.ndarray, " bins"]:
    if not scores.numel():
        return np.zeros(BINS, np.int64)
    lowest, highest = (float(edge) for edge in torch.aminmax(scores))
    if max(-lowest, highest) > 1 + _ROUNDING:
        raise DataError(
            f"overlap-S is of cosines, from -1 to 1, and a score is {max(lowest, highest, key=abs):.4g}; "
            "L2-normalise the embeddings"
        )
    counts = torch.zeros(BINS, dtype=torch.int64, device=scores.device)
    for chunk in torch.split(scores.flatten(), _CHUNK):
        bins = chunk.add(1).mul_(BINS / 2).clamp_(0, BINS - 1).to(torch.uint8)
        counts += torch.bincount(bins, minlength=BINS)
    return np.asarray(counts.cpu().numpy())
