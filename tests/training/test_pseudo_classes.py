import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from limner.errors import SettingsError
from limner.training.pseudo_classes import pseudo_classes


def _blobs(centres: list[tuple[float, float]], count: int) -> Tensor:
    noise = torch.randn(len(centres) * count, 2, generator=torch.Generator().manual_seed(0))
    return torch.tensor(centres).repeat_interleave(count, dim=0) + 0.1 * noise


@pytest.mark.parametrize("seed", range(8))
def test_two_separate_heaps_are_found_from_any_start(seed: int) -> None:
    found = pseudo_classes(_blobs([(0.0, 0.0), (9.0, 4.0)], 30), 2, seed=seed)
    first, second = set(found[:30].tolist()), set(found[30:].tolist())
    assert sorted([first, second], key=min) == [{0}, {1}]


@given(st.integers(1, 5), st.integers(0, 50))
def test_every_picture_is_nearest_to_the_mean_of_its_own_class(classes: int, seed: int) -> None:
    features = torch.randn(24, 3, generator=torch.Generator().manual_seed(seed))
    found = pseudo_classes(features, classes, seed=seed, iterations=200)
    means = {c: features[found == c].mean(dim=0) for c in set(found.tolist())}
    assert set(means) == set(range(classes))
    for feature, own in zip(features, found, strict=True):
        distances = {c: float((feature - mean).norm()) for c, mean in means.items()}
        assert distances[int(own)] <= min(distances.values()) + 1e-5


def test_same_seed_same_classes() -> None:
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    first = pseudo_classes(features, 9, seed=3)
    assert torch.equal(pseudo_classes(features, 9, seed=3), first)
    assert not torch.equal(pseudo_classes(features, 9, seed=4), first)


def test_features_are_left_as_they_are() -> None:
    features = _blobs([(0.0, 0.0), (5.0, 5.0)], 4)
    before = features.clone()
    pseudo_classes(features, 3, seed=0)
    assert torch.equal(features, before)


def test_as_many_classes_as_pictures_and_no_more() -> None:
    features = torch.arange(6.0)[:, None] ** 2
    assert sorted(pseudo_classes(features, 6, seed=0).tolist()) == list(range(6))
    with pytest.raises(SettingsError, match="7 pseudo-classes of only 6 pictures"):
        pseudo_classes(features, 7, seed=0)


def test_equal_pictures_do_not_hang_it() -> None:
    found = pseudo_classes(torch.ones(10, 3), 4, seed=0)
    assert int(found.min()) >= 0
    assert int(found.max()) < 4
