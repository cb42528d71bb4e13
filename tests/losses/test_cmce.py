import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from limner.errors import SettingsError
from limner.losses import CMCELoss
from tests.reference.losses import cmce_gradient, cmce_loss, cmce_rows


def _case(
    seed: int = 0, batch: int = 6, dim: int = 4, identities: int = 7, block: int = 3
) -> tuple[CMCELoss, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    loss = CMCELoss(dim, identities, sigma_images=0.3, sigma_texts=0.2, block=block).double()
    loss.images.normal_()
    loss.texts.normal_()
    images, texts = torch.randn(2, batch, dim, dtype=torch.float64)
    return loss, images, texts, torch.randint(identities, (batch,))


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), st.integers(1, 8))
def test_equals_the_slow_twin(seed: int, batch: int, dim: int, identities: int, block: int) -> None:
    loss, images, texts, groups = _case(seed, batch, dim, identities, block)
    expected = cmce_loss(
        images.tolist(),
        texts.tolist(),
        groups.tolist(),
        loss.images.tolist(),
        loss.texts.tolist(),
        sigma_images=0.3,
        sigma_texts=0.2,
    )
    assert loss(images, texts, groups).item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_gradients_are_those_of_eq_4_and_5() -> None:
    loss, images, texts, groups = _case()
    # of unit features: what normalisation adds is orthogonal to them
    images = torch.nn.functional.normalize(images, dim=1).requires_grad_()
    texts = torch.nn.functional.normalize(texts, dim=1).requires_grad_()
    torch.autograd.backward(loss(images, texts, groups))
    for features, buffer, sigma in ((images, loss.texts, 0.3), (texts, loss.images, 0.2)):
        assert features.grad is not None
        for row, feature, target in zip(features.grad, features.detach(), groups.tolist(), strict=True):
            twin = torch.tensor(
                cmce_gradient(feature.tolist(), target, buffer.tolist(), sigma), dtype=torch.float64
            )
            along = twin - (twin @ feature) * feature
            torch.testing.assert_close(row, along / len(groups))


def test_gradients_equal_finite_differences() -> None:
    loss, images, texts, groups = _case(batch=3)
    assert torch.autograd.gradcheck(
        lambda i, t: loss(i, t, groups), (images.requires_grad_(), texts.requires_grad_())
    )


def test_no_gradient_reaches_the_buffers() -> None:
    loss, images, texts, groups = _case()
    assert not list(loss.parameters())
    torch.autograd.backward(loss(images.requires_grad_(), texts, groups))
    assert loss.images.grad is None
    assert loss.texts.grad is None


def test_blocks_change_nothing_and_large_affinities_do_not_overflow() -> None:
    loss, images, texts, groups = _case(identities=50)
    loss.sigma_images = loss.sigma_texts = 1e-4
    images.requires_grad_()
    results = []
    for block in (1, 7, 50, 1000):
        loss.block = block
        value = loss(images, texts, groups)
        (gradient,) = torch.autograd.grad(value, images)
        results.append((value, gradient))
    assert results[0][0].isfinite()
    for value, gradient in results[1:]:
        torch.testing.assert_close(value, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])


def test_under_autocast_the_loss_is_that_of_float32() -> None:
    loss, images, texts, groups = _case()
    loss.float()
    images, texts = images.float().requires_grad_(), texts.float()
    expected = loss(images, texts, groups)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(images, texts, groups)
        torch.autograd.backward(found)
    torch.testing.assert_close(found, expected)
    assert images.grad is not None
    assert loss(images.bfloat16(), texts.bfloat16(), groups).dtype == torch.float32


def test_permuting_the_batch_changes_nothing() -> None:
    loss, images, texts, groups = _case()
    order = torch.randperm(len(groups))
    before = loss(images, texts, groups)
    torch.testing.assert_close(loss(images[order], texts[order], groups[order]), before)
    loss.update(images, texts, groups)
    once = loss.texts.clone()
    other, *_ = _case()
    other.update(images[order], texts[order], groups[order])
    torch.testing.assert_close(other.texts, once)


