import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from limner.losses.tal import TALLoss
from limner.losses.wrong_pairs import pair_losses, probability_of_right


def test_the_losses_are_tals_of_random_batches() -> None:
    """The slow twin: a pair at a time, each term as the equations have it."""
    groups, of_image = np.array([0, 1, 2, 2, 3, 4]), np.array([0, 0, 1, 2, 2, 2, 3, 4, 4, 5, 5])
    chance = torch.Generator().manual_seed(0)
    images, texts = (
        torch.nn.functional.normalize(torch.randn(rows, 5, generator=chance), dim=1)
        for rows in (len(groups), len(of_image))
    )
    of_sentence = groups[of_image]
    found = pair_losses(images, texts, of_image, groups, 5, np.random.default_rng(3))
    tau, margin = TALLoss().temperature, TALLoss().margin
    order = np.random.default_rng(3).permutation(len(found))
    halves = [order[:6], order[6:]]
    assert sum(map(len, halves)) == len(order)
    for rows in halves:
        table = (images[of_image[rows]] @ texts[rows].T).double().numpy()
        for place, row in enumerate(rows):
            expected = 0.0
            for line in (table[place], table[:, place]):
                right = of_sentence[rows] == of_sentence[row]
                alpha = np.exp(line[right] / tau) / np.exp(line[right] / tau).sum()
                negative = tau * np.log(np.exp(line[~right] / tau).sum())
                expected += max(0.0, margin - float(alpha @ line[right]) + negative)
            assert found[row] == pytest.approx(expected, abs=1e-5)


@settings(max_examples=60)
@given(
    right=st.integers(20, 300),
    wrong=st.integers(20, 300),
    apart=st.floats(6.0, 12.0),
    widths=st.tuples(st.floats(0.2, 2.0), st.floats(0.2, 2.0)),
    seed=st.integers(0, 999),
)
def test_two_heaps_of_losses_are_told_apart(
    right: int, wrong: int, apart: float, widths: tuple[float, float], seed: int
) -> None:
    random = np.random.default_rng(seed)
    apart *= max(widths)
    losses = np.concatenate([random.normal(0, widths[0], right), random.normal(apart, widths[1], wrong)])
    found = probability_of_right(losses) > 0.5
    truth = np.arange(len(losses)) < right
    assert (found == truth).mean() > 0.9
    # whatever the widths: the best of all pairs is right, the worst is wrong
    assert found[losses.argmin()]
    assert not found[losses.argmax()]


def test_the_mixture_is_the_one_of_scikit_learn() -> None:
    mixture = pytest.importorskip("sklearn.mixture")
    random = np.random.default_rng(0)
    losses = np.concatenate([random.normal(0.3, 0.1, 400), random.normal(1.2, 0.3, 300)])
    found = probability_of_right(losses)
    scaled = ((losses - losses.min()) / (losses.max() - losses.min()))[:, None]
    fitted = mixture.GaussianMixture(2, random_state=0, tol=1e-8, max_iter=500).fit(scaled)
    theirs = fitted.predict_proba(scaled)[:, fitted.means_[:, 0].argmin()]
    between = (scaled[:, 0] > fitted.means_.min()) & (scaled[:, 0] < fitted.means_.max())
    assert between.sum() > 300
    np.testing.assert_allclose(found[between], theirs[between], atol=2e-3)


@pytest.mark.parametrize(
    "losses",
    [np.zeros(7), np.full(5, 0.3), np.array([0.0] * 9 + [1.0]), np.array([0.0, 1.0]), np.array([0.2])],
    ids=["zero", "alike", "one is wrong", "two", "one"],
)
def test_losses_that_say_little(losses: np.ndarray) -> None:
    found = probability_of_right(losses)
    assert np.isfinite(found).all()
    assert found[losses.argmin()] > 0.5
