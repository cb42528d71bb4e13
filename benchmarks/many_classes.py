"""The instance loss over a million classes in blocks, and over a tenth of them, against the plain loss: memory, speed.

Claim: beyond the classifier's weights and their gradient a step in blocks takes at most an eighth of the plain loss's
memory, with the same gradient; one over a tenth of the classes takes a quarter, its gradient included, at five times
the speed. A step is the loss and its gradients. Images and sentences, batch 512, 512 columns:
`python -m benchmarks.many_classes`, with 20 GB of memory; `--classes N` takes another number.
"""

import argparse
from functools import partial

import torch
from torch import Tensor

from benchmarks.measuring import memory_above, publish, sized, speeds, taking_turns
from limner.losses import InstanceLoss
from limner.losses.loss import Embedded

BATCH, DIM, BLOCK, SHARE, TURNS = 512, 512, 4096, 0.1, 1
PLAIN, BLOCKS, SAMPLED = "all logits", f"blocks of {BLOCK:,}", f"{SHARE:.0%} of the classes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=sized(1_000_000, 2_000))
    count: int = parser.parse_args().classes
    torch.manual_seed(0)
    loss = InstanceLoss(DIM, count)
    images, texts = (torch.randn(BATCH, DIM, requires_grad=True) for _ in range(2))
    classes = torch.randperm(count)[:BATCH]
    batch = Embedded(images, texts, classes, classes, images, texts)
    steps = {
        name: partial(_step, loss, batch, block, share)
        for name, block, share in ((PLAIN, None, 1.0), (BLOCKS, BLOCK, 1.0), (SAMPLED, None, SHARE))
    }
    gradients = []
    for name in (PLAIN, BLOCKS):
        steps[name]()
        # rows that are right classes, and some that are not
        assert loss.weight.grad is not None
        gradients.append((images.grad, loss.weight.grad[classes], loss.weight.grad[:1000].clone()))
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    # each step's gradient is new, as training has it
    above = {}
    for name, step in steps.items():
        loss.weight.grad = None
        # of the drawn rows' gradient nothing is taken off
        above[name] = memory_above(step) - (0 if name == SAMPLED else loss.weight.nbytes)
    seconds = taking_turns(steps, TURNS)
    for name, size in above.items():
        print(f"{name}: {size / 1e6:,.0f} MB above weights and gradient, {size / above[PLAIN]:.3f}×")
    publish(
        "many_classes",
        unit="pairs",
        groups={f"{count:,} classes × {DIM}, batch {BATCH}": speeds(seconds, BATCH, reference=PLAIN)},
        about={
            "reference": PLAIN,
            "seconds": seconds,
            "peak_bytes_above": above,
            "repeats": TURNS,
        },
    )


def _step(loss: InstanceLoss, batch: Embedded, block: int | None, share: float) -> None:
    loss.block, loss.sample = block, share
    loss.weight.grad = batch.images.grad = batch.texts.grad = None
    terms: dict[str, Tensor] = dict(loss.terms(batch).losses)
    torch.autograd.backward(torch.stack([*terms.values()]).sum())


if __name__ == "__main__":
    main()