def test_renaming_identities_changes_nothing() -> None:
    loss, images, texts, groups = _case()
    before = loss(images, texts, groups)
    names = torch.randperm(7)
    renamed, *_ = _case()
    renamed.images[names], renamed.texts[names] = loss.images, loss.texts
    torch.testing.assert_close(renamed(images, texts, names[groups]), before)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 3), min_size=7, max_size=7),
    st.lists(st.integers(1, 3), min_size=7, max_size=7),
    st.lists(st.integers(0, 6), min_size=6, max_size=6),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_updates_equal_their_twin(
    seed: int, pictures: list[int], sentences: list[int], drawn: list[int], keep: float
) -> None:
    """For identities of one and of several pictures and sentences, and batches that hold several of one."""
    loss, images, texts, _ = _case(seed)
    loss.keep = keep
    filled = [torch.arange(7).repeat_interleave(torch.tensor(samples)) for samples in (pictures, sentences)]
    rows = [torch.randn(len(which), 4, dtype=torch.float64) for which in filled]
    loss.fill(rows[0], filled[0], rows[1], filled[1])
    expected = [
        cmce_rows(buffer.tolist(), features.tolist(), drawn, samples, keep=keep)
        for buffer, features, samples in ((loss.images, images, pictures), (loss.texts, texts, sentences))
    ]
    groups = torch.tensor(drawn)
    loss.update(images, texts, groups)
    for buffer, twin in zip((loss.images, loss.texts), expected, strict=True):
        torch.testing.assert_close(buffer, torch.tensor(twin, dtype=torch.float64))


def test_a_picture_with_five_sentences_takes_its_new_feature_and_its_sentences_the_average() -> None:
    loss, images, *_ = _case(batch=2, identities=2)
    sentences = torch.randn(10, 4, dtype=torch.float64)
    loss.fill(images, torch.arange(2), sentences, torch.arange(2).repeat(5))
    before = loss.texts.clone()
    new_image, new_text = torch.nn.functional.normalize(torch.randn(2, 4, dtype=torch.float64), dim=1)
    loss.update(3 * new_image[None], 3 * new_text[None], torch.tensor([1]))
    torch.testing.assert_close(loss.images[1], new_image)
    torch.testing.assert_close(loss.texts[1], 0.5 * before[1] + 0.5 * new_text)
    torch.testing.assert_close(loss.images[0], torch.nn.functional.normalize(images[0], dim=0))
    torch.testing.assert_close(loss.texts[0], before[0])


def test_the_buffers_start_from_the_means_of_the_identities() -> None:
    loss, images, texts, groups = _case(batch=12, identities=3)
    loss.fill(images, groups, texts[:9], groups[:9])
    units = torch.nn.functional.normalize(images, dim=1)
    for identity in range(3):
        torch.testing.assert_close(loss.images[identity], units[groups == identity].mean(0))
    assert loss.images.norm(dim=1).max() < 1  # as written: means are not normalised again


def test_renormalised_rows_have_unit_length() -> None:
    loss, images, texts, groups = _case()
    loss.renormalise = True
    loss.update(images, texts, groups)
    torch.testing.assert_close(loss.texts[groups].norm(dim=1), torch.ones(len(groups), dtype=torch.float64))


def test_empty_buffers_are_refused() -> None:
    """With them the loss is that of guessing twice, whatever the features are, and has no gradient."""
    loss, images, texts = CMCELoss(8, 9), torch.randn(4, 8), torch.randn(4, 8)
    groups = torch.arange(4)
    for refused in (loss, copy.deepcopy(loss)):
        with pytest.raises(SettingsError, match="call `fill` with the features of the training split"):
            refused(images, texts, groups)
    loss.fill(images, groups, texts, groups)
    value = loss(images.requires_grad_(), texts, groups)
    torch.autograd.backward(value)
    assert images.grad is not None
    assert images.grad.abs().sum() > 0
    # a run that goes on has them from its checkpoint
    resumed = CMCELoss(8, 9)
    resumed.load_state_dict(loss.state_dict())
    torch.testing.assert_close(resumed(images, texts, groups), value, rtol=0, atol=0)
