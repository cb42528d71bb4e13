"""Gumbel top-k attention: of each row of scores the k highest after noise, with a gradient to all of them.

Source: Zheng et al., "Hierarchical Gumbel Attention Network for Text-based Person Search", MM 2020, section 3.3,
Algorithm 1 and Eq. 5–7.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """−log(−log u) with u uniform over (0, 1), as many as `like` has numbers (Algorithm 1, lines 9–10)."""
    uniform = torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype)
    least = torch.finfo(like.dtype).tiny
    return -torch.log((-torch.log(uniform.clamp(min=least))).clamp(min=least))


def select_top_k(
    scores: Float[Tensor, "*rows items"],
    present: Bool[Tensor, "*rows items"],
    k: int,
    *,
    temperature: float = 1.0,
    noise: Float[Tensor, "*rows items"] | None = None,
) -> Float[Tensor, "*rows items"]:
    """k-hot rows α: 1 at the k highest of normalised scores plus noise, 0 elsewhere (Algorithm 1, lines 8–12; Eq. 5).

    Our name = their symbol: `scores` = γ, `temperature` = E, `noise` = −log(−log u). Without noise, which is how it
    works at test, they are the k highest scores. Items that are not `present` are never selected; where fewer
    than k are, all of them. The gradient is that of softmax((γ' + noise) / E), as if it were the output
    (straight-through), so it reaches items that were not selected.
    """
    keys = F.normalize(scores.masked_fill(~present, 0.0), dim=-1)
    if noise is not None:
        keys = keys + noise
    keys = (keys / temperature).masked_fill(~present, -torch.inf)
    first = keys.topk(min(k, keys.shape[-1]), dim=-1).indices
    chosen = torch.zeros_like(keys).scatter_(-1, first, 1.0) * present
    soft = torch.nan_to_num(keys.softmax(dim=-1))  # a row without any item
    return chosen + (soft - soft.detach())


def attention_weights(
    scores: Float[Tensor, "*rows items"], chosen: Float[Tensor, "*rows items"]
) -> Float[Tensor, "*rows items"]:
    """The weights of Eq. 7: a softmax of γ over the selected items only, 0 elsewhere; 0 for a row without any.

    Their products with the items are softmax(α ⊙ γ) × T' with T' = α ⊙ T (Eq. 6), so the gradient of `chosen` is that
    of its place in T'. **Decided**: the softmax is over what is selected; softmax(α ⊙ γ) as printed would have e⁰ in
    its denominator for each item that is not.
    """
    selected = chosen.detach() > 0
    softmax = scores.masked_fill(~selected, -torch.inf).softmax(dim=-1)
    return torch.nan_to_num(softmax) * chosen
