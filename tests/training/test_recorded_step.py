from pathlib import Path

import pytest
import torch

from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.training.loop import train
from limner.training.prepare import prepare
from limner.training.recipe import Recipe
from limner.training.recorded_step import is_recordable
from tests.toy import toy_hgan, toy_mnil, toy_recipe, toy_reranking


def _recordable(recipe: Recipe, toys: Dataset) -> list[bool]:
    objective = prepare(recipe, toys.split("train"), toys.split("val")).objective
    return [is_recordable(stage, objective) for stage in recipe.stages]


def test_stages_of_instance_and_ranking_loss_can_be_recorded(toys: Dataset) -> None:
    assert _recordable(toy_recipe(), toys) == [True, True]


def test_what_changes_in_python_from_step_to_step_is_not_recorded(toys: Dataset) -> None:
    """HGAN lowers a temperature, MNiL searches a queue, a cross-encoder reads rows of another length each time."""
    assert not any(_recordable(toy_hgan(), toys))
    assert not any(_recordable(toy_mnil(), toys))
    rerank = toy_reranking()
    assert not any(
        found
        for stage, found in zip(rerank.stages, _recordable(rerank, toys), strict=True)
        if stage.reranker_pairs is not None
    )


def test_a_stage_that_divides_its_pass_is_not_recorded(toys: Dataset) -> None:
    recipe = toy_recipe()
    first = recipe.stages[0].replace(chunk=4)
    objective = prepare(recipe, toys.split("train"), toys.split("val")).objective
    assert not is_recordable(first, objective)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_refused_without_a_cuda_device(toys: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--cuda-graphs"):
        train(toy_recipe(), toys.split("train"), toys.split("val"), tmp_path / "run", cuda_graphs=True)
