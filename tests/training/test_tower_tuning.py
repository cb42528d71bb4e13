"""Settings of a stage that are for transformers' towers: checkpointing and rates by layer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.losses.sdm import SDM
from limner.recipes.change import change, start_from
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests import towers
from tests.toy import toy_recipe
from tests.training.interrupted import same_numbers, same_run, stopped_and_resumed
from tests.training.test_chunks import with_pieces

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return towers.clip_run(tmp_path_factory.mktemp("pair"))


def of_pair(pair: Path, **changes: Any) -> Recipe:
    """Two stages from a tiny CLIP."""
    recipe = start_from(toy_recipe(), pair)
    first, second = (
        stage.replace(
            **{"epochs": 2, "frozen": (), "views": 0, "position_shift": False, "losses": (SDM(),), **changes}
        )
        for stage in recipe.stages
    )
    return recipe.replace(stages=(first, second), rerank=0)


def trained(toys: Dataset, recipe: Recipe, out: Path) -> Path:
    return train(recipe, toys.split("train"), toys.split("val"), out, cpu=True)


@pytest.mark.parametrize("chunk", [None, 3])
def test_checkpointing_changes_no_bit(toys: Dataset, pair: Path, tmp_path: Path, chunk: int | None) -> None:
    """Also within chunks, which are checkpoints themselves."""
    for name, on in (("plain", False), ("checkpointed", True)):
        trained(toys, of_pair(pair, checkpointing=on, chunk=chunk), tmp_path / name)
    same_numbers(tmp_path / "plain", tmp_path / "checkpointed")


def test_checkpointing_changes_no_bit_with_dropout(toys: Dataset, tmp_path: Path) -> None:
    for name, on in (("plain", False), ("checkpointed", True)):
        trained(toys, with_pieces(checkpointing=on), tmp_path / name)
    same_numbers(tmp_path / "plain", tmp_path / "checkpointed")


def moves(pair: Path, run: Path) -> dict[str, float]:
    """How far each tensor moved in the first stage, by its largest step."""
    before, after = load_file(pair / "imported.safetensors"), load_file(run / "stage-1.safetensors")
    return {name: float((after[name] - before[name]).abs().max()) for name in before}


def test_lower_layers_move_less(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    adam = {"name": "adam", "rate": 0.001}
    recipes = {
        "plain": of_pair(pair, epochs=1, optimiser=adam),
        "decayed": of_pair(pair, epochs=1, optimiser={**adam, "layer_decay": 0.1}),
    }
    found = {name: moves(pair, trained(toys, recipe, tmp_path / name)) for name, recipe in recipes.items()}

    def share(name: str) -> float:
        return found["decayed"][name] / found["plain"][name]

    # Adam's first steps are as long as the rate
    assert share("text_projection.weight") == pytest.approx(1, rel=0.3)
    for tower in ("backbone.tower.vision_model", "text.tower.text_model"):
        for layer, expected in ((1, 0.1), (0, 0.01)):
            name = f"{tower}.encoder.layers.{layer}.mlp.fc1.weight"
            assert share(name) == pytest.approx(expected, rel=0.4)
        assert share(f"{tower}.embeddings.position_embedding.weight") == pytest.approx(0.001, rel=0.5)


@pytest.mark.parametrize("kill_at", [4, 9])
def test_stopped_anywhere_and_resumed_is_the_uninterrupted_run(
    toys: Dataset, pair: Path, tmp_path: Path, kill_at: int
) -> None:
    recipe = of_pair(pair, checkpointing=True, optimiser={"name": "adamw", "rate": 0.003, "layer_decay": 0.7})
    trained(toys, recipe, tmp_path / "whole")
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("setting", ["checkpointing=true", "optimiser.layer_decay=0.8"])
def test_a_network_without_such_a_tower_is_refused(toys: Dataset, tmp_path: Path, setting: str) -> None:
    recipe = change(toy_recipe(), [f"stages.stage-2.{setting}"])
    name = setting.split("=")[0]
    with pytest.raises(SettingsError, match=rf"stages\.stage-2\.{name}': the network has no tower of transf"):
        trained(toys, recipe, tmp_path / "run")
    with pytest.raises(SettingsError, match=r"layer_decay"):
        change(toy_recipe(), ["stages.stage-2.optimiser.layer_decay=1"])


def test_a_stage_without_checkpointing_follows_one_with_it(toys: Dataset, pair: Path, tmp_path: Path) -> None:
    recipe = of_pair(pair)
    first, second = recipe.stages
    mixed = recipe.replace(stages=(first.replace(checkpointing=True), second))
    trained(toys, mixed, tmp_path / "mixed")
    trained(toys, recipe, tmp_path / "plain")
    one, other = (load_file(tmp_path / name / "stage-2.safetensors") for name in ("mixed", "plain"))
    assert all(torch.equal(one[name], other[name]) for name in one)
