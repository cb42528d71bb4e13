import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses import LevelsLoss
from limner.losses.loss import Embedded, LocalSimilarity
from limner.losses.ranking import Negatives
from tests.reference.losses import levels_loss

EVERY = torch.ones(6, dtype=torch.bool)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 7),
    groups=st.integers(1, 5),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    margin=st.floats(0, 1),
    negatives=st.sampled_from(["hardest", "sum", "mean"]),
)
def test_equals_eq_9_in_loops(
    seed: int, batch: int, groups: int, share: float, margin: float, negatives: Negatives
) -> None:
    """Also where some sentences, or all, have no phrase; their similarity, 0 in a batch, is drawn here."""
    torch.manual_seed(seed)
    similarity = torch.rand(batch, batch, dtype=torch.float64)
    counted, group = torch.rand(batch) < share, torch.randint(groups, (batch,))
    got = LevelsLoss(margin, negatives)(similarity, counted, group)
    expected = levels_loss(similarity.tolist(), counted.tolist(), group.tolist(), margin, negatives)
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_zero_where_every_pair_wins_by_the_margin() -> None:
    similarity = 0.3 * torch.eye(6) + 0.5
    assert LevelsLoss(0.2)(similarity, EVERY, torch.arange(6)).item() == 0.0
    assert LevelsLoss(0.4)(similarity, EVERY, torch.arange(6)).item() == pytest.approx(2 * 5 * 0.1, rel=1e-4)


@pytest.mark.parametrize("negatives", ["hardest", "sum", "mean"])
def test_a_sentence_without_a_phrase_changes_nothing_and_gets_no_gradient(negatives: Negatives) -> None:
    torch.manual_seed(0)
    similarity = torch.rand(6, 6, dtype=torch.float64, requires_grad=True)
    counted, groups = torch.tensor([True, False, True, True, False, True]), torch.tensor([0, 1, 2, 0, 3, 4])
    loss = LevelsLoss(0.5, negatives)
    found = loss(similarity, counted, groups)
    alone = similarity[counted][:, counted]
    torch.testing.assert_close(found, loss(alone, EVERY[:4], groups[counted]))
    (gradient,) = torch.autograd.grad(found, similarity)
    assert not gradient[~counted].any()
    assert not gradient[:, ~counted].any()
    assert gradient[counted][:, counted].any()


def test_a_batch_without_a_phrase_has_a_gradient_of_0() -> None:
    similarity = torch.rand(6, 6, requires_grad=True)
    found = LevelsLoss()(similarity, ~EVERY, torch.arange(6))
    assert found.item() == 0.0
    (gradient,) = torch.autograd.grad(found, similarity)
    assert not gradient.any()


def test_permuting_pairs_and_renaming_groups_changes_nothing() -> None:
    torch.manual_seed(0)
    similarity, counted, groups = torch.rand(6, 6), torch.arange(6) != 2, torch.randint(4, (6,))
    order, names = torch.randperm(6), torch.randperm(4)
    loss = LevelsLoss(0.5)
    torch.testing.assert_close(
        loss(similarity, counted, groups),
        loss(similarity[order][:, order], counted[order], names[groups[order]]),
    )


def test_its_terms_are_of_each_granularity_and_of_groups() -> None:
    torch.manual_seed(0)
    features, groups = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 3, 4])
    words, phrases = torch.rand(2, 6, 6)
    some = torch.arange(6) != 3
    local = {"word": LocalSimilarity(words, EVERY), "phrase": LocalSimilarity(phrases, some)}
    classes = torch.tensor([0, 1, 1, 0, 1, 0])
    batch = Embedded(features, features, groups, classes, features, features, local=local)
    loss = LevelsLoss(0.5)
    found = loss.terms(batch).losses
    torch.testing.assert_close(found["word"], loss(words, EVERY, groups))
    torch.testing.assert_close(found["phrase"], loss(phrases, some, groups))
    loss.phrase = 0.0
    assert loss.terms(batch).losses.keys() == {"word"}
