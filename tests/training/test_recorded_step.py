from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor, nn

from limner.data.records import Dataset
from limner.errors import SettingsError
from limner.training import recorded_step
from limner.training.loop import train
from limner.training.objective import Objective, TrainingBatch
from limner.training.prepare import prepare
from limner.training.recipe import Recipe
from limner.training.recorded_step import RecordedStep, is_recordable
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


class OfTwoShapes(Objective):
    """Learns one parameter from short batches, another from long ones, and never a third."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.short, self.long, self.resting = (nn.Parameter(torch.ones(2)) for _ in range(3))
        self.resting.requires_grad_(False).grad = torch.full((2,), 1e6)

    def forward(self, batch: TrainingBatch) -> dict[str, Tensor]:
        learnt = self.short if len(batch.groups) < 3 else self.long
        return {"loss": (learnt * batch.groups.sum()).sum()}


def test_a_recorded_step_has_the_gradients_of_its_shape_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUDA: a recording is the pass itself, and a replay changes nothing of it."""
    monkeypatch.setattr(torch, "cuda", MagicMock(CUDAGraph=_Graph))
    monkeypatch.setattr(recorded_step, "autocast", lambda precision, device: nullcontext())
    objective = OfTwoShapes()
    step = RecordedStep(objective, "fp32", torch.device("cpu"))
    # each shape is seen three times before it is recorded; the last ones are replays by turns
    for pairs in (2, 2, 2, 2, 4, 4, 4, 4, 2, 4, 2):
        step(_batch(pairs))
        learnt = "short" if pairs < 3 else "long"
        found = {name: one.grad for name, one in objective.named_parameters() if one.grad is not None}
        assert found.keys() == {learnt}
        assert found[learnt].tolist() == [pairs, pairs]


class _Graph(torch.cuda.CUDAGraph):
    """Stands for a recording where there is no CUDA."""

    def __new__(cls) -> Any:
        return object.__new__(cls)

    def __init__(self) -> None:
        pass

    def replay(self) -> None:
        pass


def _batch(pairs: int) -> TrainingBatch:
    ones = torch.ones(pairs, dtype=torch.int64)
    return TrainingBatch(torch.zeros(pairs, 3, 2, 2, dtype=torch.uint8), ones[:, None], ones, ones)
