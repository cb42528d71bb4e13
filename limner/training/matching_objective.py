"""A matcher and its loss as one module: what several processes train together."""

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from limner.models.co_attention import CrossEncoder


class MatchingObjective(nn.Module):
    """Binary cross-entropy of the matching confidence (Li et al., ICCV 2017, Eq. 12)."""

    def __init__(self, matcher: CrossEncoder) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(
        self, pictures: Tensor, numbers: Int64[Tensor, "batch words"], labels: Bool[Tensor, " batch"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The mean "loss" of a batch of pairs, and again as "matching".

        "matching_error" is the share of pairs on the wrong side of a confidence of 0.5, in percent. `pictures` are what
        `CrossEncoder.map_pictures` takes.
        """
        logits = self.matcher(pictures, numbers).logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, labels.float())
        error = 100 * ((logits > 0) != labels).float().mean()
        return {"loss": loss, "matching": loss.detach(), "matching_error": error}
