import pytest
import torch

from limner.losses.composed import composed_loss
from tests.reference import losses as reference


def batch(seed: int, count: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vectors = [torch.randn(count, 5, generator=generator, dtype=torch.float64) for _ in range(3)]
    # pictures stand there several times: one reference has several targets, and is another one's target
    ids = [torch.randint(5, (count,), generator=generator) for _ in range(2)]
    return [*vectors, *ids]


def loss_of(values: list[torch.Tensor], temperature: float) -> torch.Tensor:
    queries, targets, references, target_ids, reference_ids = values
    return composed_loss(queries, targets, references, target_ids, reference_ids, temperature)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_equation(seed: int) -> None:
    values = batch(seed)
    queries, targets, references, target_ids, reference_ids = (one.tolist() for one in values)
    expected = reference.composed_loss(queries, targets, references, target_ids, reference_ids, 0.3)
    assert float(loss_of(values, 0.3)) == pytest.approx(expected, rel=1e-9)


def test_the_order_of_the_batch_changes_nothing() -> None:
    values, order = batch(7), torch.tensor([3, 1, 5, 0, 4, 2])
    shuffled = [one[order] for one in values]
    assert float(loss_of(shuffled, 0.1)) == pytest.approx(float(loss_of(values, 0.1)), rel=1e-9)


def test_a_query_that_is_its_reference_pays_for_it() -> None:
    targets, references = torch.eye(4)[:2], torch.eye(4)[2:]
    ids = torch.arange(2), torch.arange(2, 4)
    ignoring = loss_of([references, targets, references, *ids], 0.1)
    answering = loss_of([targets, targets, references, *ids], 0.1)
    assert float(ignoring) > 5 > 0.01 > float(answering)


def test_gradients_reach_the_queries() -> None:
    values = batch(1)
    queries = values[0].requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(values, 0.2), queries)
    assert bool((gradient.abs().sum(1) > 0).all())
