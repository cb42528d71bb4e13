import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import limner
from limner.data.records import Dataset
from limner.errors import CheckpointError, SettingsError
from limner.inference.import_model import import_model
from limner.recipes import get_recipe
from limner.recipes.change import change, start_from
from limner.training.average import WeightAverage
from limner.training.log import Event, Stepped
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests import towers
from tests.toy import toy_mnil, toy_recipe, toy_reranking
from tests.training.interrupted import STATE, in_two_processes, same_run, stopped_and_resumed


def averaged(recipe: Recipe, **values: Any) -> Recipe:
    """The recipe with an average in every stage."""
    given = {"decay": 0.7, **values}
    return recipe.replace(stages=tuple(stage.replace(average=given) for stage in recipe.stages))


def closed_form(weights: list[Tensor], decay: float) -> Tensor:
    """`Σ_t d^(T−t) w_t / Σ_t d^(T−t)`, term by term."""
    last = len(weights)
    factors = [decay ** (last - step) for step in range(1, last + 1)]
    rows = zip(factors, weights, strict=True)
    return sum((factor * weight for factor, weight in rows), torch.zeros_like(weights[0])) / sum(factors)


@settings(max_examples=50, deadline=None)
@given(
    steps=st.integers(1, 40),
    decay=st.floats(1e-4, 0.9999),
    seed=st.integers(0, 2**31),
    size=st.integers(1, 5),
)
def test_the_average_is_the_sum_over_the_steps(steps: int, decay: float, seed: int, size: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    network = nn.Sequential(nn.Linear(size, 2), nn.BatchNorm1d(2)).double().train()
    average = WeightAverage(network, decay)
    seen: dict[str, list[Tensor]] = {name: [] for name in average.values}
    for _ in range(steps):
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.randn(value.shape, generator=chance, dtype=torch.float64))
                seen[name].append(value.clone())
        average.update()
    assert set(seen) == {*("0.weight", "0.bias", "1.weight", "1.bias"), "1.running_mean", "1.running_var"}
    for name, weights in seen.items():
        torch.testing.assert_close(average.values[name], closed_form(weights, decay), rtol=1e-10, atol=1e-10)


def test_what_is_frozen_costs_nothing_and_the_weights_come_back() -> None:
    held, norm, learns = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2, bias=False)
    held.requires_grad_(False)
    norm.requires_grad_(False).eval()
    average = WeightAverage(nn.ModuleDict({"held": held, "norm": norm, "learns": learns}), 0.5)
    assert set(average.values) == {"learns.weight"}
    before = learns.weight.detach().clone()
    with average.in_place(lambda: pytest.fail("no step has been made")):
        assert torch.equal(learns.weight, before)
    average.update()
    own = before + 1
    learns.weight.data.copy_(own)
    projected = []
    with average.in_place(lambda: projected.append(True)):
        assert torch.equal(learns.weight, before)
        learns.weight.data.mul_(2)
    assert projected == [True]
    assert torch.equal(learns.weight, own)
    assert torch.equal(average.values["learns.weight"], before)


