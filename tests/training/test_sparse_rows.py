"""Optimisers, norms and trainings of parameters of which a step learns some rows alone."""

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from limner.data.records import Dataset
from limner.losses import Instance
from limner.training.loop import train
from limner.training.optimiser import make_optimiser, make_optimisers, set_rate
from limner.training.prepare import prepare
from limner.training.recipe import OptimiserSettings, Recipe, StageSettings
from limner.training.recorded_step import is_recordable
from limner.training.sparse_rows import RowOptimiser, with_dense_gradients
from limner.training.state import Progress, restore, write_state
from tests.reference.optimisers import Row, step_of_rows
from tests.toy import toy_recipe
from tests.training.interrupted import in_two_processes, same_run, stopped_and_resumed

OPTIMISERS = (
    {"name": "sgd", "momentum": 0.0},
    {"name": "sgd", "momentum": 0.9},
    {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"name": "adam", "weight_decay": 0.1},
    {"name": "adamw", "weight_decay": 0.1},
)


def _gradient(rows: int, dim: int, drawn: list[int]) -> Tensor:
    values = torch.randn(len(drawn), dim, dtype=torch.float64)
    return torch.sparse_coo_tensor(torch.tensor([drawn]), values, (rows, dim), check_invariants=True)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    seed=st.integers(0, 1000),
    rows=st.integers(1, 6),
    dim=st.integers(1, 3),
    chosen=st.sampled_from(OPTIMISERS),
)
def test_a_step_is_that_of_the_slow_twin_on_the_drawn_rows_and_others_stand_still(
    data: st.DataObject, seed: int, rows: int, dim: int, chosen: dict[str, object]
) -> None:
    torch.manual_seed(seed)
    weight = nn.Parameter(torch.randn(rows, dim, dtype=torch.float64))
    twin = [Row(row) for row in weight.tolist()]
    given_settings = OptimiserSettings.parse({"rate": 0.1, **chosen})
    optimiser = RowOptimiser(make_optimiser({"classifier": [weight]}, given_settings))
    for number in range(1, 5):
        drawn = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
        before = _tensors(weight, optimiser)
        weight.grad = _gradient(rows, dim, drawn)
        gradients = dict(zip(drawn, weight.grad.coalesce().values().tolist(), strict=True))
        step_of_rows(
            twin,
            gradients,
            number,
            name=given_settings.name,
            rate=0.1,
            momentum=given_settings.momentum,
            nesterov=given_settings.nesterov,
            decay=given_settings.weight_decay,
        )
        optimiser.step()
        expected = torch.tensor([row.weights for row in twin], dtype=torch.float64)
        torch.testing.assert_close(weight.detach(), expected, rtol=1e-10, atol=1e-12)
        still = [k for k in range(rows) if k not in drawn]
        for name, tensor in _tensors(weight, optimiser).items():
            if name in before:
                assert torch.equal(tensor[still], before[name][still]), name
            else:
                assert not tensor[still].any(), name


