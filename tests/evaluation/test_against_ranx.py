"""Our measures against ranx's, where both define the same thing; runs with ranx (`pip install 'limner[ranx]'`)."""

import numpy as np
import pytest

from limner.evaluation.measures import MeanAveragePrecision, Measure, PrecisionAt, RecallAt, RPrecision
from limner.evaluation.ranking import rank_scores
from limner.evaluation.relevance import Relevance

ranx = pytest.importorskip("ranx")

SAME: list[tuple[Measure, str]] = [
    *((RecallAt(k), f"hit_rate@{k}") for k in (1, 5, 10)),
    *((PrecisionAt(k), f"precision@{k}") for k in (1, 5, 50)),
    (MeanAveragePrecision(), "map"),
    (RPrecision(), "r-precision"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tied", [False, True])
def test_equal_to_ranx(seed: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    queries, gallery = int(rng.integers(1, 7)), int(rng.integers(1, 41))
    scores = rng.standard_normal((queries, gallery))
    if tied:
        scores = scores.round(0)
    of_queries, of_gallery = rng.integers(0, 8, queries), rng.integers(0, 8, gallery)
    of_queries[0] = of_gallery[0]  # at least one match
    true = of_queries[:, None] == of_gallery
    ranking = rank_scores(
        scores, Relevance.from_groups(of_queries, of_gallery), [measure for measure, _ in SAME]
    )
    # ranx is told a ranking without ties, wrong items first, and only of queries with a match
    asked = np.flatnonzero(true.any(1))
    qrels = {str(query): {str(item): 1 for item in np.flatnonzero(true[query])} for query in asked}
    run = {
        str(query): {
            str(item): float(-place) for place, item in enumerate(np.lexsort((true[query], -scores[query])))
        }
        for query in asked
    }
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), [name for _, name in SAME])
    for measure, name in SAME:
        assert ranking.value(measure) == pytest.approx(100 * theirs[name]), name
