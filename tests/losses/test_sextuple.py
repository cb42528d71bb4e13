from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from limner.losses import SextupleLoss
from limner.losses.sextuple import Direction, rank_weight
from tests.reference.losses import rank_loss, sextuple_gradients, sextuple_loss

NAMES = ("x", "y", "x+", "y+", "x-", "y-")
"""The samples in the order in which the loss takes them."""
SAMPLES = 30
MARGINS = {"rho": 0.3, "tau": 0.5}


def case(seed: int, batch: int = 5, dim: int = 4) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    torch.manual_seed(seed)
    rows = {name: normalize(torch.randn(batch, dim, dtype=torch.float64), dim=1) for name in NAMES}
    v_x, v_y = torch.randint(0, 40, (2, batch))
    return rows, v_x, v_y


def listed(rows: dict[str, Tensor]) -> list[dict[str, list[float]]]:
    return [{name: rows[name][i].tolist() for name in NAMES} for i in range(len(rows["x"]))]


def computed(loss: SextupleLoss, rows: dict[str, Tensor], v_x: Tensor, v_y: Tensor) -> Tensor:
    found: Tensor = loss(
        *(rows[name] for name in NAMES), sentence_draws=v_x, image_draws=v_y, samples=SAMPLES
    )
    return found


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(["both", "image_to_text", "text_to_image"]))
def test_equals_the_slow_twin(seed: int, direction: Direction) -> None:
    rows, v_x, v_y = case(seed)
    twin: dict[str, Any] = {"beta_1": 0.7, "beta_2": 0.4, **MARGINS}
    loss = SextupleLoss(beta_images=0.7, beta_texts=0.4, direction=direction)
    expected = sextuple_loss(
        *(listed(rows), v_x.tolist(), v_y.tolist(), SAMPLES),
        to_text=direction != "text_to_image",
        to_image=direction != "image_to_text",
        **twin,
    )
    assert computed(loss, rows, v_x, v_y).item() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_gradients_are_those_of_eq_7_and_8(seed: int) -> None:
    rows, v_x, v_y = case(seed)
    v_x, v_y = v_x.clamp(min=1), v_y.clamp(min=1)
    leaves = {name: row.requires_grad_() for name, row in rows.items()}
    loss = SextupleLoss(beta_images=0.7, beta_texts=0.4)
    torch.autograd.backward(computed(loss, leaves, v_x, v_y))
    for i, row in enumerate(listed(rows)):
        twins = sextuple_gradients(row, int(v_x[i]), int(v_y[i]), SAMPLES, beta_1=0.7, beta_2=0.4, **MARGINS)
        for name, twin in twins.items():
            gradient = leaves[name].grad
            assert gradient is not None
            torch.testing.assert_close(
                len(v_x) * gradient[i], torch.tensor(twin, dtype=torch.float64), rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("hinge", ["x y", "y x", "x x", "y y"])
@pytest.mark.parametrize("beyond", [0.0, 2.0**-12])
def test_a_negative_exactly_at_the_margin_has_neither_loss_nor_gradient(hinge: str, beyond: float) -> None:
    """Each of the four hinges by itself, of numbers that are exact; just beyond its margin it has both."""
    anchor, side = hinge.split()
    margins = {"rho": 0.25, "tau": 0.5}
    margin = margins["rho" if anchor != side else "tau"]
    # Both anchors are at 1 to the positives and at 0 to the negatives, far within the margins, but for one pair.
    row = {
        "x": [1.0, 0.0],
        "y": [0.0, 1.0],
        **{f"{one}+": [1.0, 1.0] for one in "xy"},
        **{f"{one}-": [0.0, 0.0] for one in "xy"},
    }
    row[f"{side}-"]["xy".index(anchor)] = 1.0 - margin + beyond
    leaves = {name: torch.tensor([row[name]], dtype=torch.float64, requires_grad=True) for name in NAMES}
    loss = SextupleLoss(beta_images=0.7, beta_texts=0.4, rho=margins["rho"], tau=margins["tau"])
    one = torch.ones(1, dtype=torch.int64)
    value = computed(loss, leaves, one, one)
    torch.autograd.backward(value)
    given: dict[str, Any] = {"beta_1": 0.7, "beta_2": 0.4, **margins}
    assert (value.item() > 0) == (beyond > 0)
    assert value.item() == pytest.approx(sextuple_loss([row], [1], [1], SAMPLES, **given), abs=1e-14)
    twins = sextuple_gradients(row, 1, 1, SAMPLES, **given)
    assert any(any(twin) for twin in twins.values()) == (beyond > 0)
    for name, twin in twins.items():
        gradient = leaves[name].grad
        assert gradient is not None
        assert gradient[0].tolist() == pytest.approx(twin, abs=1e-14)


def test_gradients_equal_finite_differences() -> None:
    rows, v_x, v_y = case(4, batch=3)
    loss = SextupleLoss()
    leaves = [rows[name].requires_grad_() for name in NAMES]

    def of_six(*six: torch.Tensor) -> torch.Tensor:
        return loss(*six, sentence_draws=v_x, image_draws=v_y, samples=SAMPLES)

    assert torch.autograd.gradcheck(of_six, leaves)


def test_the_weights_are_sums_of_reciprocals() -> None:
    draws = torch.arange(0, 70)
    expected = [rank_loss((64 - 1) // v) if v else 0.0 for v in draws.tolist()]
    torch.testing.assert_close(
        rank_weight(draws, 64), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0
    )


def test_the_two_directions_add_up_to_both() -> None:
    rows, v_x, v_y = case(1)
    parts = [
        computed(SextupleLoss(direction=direction), rows, v_x, v_y)
        for direction in ("image_to_text", "text_to_image")
    ]
    torch.testing.assert_close(parts[0] + parts[1], computed(SextupleLoss(), rows, v_x, v_y))


def test_without_a_violator_there_is_no_term_of_it() -> None:
    rows, v_x, _ = case(2)
    none = torch.zeros_like(v_x)
    assert computed(SextupleLoss(), rows, none, none) == 0
    # y_i's violator is also x_i's negative within the modality, so without it Eq. 4 goes too
    only = computed(SextupleLoss(beta_images=100.0), rows, v_x, none)
    torch.testing.assert_close(only, computed(SextupleLoss(beta_images=0.0), rows, v_x, none))


def test_permuting_the_batch_changes_nothing() -> None:
    rows, v_x, v_y = case(3)
    order = torch.randperm(len(v_x))
    permuted = {name: row[order] for name, row in rows.items()}
    torch.testing.assert_close(
        computed(SextupleLoss(), permuted, v_x[order], v_y[order]), computed(SextupleLoss(), rows, v_x, v_y)
    )