def _tensors(weight: nn.Parameter, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The weights and their moments."""
    moments = {name: value for name, value in optimiser.state[weight].items() if value.shape == weight.shape}
    return {name: value.detach().clone() for name, value in {"weight": weight, **moments}.items()}


@pytest.mark.parametrize("chosen", OPTIMISERS)
def test_with_all_rows_drawn_it_is_the_optimiser_for_all_rows(chosen: dict[str, object]) -> None:
    """Bit for bit, of matrices and of vectors."""
    torch.manual_seed(0)
    given_settings = OptimiserSettings.parse(chosen)
    found: list[list[Tensor]] = []
    for sparse in (True, False):
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(7, 5)), nn.Parameter(torch.randn(7))]
        optimiser = make_optimiser({"classifier": weights}, given_settings)
        if sparse:
            optimiser = RowOptimiser(optimiser)
        set_rate(optimiser, 0.05)
        for _ in range(3):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
                if sparse:
                    weight.grad = weight.grad.to_sparse(1)
            optimiser.step()
        found.append([weight.detach() for weight in weights])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("chosen", OPTIMISERS)
def test_its_state_is_written_and_goes_on_exactly(tmp_path: Path, chosen: dict[str, object]) -> None:
    stage = StageSettings(
        name="s", losses=(Instance(sample=0.5),), optimiser=OptimiserSettings.parse({"rate": 0.1, **chosen})
    )
    torch.manual_seed(0)
    network = nn.Linear(3, 8)
    parts = {"classifier": list(network.parameters())}

    def steps(trained: nn.Module, optimiser: torch.optim.Optimizer, first: int, last: int) -> None:
        for number in range(first, last):
            torch.manual_seed(number)
            for weight in trained.parameters():
                places = torch.randperm(8)[:3].sort().values
                drawn = torch.zeros_like(weight)
                drawn[places] = torch.randn(3, *weight.shape[1:])
                weight.grad = drawn.to_sparse(1)
            optimiser.step()

    (optimiser,) = make_optimisers(parts, stage)
    assert isinstance(optimiser, RowOptimiser)
    steps(network, optimiser, 0, 3)
    write_state(tmp_path, network, [optimiser], Progress(), {})
    other = copy.deepcopy(network)
    steps(network, optimiser, 3, 5)
    (again,) = make_optimisers({"classifier": list(other.parameters())}, stage)
    restore(tmp_path, other, [again])
    steps(other, again, 3, 5)
    for ours, theirs in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_sparse_parts_have_an_optimiser_of_their_own_with_their_settings() -> None:
    parts = {name: [nn.Parameter(torch.ones(2, 2))] for name in ("text", "words", "classifier")}
    optimiser = OptimiserSettings(rate=0.1, multipliers={"classifier": 5.0})
    stage = StageSettings(name="s", losses=(Instance(sample=0.5),), optimiser=optimiser)
    common, of_rows = make_optimisers(parts, stage)
    assert isinstance(common, torch.optim.SGD)
    assert isinstance(of_rows, RowOptimiser)
    assert [len(group["params"]) for group in (*common.param_groups, *of_rows.param_groups)] == [1, 1, 1]
    set_rate(of_rows, 0.2)
    assert of_rows.param_groups[0]["lr"] == 1.0
    own = stage.replace(part_optimisers={"classifier": OptimiserSettings(name="adamw", rate=0.02)})
    _, of_rows = make_optimisers(parts, own)
    assert isinstance(of_rows, RowOptimiser)
    set_rate(of_rows, 0.1)
    assert of_rows.param_groups[0]["lr"] == pytest.approx(0.02)
    assert "betas" in of_rows.param_groups[0]
    # frozen, it has nothing to learn
    parts["classifier"][0].requires_grad_(False)
    assert len(make_optimisers(parts, stage)) == 1


def test_a_clipped_norm_counts_sparse_gradients() -> None:
    torch.manual_seed(0)
    dense, sparse, unused = (nn.Parameter(torch.zeros(4, 2)) for _ in range(3))
    dense.grad = torch.randn(4, 2)
    sparse.grad = torch.randn(4, 2).to_sparse(1)
    whole = [dense.grad.clone(), sparse.grad.to_dense()]
    norm = torch.stack(whole).norm()
    found = nn.utils.clip_grad_norm_(list(with_dense_gradients([dense, sparse, unused])), 0.5)
    torch.testing.assert_close(found, norm)
    for now, before in zip((dense.grad, sparse.grad.to_dense()), whole, strict=True):
        torch.testing.assert_close(now, before * (0.5 / norm))


def _sampled(recipe: Recipe) -> Recipe:
    """The toy recipe with half of its classes a step, in all ways: clipped, averaged, with a bias, in blocks."""
    first, second = (
        stage.with_losses(Instance(dropout=0.2, scale=10.0, bias=True, sample=0.5)) for stage in recipe.stages
    )
    first = first.replace(epochs=2, batch=4, optimiser=first.optimiser.replace(clip=0.5))
    second = second.replace(epochs=1, batch=4, average={}, losses=(Instance(bias=True, sample=0.5, block=2),))
    return recipe.replace(stages=(first, second))


def test_stopped_and_resumed_is_the_uninterrupted_run(toys: Dataset, tmp_path: Path) -> None:
    recipe = _sampled(toy_recipe())
    train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    stopped_and_resumed(toys, recipe, tmp_path / "run", kill_at=9)
    same_run(tmp_path / "run", tmp_path / "whole")


TWO_PROCESSES = """
import torch
from accelerate import Accelerator
from torch import nn
from limner.losses import InstanceLoss
from limner.training.sparse_rows import RowOptimiser, join_rows, keep_apart

accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
torch.manual_seed(rank)
network = nn.ModuleDict({"text": nn.Linear(4, 4), "classifier": InstanceLoss(4, 9, bias=True)})
loss = network["classifier"]
loss.sample = 0.4
rows = list(loss.parameters())

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network
    def forward(self, features, classes):
        return loss(network["text"](features), classes)

both = Both()
keep_apart(both, rows)
wrapped = accelerator.prepare(both)
optimiser = RowOptimiser(torch.optim.SGD(rows, lr=0.1, momentum=0.9, fused=True))
for step in range(3):
    torch.manual_seed(10 * step + rank)
    # the second process has more classes than are drawn, and so more rows than the first
    classes = torch.tensor([1, 1, 1, 1, 1]) if rank == 0 else torch.arange(2, 7)
    accelerator.backward(wrapped(torch.randn(5, 4), classes))
    own = [weight.grad.to_dense() for weight in rows]
    join_rows(rows, accelerator)
    for weight, gradient in zip(rows, own):
        everyone = accelerator.gather(gradient[None])
        torch.testing.assert_close(weight.grad.to_dense(), everyone.mean(0))
        assert not torch.equal(everyone[0], everyone[1])
        drawn = everyone.abs().sum(0).reshape(9, -1).sum(1).nonzero()[:, 0]
        assert torch.equal(weight.grad.indices()[0], drawn)
    optimiser.step()
    for weight in network.parameters():
        everyone = accelerator.gather(weight.detach()[None])
        assert torch.equal(everyone[0], everyone[1])
    optimiser.zero_grad()
accelerator.end_training()
"""


def test_two_processes_learn_from_the_mean_of_the_rows_that_each_drew(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES, encoding="utf-8")
    done = in_two_processes(str(script), cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr


def test_a_step_that_draws_is_not_recorded(toys: Dataset) -> None:
    objective = prepare(toy_recipe(), toys.split("train"), toys.split("val")).objective
    first, second = _sampled(toy_recipe()).stages
    assert not is_recordable(first, objective)
    assert not is_recordable(second, objective)
    assert is_recordable(toy_recipe().stages[0], objective)
