import pytest
import torch
from torch import Tensor, nn

from limner.models import local_matching as module
from limner.models.local_matching import additive_scores


def rows(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    left, right, weight = (torch.randn(*shape, dtype=torch.float64) for shape in ((7, 5), (9, 5), (5,)))
    return left.requires_grad_(), right.requires_grad_(), weight.requires_grad_()


def test_equals_a_perceptron_on_both() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 3).double(), torch.randn(4, 2).double()
    first, second = nn.Linear(5, 8).double(), nn.Linear(8, 1, bias=False).double()
    left = x @ first.weight[:, :3].T + first.bias
    right = y @ first.weight[:, 3:].T
    got = additive_scores(left, right, second.weight[0])
    for p in range(6):
        for q in range(4):
            expected = second(torch.relu(first(torch.cat([x[p], y[q]]))))
            assert got[p, q].item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("block", [1, 20, 60, 1 << 18])
def test_blocks_change_neither_values_nor_gradients(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    left, right, weight = rows()
    expected = torch.relu(left[:, None] + right) @ weight
    got = additive_scores(left, right, weight)
    torch.testing.assert_close(got, expected)
    given = torch.randn_like(expected)
    parts = (left, right, weight)
    for one, other in zip(
        torch.autograd.grad((got * given).sum(), parts),
        torch.autograd.grad((expected * given).sum(), parts),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_gradients_equal_differences() -> None:
    assert torch.autograd.gradcheck(additive_scores, rows())


def test_no_rows_are_no_scores() -> None:
    assert additive_scores(torch.ones(0, 3), torch.ones(2, 3), torch.ones(3)).shape == (0, 2)
    assert additive_scores(torch.ones(2, 3), torch.ones(0, 3), torch.ones(3)).shape == (2, 0)
