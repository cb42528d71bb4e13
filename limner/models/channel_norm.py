"""Batch normalisation of the last axis."""

from jaxtyping import Float
from torch import Tensor, nn


class ChannelNorm(nn.BatchNorm1d):
    """Batch normalisation over all rows of each channel: pictures, words, or patches.

    Source: Ioffe and Szegedy 2015, Algorithm 1.
    """

    def forward(self, x: Float[Tensor, "*rows channels"]) -> Float[Tensor, "*rows channels"]:
        """Normalise; the statistics are those of the whole batch while training."""
        # as rows: for three axes PyTorch expects (batch, channels, words), which would cost two transposes
        return super().forward(x.reshape(-1, x.shape[-1])).view(x.shape)
