"""The pairs of all processes as one batch, with gradients: what losses read that compare the pairs of a batch.

Into how many shares a batch is divided is a matter of machines, and should be none of the loss: CLIP and SigLIP compare
with the pairs of all, too (Radford et al., ICML 2021; Zhai et al., ICCV 2023).
"""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from limner.losses.loss import Embedded, Mined
from limner.losses.sharded_classes import of_all, processes, this_process


def whole_batch(share: Embedded, pairs: int) -> Embedded:
    """The batch of so many pairs of which each process has every n-th, in its order, with mined rows; alone, the share.

    To be called by all processes. Each gets the same, and so computes the same loss, and passes its gradient back to
    its own rows: times the number of processes, since DistributedDataParallel takes the mean of what is a sum there.
    Parameters of a loss have the same gradient in each process, and the mean is that.
    """
    if processes() == 1:
        return share
    images, texts = _joined_with_gradient(share.images, pairs), _joined_with_gradient(share.texts, pairs)
    groups, classes = _joined(share.groups, pairs), _joined(share.classes, pairs)
    if share.mined is None:
        return Embedded(images, texts, groups, classes, images, texts)
    # one for each anchor, so that they are divided as the pairs are
    mined = Mined(_joined(share.mined.image_groups, pairs), _joined(share.mined.text_groups, pairs))
    image_rows, text_rows = (
        torch.cat([rows, _joined_with_gradient(own[len(share.groups) :], pairs)])
        for rows, own in ((images, share.image_rows), (texts, share.text_rows))
    )
    return Embedded(images, texts, groups, classes, image_rows, text_rows, mined)


def _joined_with_gradient(own: Float[Tensor, "share dim"], pairs: int) -> Float[Tensor, "batch dim"]:
    rows: Tensor = _Joined.apply(own, pairs)  # type: ignore[no-untyped-call]
    return rows


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, own: Tensor, pairs: int) -> Tensor:
        return _joined(own, pairs)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Nothing is sent: every process has the gradient of the whole batch.
        return processes() * gradient[this_process() :: processes()], None


def _joined(own: Shaped[Tensor, "share *rest"], pairs: int) -> Shaped[Tensor, "batch *rest"]:
    """Row i of process p is row i × n + p of the batch."""
    most = -(-pairs // processes())
    # `of_all` needs as many of each. A share lacks its last row at most, and what fills it up comes out behind all.
    filled = torch.cat([own, own[:1].expand(most - len(own), *own.shape[1:])])
    return of_all(filled).view(processes(), most, *own.shape[1:]).transpose(0, 1).flatten(0, 1)[:pairs]
