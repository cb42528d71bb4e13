"""No setting of a loss is dead: another value gives another loss, gradient, state or need."""

from typing import Any

import pytest
import torch

from limner.losses.loss import Embedded, Examples, LocalSimilarity, LossSettings, Mined, Sextuples
from limner.losses.registry import LOSSES, loss_settings

OTHERS: dict[str, dict[str, Any]] = {
    "instance": {
        "visual": 0.5,
        "textual": 0.5,
        "joint": 0.5,
        "dropout": 0.2,
        "scale": 4.0,
        "smoothing": 0.1,
        "bias": True,
        "initial": "images",
        "sample": 0.5,
    },
    "ranking": {"weight": 2.0, "margin": 0.1, "negatives": "sum", "candidates": 5},
    "cmce": {
        "weight": 2.0,
        "sigma_images": 0.1,
        "sigma_texts": 0.1,
        "keep": 0.2,
        "refill": 1,
        "renormalise": True,
    },
    "sextuple": {
        "weight": 2.0,
        "rho": 0.9,
        "tau": 0.9,
        "beta_images": 0.7,
        "beta_texts": 0.7,
        "direction": "image_to_text",
        "relevant": "label",
        "queue": 3,
    },
    "pair": {"weight": 2.0},
    "sdm": {"weight": 2.0, "temperature": 0.5},
    "contrastive": {"weight": 2.0, "temperature": 0.5, "learnt": False, "positives": "pair"},
    "siglip": {"weight": 2.0, "scale": 5.0, "bias": -5.0},
    "tal": {"weight": 2.0, "margin": 0.5, "temperature": 0.5},
    "circle": {"weight": 2.0, "margin": 0.4, "gamma": 80.0},
    "maxsim": {"weight": 2.0, "temperature": 0.5, "learnt": False},
    "levels": {"word": 2.0, "phrase": 2.0, "margin": 0.7, "negatives": "hardest"},
}
"""Another value of each setting. A new loss or setting has to be put here, and then has to do something."""

MEMORY = {"instance": {"block", "sharded"}}
"""Settings that change memory alone; that they change nothing else is tested with the loss."""


def _examples(seed: int) -> Examples:
    chance = torch.Generator().manual_seed(seed)
    images, texts = torch.nn.functional.normalize(torch.randn(2, 6, 4, generator=chance), dim=2)
    classes = torch.tensor([0, 1, 2, 0, 1, 2])
    return Examples(images, classes, texts, classes)


def _effect(settings: LossSettings) -> dict[str, Any]:
    """Everything that a loss does to a network, and what it asks for."""
    torch.manual_seed(0)
    loss = settings.build(4, 4).train()
    loss.use(settings, samples=10)
    loss.start(lambda: _examples(1), first=True)
    loss.begin_epoch(1, lambda: _examples(2))
    images, texts = (torch.randn(8, 4, requires_grad=True) for _ in range(2))
    groups = torch.tensor([0, 1, 2, 0])
    # near each other, so that each anchor has several negatives within the margin
    similarity = (0.5 + 0.01 * torch.rand(4, 4)).requires_grad_()
    batch = Embedded(
        images[:4],
        texts[:4],
        groups,
        groups,
        images,
        texts,
        Mined(groups, groups),
        Sextuples(
            torch.tensor([[3, 3], [1, 1], [2, 2], [0, 0]]),
            torch.tensor([[1, 2], [2, 1], [3, 1], [1, 1]]),
            torch.rand(4, 2),
        ),
        {
            name: LocalSimilarity(similarity, torch.tensor([True, True, True, False]))
            for name in (("late",) if "late" in settings.needs else ("word", "phrase"))
        },
    )
    terms = loss.terms(batch).losses
    total = torch.stack([settings.weights[name] * value for name, value in terms.items()]).sum()
    torch.autograd.backward(total)
    loss.after_step(lambda rows: rows)
    found = {"loss": total.detach(), **loss.state_dict()}
    for name, rows in (("images", images), ("texts", texts), ("similarities", similarity)):
        if rows.grad is not None:
            found[f"gradient of {name}"] = rows.grad
    return {"needs": settings.needs, **found}


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one.keys() != other.keys() or one.pop("needs") != other.pop("needs"):
        return False
    return all(one[name].shape == other[name].shape and torch.equal(one[name], other[name]) for name in one)


def test_every_setting_of_every_loss_is_tried() -> None:
    fields = {kind: set(loss_settings(kind).model_fields) - {"kind"} for kind in LOSSES}
    assert fields == {kind: set(others) | MEMORY.get(kind, set()) for kind, others in OTHERS.items()}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in OTHERS for name in OTHERS[kind]])
def test_another_value_does_something_else(kind: str, name: str) -> None:
    plain = loss_settings(kind)()  # type: ignore[call-arg]
    assert _same(_effect(plain), _effect(plain))
    assert not _same(_effect(plain), _effect(plain.replace(**{name: OTHERS[kind][name]})))
