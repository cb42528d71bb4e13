import statistics
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.training.ablation import Outcome, Trial, Variant, order, run_folder, train_variant
from limner.training.ablation_report import AblationReport
from limner.training.log import Event, Stepped
from tests.toy import toy_recipe

NAME = "text_to_image R@1"


def _outcome(key: str, values: list[float], paper: float) -> Outcome:
    variant = Variant(key, key, "I", toy_recipe(), {NAME: paper})
    trials = [
        Trial(seed, Path("unused"), 1, 1, 0.0, {"protocol": "p", "text_to_image": {"R@1": value}})
        for seed, value in enumerate(values)
    ]
    return Outcome(variant, tuple(trials))


def _report(*outcomes: Outcome) -> AblationReport:
    seeds = tuple(trial.seed for trial in outcomes[0].trials)
    recipe = toy_recipe()
    return AblationReport(
        "t", "T", "elsewhere", "folder:toys", "val", "abc", recipe, recipe, (), seeds, outcomes
    )


@given(st.lists(st.floats(0, 100), min_size=2, max_size=6))
def test_mean_and_sample_deviation(values: list[float]) -> None:
    outcome = _outcome("a", values, 0.0)
    mean = sum(values) / len(values)
    assert outcome.mean(NAME) == pytest.approx(mean)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    assert outcome.deviation(NAME) == pytest.approx(variance**0.5, abs=1e-6)


def test_single_seed_has_no_deviation() -> None:
    report = _report(_outcome("a", [12.34], 50.0))
    assert report.outcomes[0].deviation(NAME) is None
    assert report.rows[0][-1] == "12.3 (50.0)"
    assert "protocol p, seed 0;" in report.remarks[0]


def test_order_tells_ties() -> None:
    outcomes = [_outcome("a", [1.0], 0.0), _outcome("b", [3.0], 0.0), _outcome("c", [1.0], 0.0)]
    assert order(outcomes, lambda outcome: outcome.mean(NAME)) == "b > a = c"


def test_report_says_whether_the_order_is_the_papers() -> None:
    agreeing = _report(_outcome("a", [1.0, 3.0], 5.0), _outcome("b", [1.0, 2.0], 4.0))
    assert agreeing.remarks[-1] == "Order, stage I, text→image R@1: a > b; agrees."
    assert agreeing.rows[0][-1] == f"2.0 ± {statistics.stdev([1.0, 3.0]):.1f} (5.0)"
    for values in ([0.0, 1.0], [1.0, 2.0]):  # worse, and a tie
        other = _report(_outcome("a", values, 5.0), _outcome("b", [1.0, 2.0], 4.0))
        assert "differs from the paper: a > b" in other.remarks[-1]


def test_folders_of_runs_differ() -> None:
    names = {run_folder(Path("out"), key, seed) for key in ("a", "b") for seed in (0, 1)}
    assert len(names) == 4


@pytest.mark.parametrize(("stage", "epoch"), [("stage-1", 2), ("stage-2", 1)])
def test_stopped_and_run_again_is_the_whole_run(
    toys: Dataset, toy_run: Path, tmp_path: Path, stage: str, epoch: int
) -> None:
    recipe = toy_recipe()
    variants = {
        "first": Variant("first", "first", "I", recipe.replace(stages=recipe.stages[:1]), {}),
        "second": Variant("second", "second", "II", recipe, {}, "first"),
    }

    def stop(event: Event) -> None:
        if isinstance(event, Stepped) and (event.stage, event.epoch) == (stage, epoch):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_variant(variants, "second", recipe.seed, toys, tmp_path, listener=stop, cpu=True)
    folder = train_variant(variants, "second", recipe.seed, toys, tmp_path, cpu=True)
    assert folder == run_folder(tmp_path, "second", recipe.seed)
    ours, whole = (load_file(run / "last.safetensors") for run in (folder, toy_run))
    assert all(torch.equal(ours[name], whole[name]) for name in ours | whole)
