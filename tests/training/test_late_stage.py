"""Late interaction in the training loop: from nothing, from an imported pair, with what towers are tuned by."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.losses import SDM, LossSettings, MaxSim
from limner.models.late import LateSettings
from limner.models.pretrained import PretrainedSettings
from limner.recipes.change import change, start_from
from limner.training.loop import train
from limner.training.prepare import prepare
from limner.training.recipe import Recipe
from tests import towers
from tests.toy import toy_late, toy_recipe
from tests.training.interrupted import (
    in_two_processes,
    killed_and_resumed,
    same_numbers,
    same_run,
    stopped_and_resumed,
)

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP as a run, without late interaction."""
    return towers.clip_run(tmp_path_factory.mktemp("pair"))


def of_pair(pair: Path, late: dict[str, Any], **changes: Any) -> Recipe:
    """A stage above a tiny CLIP."""
    recipe = start_from(toy_recipe(), pair)
    values = {"epochs": 1, "frozen": (), "views": 0, "position_shift": False, **changes}
    stages = tuple(stage.replace(**values) for stage in recipe.stages)
    both = [f"stages.stage-{n}.losses={json.dumps([{'kind': 'sdm'}, {'kind': 'maxsim'}])}" for n in (1, 2)]
    settings = [f"model.late={json.dumps(late)}", *both]
    return change(recipe.replace(stages=stages, rerank=3), settings)


def late_of(recipe: Recipe) -> LateSettings | None:
    assert isinstance(recipe.model, PretrainedSettings)
    return recipe.model.late


def trained(toys: Dataset, recipe: Recipe, out: Path) -> Path:
    return train(recipe, toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("kill_at", [2, 5, 8])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, late_run: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, toy_late(), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", late_run)


def test_kill_9_changes_no_bit(toys: Dataset, late_run: Path, tmp_path: Path) -> None:
    killed_and_resumed(toys, toy_late(), tmp_path / "run", "stage-2 1 2")
    same_run(tmp_path / "run", late_run)


def test_the_loss_is_logged_with_its_scale_and_falls(late_run: Path) -> None:
    rows = [json.loads(line) for line in (late_run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["loss"] == pytest.approx(row["sdm"] + row["maxsim"], rel=1e-5)
    assert rows[-1]["maxsim"] < rows[0]["maxsim"]
    assert rows[-1]["maxsim_scale"] != rows[0]["maxsim_scale"]


@pytest.mark.parametrize(
    ("loss", "still"),
    [(SDM(), {"late"}), (MaxSim(), {"image_projection", "text_projection"})],
    ids=["sdm", "maxsim"],
)
def test_what_a_stage_does_not_reach_stays_where_it_started(
    toys: Dataset, tmp_path: Path, loss: LossSettings, still: set[str]
) -> None:
    recipe = toy_late()
    recipe = recipe.replace(stages=(recipe.stages[1].replace(epochs=1, losses=(loss,)),))
    before = prepare(recipe, toys.split("train"), toys.split("val")).objective.model.state_dict()
    after = load_file(trained(toys, recipe, tmp_path / "run") / "stage-2.safetensors")
    weights = [name for name in before if name.endswith("weight")]
    kept = {name.split(".")[0] for name in weights if before[name].equal(after[name])}
    moved = {name.split(".")[0] for name in weights if not before[name].equal(after[name])}
    assert still <= kept - moved
    assert {"backbone", "text", "late", "image_projection", "text_projection"} - still == moved


def test_late_interaction_is_added_to_an_imported_pair(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    recipe = of_pair(pair, {"dim": 8, "regions": 4})
    before = load_file(pair / "imported.safetensors")
    first = load_file(trained(toys, recipe, tmp_path / "one") / "stage-1.safetensors")
    assert first["late.of_words.weight"].shape == (8, 32)
    assert {name for name in before if name.startswith("late.")} == set()
    again = load_file(trained(toys, recipe, tmp_path / "other") / "stage-1.safetensors")
    assert all(torch.equal(first[name], again[name]) for name in first)
    # a run that has it already goes on with what it has, and with no other
    run = tmp_path / "one"
    assert late_of(start_from(toy_late(), run)) == LateSettings(dim=8, regions=4)
    wider = of_pair(pair, {"dim": 9}).replace(start=str(run))
    with pytest.raises(SettingsError, match="the network is that of"):
        trained(toys, wider, tmp_path / "wider")


def test_a_recipe_with_it_starts_from_a_pair_without(pair: Path) -> None:
    assert late_of(start_from(toy_late(), pair)) == late_of(toy_late()) != LateSettings()


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpointing": True},
        {"lora": {"rank": 2}},
        {"frozen": ("backbone", "words", "text")},
        {"sentences": "together"},
        {"average": {"decay": 0.5}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_it_goes_with_what_towers_are_tuned_by(
    toys: Dataset, pair: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    if "lora" in changes:
        pytest.importorskip("peft")
    recipe = of_pair(pair, {"dim": 8}, **changes)
    out = trained(toys, recipe, tmp_path / "run")
    before, after = load_file(pair / "imported.safetensors"), load_file(out / "stage-2.safetensors")
    assert torch.isfinite(after["late.of_regions.weight"]).all()
    towers_moved = any(not before[name].equal(after[name]) for name in before if ".tower." in name)
    assert towers_moved == ("frozen" not in changes)
    if "checkpointing" in changes:
        plain = trained(toys, of_pair(pair, {"dim": 8}), tmp_path / "plain")
        same_numbers(plain, out)


def test_two_processes(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    done = in_two_processes(
        *("-m", "limner", "train", "fine-tune", "--from", str(pair), "--cpu"),
        *("--set", "model.late={}", "--set", "stages.tune.losses.maxsim={}", "--set", "rerank=3"),
        *("--data", f"folder:{toys.records[0].image.parent}", "--out", str(tmp_path / "run")),
        *("--set", "stages.tune.epochs=1", "--set", "stages.tune.batch=8"),
        cache=tmp_path / "cache",
    )
    assert done.returncode == 0, done.stderr
    run = limner.load(tmp_path / "run", device="cpu")
    assert run.rerank == 3
    regions = run.encode_regions(toys.records[0].image)
    assert np.isfinite(regions).all()
