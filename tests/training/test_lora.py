import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import limner
from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.inference.checkpoint import NOT_WEIGHTS
from limner.inference.evaluate_run import evaluate_run
from limner.losses import Instance
from limner.losses.sdm import SDM
from limner.recipes.change import change, start_from
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests import towers
from tests.toy import toy_recipe, toy_reranking
from tests.training.interrupted import (
    STATE,
    in_two_processes,
    killed_and_resumed,
    same_run,
    stopped_and_resumed,
)

pytest.importorskip("transformers")
pytest.importorskip("peft")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return towers.clip_run(tmp_path_factory.mktemp("pair"))


def adapted(pair: Path, **changes: Any) -> Recipe:
    """Two stages from a tiny CLIP, each with adapters of its own."""
    recipe = start_from(toy_recipe(), pair)
    values: dict[str, Any] = {
        "epochs": 2,
        "frozen": (),
        "views": 0,
        "position_shift": False,
        "losses": (SDM(), Instance(dropout=0.2)),
        "lora": {"rank": 3, "dropout": 0.1},
        "optimiser": {"name": "adamw", "rate": 0.01},
        **changes,
    }
    stages = tuple(stage.replace(**values) for stage in recipe.stages)
    return recipe.replace(stages=stages, rerank=0)


def trained(toys: Dataset, recipe: Recipe, out: Path) -> Path:
    return train(recipe, toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.fixture(scope="module")
def whole(toys: Dataset, pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(toys, adapted(pair), tmp_path_factory.mktemp("lora") / "run")


def test_checkpoints_are_merged_and_the_towers_change_in_rank_alone(pair: Path, whole: Path) -> None:
    start = load_file(pair / "imported.safetensors")
    first, second = (load_file(whole / f"stage-{number}.safetensors") for number in (1, 2))
    start = {name: value for name, value in start.items() if name not in NOT_WEIGHTS}
    assert start.keys() == first.keys() - NOT_WEIGHTS == second.keys() - NOT_WEIGHTS
    for before, after in ((start, first), (first, second)):
        moved = {name for name in start if not torch.equal(before[name], after[name])}
        in_towers = {name for name in moved if ".tower." in name}
        assert len(in_towers) == 2 * 2 * 4
        assert all(".self_attn." in name and name.endswith("proj.weight") for name in in_towers)
        assert moved - in_towers == {"image_projection.weight", "text_projection.weight"}
        for name in in_towers:
            assert int(torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-3)) <= 3


def test_what_is_loaded_is_what_was_validated(toys: Dataset, whole: Path) -> None:
    run = limner.load(whole, device="cpu", precision="fp32")
    measured = evaluate_run(run, toys.split("val"), "val").model_dump()
    selected = run.description["selected"]
    for direction in ("image_to_text", "text_to_image"):
        for measure in ("R@1", "R@5", "mAP"):
            assert measured[direction][measure] == pytest.approx(selected[direction][measure], abs=1e-3)


def test_the_state_keeps_adapters_apart(whole: Path) -> None:
    state = load_file(whole / STATE)
    assert sum("lora_A" in name for name in state) == 2 * 2 * 4
    assert any(name.endswith("base_layer.weight") for name in state)


@pytest.mark.parametrize("kill_at", [2, 5, 8, 11])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, pair: Path, whole: Path, tmp_path: Path, kill_at: int
) -> None:
    stopped_and_resumed(toys, adapted(pair), tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", whole)


def test_kill_9_with_everything_that_tunes_towers(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    recipe = adapted(
        pair,
        batch=8,
        chunk=3,
        checkpointing=True,
        average={"decay": 0.6},
        optimiser={"name": "adamw", "rate": 0.01, "layer_decay": 0.8},
    )
    killed_and_resumed(toys, recipe, tmp_path / "whole")
    killed_and_resumed(toys, recipe, tmp_path / "run", "stage-1 2 1", "stage-2 2 2")
    same_run(tmp_path / "run", tmp_path / "whole")


def test_a_stage_of_all_weights_follows_one_of_adapters(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    recipe = adapted(pair, epochs=1)
    second = recipe.stages[1].replace(lora=None, optimiser={"rate": 1e-30, "momentum": 0.0})
    out = trained(toys, recipe.replace(stages=(recipe.stages[0], second)), tmp_path / "run")
    first, last = (load_file(out / f"stage-{number}.safetensors") for number in (1, 2))
    assert all(torch.allclose(first[name], last[name], atol=1e-7) for name in first)
    assert not any("lora" in name for name in load_file(out / STATE))


def test_a_frozen_tower_has_no_adapters(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    recipe = adapted(pair, epochs=1, frozen=("backbone",))
    out = trained(toys, recipe.replace(stages=recipe.stages[:1]), tmp_path / "run")
    start, after = load_file(pair / "imported.safetensors"), load_file(out / "stage-1.safetensors")
    moved = {name.split(".")[0] for name in start if not torch.equal(start[name], after[name])}
    assert moved == {"text", "image_projection", "text_projection"}


def test_two_processes(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    done = in_two_processes(
        *("-m", "limner", "train", "fine-tune", "--from", str(pair), "--cpu", "--set", "stages.tune.lora={}"),
        *("--data", f"folder:{toys.records[0].image.parent}", "--out", str(tmp_path / "run")),
        *("--set", "stages.tune.epochs=1", "--set", "stages.tune.batch=8"),
        cache=tmp_path / "cache",
    )
    assert done.returncode == 0, done.stderr
    rows = limner.load(tmp_path / "run", device="cpu").encode_texts(["a red bar"])
    assert np.isfinite(rows).all()


def test_refusals(toys: Dataset, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="both towers are frozen"):
        adapted(pair, frozen=("backbone", "text"))
    with pytest.raises(SettingsError, match="leave it out of one with `reranker_pairs`"):
        toy_reranking().stages[1].replace(lora={})
    with pytest.raises(SettingsError, match=r"stage-1\.lora': the network has no tower of transformers"):
        trained(toys, change(toy_recipe(), ["stages.stage-1.lora={}"]), tmp_path / "run")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SettingsError, match=r"lora needs the peft library; .*limner\[lora\]"):
        trained(toys, adapted(pair), tmp_path / "run")
    assert json.loads(adapted(pair).model_dump_json())["stages"][0]["lora"]["alpha"] == 16
