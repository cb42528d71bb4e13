import random
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from torch.nn.functional import normalize

from limner.losses.sextuple import EmbeddingQueue
from limner.training.hard_negatives import find_hard_negatives
from tests.reference.violators import first_violator


def uniform(queries: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((queries, 2)))


@pytest.mark.parametrize(("positive", "share"), [(0.9, 2 / 9), (0.5, 5 / 9), (-0.9, 9 / 9)])
def test_draws_as_the_one_at_a_time_procedure(positive: float, share: float) -> None:
    gallery = torch.tensor([0.9, 0.8, 0.55, 0.5, 0.4, 0.1, 0.0, -0.2, -0.5, 0.7, 0.7, 0.6])[:, None]
    relevant = torch.arange(12) >= 9
    many = 20_000
    found = find_hard_negatives(
        *(torch.ones(many, 1), torch.full((many,), positive), gallery),
        *(relevant.expand(many, -1), 0.3, uniform(many)),
    )
    rng = random.Random(1)
    twins = [
        first_violator([1.0], positive, gallery.tolist(), relevant.tolist(), 0.3, rng) for _ in range(many)
    ]
    irrelevant = gallery[~relevant, 0]
    assert ((irrelevant + 0.3 > positive).double().mean()) == pytest.approx(share)
    assert found.share[0].item() == pytest.approx(share)
    ours = Counter(zip(found.places.tolist(), found.draws.clamp(max=6).tolist(), strict=True))
    theirs = Counter((place, min(draws, 6)) for place, draws in twins)
    cells = sorted(cell for cell in ours | theirs if ours[cell] + theirs[cell] >= 20)
    table = [[counts[cell] for cell in cells] for counts in (ours, theirs)]
    assert chi2_contingency(table).pvalue > 0.001 if len(cells) > 1 else ours == theirs


def test_the_test_would_see_another_distribution() -> None:
    # draws without replacement end sooner: 2 violators of 9 are found in 10/3 draws on average, not in 4.5
    rng = random.Random(2)
    with_replacement = [
        first_violator([1.0], 1.0, [[0.9]] * 2 + [[0.0]] * 7, [False] * 9, 0.3, rng)[1] for _ in range(4000)
    ]
    orders = [rng.sample(range(9), 9) for _ in range(4000)]
    without = [1 + min(order.index(0), order.index(1)) for order in orders]
    table = [
        [Counter(min(v, 6) for v in draws)[n] for n in range(1, 7)] for draws in (with_replacement, without)
    ]
    assert chi2_contingency(table).pvalue < 1e-6


def test_only_irrelevant_items_that_violate_are_found() -> None:
    torch.manual_seed(0)
    queries, gallery = (normalize(torch.randn(n, 4), dim=1) for n in (200, 50))
    positive = torch.rand(200)
    relevant = torch.rand(200, 50) < 0.3
    found = find_hard_negatives(queries, positive, gallery, relevant, 0.3, uniform(200))
    rows = torch.arange(200)
    some = found.draws > 0
    violates = 0.3 + (queries @ gallery.T) > positive[:, None]
    assert (violates & ~relevant)[rows[some], found.places[some]].all()
    assert torch.equal(some, (violates & ~relevant).any(dim=1))
    assert not found.places[~some].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("margin", "positive"), [(0.25, 0.75), (0.5, 0.5), (0.0, 0.5), (0.125, -0.25)])
def test_an_item_exactly_at_the_margin_is_no_violator(
    dtype: torch.dtype, margin: float, positive: float
) -> None:
    """Section 3.2: ρ + f(x_i, y_k) > f(x_i, y_j), strictly; Eq. 3 for a sentence. All sums here are exact."""
    at, step, many = positive - margin, 2.0**-12, 1000
    gallery = torch.tensor([[one] for one in (at, at - step, at, at + step, at)], dtype=dtype)
    rows = torch.ones(many, 1, dtype=dtype)
    none = torch.zeros(many, len(gallery), dtype=torch.bool)
    found = find_hard_negatives(
        *(rows, torch.full((many,), positive, dtype=dtype), gallery, none, margin, uniform(many))
    )
    assert set(found.places.tolist()) == {3}
    assert found.share.tolist() == pytest.approx([1 / 5] * many)
    # Without the one above, nothing violates.
    without = find_hard_negatives(
        *(rows, torch.full((many,), positive, dtype=dtype), gallery[:3], none[:, :3], margin, uniform(many))
    )
    assert not without.draws.any()
    assert not without.share.any()
    rng = random.Random(3)
    twins = {
        first_violator([1.0], positive, gallery.tolist(), [False] * 5, margin, rng)[0] for _ in range(50)
    }
    assert twins == {3}


def test_without_an_irrelevant_item_there_is_no_violator() -> None:
    found = find_hard_negatives(
        *(torch.ones(2, 1), torch.zeros(2), torch.ones(3, 1)),
        *(torch.ones(2, 3, dtype=torch.bool), 0.3, uniform(2)),
    )
    assert found.draws.tolist() == found.places.tolist() == [0, 0]


def test_the_ends_of_the_unit_interval_are_draws_too() -> None:
    ends = torch.tensor([[0.0, 0.0], [1 - 2**-53, 1 - 2**-53]], dtype=torch.float64)
    found = find_hard_negatives(
        *(torch.ones(2, 1), torch.full((2,), 1.0), torch.tensor([[0.9], [0.0], [0.8]])),
        *(torch.zeros(2, 3, dtype=torch.bool), 0.3, ends),
    )
    assert found.places.tolist() == [0, 2]
    assert found.draws[0] == 1
    assert found.draws[1] > 1


def test_the_bank_keeps_the_last_pairs() -> None:
    bank = EmbeddingQueue(2, 5)
    for first in (0, 3, 6):
        numbers = torch.arange(first, first + 3)
        rows = numbers[:, None].float().expand(-1, 2)
        bank.push(rows, -rows, numbers, 10 * numbers)
    assert sorted(bank.image_numbers.tolist()) == [4, 5, 6, 7, 8]
    assert torch.equal(bank.images[:, 0], bank.image_numbers.float())
    assert torch.equal(bank.texts, -bank.images)
    assert torch.equal(bank.sentence_numbers, 10 * bank.image_numbers)
    bank.push(rows.repeat(3, 1), rows.repeat(3, 1), numbers.repeat(3), numbers.repeat(3))
    assert set(bank.image_numbers.tolist()) == {6, 7, 8}


def test_everything_of_the_bank_is_state() -> None:
    bank = EmbeddingQueue(2, 3)
    bank.push(torch.ones(2, 2), torch.ones(2, 2), torch.tensor([4, 5]), torch.tensor([6, 7]))
    other = EmbeddingQueue(2, 3)
    other.load_state_dict(bank.state_dict())
    for one in (bank, other):
        one.push(torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor([8, 9]), torch.tensor([1, 2]))
    assert bank.image_numbers.tolist() == other.image_numbers.tolist() == [9, 5, 8]
