"""The distributions of the similarities of true and of wrong pairs, with the area S that they share.

Source: dual-path TOMM 2020, section 4.2, Eq. 10 and Figure 7.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from limner.evaluation.arrays import Results
from limner.evaluation.protocols import PROTOCOLS
from limner.evaluation.ranking import rank_embeddings, rank_scores
from limner.evaluation.scores import Overlap, Similarities
from limner.figures.style import BLUE, RED, legend, panels, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Cosines of a trained model fill a part of −1 to 1 only; the rest of the axis would be empty.
_SHOWN = 0.0005
"""Bins at either end with less than this share of both kinds of pairs are left out."""


def similarities_of(results: Results) -> Similarities:
    """Counts of the cosines of every pair of an image and a sentence; pairs of one group are true, as in overlap-S.

    Raises `DataError` for scores that are no cosines and embeddings that are not of unit length.
    """
    # S is over pairs of one group, so labels must not make true pairs; "plain" drops them.
    relevance, _ = PROTOCOLS["plain"].applied(results).relevance()
    if results.scores is not None:
        # Counted by the ranking in blocks; the matrix of all cosines is never made.
        ranking = rank_scores(results.scores, relevance, [Overlap()])
    else:
        assert results.images is not None
        assert results.sentences is not None
        ranking = rank_embeddings(results.images, results.sentences, relevance, [Overlap()])
    assert ranking.similarities is not None
    return ranking.similarities


@styled
def similarity_figure(counted: Sequence[Similarities], titles: Sequence[str]) -> "Figure":
    """A panel for each; densities, so that both areas are 1, over cosines from −1 to 1."""
    figure, drawn = panels(len(counted))
    ends = []
    for axes, similarities, title in zip(drawn, counted, titles, strict=True):
        values = similarities.histograms()
        edges = np.array(values["edges"])
        shares = {kind: np.array(values[kind]) / max(sum(values[kind]), 1) for kind in ("true", "wrong")}
        width = edges[1] - edges[0]
        for kind, colour in (("wrong", RED), ("true", BLUE)):
            # Twice, because `alpha` would make the outline faint, too.
            axes.stairs(shares[kind] / width, edges, fill=True, alpha=0.35, color=colour)
            axes.stairs(shares[kind] / width, edges, color=colour, label=f"{kind} pairs")
        some = np.flatnonzero((shares["true"] > _SHOWN) | (shares["wrong"] > _SHOWN))
        ends.append((edges[some[0]] - width, edges[some[-1] + 1] + width))
        axes.set_title(f"{title}   S = {similarities.overlap:.3f}", loc="left")
        axes.set_xlabel("cosine")
        legend(axes)
    for axes in drawn:
        # One range for all panels: the overlap of two models is compared by eye.
        axes.set_xlim(min(start for start, _ in ends), max(stop for _, stop in ends))
    drawn[0].set_ylabel("density")
    return figure
