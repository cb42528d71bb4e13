"""The violators of sextuple sampling: which irrelevant sample first comes too close to a query.

Source: MNiL, MM 2017, section 3.2. Its procedure draws irrelevant samples of the whole set, one after the other, and
encodes each until one violates. **Decided**: they are drawn from a bank of the pairs seen last, whose size does not
grow with the set, and all of a query's draws are one draw from the distribution they have.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn


class RecentBank(nn.Module):
    """The embeddings of the pairs seen last, a slot each: picture, sentence, and their numbers.

    The oldest slots are overwritten first. Embeddings are those that a batch is searched by, in eval mode. All of it is
    buffers, so that it is in the state that a run resumes from.
    """

    images: Tensor
    texts: Tensor
    image_numbers: Tensor
    sentence_numbers: Tensor
    oldest: Tensor

    def __init__(self, dim: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        for name in ("images", "texts"):
            self.register_buffer(name, torch.zeros(slots, dim))
        for name in ("image_numbers", "sentence_numbers"):
            self.register_buffer(name, torch.zeros(slots, dtype=torch.long))
        self.register_buffer("oldest", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def push(
        self,
        images: Float[Tensor, "pairs dim"],
        texts: Float[Tensor, "pairs dim"],
        image_numbers: Int64[Tensor, " pairs"],
        sentence_numbers: Int64[Tensor, " pairs"],
    ) -> None:
        """Put unit embeddings of pairs into the oldest slots; of more pairs than slots, the last ones.

        With several processes, give all of them the pairs of all.
        """
        count = min(len(images), self.slots)
        places = (self.oldest + torch.arange(count, device=self.oldest.device)) % self.slots
        for buffer, rows in (
            (self.images, images),
            (self.texts, texts),
            (self.image_numbers, image_numbers),
            (self.sentence_numbers, sentence_numbers),
        ):
            buffer[places] = rows[-count:].to(buffer)
        self.oldest.copy_((self.oldest + count) % self.slots)


@dataclass(frozen=True)
class Violators:
    """The first violator of each query, and the draw that found it.

    - `places`: in the gallery; 0 where there is none.
    - `draws`: the v of MNiL's Eq. 1 and 3, from 1; 0 where there is none.
    - `share`: how much of what is irrelevant violates, from 0 to 1.
    """

    places: Int64[Tensor, " queries"]
    draws: Int64[Tensor, " queries"]
    share: Float[Tensor, " queries"]


def find_violators(
    queries: Float[Tensor, "queries dim"],
    positive: Float[Tensor, " queries"],
    gallery: Float[Tensor, "gallery dim"],
    relevant: Bool[Tensor, "queries gallery"],
    margin: float,
    uniform: Float[Tensor, "queries 2"],
) -> Violators:
    """For each query, irrelevant items are drawn until one has `margin + f(query, item) > positive` (WARP).

    Drawn with replacement, as the released code does, the number of draws is geometric with the violators' share of
    the irrelevant items, and each violator is equally likely to be the one, whatever that number is: so each takes
    one of the two `uniform` numbers in [0, 1) of the query, and no draw is made.
    """
    violates = (margin + queries @ gallery.T > positive[:, None]) & ~relevant
    violators = violates.sum(dim=1)
    share = violators / (~relevant).sum(dim=1).clamp(min=1).double()
    draws = 1 + torch.floor(torch.log1p(-uniform[:, 0]) / torch.log1p(-share))
    which = 1 + torch.floor(uniform[:, 1] * violators)
    places = torch.searchsorted(violates.cumsum(dim=1), which.long()[:, None]).squeeze(1)
    some = violators > 0
    return Violators(torch.where(some, places, 0), torch.where(some, draws, 0.0).long(), share)
