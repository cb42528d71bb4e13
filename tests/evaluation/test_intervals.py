"""Intervals and paired tests against loops, against the normal theory, and on data where the truth is known."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.evaluation.both_directions import evaluate
from limner.evaluation.intervals import RESAMPLES, difference, holm, intervals
from limner.evaluation.measures import MeanRank, MedianRank, RecallAt
from limner.evaluation.per_query import QueryValues


def queries(
    values: np.ndarray, clusters: np.ndarray, folds: np.ndarray | None = None, name: str = "R@1"
) -> QueryValues:
    count = len(values)
    return QueryValues(
        np.arange(count),
        clusters,
        np.zeros(count, np.int64) if folds is None else folds,
        np.ones(count, np.int64),
        {name: values.astype(float)},
    )


def looped(values: np.ndarray, clusters: np.ndarray, measure: MedianRank | RecallAt, seed: int) -> np.ndarray:
    """The definition: draw clusters with replacement, take all of their queries each time, measure."""
    generator = np.random.default_rng([seed, 0])
    names = np.unique(clusters)
    drawn = generator.integers(0, len(names), size=(RESAMPLES, len(names)))
    found = []
    for row in drawn:
        taken = np.concatenate([values[clusters == names[cluster]] for cluster in row])
        found.append(measure.over(taken))
    return np.percentile(found, [2.5, 97.5])


@pytest.mark.parametrize("measure", [RecallAt(1), MeanRank(), MedianRank()], ids=str)
def test_an_interval_is_its_definition(measure: MedianRank | RecallAt) -> None:
    generator = np.random.default_rng(5)
    clusters = generator.permutation(np.repeat(np.arange(7) * 3, [1, 2, 2, 3, 4, 5, 5]))
    # several: in many an interval ends where the two middle values of all draws are equal
    for _ in range(8):
        values = (
            generator.integers(1, 4000, len(clusters)).astype(float)
            if measure.unit == "rank"
            else (generator.random(len(clusters)) < 0.4).astype(float)
        )
        found = intervals(queries(values, clusters, name=str(measure)), {str(measure): measure}, seed=9)
        assert found[str(measure)] == pytest.approx(looped(values, clusters, measure, 9), abs=1e-9)


def test_sentences_of_one_image_are_no_independent_queries() -> None:
    # Each image's five sentences are all found or all missed: there are 200 facts, not 1,000.
    found = np.repeat(np.random.default_rng(0).random(200) < 0.5, 5).astype(float)
    together = intervals(queries(found, np.repeat(np.arange(200), 5)), {"R@1": RecallAt(1)})["R@1"]
    apart = intervals(queries(found, np.arange(1000)), {"R@1": RecallAt(1)})["R@1"]
    wide, narrow = (ends[1] - ends[0] for ends in (together, apart))
    assert wide / narrow == pytest.approx(5**0.5, rel=0.15)
    assert wide == pytest.approx(2 * 1.96 * 50 / 200**0.5, rel=0.1)  # the normal theory


def test_an_interval_holds_the_truth_in_about_95_of_100_samples() -> None:
    generator, held = np.random.default_rng(1), 0
    for _ in range(200):
        of_cluster = generator.beta(2, 3, size=60)  # mean 0.4
        values = (generator.random((60, 5)) < of_cluster[:, None]).astype(float).ravel()
        low, high = intervals(queries(values, np.repeat(np.arange(60), 5)), {"R@1": RecallAt(1)})["R@1"]
        held += low <= 40 <= high
    assert 180 <= held <= 199  # 190 expected; by single queries it would be some 165


def test_folds_are_drawn_apart() -> None:
    # All of fold 0 is found and none of fold 1: the mean over folds is 50 whatever is drawn.
    values, folds = np.repeat([1.0, 0.0], 50), np.repeat([0, 1], 50)
    found = intervals(queries(values, np.arange(100), folds), {"R@1": RecallAt(1)})
    assert found["R@1"] == (50.0, 50.0)


def test_one_cluster_has_no_interval() -> None:
    assert intervals(queries(np.ones(4), np.zeros(4, np.int64)), {"R@1": RecallAt(1)}) == {}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_names_and_order_change_nothing(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    clusters = np.sort(generator.integers(0, count, size=3 * count))
    clusters[:2] = [0, 1]
    values = generator.random(3 * count)
    order = generator.permutation(3 * count)
    first = intervals(queries(values, clusters), {"R@1": RecallAt(1)})
    moved = intervals(queries(values[order], clusters[order] * 7 + 3), {"R@1": RecallAt(1)})
    assert moved["R@1"] == pytest.approx(first["R@1"])


def test_a_report_has_the_intervals_of_both_directions() -> None:
    generator = np.random.default_rng(0)
    images = generator.normal(size=(40, 8)).astype(np.float32)
    sentences = np.repeat(images, 2, axis=0) + 2 * generator.normal(size=(80, 8)).astype(np.float32)
    report = evaluate(
        images, sentences, np.arange(40), np.repeat(np.arange(40), 2), protocol="p", split="test"
    )
    for direction, values in (
        ("image_to_text", report.image_to_text),
        ("text_to_image", report.text_to_image),
    ):
        assert set(report.intervals[direction]) == set(values)
        for name, (low, high) in report.intervals[direction].items():
            assert low <= values[name] <= high
            assert low < high
        mine = report.queries[direction]
        assert 100 * mine.values["R@1"].mean() == pytest.approx(values["R@1"])
        assert ((mine.first_ranks == 1) == mine.values["R@1"]).all()
    written = json.loads(report.to_json())["intervals"]
    assert written["text_to_image"]["R@1"] == list(report.intervals["text_to_image"]["R@1"])


def test_a_difference_of_few_clusters_is_tested_by_every_exchange() -> None:
    generator = np.random.default_rng(3)
    clusters = np.array([0, 0, 1, 1, 1, 2, 3, 3, 4, 5])
    first = (generator.random(10) < 0.3).astype(float)
    second = (generator.random(10) < 0.8).astype(float)
    observed = second.mean() - first.mean()
    larger = 0
    for signs in itertools.product((1, -1), repeat=6):
        swapped = np.array(signs)[clusters]
        shifted = np.where(swapped > 0, second, first).mean() - np.where(swapped > 0, first, second).mean()
        larger += abs(shifted) >= abs(observed) - 1e-12
    tested = difference(first, second, clusters, RecallAt(1))
    assert tested.p == larger / 2**6
    assert tested.difference == pytest.approx(100 * observed)
    assert (tested.queries, tested.clusters) == (10, 6)


def test_the_median_is_exchanged_as_a_median() -> None:
    first, second = np.array([1.0, 2, 3, 4, 50]), np.array([2.0, 3, 4, 5, 6])
    tested = difference(first, second, np.arange(5), MedianRank())
    assert (tested.first, tested.second, tested.difference) == (3, 4, 1)
    assert 0 < tested.p <= 1


def test_equal_systems_are_not_told_apart_and_unlike_ones_are() -> None:
    generator = np.random.default_rng(7)
    clusters = np.repeat(np.arange(300), 3)
    first = (generator.random(900) < 0.3).astype(float)
    assert difference(first, first, clusters, RecallAt(1)).p == 1
    better = np.maximum(first, generator.random(900) < 0.1)
    tested = difference(first, better, clusters, RecallAt(1))
    assert tested.p < 0.001
    assert tested.interval is not None
    assert tested.interval[0] > 0


def test_p_is_uniform_where_nothing_differs() -> None:
    generator, below = np.random.default_rng(2), 0
    for _ in range(200):
        of_cluster = generator.normal(size=40)  # shared by a cluster's queries, and by no system
        noise = generator.normal(size=(2, 40)) + generator.normal(size=(2, 40)) * 0.2
        first, second = (np.repeat(of_cluster + noise[system], 5) for system in range(2))
        below += difference(first, second, np.repeat(np.arange(40), 5)).p < 0.1
    assert 8 <= below <= 36  # 20 expected; by single queries some 110


def test_swapping_the_systems_turns_the_sign_alone() -> None:
    generator = np.random.default_rng(4)
    first, second, clusters = generator.random(60), generator.random(60), np.repeat(np.arange(20), 3)
    one, other = difference(first, second, clusters), difference(second, first, clusters)
    assert one.difference == -other.difference
    assert one.p == other.p


def test_holm_by_hand() -> None:
    assert holm(np.array([0.01, 0.02, 0.9])).tolist() == pytest.approx([0.03, 0.04, 0.9])
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
