"""Trainings of several processes that each hold a part of the classifier: weights, files, kills, other numbers."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from limner.data.records import Dataset
from limner.inference.import_model import import_model
from limner.losses import Instance, Ranking
from limner.recipes import get_recipe
from limner.recipes.change import change, start_from
from limner.training.loop import train
from limner.training.recipe import Recipe
from tests import towers
from tests.toy import toy_recipe
from tests.training.interrupted import STATE, same_run, train_together, trained_together


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Towers without batch norm and dropout: two processes can equal one."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("pair")
    (folder / "source").mkdir()
    towers.save_clip(folder / "source")
    import_model(str(folder / "source"), folder / "pair")
    return change(
        start_from(get_recipe("fine-tune"), folder / "pair"),
        (
            *("precision=fp32", "stages.tune.losses.sdm=null", 'stages.tune.average={"decay": 0.8}'),
            *("stages.tune.epochs=3", "stages.tune.batch=6", "stages.tune.optimiser.clip=0.5"),
            *("stages.tune.optimiser.name=sgd", "stages.tune.optimiser.rate=0.02"),
            *("stages.tune.losses.instance.sharded=true", "stages.tune.losses.instance.bias=true"),
        ),
    )


@pytest.fixture(scope="module")
def one(tuned: Recipe, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its training in one process, of the plain loss."""
    plain = change(tuned, ["stages.tune.losses.instance.sharded=false"])
    out = tmp_path_factory.mktemp("one") / "run"
    return train(plain, toys.split("train"), toys.split("val"), out, cpu=True)


FILES = ("tune.safetensors", "tune-classifier.safetensors", STATE)


def _nearly_same(found: Path, expected: Path) -> None:
    for file in FILES:
        ours, theirs = load_file(found / file), load_file(expected / file)
        assert ours.keys() == theirs.keys()
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6, msg=f"{file}: {name}")


def test_two_processes_equal_one(tuned: Recipe, one: Path, toys: Dataset, tmp_path: Path) -> None:
    """The network, the classifier's file and the state, clipped and averaged."""
    trained_together(2, toys, tuned, tmp_path / "run")
    _nearly_same(tmp_path / "run", one)
    # it has learnt something
    assert load_file(one / STATE)["objective.losses.instance.bias"].abs().max() > 1e-3


@pytest.mark.parametrize("processes", [1, 3])
def test_a_state_is_read_by_another_number_of_processes(
    tuned: Recipe, one: Path, toys: Dataset, tmp_path: Path, processes: int
) -> None:
    """SGD's moments and the average go along: without them the end is another."""
    trained_together(2, toys, tuned, tmp_path / "run", kill_at="tune 3 2")
    assert "optimiser." in "".join(load_file(tmp_path / "run" / STATE))
    trained_together(processes, toys, tuned, tmp_path / "run")
    _nearly_same(tmp_path / "run", one)


def test_kill_9_and_resume_is_the_uninterrupted_run(toys: Dataset, tmp_path: Path) -> None:
    """With the first stage's classes drawn, in blocks in the second, which starts from the classifier's file.

    Nothing is mined: the second process mines by its own statistics of batch norm, and a state has the first one's.
    """
    loss = Instance(dropout=0.2, scale=10.0, bias=True, initial="images", sharded=True)
    first, second = (stage.without_losses(Ranking) for stage in toy_recipe().stages)
    first, second = first.with_losses(loss.replace(sample=0.5)), second.with_losses(loss.replace(block=3))
    first = first.replace(epochs=2, optimiser=first.optimiser.replace(clip=0.5), average={})
    recipe = toy_recipe().replace(stages=(first, second))
    trained_together(2, toys, recipe, tmp_path / "whole")
    for kill_at in ("stage-1 2 1", "stage-2 1 1", "stage-2 2 1", ""):
        trained_together(2, toys, recipe, tmp_path / "run", kill_at=kill_at)
    same_run(tmp_path / "run", tmp_path / "whole")
    classifiers = [load_file(tmp_path / run / "stage-1-classifier.safetensors") for run in ("run", "whole")]
    assert classifiers[0].keys() == {"weight", "bias"}
    for name, tensor in classifiers[0].items():
        assert torch.equal(tensor, classifiers[1][name])
    # nothing is left of the files in which the rows were put together
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }


def test_shares_of_other_sizes_are_refused(tuned: Recipe, toys: Dataset, tmp_path: Path) -> None:
    recipe = change(tuned, ["stages.tune.batch=11"])
    done = train_together(2, toys, recipe, tmp_path / "run")
    assert done.returncode
    assert "a sharded classifier needs as many pairs of each of 2 processes" in done.stderr
