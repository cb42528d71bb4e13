"""Batch norm folded into the convolutions before it: the same function for inference, several times faster on a CPU.

In eval mode a batch norm is an affine map of each channel, so `BN(W·x + b)` is one convolution with other numbers
(`torch.nn.utils.fusion.fuse_conv_bn_eval`). `benchmarks/backbone.py` measures what it saves.
"""

import copy

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from limner.models.backbones.encoder import ImageEncoder


def folded(encoder: ImageEncoder) -> ImageEncoder:
    """A copy for inference with each batch norm folded into its convolution; the original stays as it is.

    The networks of this package register a batch norm right behind the convolution that it normalises, which is
    how pairs are found; where none is found (VGG, most of transformers) the copy is just a copy in eval mode. Outputs
    differ from the original's by rounding only. The weights lie channels-last, so the copy cannot be saved.
    """
    copied = copy.deepcopy(encoder).requires_grad_(False).eval()
    for module in list(copied.modules()):
        before: tuple[str, nn.Module] | None = None
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d) and before is not None and isinstance(before[1], nn.Conv2d):
                setattr(module, before[0], fuse_conv_bn_eval(before[1], child))
                setattr(module, name, nn.Identity())
                before = None
            else:
                before = (name, child)
    return copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
