"""The hub correction against the inverted softmax typed from its definition, and what makes it a cosine."""

import math
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from limner.models.dual_path import DualPathSettings
from limner.models.hub_correction import MORE_COORDINATES, HubCorrection, HubCorrectionSettings
from limner.models.registry import build_network
from tests.toy import toy_recipe

DIM = 6


def unit(rows: int, seed: int, *, around: float = 0.0) -> Tensor:
    """Random directions, `around` a common one: then the correction matters."""
    drawn = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed))
    return F.normalize(drawn + around, dim=1)


def made(temperature: float = 0.1, items: int = 50, bank: int = 40, seed: int = 0) -> HubCorrection:
    found = HubCorrection(HubCorrectionSettings(temperature=temperature, items=items), DIM)
    found.fill(unit(bank, seed, around=0.4), unit(bank + 3, seed + 1, around=0.3))
    return found


def inverted_softmax(
    item: Sequence[float], query: Sequence[float], bank: Sequence[Sequence[float]], temperature: float
) -> float:
    """exp(cos(q, x) / T) / Σ_j exp(cos(x, b_j) / T), of Smith et al., with loops in float64."""

    def cosine(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    total = 0.0
    for row in bank:
        total += math.exp(cosine(item, row) / temperature)
    return math.exp(cosine(query, item) / temperature) / total


@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5])
def test_it_ranks_as_the_inverted_softmax_in_both_directions(temperature: float) -> None:
    correction = made(temperature)
    images, texts = unit(30, 5, around=0.4), unit(25, 6, around=0.3)
    scores = correction.of_images(images) @ correction.of_texts(texts).T
    for rows, queries, items, bank in (
        (scores, images, texts, correction.images[:40]),
        (scores.T, texts, images, correction.texts[:43]),
    ):
        for found, query in zip(rows, queries.tolist(), strict=True):
            slow = [inverted_softmax(item, query, bank.tolist(), temperature) for item in items.tolist()]
            order = torch.tensor(slow).argsort(descending=True)
            assert found.argsort(descending=True).equal(order)
            # and not the order of the cosine alone, or this would show nothing
    plain = images @ texts.T
    assert not scores.argsort(dim=1).equal(plain.argsort(dim=1))


@given(
    seed=st.integers(0, 1000),
    temperature=st.floats(0.01, 2.0),
    bank=st.integers(1, 40),
    rows=st.integers(1, 12),
)
def test_embeddings_are_of_length_1_and_products_as_defined(
    seed: int, temperature: float, bank: int, rows: int
) -> None:
    correction = made(temperature, bank=bank, seed=seed)
    images, texts = unit(rows, seed + 2, around=0.4), unit(rows + 1, seed + 3)
    seen, read = correction.of_images(images), correction.of_texts(texts)
    assert seen.shape == (rows, DIM + MORE_COORDINATES)
    for found in (seen, read):
        torch.testing.assert_close(found.norm(dim=1), torch.ones(len(found)), atol=1e-5, rtol=0)
    limit = float(correction.limit)
    held = [
        (temperature * ((x @ bank.T / temperature).logsumexp(1) - math.log(len(bank))) - mean).clamp(
            -limit, limit
        )
        for x, bank, mean in (
            (images, correction.texts[: int(correction.count[1])], correction.means[0]),
            (texts, correction.images[: int(correction.count[0])], correction.means[1]),
        )
    ]
    wanted = (images @ texts.T - held[0][:, None] - held[1][None]) / (1 + 2 * limit)
    torch.testing.assert_close(seen @ read.T, wanted, atol=1e-5, rtol=0)


def test_before_it_is_filled_it_changes_no_order() -> None:
    correction = HubCorrection(HubCorrectionSettings(items=4), DIM)
    images, texts = unit(9, 1), unit(7, 2)
    scores = correction.of_images(images) @ correction.of_texts(texts).T
    assert scores.argsort(dim=1).equal((images @ texts.T).argsort(dim=1))


def test_the_order_of_the_bank_and_items_that_it_has_no_room_for() -> None:
    """Filling again forgets what was there; empty rows of a bank that is not full have no part."""
    correction, other = made(items=60), made(items=43)
    images = unit(9, 7)
    torch.testing.assert_close(correction.of_images(images), other.of_images(images))
    correction.fill(unit(60, 11), unit(60, 12))
    correction.fill(unit(40, 0, around=0.4).flip(0), unit(43, 1, around=0.3).flip(0))
    torch.testing.assert_close(correction.of_images(images), other.of_images(images))


def test_a_picture_finds_its_own_copy_among_pictures() -> None:
    correction = made()
    seen = correction.of_images(unit(40, 9, around=0.4))
    assert (seen @ seen.T).argmax(dim=1).equal(torch.arange(40))


def test_models_without_it_keep_their_fingerprint() -> None:
    settings = toy_recipe().model
    assert "hub_correction" not in settings.identity()
    assert "hub_correction" in settings.replace(hub_correction=HubCorrectionSettings()).identity()


def test_a_network_has_it_where_its_settings_do() -> None:
    settings = toy_recipe().model.replace(hub_correction=HubCorrectionSettings(items=7))
    assert isinstance(settings, DualPathSettings)
    torch.manual_seed(0)
    network = build_network(settings, 20)
    torch.manual_seed(0)
    plain = build_network(settings.replace(hub_correction=None), 20)
    assert network.embedding_dim == plain.embedding_dim + MORE_COORDINATES
    # nothing is drawn for it: the weights of a seed stay what they are
    own = plain.state_dict()
    assert all(tensor.equal(own[name]) for name, tensor in network.state_dict().items() if name in own)
    assert {name for name in network.state_dict() if name not in own} == {
        f"hub_correction.{name}" for name in ("images", "texts", "count", "means", "limit")
    }
