"""What a training starts from besides recipe and data: other content is another training, at the same path too."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import limner
from limner.data.records import Dataset
from limner.durable import sealed
from limner.errors import CheckpointError
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.inference.run_file import read_listing
from limner.inference.source import STATE_FILE
from limner.models.image import BackboneSettings, build_backbone
from limner.recipes.change import start_from
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests.toy import toy_recipe
from tests.training.interrupted import KilledError, killer
from tests.training.test_run_files import changed


def short(recipe: Recipe) -> Recipe:
    """One stage of two epochs."""
    return recipe.replace(stages=(recipe.stages[0].replace(frozen=(), views=0, epochs=2),))


def killed(recipe: Recipe, toys: Dataset, out: Path) -> None:
    """A run that was killed in its second epoch."""
    with pytest.raises(KilledError):
        train(recipe, toys.split("train"), toys.split("val"), out, listener=killer(5), cpu=True)


def described(file: Path, state: Path, **changes: Any) -> None:
    """Write a checkpoint again with other values of its description."""
    tensors, description = read_checkpoint(file)
    del description["format"]
    description["selected"] |= changes
    write_checkpoint(state, tensors, description)


def test_a_later_checkpoint_of_a_training_from_another_start(
    toys: Dataset, toy_run: Path, tmp_path: Path
) -> None:
    """The same recipe, data and seed, and START at the same path with other content."""
    start = shutil.copytree(toy_run, tmp_path / "start")
    (start / STATE_FILE).unlink()
    listing = {name: one for name, one in read_listing(start).items() if name != "digests"}
    (start / "run.json").write_text(sealed(listing), encoding="utf-8")
    recipe = short(start_from(toy_recipe(), start))
    data = (toys.split("train"), toys.split("val"))
    one, other = tmp_path / "one", tmp_path / "other"
    killed(recipe, toys, one)
    for file in start.glob("stage-*.safetensors"):
        if "classifier" not in file.name:
            changed(file)
    train(recipe, *data, other, cpu=True)
    shutil.rmtree(start)
    shutil.copytree(toy_run, start)
    own = one / "stage-1.safetensors"
    kept = shutil.copy(own, tmp_path / "kept")
    # its own later epoch is one that was written before `run.json`
    described(Path(kept), own, epoch=2)
    limner.load(one, device="cpu")
    described(other / own.name, own, epoch=2)
    with pytest.raises(CheckpointError, match="is not the checkpoint that"):
        limner.load(one, device="cpu")
    with pytest.raises(CheckpointError, match="is not the file of epoch"):
        train(recipe, *data, one, resume=True, cpu=True)
    described(Path(kept), own, epoch=2)
    train(recipe, *data, one, resume=True, cpu=True)
    limner.load(one, device="cpu")
    # finished, it has no later epoch, be it its own
    described(own, own, epoch=9)
    (one / STATE_FILE).unlink()
    with pytest.raises(CheckpointError, match="is not the checkpoint that"):
        limner.load(one, device="cpu")


def weights(file: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    backbone = build_backbone(toy_recipe().model.backbone)  # type: ignore[arg-type]
    save_file({name: tensor.contiguous() for name, tensor in backbone.state_dict().items()}, file)
    return file


def with_weights(file: Path | None, classes: int | None) -> Recipe:
    recipe = short(toy_recipe())
    backbone = recipe.model.backbone.replace(weights=None if file is None else str(file))  # type: ignore[union-attr]
    return recipe.replace(classes=classes, model=recipe.model.replace(backbone=backbone))


def test_other_weights_under_pseudo_classes_are_not_resumed_with(toys: Dataset, tmp_path: Path) -> None:
    """Pseudo-classes are made of the features of the weights as loaded, at each start."""
    file, out = weights(tmp_path / "weights.safetensors", 1), tmp_path / "run"
    data = (toys.split("train"), toys.split("val"))
    killed(with_weights(file, 5), toys, out)
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    moved = file.rename(tmp_path / "moved.safetensors")
    weights(file, 2)
    for other in (file, None):
        with pytest.raises(CheckpointError, match=r"cannot resume, network\.backbone\.weights is") as refused:
            train(with_weights(other, 5), *data, out, resume=True, cpu=True)
        assert "\n" not in str(refused.value)
        assert {path: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    # the same content elsewhere is the same training
    train(with_weights(moved, 5), *data, out, resume=True, cpu=True)


def test_without_pseudo_classes_the_state_holds_all_weights(toys: Dataset, tmp_path: Path) -> None:
    """Then the file that they came from is not needed any more, and no digest is made of it."""
    file, out = weights(tmp_path / "weights.safetensors", 1), tmp_path / "run"
    killed(with_weights(file, None), toys, out)
    train(with_weights(None, None), toys.split("train"), toys.split("val"), out, resume=True, cpu=True)


def pretrained(folder: Path) -> Path:
    """A tiny ResNet as transformers keeps it."""
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rescale_factor": 1 / 255}),
        encoding="utf-8",
    )
    return folder


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("config.json", "hidden_act", "gelu"), ("preprocessor_config.json", "image_mean", [0.1, 0.5, 0.5])],
)
def test_another_configuration_of_a_pretrained_network(
    toys: Dataset, tmp_path: Path, name: str, key: str, value: object
) -> None:
    pytest.importorskip("transformers")
    folder, out = pretrained(tmp_path / "auto"), tmp_path / "run"
    recipe = short(toy_recipe())
    backbone = BackboneSettings(name="auto", auto_model=str(folder))
    recipe = recipe.replace(model=recipe.model.replace(backbone=backbone))
    killed(recipe, toys, out)
    file = folder / name
    whole = file.read_text(encoding="utf-8")
    file.write_text(json.dumps({**json.loads(whole), key: value}), encoding="utf-8")
    arguments = (recipe, toys.split("train"), toys.split("val"), out)
    with pytest.raises(CheckpointError, match=rf"cannot resume, network\.backbone\.{name} is"):
        train(*arguments, resume=True, cpu=True)
    file.write_text(whole, encoding="utf-8")
    train(*arguments, resume=True, cpu=True)


def test_an_epoch_that_comes_out_no_better_than_when_it_was_killed(
    toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the checkpoint of the best epoch was overwritten by that epoch, before any state knew of it."""
    out, recipe = tmp_path / "run", short(toy_recipe())
    killed(recipe, toys, out)
    own = out / "stage-1.safetensors"
    described(own, own, epoch=2)
    monkeypatch.setattr("limner.training.loop.score", lambda *_: 1.0)
    train(recipe, toys.split("train"), toys.split("val"), out, resume=True, cpu=True)
    assert limner.load(out, device="cpu").description["selected"]["score"] == 1.0
