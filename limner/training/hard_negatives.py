"""Hard negatives: the hardest of a pool of random candidates, or the first random sample that violates a margin.

The released code of dual-path encodes 256 random sentences for every batch and keeps each image's hardest: of pictures
that it draws with replacement, none of them in the batch, one sentence each. **Decided**: candidates are compared by a
bank of embeddings that is refreshed at the start of each epoch, so that mining costs one encoding of the split an epoch
instead of one of `candidates` sentences a step; they are drawn without replacement, from all sentences or pictures; and
both modalities are mined.

MNiL (Zhang et al., MM 2017, section 3.2) draws irrelevant samples of the whole set, one after the other, and encodes
each until one violates the margin: its "violators". **Decided**: they are drawn from a queue of the pairs seen last
(`limner.losses.sextuple.EmbeddingQueue`), whose size does not grow with the set, and all of a query's draws are one
draw from the distribution they have.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class EmbeddingBank:
    """Unit embeddings of a training split by one state of the network, with their groups."""

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
    # Without replacement, so that a set smaller than the pool is all of it; a double would be no further candidate.
    drawn = rng.choice(len(pool), size=min(candidates, len(pool)), replace=False)
    similarity = anchors @ pool[drawn].T
    # A class's own items are never negatives, not only the pair's (Eq. 4 of dual-path asks for another group).
    same_group = torch.from_numpy(anchor_groups[:, None] == pool_groups[drawn][None, :])
    # Where all candidates are of the own group argmax still gives a place; the loss leaves such an item out.
    best = similarity.masked_fill(same_group, -torch.inf).argmax(dim=1).numpy()
    return np.asarray(drawn[best], dtype=np.int64)


def nearest(
    anchors: Float[Tensor, "anchors dim"], pool: Float[Tensor, "pool dim"], count: int
) -> Int64[np.ndarray, "anchors count"]:
    """For each anchor the `count` rows of the pool (or all) with the highest dot products, best first; in blocks."""
    count = min(count, len(pool))
    step = max(1, (1 << 24) // len(pool))  # 64 MB of similarities at once
    # One product for all training pairs of CUHK-PEDES, 34,054 × 68,126, would take 9.3 GB.
    found = [(block @ pool.T).topk(count, dim=1).indices for block in torch.split(anchors, step)]
    return torch.cat(found).numpy()


@dataclass(frozen=True)
class HardNegatives:
    """The first hard negative of each query, and the number of the draw that found it.

    - `places`: in the gallery; 0 if none was found.
    - `draws`: the v of MNiL's Eq. 1 and 3, from 1; 0 if none was found.
    - `share`: how much of what is irrelevant violates, from 0 to 1.
    """

    places: Int64[Tensor, " queries"]
    draws: Int64[Tensor, " queries"]
    share: Float[Tensor, " queries"]


def find_hard_negatives(
    queries: Float[Tensor, "queries dim"],
    positive: Float[Tensor, " queries"],
    gallery: Float[Tensor, "gallery dim"],
    relevant: Bool[Tensor, "queries gallery"],
    margin: float,
    uniform: Float[Tensor, "queries 2"],
) -> HardNegatives:
    """For each query, irrelevant items are drawn until one has `margin + f(query, item) > positive` (WARP).

    Drawn with replacement, as the released code does, the number of draws is geometric with the share that violates of
    the irrelevant items, and each of these is equally likely to be the one, whatever that number is: so each takes
    one of the two `uniform` numbers in [0, 1) of the query, and no draw is made.
    """
    # `>`, not `>=`: a negative exactly at the margin has a loss of 0.
    violates = (margin + queries @ gallery.T > positive[:, None]) & ~relevant
    violating = violates.sum(dim=1)
    # clamp for a query to which all of the queue is relevant; double, as the uniform numbers are, since two integer
    # tensors divide to float32.
    share = violating / (~relevant).sum(dim=1).clamp(min=1).double()
    # where all of it violates, the divisor is −∞ and the first draw finds one; where nothing does, `some` masks it
    draws = 1 + torch.floor(torch.log1p(-uniform[:, 0]) / torch.log1p(-share))
    # Each violating item is equally likely, whatever the draw that finds it: the which-th, counted by cumsum.
    which = 1 + torch.floor(uniform[:, 1] * violating)
    places = torch.searchsorted(violates.cumsum(dim=1), which.long()[:, None]).squeeze(1)
    some = violating > 0
    # int64 cannot hold the ∞ and NaN of queries that nothing violates, so these are replaced before the cast.
    return HardNegatives(torch.where(some, places, 0), torch.where(some, draws, 0.0).long(), share)
