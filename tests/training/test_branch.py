import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.errors import CheckpointError
from limner.inference.checkpoint import read_checkpoint, write_checkpoint
from limner.training.ablation import branch
from limner.training.log import Event, Stepped
from limner.training.loop import train
from tests.toy import toy_recipe


@pytest.fixture(scope="module")
def first_stage(toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = toy_recipe()
    out = tmp_path_factory.mktemp("branches") / "first"
    alone = recipe.replace(stages=recipe.stages[:1])
    return train(alone, toys.split("train"), toys.split("val"), out, cpu=True)


def test_branched_run_ends_in_the_weights_of_a_whole_one(
    toys: Dataset, toy_run: Path, first_stage: Path, tmp_path: Path
) -> None:
    out, trained = tmp_path / "run", []

    def listen(event: Event) -> None:
        if isinstance(event, Stepped):
            trained.append(event.stage)

    branch(first_stage, toy_recipe(), out)
    train(toy_recipe(), toys.split("train"), toys.split("val"), out, resume=True, listener=listen, cpu=True)
    assert set(trained) == {"stage-2"}
    for file in ("last", "stage-1", "stage-1-classifier", "stage-2"):
        ours, whole = load_file(out / f"{file}.safetensors"), load_file(toy_run / f"{file}.safetensors")
        assert all(torch.equal(ours[name], whole[name]) for name in ours | whole)
    count = [len((folder / "metrics.jsonl").read_text().splitlines()) for folder in (out, toy_run)]
    assert count[0] == count[1]


def test_another_recipe_or_an_unfinished_run_is_refused(
    toys: Dataset, first_stage: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"cannot branch off, recipe\.seed is 3 there and 9 here"):
        branch(first_stage, toy_recipe().replace(seed=9), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    later = tmp_path / "later"
    shutil.copytree(first_stage, later)
    tensors, description = read_checkpoint(later / "last.safetensors")
    description["state"]["identity"]["recipe"]["of_a_later_version"] = 1
    write_checkpoint(later / "last.safetensors", tensors, description)
    with pytest.raises(CheckpointError, match=r"recipe\.of_a_later_version is 1 there and None here"):
        branch(later, toy_recipe(), tmp_path / "other")
    alone = toy_recipe().replace(stages=toy_recipe().stages[:1])
    with pytest.raises(CheckpointError, match=r"recipe\.of_a_later_version is None now and was 1"):
        train(alone, toys.split("train"), toys.split("val"), later, resume=True, cpu=True)

    def listen(event: Event) -> None:
        if isinstance(event, Stepped) and event.epoch == 2:
            raise KeyboardInterrupt

    recipe = toy_recipe().replace(stages=toy_recipe().stages[:1])
    with pytest.raises(KeyboardInterrupt):
        train(recipe, toys.split("train"), toys.split("val"), tmp_path / "half", listener=listen, cpu=True)
    with pytest.raises(CheckpointError, match="not finished"):
        branch(tmp_path / "half", toy_recipe(), tmp_path / "out")