class Recorder:
    """The weights behind each step of a run, in the order of the steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.averages: list[WeightAverage] = []
        self.weights: list[dict[str, Tensor]] = []
        made = WeightAverage.__init__

        def noted(average: WeightAverage, trained: nn.Module, decay: float) -> None:
            made(average, trained, decay)
            self.averages.append(average)

        monkeypatch.setattr(WeightAverage, "__init__", noted)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Stepped):
            live = self.averages[-1]._live
            self.weights.append({name: value.detach().clone() for name, value in live.items()})


def test_a_run_validates_and_keeps_the_average(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    recipe = averaged(toy_recipe())
    recipe = recipe.replace(stages=(recipe.stages[1].replace(name="stage-1", epochs=3),))
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", listener=recorder, cpu=True)
    kept = load_file(out / "stage-1.safetensors")
    chosen = limner.load(out, device="cpu").description["selected"]["epoch"]
    steps = len(recorder.weights) // 3 * chosen
    moved = 0
    for name in recorder.weights[0]:
        weights = [step[name] for step in recorder.weights[:steps]]
        if not name.startswith("model."):
            assert name == "losses.instance.weight"
            found = load_file(out / "stage-1-classifier.safetensors")["weight"]
        else:
            found = kept[name.removeprefix("model.")]
        torch.testing.assert_close(found, closed_form(weights, 0.7), rtol=1e-4, atol=1e-6)
        moved += not torch.equal(found, weights[-1])
    assert moved > len(recorder.weights[0]) // 2
    # the log has the figures of what is kept
    listing = json.loads((out / "run.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert listing["stages"][0]["score"] == rows[chosen - 1]["score"]


def test_training_goes_on_with_the_weights_themselves(toys: Dataset, tmp_path: Path) -> None:
    """The average changes what is kept, and no step of its stage."""
    recipe = toy_recipe()
    recipe = recipe.replace(stages=recipe.stages[:1])
    losses = []
    for name, chosen in (("plain", recipe), ("averaged", averaged(recipe))):
        out = train(chosen, toys.split("train"), toys.split("val"), tmp_path / name, cpu=True)
        rows = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        losses.append([json.loads(row)["loss"] for row in rows])
    assert losses[0] == losses[1]
    plain, ours = (load_file(tmp_path / name / STATE) for name in ("plain", "averaged"))
    assert all(torch.equal(plain[name], ours[name]) for name in plain)


def test_the_next_stage_starts_from_the_average(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = averaged(toy_recipe())
    second = recipe.stages[1].replace(epochs=1, optimiser={"rate": 1e-30, "momentum": 0.0})
    recipe = recipe.replace(stages=(recipe.stages[0], second))
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    first, last = (load_file(out / f"stage-{number}.safetensors") for number in (1, 2))
    for name, value in first.items():
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            torch.testing.assert_close(last[name], value, rtol=1e-6, atol=1e-7)


def test_before_its_start_the_weights_themselves_are_validated(toys: Dataset, tmp_path: Path) -> None:
    recipe = toy_recipe()
    recipe = recipe.replace(stages=recipe.stages[:1])
    late = averaged(recipe, start=2)
    scores = []
    for name, chosen in (("plain", recipe), ("late", late)):
        out = train(chosen, toys.split("train"), toys.split("val"), tmp_path / name, cpu=True)
        rows = [json.loads(row) for row in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        scores.append([row["image_to_text"] for row in rows])
    assert scores[0][:2] == scores[1][:2]
    with pytest.raises(SettingsError, match=r"average\.start=3 leaves out all of the epochs=3"):
        averaged(recipe, start=3)


RECIPES: dict[str, Callable[[], Recipe]] = {
    "dual-path": lambda: averaged(toy_recipe(), start=1),
    "mnil": lambda: averaged(toy_mnil()),
}


@pytest.fixture(scope="module", params=RECIPES)
def whole(request: pytest.FixtureRequest, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Any:
    recipe = RECIPES[request.param]()
    out = tmp_path_factory.mktemp("averaged") / "run"
    return recipe, train(recipe, toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("kill_at", [4, 7, 10, 13])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, whole: tuple[Recipe, Path], tmp_path: Path, kill_at: int
) -> None:
    recipe, uninterrupted = whole
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", uninterrupted)


def test_orthonormal_rows_are_kept_orthonormal(toys: Dataset, tmp_path: Path) -> None:
    recipe = averaged(toy_mnil())
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    kept = load_file(out / "stage-2.safetensors")
    for side in ("image", "text"):
        rows = kept[f"{side}_projection.linear.weight"]
        torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), rtol=0, atol=1e-5)


def test_a_cross_encoder_is_averaged_as_well(toys: Dataset, tmp_path: Path) -> None:
    recipe = averaged(toy_reranking())
    out = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "run", cpu=True)
    last = load_file(out / STATE)
    kept = load_file(out / "stage-2.safetensors")
    weights = [name for name in kept if name.startswith("cross_encoder.") and name.endswith("weight")]
    assert any(not torch.equal(kept[name], last[f"objective.model.{name}"]) for name in weights)


def test_two_processes_average_as_one(toys: Dataset, tmp_path: Path) -> None:
    """A tower has no batch norm, and the instance loss is a mean over pairs: the same weights, by chunks as well."""
    pytest.importorskip("transformers")
    (tmp_path / "source").mkdir()
    towers.save_clip(tmp_path / "source")
    import_model(str(tmp_path / "source"), tmp_path / "pair")
    changes = (
        *("precision=fp32", "stages.tune.losses.sdm=null", 'stages.tune.average={"decay": 0.8}'),
        *("stages.tune.epochs=2", "stages.tune.batch=8", "stages.tune.chunk=3"),
        *("stages.tune.optimiser.name=sgd", "stages.tune.optimiser.rate=0.02"),
    )
    recipe = change(start_from(get_recipe("fine-tune"), tmp_path / "pair"), changes)
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "one", cpu=True)
    done = in_two_processes(
        *("-m", "limner", "train", "fine-tune", "--from", str(tmp_path / "pair"), "--cpu"),
        *("--data", f"folder:{toys.records[0].image.parent}", "--out", str(tmp_path / "two")),
        *(part for setting in changes for part in ("--set", setting)),
        cache=tmp_path / "cache",
    )
    assert done.returncode == 0, done.stderr
    start = load_file(tmp_path / "pair" / "imported.safetensors")
    one, two = (load_file(tmp_path / run / "tune.safetensors") for run in ("one", "two"))
    name = "text_projection.weight"
    assert (one[name] - start[name]).abs().max() > 1e-4
    for name in start:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-6)


def test_a_state_of_another_network_is_refused() -> None:
    average = WeightAverage(nn.Linear(2, 2), 0.5)
    with pytest.raises(CheckpointError, match="of another network"):
        average.restore({"weight": torch.zeros(3, 2)}, 4)


def test_settings() -> None:
    recipe = change(toy_recipe(), ["stages.stage-2.average={}"])
    assert recipe.stages[0].average is None
    assert recipe.stages[1].average is not None
    assert recipe.stages[1].average.decay == 0.999
    for decay in (0, 1, 1.5, "nan"):
        with pytest.raises(SettingsError, match=r"average\.decay"):
            change(toy_recipe(), [f'stages.stage-2.average={{"decay": "{decay}"}}'])
