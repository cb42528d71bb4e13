"""Measures of explanations against figures by hand and against loops."""

import io
import itertools
import json

import numpy as np
import pytest
from rich.console import Console

from limner.evaluation.explanations import (
    Explained,
    ExplanationReport,
    Figure,
    method_figures,
    pointing_figures,
    random_figures,
    render,
    shares_of_regions,
)
from limner.evaluation.intervals import RESAMPLES, auc_interval, ratio_interval


def explained(**values: object) -> Explained:
    plain: dict[str, object] = {
        "effects": np.array([0.1, 0.3, -0.2]),
        "noise": np.array([0.2, 0.2, 0.1]),
        "colours": [1, 2],
        "score": 1.0,
        "deletion": np.array([0.6, 0.2]),
        "insertion": np.array([0.5, 0.9]),
        "passes": 7,
        "planted": np.array([0.1, -0.3, 0.2]),
        "place": 1,
        "rivals": [2],
    }
    return Explained(**{**plain, **values})  # type: ignore[arg-type]


def test_figures_by_hand() -> None:
    answers = [
        explained(),
        # the planted word has the lowest effect of the colours, not of all words
        explained(planted=np.array([-0.5, -0.1, 0.0]), deletion=np.array([0.0, 0.0]), score=0.5),
        # and here the highest, in a text whose other colour says nothing; nothing is known of noise
        explained(planted=np.array([0.0, 0.5, 0.0]), rivals=[0], noise=None, passes=10),
        explained(planted=None, effects=np.array([0.0, 0.1, -0.1]), noise=np.array([0.1, 0.1, 0.05])),
    ]
    found, passes = method_figures(answers, np.array([1, 1, 2, 3]))
    values = {name: (figure.value, figure.count) for name, figure in found.items()}
    assert passes == pytest.approx((7 * 3 + 10) / 4)
    assert values["planted_lowest"] == pytest.approx((100 / 3, 3))
    assert values["planted_lowest_colour"] == pytest.approx((200 / 3, 3))
    # lies −0.3, −0.1, 0.5 against truths 0.2, 0.0, 0.0: three, three and none of three are lower
    assert values["planted_auc"] == pytest.approx((6 / 9, 3))
    assert values["deletion"] == pytest.approx(((0.4 + 0.0 + 0.4 + 0.4) / (1 + 0.5 + 1 + 1), 4))
    assert values["insertion"] == pytest.approx((4 * 0.7 / 3.5, 4))
    assert values["true_negative"] == pytest.approx((50.0, 8))
    # of those whose noise is known: 0.3 and −0.2 twice stand out, then 0.1 is hidden and −0.1 is not
    assert values["true_hidden"] == pytest.approx((100 / 6, 6))
    assert values["true_against"] == pytest.approx((50.0, 6))


def test_a_method_that_gives_all_words_the_same_finds_nothing() -> None:
    found, _ = method_figures([explained(planted=np.zeros(3))] * 2, np.array([1, 2]))
    assert [found[name].value for name in ("planted_lowest", "planted_lowest_colour", "planted_auc")] == [
        0,
        0,
        0.5,
    ]


def test_chance() -> None:
    curve = (np.array([0.5, 0.3]), np.array([0.1, 0.7]), 0.8)
    found = random_figures([4, 5], [curve, curve], np.array([0, 1]))
    assert found["planted_lowest"].value == pytest.approx(100 * (1 / 4 + 1 / 5) / 2)
    assert found["deletion"].value == pytest.approx(0.5)


def test_the_area_under_the_curve_is_its_definition() -> None:
    generator = np.random.default_rng(2)
    low, high = generator.integers(0, 9, 20).astype(float), generator.integers(3, 12, 30).astype(float)
    of_low, of_high = generator.integers(0, 6, 20), generator.integers(0, 6, 30)
    area, ends = auc_interval(low, high, of_low, of_high, seed=4)

    def looped(first: np.ndarray, second: np.ndarray) -> float:
        wins = [1.0 if a < b else 0.5 if a == b else 0.0 for a, b in itertools.product(first, second)]
        return sum(wins) / len(wins)

    assert area == pytest.approx(looped(low, high))
    drawn = np.random.default_rng([4, 4]).integers(0, 6, size=(RESAMPLES, 6))[:100]
    values = [
        looped(
            np.concatenate([low[of_low == cluster] for cluster in row]),
            np.concatenate([high[of_high == cluster] for cluster in row]),
        )
        for row in drawn
    ]
    assert ends is not None
    assert ends == pytest.approx(np.percentile(values, [2.5, 97.5]), abs=0.05)
    assert auc_interval(low, high, np.zeros(20, int), np.zeros(30, int))[1] is None


def test_the_interval_of_a_ratio_is_its_definition() -> None:
    generator = np.random.default_rng(3)
    above, below, clusters = generator.random(20), generator.random(20) + 0.5, generator.integers(0, 5, 20)
    drawn = np.random.default_rng([6, 3]).integers(0, 5, size=(RESAMPLES, 5))
    values = []
    for row in drawn:
        taken = np.concatenate([np.flatnonzero(clusters == cluster) for cluster in row])
        values.append(above[taken].sum() / below[taken].sum())
    found = ratio_interval(above, below, clusters, seed=6)
    assert found == pytest.approx(np.percentile(values, [2.5, 97.5]))
    assert ratio_interval(above, below, np.zeros(20, int)) is None


def test_regions_share_a_mask() -> None:
    mask = np.zeros((6, 8), bool)
    mask[0:3, 4:6] = True
    whole = shares_of_regions(mask, (2, 2), (0.0, 0.0, 1.0, 1.0))
    assert whole.tolist() == [[0.0, 0.5], [0.0, 0.0]]
    assert whole.mean() == mask.mean()
    # the model saw the right half alone
    assert shares_of_regions(mask, (2, 2), (0.5, 0.0, 1.0, 1.0)).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_the_pointing_game_by_hand() -> None:
    found = pointing_figures(
        [("upper", 0.5, 0.1, 0.6, 1), ("upper", 0.0, 0.2, 0.4, 2), ("shoes", 1.0, 0.0, 1.0, 1)]
    )
    assert list(found) == ["all", "shoes", "upper"]
    upper = {name: figure.value for name, figure in found["upper"].items()}
    assert upper == pytest.approx({"pointing": 25.0, "chance": 15.0, "best": 50.0})
    assert found["all"]["pointing"].value == pytest.approx(50.0)
    assert found["shoes"]["pointing"].interval is None
    assert pointing_figures([]) == {}


def test_report_and_table() -> None:
    report = ExplanationReport(
        split="val",
        counts={"pictures": 3},
        methods={
            "random": {"planted_auc": Figure(value=0.5, interval=None, count=3)},
            "substitution": {"planted_auc": Figure(value=0.9, interval=(0.8, 1.0), count=3)},
        },
        passes={"substitution": 12.4},
        attention={
            "all": {
                name: Figure(value=50.0, interval=(40.0, 60.0), count=3)
                for name in ("pointing", "chance", "best")
            }
        },
    )
    file = io.StringIO()
    Console(file=file, width=120).print(render(report))
    assert "0.90 ± 0.10" in file.getvalue()
    assert "50.0 ± 10.0" in file.getvalue()
    assert json.loads(report.to_json())["methods"]["substitution"]["planted_auc"]["interval"] == [0.8, 1.0]
