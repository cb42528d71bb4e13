"""Ranks of composed queries against a ranking by hand, under each set's rules."""

from pathlib import Path

import numpy as np
import pytest

from limner.data.composed import ComposedGallery, Triplet
from limner.evaluation.composed import against, measure_row, rank_composed


def gallery(triplets: tuple[Triplet, ...], count: int, size: int | None = None) -> ComposedGallery:
    names = tuple(f"p{number}" for number in range(count))
    return ComposedGallery("", names, tuple(map(Path, names)), triplets, size or count)


def by_hand(scores: np.ndarray, among: list[int], targets: list[int]) -> list[int]:
    """Ranks of the targets, from 1, with tied others first, by sorting."""
    order = sorted(among, key=lambda row: (-scores[row], row in targets))
    return [place + 1 for place, row in enumerate(order) if row in targets]


@pytest.mark.parametrize("protocol", ["cirr", "fashioniq", "itcpr"])
@pytest.mark.parametrize("seed", range(4))
def test_ranks_are_those_of_sorting(protocol: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # few values, so that there are ties
    images = rng.integers(-2, 3, (12, 3)).astype(np.float32)
    queries = rng.integers(-2, 3, (5, 3)).astype(np.float32)
    several = protocol == "itcpr"
    triplets = tuple(
        Triplet(
            str(number),
            10 + number % 2 if several else number,
            "",
            (5, 7) if several else (5 + number,),
            (1, 2, 3),
        )
        for number in range(5)
    )
    asked = gallery(triplets, 12, 10 if several else None)
    found = rank_composed(queries, images, asked, protocol)  # type: ignore[arg-type]
    for number, triplet in enumerate(triplets):
        scores = queries[number] @ images.T
        among = [row for row in range(asked.size) if protocol != "cirr" or row != triplet.reference]
        ranks = by_hand(scores, among, list(triplet.targets))
        assert found.matches.ranks[number, : len(ranks)].tolist() == ranks
        inside = sorted({1, 2, 3, triplet.targets[0]})
        assert found.subset[number] == by_hand(scores, inside, [triplet.targets[0]])[0]


def test_the_reference_is_taken_out_under_cirr_alone() -> None:
    images = np.eye(3, dtype=np.float32)
    asked = gallery((Triplet("0", 0, "", (1,)),), 3)
    # it is nearest to its own reference
    query = np.array([[1.0, 0.5, 0.0]], np.float32)
    assert rank_composed(query, images, asked, "cirr").matches.ranks[0, 0] == 1
    assert rank_composed(query, images, asked, "fashioniq").matches.ranks[0, 0] == 2


def test_categories_count_alike() -> None:
    images = np.eye(20, dtype=np.float32)
    right, wrong = images[[1]], images[[2]]
    few = gallery((Triplet("0", 0, "", (1,)),), 20)
    many = gallery(tuple(Triplet(str(n), 0, "", (1,)) for n in range(3)), 20)
    # tied with all others but one: behind them
    ranks = [
        ("dress", rank_composed(right, images, few, "fashioniq")),
        ("shirt", rank_composed(np.repeat(wrong, 3, axis=0), images, many, "fashioniq")),
    ]
    row, queries = measure_row("x", ranks, "fashioniq")
    assert row.by_category == {"dress": {"R@10": 100.0, "R@50": 100.0}, "shirt": {"R@10": 0.0, "R@50": 100.0}}
    assert row.values == {"R@10": 50.0, "R@50": 100.0}
    assert queries.folds.tolist() == [0, 1, 1, 1]


def test_two_ways_are_compared_on_the_same_queries() -> None:
    images = np.eye(30, dtype=np.float32)
    asked = gallery(tuple(Triplet(str(n), n, "", (n + 10,), (20, 21)) for n in range(10)), 30)
    good = measure_row("good", [("", rank_composed(images[10:20], images, asked, "cirr"))], "cirr")
    bad = measure_row("bad", [("", rank_composed(images[20:30], images, asked, "cirr"))], "cirr")
    assert set(good[0].values) == {"R@1", "R@5", "R@10", "R@50", "R_subset@1", "R_subset@2", "R_subset@3"}
    found = against(bad[1], good[1])
    assert found["R@1"].difference == 100
    assert found["R@1"].p < 0.01
    assert found["R@50"].difference == 0
    assert good[0].intervals["R@1"] == (100, 100)
