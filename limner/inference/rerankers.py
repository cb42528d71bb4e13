"""Which class re-ranks with which kind of network.

A wall: networks cannot import what runs them, so they say a kind (`DualEncoder.reranked_by`) and this table has its
class. A system of another package adds its own.
"""

from collections.abc import Callable

from limner.data.transforms import ImageSettings
from limner.inference.precision import InferenceEngine, Precision
from limner.inference.rerank_co_attention import CoAttentionReranker
from limner.inference.rerank_late import LateReranker
from limner.inference.rerank_levels import LevelsReranker
from limner.inference.rerank_patches import PatchReranker
from limner.models.dual_encoder import DualEncoder
from limner.types import Reranker, Tokenizer

RERANKERS: dict[str, Callable[..., Reranker]] = {
    "co-attention": CoAttentionReranker,
    "late": LateReranker,
    "levels": LevelsReranker,
    "patches": PatchReranker,
}
"""By kind; each is called with the arguments of `reranker_of`."""


def reranker_of(
    model: DualEncoder,
    tokenizer: Tokenizer,
    images: ImageSettings,
    precision: Precision = "fp32",
    engine: InferenceEngine = "torch",
) -> Reranker | None:
    """The reranker of a network as it stands; None where its embedding ranks alone."""
    if model.reranked_by is None:
        return None
    # a KeyError here is a bug: a network says no kind that is not in the table
    return RERANKERS[model.reranked_by](model, tokenizer, images, precision, engine)
