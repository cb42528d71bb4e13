"""A stage begins from what the stage before hands on and from nothing else: no gradient of it, killed there or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from limner.data.records import Dataset
from limner.data.transforms import ImageSettings
from limner.losses import Ranking
from limner.models.text_bert import BertSettings
from limner.recipes.registry import RECIPES
from limner.training import loop
from limner.training.log import EpochEnded, Event, Listener, Stepped
from limner.training.optimiser import make_optimisers
from limner.training.recipe import Recipe
from limner.training.sharded_rows import clip_gradients
from tests.toy import toy_recipe
from tests.training.interrupted import KilledError, same_run

CLIPPING = {
    name: recipe
    for name, recipe in ((name, entry.load()()) for name, entry in RECIPES.items())
    if any(stage.optimiser.clip is not None for stage in recipe.stages[1:])
}
"""Recipes of the registry that clip in a stage behind another one."""


def in_toy_size(recipe: Recipe) -> Recipe:
    """A recipe's parts, losses and stages, each an epoch, with a small network of random weights."""
    text = recipe.model.text
    small: dict[str, Any] = {"words": 12}
    if hasattr(text, "bert"):
        bert = text.bert and BertSettings(model=None, width=8, layers=1, heads=2, hidden="last")
        small |= {"word_dim": 8, "hidden": 8, "bert": bert}
    elif hasattr(text, "states"):
        small |= {"model": None, "width": 8, "layers": 1, "heads": 2, "states": (-1,)}
    else:
        small |= {"width": 1 / 32}
    backbone = recipe.model.backbone.replace(weights=None, width=0.125)  # type: ignore[union-attr]
    return recipe.replace(
        model=recipe.model.replace(backbone=backbone, text=text.replace(**small), dim=8),
        images=ImageSettings(resize=(36, 36), crop=(32, 32)),
        stages=tuple(
            stage.replace(
                epochs=1,
                validate_every=1,
                batch=8 if stage.reranker_pairs is None else 32,
                views=min(stage.views, 2),
                # The first stage leaves its gradients as large as they are; each step of the others clips.
                optimiser=stage.optimiser.replace(clip=0.05 if number else 1e6),
            )
            for number, stage in enumerate(recipe.stages)
        ),
        precision="fp32",
    )


def rests_and_freezes() -> Recipe:
    """A classifier that rests in stage 2, and parts that learnt before and are frozen there: of no published recipe."""
    recipe = in_toy_size(toy_recipe())
    first, second = recipe.stages
    second = second.replace(losses=(Ranking(margin=0.2),), frozen=("text", "image_projection"))
    return recipe.replace(stages=(first, second))


@dataclass
class Watched:
    """An uninterrupted run, whose gradients are held against those that are computed by hand."""

    recipe: Recipe
    folder: Path
    clipped: list[int] = field(default_factory=list)
    """Steps that clipped, of each stage."""
    wrong: list[str] = field(default_factory=list)
    """Gradients that are not those of the step's losses, clipped by their norm."""


@pytest.fixture(scope="module", params=[*CLIPPING, "rests and freezes"])
def run(request: pytest.FixtureRequest, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """The uninterrupted run of a recipe in toy size."""
    name: str = request.param
    recipe = in_toy_size(CLIPPING[name]) if name in CLIPPING else rests_and_freezes()
    watched = Watched(recipe, tmp_path_factory.mktemp("boundaries") / "whole")
    learning: list[nn.Parameter] = []
    by_hand: list[Tensor | None] = []
    backward = Accelerator.backward

    def begun(parts: Mapping[str, Sequence[nn.Parameter]], *arguments: Any) -> list[torch.optim.Optimizer]:
        everything = [one for parameters in parts.values() for one in parameters]
        watched.wrong += ["a stage begins with a gradient" for one in everything if one.grad is not None]
        learning[:] = [one for one in everything if one.requires_grad]
        watched.clipped.append(0)
        return make_optimisers(parts, *arguments)

    def passed_back(accelerator: Accelerator, loss: Tensor) -> None:
        by_hand[:] = torch.autograd.grad(loss, learning, retain_graph=True, allow_unused=True)
        backward(accelerator, loss)

    def clipped(module: nn.Module, largest: float, accelerator: Accelerator) -> None:
        own = [one.double() for one in by_hand if one is not None]
        norm = torch.stack([one.square().sum() for one in own]).sum().sqrt().item()
        share = min(1.0, largest / norm)
        watched.clipped[-1] += share < 1
        clip_gradients(module, largest, accelerator)
        expected = {id(one): gradient for one, gradient in zip(learning, by_hand, strict=True)}
        for name, parameter in module.named_parameters():
            found, alone = parameter.grad, expected.get(id(parameter))
            if found is None or alone is None:
                if found is not alone:
                    watched.wrong.append(f"{name} has a gradient of another stage, or none")
            elif not torch.allclose(found, alone * share, rtol=1e-4, atol=1e-9):
                watched.wrong.append(f"{name} is clipped by another norm")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_optimisers", begun)
        patch.setattr(Accelerator, "backward", passed_back)
        patch.setattr(loop, "clip_gradients", clipped)
        loop.train(recipe, toys.split("train"), toys.split("val"), watched.folder, cpu=True)
    return watched


def test_each_step_clips_by_the_gradients_of_its_own_losses(run: Watched) -> None:
    """And no stage begins with a gradient; every one behind the first does clip."""
    assert not run.wrong
    assert len(run.clipped) == len(run.recipe.stages)
    assert all(run.clipped[1:])


def test_killed_in_the_first_epoch_of_each_stage_and_between_them(
    run: Watched, toys: Dataset, tmp_path: Path
) -> None:
    """One run that is killed at its first step, behind the stage's last state, at the first step of the next, …"""
    arguments = (run.recipe, toys.split("train"), toys.split("val"), tmp_path / "run")
    # of an epoch each
    for stage in run.recipe.stages:
        for kind in (Stepped, EpochEnded):
            with pytest.raises(KilledError):
                loop.train(*arguments, listener=_killer(kind, stage.name), resume=True, cpu=True)
    loop.train(*arguments, resume=True, cpu=True)
    same_run(tmp_path / "run", run.folder)


def _killer(kind: type[Stepped | EpochEnded], stage: str) -> Listener:
    """A listener that ends the run at the first event of a kind in a stage."""

    def listen(event: Event) -> None:
        if isinstance(event, kind):
            of = event.stage if isinstance(event, Stepped) else event.row["stage"]
            if of == stage:
                raise KilledError

    return listen
