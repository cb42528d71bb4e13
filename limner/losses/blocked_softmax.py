"""A cross-entropy over very many classes whose logits are never held at once.

The softmax goes over blocks, as in attention that never holds its matrix (Milakov and Gimelshein, arXiv 1805.02867).
Where the rows learn, logits are computed twice, forward and backward, in place of being kept: four products in place of
three, and memory for batch × block numbers in place of batch × classes of them, their softmax and its gradient.

With a shard of the classes in each of several processes, features of all of them meet each shard, and highest logit,
sum, own logit and the gradient of the features are joined: no process has the logits of another's classes.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from limner.losses.sharded_classes import Shard, of_all, of_this_process, processes, summed, this_process

SHORTEST = 1e-12
"""Rows of the classifier that are shorter are divided by this, where logits are cosines."""


def blocked_cross_entropy(
    features: Float[Tensor, "rows dim"],
    weight: Float[Tensor, "classes dim"],
    bias: Float[Tensor, " classes"] | None,
    classes: Int64[Tensor, " rows"],
    *,
    scale: float | None = None,
    smoothing: float = 0.0,
    block: int,
    shard: Shard | None = None,
) -> tuple[Float[Tensor, " rows"], Bool[Tensor, " rows"]]:
    """The loss of each row, as `F.cross_entropy` has it, and whether its own class has the highest logit.

    Logits are `weight · features + bias`; with a `scale`, that times the product with the rows of `weight` at unit
    length. `block`: classes whose logits are held at once. In float32 at least, also under autocast.

    With a `shard`, `weight` and `bias` are its rows, `features` and `classes`, among all of them, are this process's,
    and each process has as many. The gradient of `weight` and `bias` is then that of the mean over all processes, as
    DistributedDataParallel has it for the others.
    """
    precise = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)
    with torch.autocast(features.device.type, enabled=False):
        losses, right = _BlockedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            features.to(precise),
            weight.to(precise),
            None if bias is None else bias.to(precise),
            classes,
            scale,
            smoothing,
            block,
            shard,
        )
    return losses, right


class _BlockedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        classes: Tensor,
        scale: float | None,
        smoothing: float,
        block: int,
        shard: Shard | None,
    ) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[0]
        count = len(weight)
        if shard is not None:
            # features and classes of all processes; those of rows that are not held stand outside of the rows
            x, classes, count = of_all(x), of_all(classes) - shard.first, shard.classes
        # the highest logit so far is subtracted before exp, which would overflow otherwise
        highest = x.new_full((len(x), 1), -torch.inf)
        total, all_logits = torch.zeros_like(highest), torch.zeros_like(highest)
        weighted, all_rows = torch.zeros_like(x), x.new_zeros(x.shape[1])
        first = torch.zeros_like(classes)
        for start, rows, logits in _blocks(x, weight, bias, scale, block):
            if smoothing:
                all_logits += logits.sum(1, keepdim=True)
                all_rows += rows.sum(0)
            here, place = logits.max(1, keepdim=True)
            # of equal logits the first class counts as the highest, as for `argmax`
            first = torch.where(here > highest, start + place, first[:, None])[:, 0]
            before, highest = highest, torch.maximum(highest, here)
            exponentials = logits.sub_(highest).exp_()
            # 0 for the first block, since exp(−∞ − x) is 0 for every finite x
            shrink = (before - highest).exp_()
            total = total.mul_(shrink).add_(exponentials.sum(1, keepdim=True))
            if wanted:
                weighted = weighted.mul_(shrink).addmm_(exponentials, rows)
        right = first == classes
        held = _held(classes, weight) if shard is not None else slice(None)
        own = torch.zeros_like(x)
        own[held] = _rows(weight[classes[held]], scale)
        of_own = (x * own).sum(1)
        if bias is not None:
            of_own[held] += bias[classes[held]]
        if shard is not None:
            each = of_all(highest.T)
            before, highest = highest, each.amax(0)[:, None]
            # of equal logits of two processes that of the first
            right &= each.argmax(0) == this_process()
            shrink = (before - highest).exp_()
            total, weighted = total.mul_(shrink), weighted.mul_(shrink)
            joined = torch.stack([total[:, 0], of_own, all_logits[:, 0], right.to(total.dtype)])
            sums, of_own, all_of_row, found = summed(joined)
            total, all_logits, right = sums[:, None], all_of_row[:, None], found > 0
        normaliser = (highest + total.log()).squeeze(1)
        losses = normaliser - (1 - smoothing) * of_own - smoothing / count * all_logits[:, 0]
        gradient = None
        if wanted:
            gradient = weighted.div_(total).sub_((1 - smoothing) * own).sub_(smoothing / count * all_rows)
        if shard is not None:
            losses, right = of_this_process(losses), of_this_process(right)
            gradient = None if gradient is None else of_this_process(summed(gradient)).clone()
        # Only what is asked for: rows that learn nothing may be changed before the backward pass, as CMCE's buffers.
        learnt = (x, weight, bias, classes, normaliser) if any(ctx.needs_input_grad[1:3]) else ()
        ctx.save_for_backward(gradient, *learnt)
        ctx.scale, ctx.block, ctx.uniform = scale, block, smoothing / count
        ctx.smoothing, ctx.shard = smoothing, shard
        ctx.mark_non_differentiable(right)
        return losses, right

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_x, *learnt = ctx.saved_tensors
        above = gradients[0][:, None]
        to_x = None if of_x is None else above * of_x
        if not learnt:
            return to_x, None, None, None, None, None, None, None
        x, weight, bias, classes, normaliser = learnt
        held: Tensor | slice = slice(None)
        if ctx.shard is not None:
            above = of_all(above) / processes()
            held = _held(classes, weight)
        own = (ctx.smoothing - 1) * above[held]
        to_weight = torch.zeros_like(weight).index_add_(0, classes[held], own * x[held])
        to_bias = None
        if bias is not None:
            to_bias = torch.zeros_like(bias).index_add_(0, classes[held], own[:, 0])
        for start, rows, logits in _blocks(x, weight, bias, ctx.scale, ctx.block):
            part = slice(start, start + len(rows))
            shares = logits.sub_(normaliser[:, None]).exp_().sub_(ctx.uniform).mul_(above)
            if to_bias is not None:
                to_bias[part] += shares.sum(0)
            to_rows = to_weight[part].addmm_(shares.T, x)
            if ctx.scale is not None:
                # of the rows at unit length so far: what would change their length alone goes
                lengths = weight[part].norm(dim=1, keepdim=True)
                unit = weight[part] / lengths.clamp(min=SHORTEST)
                along = (to_rows * unit).sum(1, keepdim=True).mul_(lengths > SHORTEST)
                to_rows.sub_(along * unit).mul_(ctx.scale / lengths.clamp(min=SHORTEST))
        return to_x, to_weight, to_bias, None, None, None, None, None


def _held(classes: Tensor, weight: Tensor) -> Tensor:
    """Which classes are rows of this process."""
    return (classes >= 0) & (classes < len(weight))


def _rows(weight: Tensor, scale: float | None) -> Tensor:
    """The rows that features are multiplied by."""
    if scale is None:
        return weight
    scaled: Tensor = weight * (scale / weight.norm(dim=1, keepdim=True).clamp(min=SHORTEST))
    return scaled


def _blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None, scale: float | None, block: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The first class of each block, the rows that features are multiplied by, and the logits, to be overwritten."""
    for start in range(0, len(weight), block):
        rows = _rows(weight[start : start + block], scale)
        logits = x @ rows.T
        yield start, rows, logits if bias is None else logits.add_(bias[start : start + block])
