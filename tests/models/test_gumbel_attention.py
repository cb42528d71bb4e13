import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from limner.models.local_matching import attention_weights, gumbel_noise, select_top_k
from tests.reference import gumbel_attention as twin


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10_000),
    items=st.integers(1, 9),
    k=st.integers(1, 6),
    temperature=st.floats(0.2, 3),
    noisy=st.booleans(),
    normalised=st.booleans(),
)
def test_equals_algorithm_1_and_section_3_3_given_the_same_noise(
    seed: int, items: int, k: int, temperature: float, noisy: bool, normalised: bool
) -> None:
    torch.manual_seed(seed)
    gamma, uniform = torch.randn(5, items).double(), torch.rand(5, items).double()
    noise = -torch.log(-torch.log(uniform)) if noisy else None
    present = torch.ones(5, items, dtype=torch.bool)
    chosen = select_top_k(gamma, present, k, temperature=temperature, noise=noise, normalised=normalised)
    got = attention_weights(gamma, chosen)
    for row in range(5):
        u = uniform[row].tolist() if noisy else None
        alpha = twin.select(gamma[row].tolist(), k, temperature, u, normalised=normalised)
        assert chosen[row].tolist() == alpha
        assert got[row].tolist() == pytest.approx(twin.weights(gamma[row].tolist(), alpha), rel=1e-9)


def test_without_noise_the_selection_is_the_exact_top_k() -> None:
    torch.manual_seed(0)
    gamma = torch.randn(50, 12)
    chosen = select_top_k(gamma, torch.ones(50, 12, dtype=torch.bool), 4)
    assert (chosen.sum(dim=1) == 4).all()
    lowest_chosen = gamma.masked_fill(chosen == 0, torch.inf).amin(dim=1)
    highest_other = gamma.masked_fill(chosen == 1, -torch.inf).amax(dim=1)
    assert (lowest_chosen > highest_other).all()


def test_what_is_not_present_is_never_selected() -> None:
    torch.manual_seed(0)
    gamma = torch.randn(4, 6, requires_grad=True)
    present = torch.arange(6) < torch.tensor([[6], [3], [1], [0]])
    chosen = select_top_k(gamma, present, 4, noise=gumbel_noise(gamma))
    assert chosen.sum(dim=1).tolist() == [4, 3, 1, 0]
    assert not chosen[~present].any()
    weights = attention_weights(gamma, chosen)
    assert weights.sum(dim=1).tolist() == pytest.approx([1, 1, 1, 0])
    (gradient,) = torch.autograd.grad((weights * torch.randn(4, 6)).sum(), gamma)
    assert torch.isfinite(gradient).all()
    assert not gradient[~present].any()


def test_an_item_that_is_absent_changes_nothing_of_the_others() -> None:
    torch.manual_seed(0)
    gamma, noise = torch.randn(2, 3, 8)
    present = torch.ones(3, 8, dtype=torch.bool)
    whole = select_top_k(gamma[:, :5], present[:, :5], 2, noise=noise[:, :5])
    cut = select_top_k(gamma, present & (torch.arange(8) < 5), 2, noise=noise)
    torch.testing.assert_close(whole, cut[:, :5])


@pytest.mark.parametrize("normalised", [True, False])
def test_the_gradient_is_that_of_the_softmax(normalised: bool) -> None:
    torch.manual_seed(0)
    gamma = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    present, noise = torch.ones(2, 7, dtype=torch.bool), gumbel_noise(gamma.detach())
    given = torch.randn(2, 7, dtype=torch.float64)
    chosen = select_top_k(gamma, present, 3, temperature=0.7, noise=noise, normalised=normalised)
    (straight,) = torch.autograd.grad((chosen * given).sum(), gamma)
    keys = torch.nn.functional.normalize(gamma, dim=1) if normalised else gamma
    soft = ((keys + noise) / 0.7).softmax(dim=1)
    (expected,) = torch.autograd.grad((soft * given).sum(), gamma)
    torch.testing.assert_close(straight, expected)
    assert (straight != 0).all()  # of items that were not selected, too


@pytest.mark.parametrize(
    ("normalised", "deviation", "kept"),
    [(True, 1, 0.26), (True, 4, 0.26), (False, 1, 0.47), (False, 4, 0.80)],
)
@pytest.mark.parametrize("temperature", [0.1, 3.0])
def test_the_share_of_the_best_that_noise_leaves(
    normalised: bool, deviation: float, kept: float, temperature: float
) -> None:
    """Of the best 4 of 20 normal scores; chance is 0.20. E changes no order."""
    generator = torch.Generator().manual_seed(0)
    gamma = deviation * torch.randn(20_000, 20, generator=generator)
    present, noise = torch.ones_like(gamma, dtype=torch.bool), gumbel_noise(gamma, generator)
    best = select_top_k(gamma, present, 4)
    chosen = select_top_k(gamma, present, 4, temperature=temperature, noise=noise, normalised=normalised)
    assert (best * chosen).sum().item() / (4 * 20_000) == pytest.approx(kept, abs=0.006)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_first_selected_is_distributed_as_the_softmax(normalised: bool) -> None:
    """Gumbel-max: the highest of scores with noise is item j with probability softmax(scores)_j."""
    generator = torch.Generator().manual_seed(0)
    gamma = torch.tensor([0.3, -0.8, 0.5, 0.1])
    many = gamma.expand(20_000, 4)
    present, noise = torch.ones_like(many, dtype=torch.bool), gumbel_noise(many, generator)
    chosen = select_top_k(many, present, 1, noise=noise, normalised=normalised)
    counts = chosen.sum(dim=0).numpy()
    keys = torch.nn.functional.normalize(gamma, dim=0) if normalised else gamma
    expected = keys.double().softmax(dim=0).numpy() * 20_000
    assert chisquare(counts, expected).pvalue > 0.001


def test_noise_is_gumbels_and_finite() -> None:
    noise = gumbel_noise(torch.empty(200_000), torch.Generator().manual_seed(0))
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.std().item() == pytest.approx(math.pi / math.sqrt(6), abs=0.02)
    assert torch.isfinite(noise).all()
    again = gumbel_noise(torch.empty(200_000), torch.Generator().manual_seed(0))
    assert torch.equal(noise, again)


@pytest.mark.parametrize("drawn", [0.0, 1.0])
def test_noise_is_finite_where_a_number_lies_at_an_end(drawn: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **settings: torch.full(shape, drawn))
    assert torch.isfinite(gumbel_noise(torch.empty(3))).all()
