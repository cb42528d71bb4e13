from typing import Literal

import pytest
import torch
import torch.nn.functional as F

from limner.models.word_conv import WordConv, join_neighbours


@pytest.mark.parametrize("words", [8, 9, 1])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [1, 2])
def test_equals_a_convolution_padded_on_the_left(
    words: int, stride: Literal[1, 2], taps: Literal[1, 2]
) -> None:
    torch.manual_seed(0)
    conv = WordConv(3, 5, taps).double()
    x = torch.randn(2, words, 3, dtype=torch.float64, requires_grad=True)
    read = x[:, ::stride] if taps == 1 else join_neighbours(x, stride)
    plain = F.conv1d(F.pad(x.transpose(1, 2), (taps - 1, 0)), conv.weight, stride=stride).transpose(1, 2)
    torch.testing.assert_close(conv(read), plain)
    towards = torch.randn_like(plain)
    ours = torch.autograd.grad(conv(read), (x, conv.weight), towards)
    theirs = torch.autograd.grad(plain, (x, conv.weight), towards)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)
