"""Our measures against trec_eval's, by way of ir_measures, where both define the same thing."""

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, IPrec, P, Rprec, Success, nDCG

from limner.evaluation.curves import PrecisionRecall
from limner.evaluation.measures import (
    Matches,
    MeanAveragePrecision,
    MeanRank,
    MeanReciprocalRank,
    Measure,
    NormalisedGainAt,
    PrecisionAt,
    RecallAt,
    RPrecision,
)
from limner.evaluation.ranking import rank_scores
from limner.evaluation.relevance import Relevance

SAME: list[tuple[Measure, ir_measures.Measure]] = [
    *((RecallAt(k), Success @ k) for k in (1, 5, 10)),
    *((PrecisionAt(k), P @ k) for k in (1, 5, 50)),
    *((NormalisedGainAt(k), nDCG @ k) for k in (1, 5, 50)),
    (MeanAveragePrecision(), AP),
    (RPrecision(), Rprec),
    (MeanReciprocalRank(), RR),
]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    queries=st.integers(1, 6),
    gallery=st.integers(1, 40),
    groups=st.integers(1, 8),
    tied=st.booleans(),
)
def test_equal_to_trec_eval(seed: int, queries: int, gallery: int, groups: int, tied: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((queries, gallery))
    if tied:
        scores = scores.round(0)
    of_queries, of_gallery = rng.integers(0, groups, queries), rng.integers(0, groups, gallery)
    of_queries[0] = of_gallery[0]  # at least one match
    true = of_queries[:, None] == of_gallery
    # trec_eval orders ties by name; ours is told as a ranking without ties, wrong items first
    run = [
        ir_measures.ScoredDoc(str(query), str(item), float(-place))
        for query in range(queries)
        for place, item in enumerate(np.lexsort((true[query], -scores[query])))
    ]
    qrels = [
        ir_measures.Qrel(str(query), str(item), 1) for query, item in zip(*np.nonzero(true), strict=True)
    ]
    curve = PrecisionRecall()
    ranking = rank_scores(
        scores, Relevance.from_groups(of_queries, of_gallery), [*(ours for ours, _ in SAME), MeanRank()]
    )
    theirs = ir_measures.calc_aggregate([other for _, other in SAME], qrels, run)
    for ours, other in SAME:
        assert ranking.value(ours) == pytest.approx(100 * theirs[other]), str(ours)
    reciprocal = {int(one.query_id): one.value for one in ir_measures.iter_calc([RR], qrels, run)}
    for query, value in reciprocal.items():
        assert 1 / ranking.each(MeanRank())[query] == pytest.approx(value)
    for query in reciprocal:
        ranks = (np.flatnonzero(true[query][np.lexsort((true[query], -scores[query]))]) + 1).tolist()
        ours_at = curve.each(Matches.of([ranks], gallery))[0]
        own = [qrel for qrel in qrels if qrel.query_id == str(query)]
        for tenth in range(11):
            # trec_eval rounds up by adding 0.9, which in its floats may fall just short of the next whole number
            if tenth * len(ranks) % 10 != 1:
                level = IPrec @ (tenth / 10)
                assert ours_at[10 * tenth] == pytest.approx(
                    ir_measures.calc_aggregate([level], own, run)[level]
                )
