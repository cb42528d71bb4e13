"""Bias and variance of the gradient through Gumbel top-k selection, against REINFORCE, enumerated.

The paper (HGAN, sections 1 and 3.3) calls its estimator low in variance and unbiased. Eight items of four numbers,
two of which are selected: the loss is the squared distance of their mean from a target, and its expectation over the
noise is the sum over all ordered selections, whose probabilities are those of drawing without replacement (Kool et
al., ICML 2019). Its exact gradient with respect to the scores γ, through their L2 norm, is what both estimate:

    straight-through   limner.models.local_matching.select_top_k at several temperatures
    REINFORCE          (loss − baseline) · ∇ log P(selection), the baseline 0 or the mean loss of the other samples

Printed is the mean over ten random problems: the bias as a share of the true gradient's length, its cosine with
it, and the root mean square deviation of a single sample, in the same unit.

python -m benchmarks.gumbel_gradients
"""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measuring import sized, write
from limner.models.local_matching import gumbel_noise, select_top_k

ITEMS, WIDTH, K = 8, 4, 2
SAMPLES, PROBLEMS = sized((50_000, 10), (1_000, 1))
TEMPERATURES = (0.1, 0.3, 1.0, 3.0)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(PROBLEMS):
        gamma = torch.randn(ITEMS, generator=generator, dtype=torch.float64)
        items = torch.randn(ITEMS, WIDTH, generator=generator, dtype=torch.float64)
        target = torch.randn(WIDTH, generator=generator, dtype=torch.float64)
        true = _exact(gamma, items, target)
        noise = gumbel_noise(gamma.expand(SAMPLES, ITEMS), generator)
        estimates = {
            f"straight-through, E = {temperature}": _straight(gamma, items, target, noise, temperature)
            for temperature in TEMPERATURES
        }
        for label, baseline in (("REINFORCE", False), ("REINFORCE, mean of the others as baseline", True)):
            estimates[label] = _reinforce(gamma, items, target, noise, baseline)
        for label, samples in estimates.items():
            rows.setdefault(label, []).append(_compared(samples, true))
    means = {
        label: {name: sum(row[name] for row in own) / len(own) for name in own[0]}
        for label, own in rows.items()
    }
    for label, values in means.items():
        print(f"{label:<44}" + "".join(f"  {name} {value:7.3f}" for name, value in values.items()))
    write("gumbel_gradients", {"problems": PROBLEMS, "samples": SAMPLES, "means": means})


def _loss(chosen: Tensor, items: Tensor, target: Tensor) -> Tensor:
    """One number a row of `chosen`."""
    return (chosen @ items / K - target).square().sum(dim=-1)


def _log_probability(gamma: Tensor, order: Tensor) -> Tensor:
    """Of drawing these items in this order without replacement, by softmax(γ')."""
    keys = F.normalize(gamma, dim=-1)
    left = torch.zeros_like(keys)
    total = torch.zeros(keys.shape[:-1], dtype=keys.dtype)
    for place in range(K):
        item = order[..., place, None]
        total = total + ((keys + left).log_softmax(dim=-1)).gather(-1, item).squeeze(-1)
        left = left.scatter(-1, item, -torch.inf)
    return total


def _exact(gamma: Tensor, items: Tensor, target: Tensor) -> Tensor:
    order = torch.tensor(list(itertools.permutations(range(ITEMS), K)))
    scores = gamma.clone().requires_grad_()
    chosen = torch.zeros(len(order), ITEMS, dtype=gamma.dtype).scatter(1, order, 1.0)
    probability = _log_probability(scores.expand(len(order), ITEMS), order).exp()
    (gradient,) = torch.autograd.grad((probability * _loss(chosen, items, target)).sum(), scores)
    return gradient


def _straight(gamma: Tensor, items: Tensor, target: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """A gradient a sample."""
    scores = gamma.expand(len(noise), ITEMS).clone().requires_grad_()
    present = torch.ones_like(scores, dtype=torch.bool)
    chosen = select_top_k(scores, present, K, temperature=temperature, noise=noise)
    (gradient,) = torch.autograd.grad(_loss(chosen, items, target).sum(), scores)
    return gradient


def _reinforce(gamma: Tensor, items: Tensor, target: Tensor, noise: Tensor, baseline: bool) -> Tensor:
    """A gradient a sample."""
    scores = gamma.expand(len(noise), ITEMS).clone().requires_grad_()
    order = (F.normalize(gamma, dim=0) + noise).topk(K, dim=1).indices
    chosen = torch.zeros_like(noise).scatter(1, order, 1.0)
    losses = _loss(chosen, items, target)
    if baseline:
        losses = losses - (losses.sum() - losses) / (len(losses) - 1)
    (gradient,) = torch.autograd.grad((_log_probability(scores, order) * losses).sum(), scores)
    return gradient


def _compared(samples: Tensor, true: Tensor) -> dict[str, float]:
    mean = samples.mean(dim=0)
    length = true.norm()
    return {
        "bias": float((mean - true).norm() / length),
        "cosine": float(F.cosine_similarity(mean, true, dim=0)),
        "deviation": float((samples - mean).square().sum(dim=1).mean().sqrt() / length),
    }


if __name__ == "__main__":
    main()
