"""A CMCE step over a million identities against the plain formulation: time and memory of loss, gradients and update.

The claim (identity-aware, docs/identity-aware.md): memory for batch × block affinities in place of batch × N of them
and of their gradients, at no loss of speed. Batch 64, 512 columns; `--identities N` takes another number.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measuring import memory_above, publish, sized, speeds, taking_turns
from limner.losses import CMCELoss

BATCH, DIM, TURNS = 64, 512, 3
PLAIN = "cross-entropy over all affinities"

Compute = Callable[[CMCELoss, list[Tensor], Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--identities", type=int, default=sized(1_000_000, 20_000))
    identities: int = parser.parse_args().identities
    torch.manual_seed(0)
    loss = CMCELoss(DIM, identities)
    for buffer in (loss.images, loss.texts):
        for rows in torch.split(buffer, 50_000):
            rows.copy_(F.normalize(torch.randn_like(rows), dim=1))
    features = [torch.randn(BATCH, DIM, requires_grad=True) for _ in range(2)]
    groups = torch.randperm(identities)[:BATCH]
    contestants: dict[str, Compute] = {PLAIN: plain_loss, "limner": our_loss}
    values = {name: compute(loss, features, groups) for name, compute in contestants.items()}
    _must_agree(values)
    steps = {name: partial(_step, compute, loss, features, groups) for name, compute in contestants.items()}
    above = {name: memory_above(step) for name, step in steps.items()}
    seconds = taking_turns(steps, TURNS)
    for name, size in above.items():
        print(f"{name}: {size / 1e6:,.0f} MB above the buffers")
    publish(
        "cmce",
        unit="pairs",
        groups={
            f"{identities:,} identities × {DIM}, batch {BATCH}: loss, gradients, update": speeds(
                seconds, BATCH, reference=PLAIN
            )
        },
        about={"reference": PLAIN, "seconds": seconds, "peak_bytes_above_buffers": above, "repeats": TURNS},
    )


def plain_loss(loss: CMCELoss, features: list[Tensor], groups: Tensor) -> Tensor:
    """Eq. 1–3 as they stand, gradients by autograd."""
    images, texts = (F.normalize(part, dim=1) for part in features)
    of_images = F.cross_entropy(images @ loss.texts.T / loss.sigma_images, groups)
    return of_images + F.cross_entropy(texts @ loss.images.T / loss.sigma_texts, groups)


def our_loss(loss: CMCELoss, features: list[Tensor], groups: Tensor) -> Tensor:
    images, texts = features
    value: Tensor = loss(images, texts, groups)
    return value


def _step(compute: Compute, loss: CMCELoss, features: list[Tensor], groups: Tensor) -> None:
    for part in features:
        part.grad = None
    torch.autograd.backward(compute(loss, features, groups))
    loss.update(features[0].detach(), features[1].detach(), groups)


def _must_agree(values: dict[str, Tensor]) -> None:
    one, other = (value.detach() for value in values.values())
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main()
