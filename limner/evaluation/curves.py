"""Curves over a ranking: precision over recall and precision over scope, as numbers to draw or to write to a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from limner.evaluation.measures import Matches

Curve = dict[str, tuple[int | float, ...]]
"""A curve: places under "recall" (shares) or "scope" (numbers of items), and the values there under "precision"."""


@runtime_checkable
class CurveMeasure(Protocol):
    """The interface of a curve."""

    @property
    def x(self) -> str:
        """Name of the quantity on the x axis."""

    def places(self, gallery_size: int) -> Sequence[int | float]:
        """The x values in a gallery of that size."""

    def each(self, matches: Matches) -> Float[np.ndarray, "queries places"]:
        """The values of each query; the curve is their mean."""


@dataclass(frozen=True)
class PrecisionRecall:
    """PR-curve: the mean over queries of the interpolated precision at recalls 0, 0.01, …, 1.

    Source: Manning, Raghavan and Schütze, Introduction to Information Retrieval (2008), section 8.4: interpolated, the
    precision at a recall is the highest at that recall or beyond it. Its eleven points are among these.

    A query with matches at ranks 3 and 4 has 1/2 all along:

    >>> set(PrecisionRecall().each(Matches.of([[3, 4]], gallery_size=20))[0].tolist())
    {0.5}
    """

    x: ClassVar[str] = "recall"

    def __str__(self) -> str:
        return "PR-curve"

    def places(self, gallery_size: int) -> Sequence[int | float]:
        """The recalls."""
        return [step / 100 for step in range(101)]

    def each(self, matches: Matches) -> Float[np.ndarray, "queries places"]:
        """The interpolated precisions."""
        # The running maximum from the right. Void places have 0 and lift nothing.
        beyond = np.maximum.accumulate(matches.precisions[:, ::-1], axis=1)[:, ::-1]
        # The matches that a recall of step / 100 takes, rounded up in integers: 0.07 * 100 is 7.000000000000001.
        needed = (np.arange(101) * matches.counts[:, None] + 99) // 100
        # Recall 0 takes no match; by the definition it has the highest precision of all.
        return np.take_along_axis(beyond, np.maximum(needed, 1) - 1, axis=1)


@dataclass(frozen=True)
class PrecisionScope:
    """scope-curve: the mean over queries of the precision among the first K: 1, 2, 5, 10, 20, 50, 100, 200, …, 1000.

    Source: MNiL (MM 2017), section 4.1 and Figure 3, which draws K from 100 on. K beyond the gallery are left out.

    >>> PrecisionScope().each(Matches.of([[3, 4]], gallery_size=20)).tolist()
    [[0.0, 0.0, 0.4, 0.2, 0.1]]
    """

    x: ClassVar[str] = "scope"

    def __str__(self) -> str:
        return "scope-curve"

    def places(self, gallery_size: int) -> Sequence[int | float]:
        """The scopes within the gallery."""
        # The paper's figure begins at 100 items; a page of search results ends long before.
        return [k for k in (1, 2, 5, 10, 20, 50, *range(100, 1001, 100)) if k <= gallery_size]

    def each(self, matches: Matches) -> Float[np.ndarray, "queries places"]:
        """The precisions."""
        scopes = self.places(matches.gallery_size)
        return np.stack([matches.among(int(k)) / k for k in scopes], axis=1)


CURVES: tuple[CurveMeasure, ...] = (PrecisionRecall(), PrecisionScope())
"""Every curve."""
