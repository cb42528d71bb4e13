"""Hard negatives: for each anchor, the hardest of a pool of random candidates.

The released code of dual-path encodes 256 random sentences for every batch and keeps each image's hardest.
**Decided**: candidates are compared by a bank of embeddings that is refreshed at the start of each epoch, so that
mining costs one encoding of the split an epoch instead of one of `candidates` sentences a step; both modalities are
mined.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class Bank:
    """Unit embeddings of a training split, all from one moment, with their groups."""

    images: Float[Tensor, "images dim"]
    image_groups: Int64[np.ndarray, " images"]
    texts: Float[Tensor, "sentences dim"]
    text_groups: Int64[np.ndarray, " sentences"]

    def hard_texts(
        self, images: Int64[np.ndarray, " batch"], candidates: int, rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        """For each picture number, the sentence number of its hardest negative."""
        return _hardest(
            self.images[images], self.image_groups[images], self.texts, self.text_groups, candidates, rng
        )

    def hard_images(
        self, sentences: Int64[np.ndarray, " batch"], candidates: int, rng: np.random.Generator
    ) -> Int64[np.ndarray, " batch"]:
        """For each sentence number, the picture number of its hardest negative."""
        return _hardest(
            self.texts[sentences],
            self.text_groups[sentences],
            self.images,
            self.image_groups,
            candidates,
            rng,
        )


def _hardest(
    anchors: Float[Tensor, "batch dim"],
    anchor_groups: Int64[np.ndarray, " batch"],
    pool: Float[Tensor, "pool dim"],
    pool_groups: Int64[np.ndarray, " pool"],
    candidates: int,
    rng: np.random.Generator,
) -> Int64[np.ndarray, " batch"]:
    """One pool for the whole batch, as in the released code; candidates of the anchor's own group do not count.

    An anchor whose candidates are all of its own group gets the first of them, which the loss then ignores.
    """
    drawn = rng.choice(len(pool), size=min(candidates, len(pool)), replace=False)
    similarity = anchors @ pool[drawn].T
    own = torch.from_numpy(anchor_groups[:, None] == pool_groups[drawn][None, :])
    best = similarity.masked_fill(own, -torch.inf).argmax(dim=1).numpy()
    return np.asarray(drawn[best], dtype=np.int64)


def nearest(
    anchors: Float[Tensor, "anchors dim"], pool: Float[Tensor, "pool dim"], count: int
) -> Int64[np.ndarray, "anchors count"]:
    """For each anchor the `count` rows of the pool (or all) with the highest dot products, best first; in blocks."""
    count = min(count, len(pool))
    step = max(1, (1 << 24) // len(pool))
    found = [(block @ pool.T).topk(count, dim=1).indices for block in torch.split(anchors, step)]
    return torch.cat(found).numpy()
