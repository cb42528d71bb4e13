"""The loss of composed queries: a softmax over targets and references for each query, with the reference as a negative.

Source: the batch-based softmax of Vo et al., "Composing Text and Image for Image Retrieval - An Empirical Odyssey"
(TIRG), CVPR 2019, section 3, cited from memory; the reference as a negative is ours.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

_ABSENT = float("-inf")


def composed_loss(
    queries: Float[Tensor, "batch dim"],
    targets: Float[Tensor, "batch dim"],
    references: Float[Tensor, "batch dim"],
    target_ids: Int64[Tensor, " batch"],
    reference_ids: Int64[Tensor, " batch"],
    temperature: float,
) -> Float[Tensor, ""]:
    """`−log (exp(cos(q_i, t_i) / τ) / Σ_c exp(cos(q_i, c) / τ))`, averaged over the queries i.

    The candidates c are the targets and the references of the whole batch; features need not be normalised. A candidate
    that is query i's target picture again, by its id, is left out of its sum.

    **Decided**: the references are candidates. A query that ignores its text finds its own reference first, and with
    the targets alone as candidates it would not be told. The references of the other queries are negatives as well.
    """
    candidates = F.normalize(torch.cat([targets, references]), dim=1)
    logits = F.normalize(queries, dim=1) @ candidates.T / temperature
    ids = torch.cat([target_ids, reference_ids])
    own = torch.arange(len(queries), device=queries.device)
    again = ids[None, :] == target_ids[:, None]
    again[own, own] = False
    return F.cross_entropy(logits.masked_fill(again, _ABSENT), own)
