"""The instance loss: each image/text group is a class, and both modalities share one classifier.

Source: dual-path TOMM 2020, section 4.2, Eq. 5–8; the one-loss ablation is Eq. 11–12.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn


class InstanceLoss(nn.Module):
    """`−log softmax(W_shareᵀ f)[c]`, averaged over the batch.

    Call it once with the image features and once with the sentence features: since `weight` is one
    parameter, both calls share the classifier (Eq. 5–8). Called with `f_img + f_text`, it is the ablation of Eq. 11–12.

    Our name = their symbol: `weight[c]` = W_c, rows of `W_shareᵀ`, shape (identities, dim); `groups` = c.

    - `bias`: the paper has none; the released code has one for CUHK-PEDES and Flickr30k.
    - `dropout`: probability on the features before the classifier (section 6.2: 0.75).
    - `scale`: None as the paper. A number is a **departure**: features and rows of W are L2-normalised and
      the cosine is multiplied by it, which bounds the logits and trains the angle that retrieval ranks by.
    - `smoothing`: label smoothing in [0, 1); 0 as the paper.

    The rows of W are drawn with standard deviation 1/√dim, so that features of unit variance give logits of it.
    """

    def __init__(
        self,
        dim: int,
        identities: int,
        *,
        bias: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(identities, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(identities)) if bias else None
        self.dropout = dropout
        self.scale = scale
        self.smoothing = smoothing

    def forward(
        self, features: Float[Tensor, "batch dim"], groups: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The mean loss of a batch of one modality; `groups` are in 0 … identities − 1."""
        return self.of(self.logits(features), groups)

    def logits(self, features: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch identities"]:
        """W_shareᵀ f, with what was set of bias, dropout and scale."""
        if self.scale is None:
            logits = F.linear(F.dropout(features, self.dropout, self.training), self.weight, self.bias)
        else:
            unit = F.dropout(F.normalize(features, dim=1), self.dropout, self.training)
            # dividing the logits by the lengths of W's rows spares several passes over all of W
            cosine = F.linear(unit, self.weight) / self.weight.norm(dim=1).clamp(min=1e-12)
            logits = self.scale * cosine if self.bias is None else self.scale * cosine + self.bias
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def of(
        self, logits: Float[Tensor, "batch identities"], groups: Int64[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """The mean loss of `logits`."""
        return F.cross_entropy(logits, groups, label_smoothing=self.smoothing)
