import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses import RankingLoss
from limner.losses.ranking import Negatives
from tests.reference.losses import ranking_loss


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 6),
    more=st.integers(0, 4),
    groups=st.integers(1, 5),
    margin=st.floats(0, 2),
    negatives=st.sampled_from(["hardest", "sum", "mean"]),
)
def test_equals_the_slow_twin(
    seed: int, batch: int, more: int, groups: int, margin: float, negatives: Negatives
) -> None:
    torch.manual_seed(seed)
    images, texts = torch.randn(2, batch, 5, dtype=torch.float64)
    extra_images, extra_texts = torch.randn(2, more, 5, dtype=torch.float64)
    group = torch.randint(groups, (batch,))
    image_groups, text_groups = torch.randint(groups, (2, more))
    got = RankingLoss(margin, negatives)(
        images,
        texts,
        group,
        extra_images=extra_images,
        extra_image_groups=image_groups,
        extra_texts=extra_texts,
        extra_text_groups=text_groups,
    )
    expected = ranking_loss(
        images.tolist(),
        texts.tolist(),
        group.tolist(),
        margin,
        extra_images=list(zip(extra_images.tolist(), image_groups.tolist(), strict=True)),
        extra_texts=list(zip(extra_texts.tolist(), text_groups.tolist(), strict=True)),
        negatives_are=negatives,
    )
    assert got.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_zero_where_every_pair_wins_by_the_margin() -> None:
    eye = torch.eye(4)
    assert RankingLoss(margin=1.0)(eye, eye, torch.arange(4)).item() == 0.0
    assert RankingLoss(margin=1.0)(eye, eye.flip(0), torch.arange(4)).item() > 0.0


def test_the_released_weight_of_two_is_one_here() -> None:
    """RankLoss.m sums over half of a batch, cnn_train_dag_batchsize_net.m divides by the whole of it."""
    # of two pairs each is the other's only negative, as each anchor of the released code has one
    images, texts = torch.randn(2, 2, 5, dtype=torch.float64)
    x, y = ([[v / row.norm() for v in row] for row in rows] for rows in (images, texts))
    total = 0.0
    for a, n in ((0, 1), (1, 0)):
        positive, text, image = (
            sum(p * q for p, q in zip(one, other, strict=True))
            for one, other in ((x[a], y[a]), (x[a], y[n]), (y[a], x[n]))
        )
        total += max(0.0, 1 - (positive - text)) + max(0.0, 1 - (positive - image))
    for negatives in ("hardest", "sum", "mean"):
        ours = RankingLoss(1.0, negatives)(images, texts, torch.arange(2))
        # their weight 2, batches of 4 for two anchors
        assert 1.0 * ours.item() == pytest.approx(2 * float(total) / 4)


def test_own_group_is_never_a_negative() -> None:
    images, texts = torch.randn(2, 6, 3)
    assert RankingLoss()(images, texts, torch.zeros(6, dtype=torch.long)).item() == 0.0


def test_permuting_pairs_and_renaming_groups_changes_nothing() -> None:
    images, texts = torch.randn(2, 8, 3)
    groups = torch.randint(4, (8,))
    order, names = torch.randperm(8), torch.randperm(4)
    loss = RankingLoss(0.5)
    torch.testing.assert_close(
        loss(images, texts, groups), loss(images[order], texts[order], names[groups[order]])
    )


def test_gradients_reach_both_paths_and_the_extra_negatives() -> None:
    torch.manual_seed(0)
    images, texts, extra = torch.randn(3, 4, 5).requires_grad_().unbind()
    for part in (images, texts, extra):
        part.retain_grad()
    loss = RankingLoss(1.0, "sum")(
        images, texts, torch.arange(4), extra_texts=extra, extra_text_groups=torch.arange(4, 8)
    )
    torch.autograd.backward(loss)
    for part in (images, texts, extra):
        assert part.grad is not None
        assert part.grad.abs().sum() > 0


@pytest.mark.parametrize("negatives", ["hardest", "sum", "mean"])
def test_similarities_that_are_cosines_give_the_same(negatives: Negatives) -> None:
    torch.manual_seed(0)
    images, texts = torch.nn.functional.normalize(torch.randn(2, 6, 4), dim=2)
    groups, loss = torch.tensor([0, 1, 2, 0, 3, 4]), RankingLoss(0.3, negatives)
    torch.testing.assert_close(loss.of_similarities(images @ texts.T, groups), loss(images, texts, groups))
