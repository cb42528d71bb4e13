"""One level of local matching: how well the regions of a picture and the words, or phrases, of a sentence agree.

Source: Zheng et al., "Hierarchical Gumbel Attention Network for Text-based Person Search", MM 2020, section 3.3,
Algorithm 1 and Eq. 2–8.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from limner.settings import Settings

LocalDirection = Literal["both", "image_to_text", "text_to_image"]
Selects = Literal["regions", "words"]
NoiseOn = Literal["normalised", "scores"]


class LocalMatchingSettings(Settings):
    """The settings of the attention between the parts of an image and of a sentence."""

    hidden: int = Field(default=512, ge=1)
    """Width of the hidden layers of both perceptrons (section 4: 512)."""
    attention: Literal["gumbel", "soft"] = "gumbel"
    """Top-k attention with Gumbel noise in training; or soft attention over everything (Eq. 3, Table 5)."""
    noise_on: NoiseOn = "normalised"
    """Noise is added to a row's L2-"normalised" scores (Algorithm 1) or to the "scores" (section 3.3)."""
    selects: Selects = "regions"
    """Each of the "regions" selects k1 words (Eq. 6–8, line 4), or each of the "words" k1 regions (Eq. 3–4)."""
    k_items: int = Field(default=4, ge=1)
    """k1, words or phrases that a region selects; where words select, regions of a word (Figure 5: 4)."""
    k_regions: int = Field(default=2, ge=1)
    """k2, regions that a word or phrase selects; where words select, words of a region (Figure 5: 2)."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """E, temperature of the softmax that selection has its gradient from (the paper does not say)."""
    last_temperature: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """E at the end of a stage, approached by the same factor at every step; None = E stays."""
    direction: LocalDirection = "both"
    """The similarity by α of k1 alone ("image_to_text"), by β of k2 alone, or the mean of both."""

    @property
    def k_of_region(self) -> int | None:
        """Words or phrases that each region selects; None = regions select none."""
        return self._k(of_alpha=self.selects == "regions")

    @property
    def k_of_item(self) -> int | None:
        """Regions that each word or phrase selects; None = words and phrases select none."""
        return self._k(of_alpha=self.selects == "words")

    def _k(self, *, of_alpha: bool) -> int | None:
        if of_alpha:
            return None if self.direction == "text_to_image" else self.k_items
        return None if self.direction == "image_to_text" else self.k_regions

    def identity(self) -> dict[str, Any]:
        """As plain values without where noise is added, which acts in training alone."""
        # stores of a model that was trained before a setting was there keep their fingerprint
        before = {"noise_on"} if self.selects == "words" else {"noise_on", "selects"}
        return self.model_dump(mode="json", exclude=before)


@dataclass(frozen=True)
class Projected:
    """One side of a pair as it enters both perceptrons, computed once an image or once a sentence.

    - `score`: its half of the first layer of the attention's perceptron (Eq. 2), a region's with the bias.
    - `relevance`: its half of that of Eq. 8, both without the bias, since what is attended to is multiplied by weights.
    - `present`: which of its regions, words or phrases there are.
    """

    score: Float[Tensor, "sides parts hidden"]
    relevance: Float[Tensor, "sides parts hidden"]
    present: Bool[Tensor, "sides parts"]

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: slice | Int[np.ndarray, " rows"]) -> "Projected":
        return Projected(self.score[rows], self.relevance[rows], self.present[rows])


@dataclass(frozen=True)
class LocalMatch:
    """A level's answer for all pairs of some images and sentences.

    - `similarity`: S(V, T), in (0, 1), by late interaction in -1 … 1; 0 for a sentence without any item (no noun
      phrase, say).
    - `counted`: which sentences have an item.
    - `of_items`: each region's weights over the items of the sentence; None where regions select none.
    - `of_regions`: each item's weights over the regions; None where items select none.
    """

    similarity: Float[Tensor, "images sentences"]
    counted: Bool[Tensor, " sentences"]
    of_items: Float[Tensor, "images sentences regions items"] | None = None
    of_regions: Float[Tensor, "images sentences items regions"] | None = None


class LocalMatching(nn.Module):
    """Similarity of all pairs of pictures and sentences at one level.

    Our name = their symbol: `k_items` = k1 of α, `k_regions` = k2 of β, `of_items` = softmax(α ⊙ γ), `of_regions` the
    same of β; the other way round where `selects` is "words".

    Both perceptrons have one hidden layer. That of Eq. 2 reads [v, t] and that of Eq. 8 v + t^f with t^f a weighted
    mean of words, so of both the first layer is done once a region and once a word, and only sums are left for a pair.

    `anneal` lowers or raises E over a stage, as Jang et al. (ICLR 2017, section 2.2) do; E changes the gradient alone.

    **Decided**: the paper names two directions and gives the similarity of one (Eq. 8, over the regions); that of
    the other is the same over the words, as in Eq. 4, with the same perceptron, and S is the mean of both. With soft
    attention σ stays and a mean is taken, where Eq. 4 has a sum without it.

    **Decided**: which side's parts are the rows of α, the "image-to-text attention" with k1, is `selects`, since the
    paper contradicts itself. With n regions and m words, Algorithm 1 declares α = {α_i}, i = 1 … m, of n numbers with
    Σ_j α_ij = k1, and γ of m × n numbers: each word selects k1 regions, as in Eq. 2 to 4, where V_wa = softmax(γ)·V_w
    has a row a word and s_i2t is a sum over the words. But its line 4 has γ_ij = MLP(v_i, t_j), Eq. 6 multiplies α_i
    by T, Eq. 7 fuses words and Eq. 8 is a mean over the n regions: each region selects k1 words. The default is
    "regions": the one similarity with a selection that is printed (Eq. 8) is theirs, and so are section 3.3's words
    ("a subset of words corresponding to the certain image region") and Figure 4. β, with k2, is the other side's.
    With soft attention and both directions the two readings are one.

    **Decided**: where the noise of the selection is added is `noise_on`, since Algorithm 1 and section 3.3 contradict
    each other; see `select_top_k`.
    """

    def __init__(self, settings: LocalMatchingSettings, dim: int) -> None:
        super().__init__()
        self.settings = settings
        # a plain number and not a buffer: it acts on gradients alone, so a checkpoint need not hold it
        self.temperature = settings.temperature
        self.score_of_region = nn.Linear(dim, settings.hidden)
        # both halves are added, so one of them has the bias
        self.score_of_item = nn.Linear(dim, settings.hidden, bias=False)
        self.score = nn.Linear(settings.hidden, 1)
        # one layer for both sides: Eq. 8 adds v and t^f before it, and W(v + t^f) = Wv + Wt^f
        self.relevance_of_sum = nn.Linear(dim, settings.hidden)
        self.relevance = nn.Linear(settings.hidden, 1)

    def anneal(self, done: float) -> None:
        """Set the temperature to what it is when a share `done`, in 0 … 1, of a stage is over."""
        first, last = self.settings.temperature, self.settings.last_temperature
        if last is not None:
            self.temperature = first * (last / first) ** done

    def project_regions(self, regions: Float[Tensor, "images regions dim"]) -> Projected:
        """Project images for their pairs."""
        present = torch.ones(regions.shape[:2], dtype=torch.bool, device=regions.device)
        return Projected(self.score_of_region(regions).float(), self._read(regions), present)

    def project_items(
        self, items: Float[Tensor, "sentences items dim"], present: Bool[Tensor, "sentences items"]
    ) -> Projected:
        """Project sentences for their pairs; `present` is False where a shorter sentence has no word."""
        return Projected(self.score_of_item(items).float(), self._read(items), present)

    def _read(self, parts: Tensor) -> Float[Tensor, "sides parts hidden"]:
        # without the bias: t^f is a weighted mean, and the bias has to enter once a sum (`_relevances`)
        return F.linear(parts, self.relevance_of_sum.weight).float()

    def forward(
        self, pictures: Projected, sentences: Projected, generator: torch.Generator | None = None
    ) -> LocalMatch:
        """Match every picture with every sentence, in float32; noise enters in training mode alone."""
        with torch.autocast(pictures.score.device.type, enabled=False):
            # autocast is off since close scores are equal in bf16, and topk takes any of those that tie
            gamma = self._scores(pictures, sentences)
            present = sentences.present[None, :, None, :].expand_as(gamma)
            settings, of_items, of_regions = self.settings, None, None
            similarities = []
            if settings.k_of_region is not None:
                of_items = self._attend(gamma, present, settings.k_of_region, generator)
                # `_relevances` does one matrix product for each of the
                # second side, so the sentences go first and back again
                each = self._relevances(pictures, sentences, of_items.transpose(0, 1)).transpose(0, 1)
                # regions of a picture whose sentence has nothing to say are not counted
                counted = sentences.present.any(dim=1)[None, :, None].expand(each.shape)
                similarities.append(_mean(each, counted))
            if settings.k_of_item is not None:
                scores, present = gamma.transpose(2, 3), present.transpose(2, 3)
                of_regions = self._attend(scores, present, settings.k_of_item, generator)
                each = self._relevances(sentences, pictures, of_regions)
                similarities.append(_mean(each, sentences.present[None].expand(each.shape)))
            counted = sentences.present.any(dim=1)
            return LocalMatch(torch.stack(similarities).mean(dim=0), counted, of_items, of_regions)

    def _scores(
        self, pictures: Projected, sentences: Projected
    ) -> Float[Tensor, "images sentences regions items"]:
        """γ of Eq. 2, 0 for positions without a word."""
        images, regions, _ = pictures.score.shape
        count, items = sentences.present.shape
        flat = sentences.present.flatten()
        if torch.compiler.is_exporting():
            hidden = F.relu(pictures.score.flatten(0, 1)[:, None] + sentences.score.flatten(0, 1))
            every = torch.where(flat, hidden @ self.score.weight[0] + self.score.bias, 0.0)
            return every.view(images, regions, count, items).transpose(1, 2)
        # only words that are there: sentences of a batch differ
        # in length, and each pair of parts costs a hidden layer
        found = additive_scores(
            pictures.score.flatten(0, 1), sentences.score.flatten(0, 1)[flat], self.score.weight[0]
        )
        gamma = found.new_zeros(images * regions, count * items)
        gamma[:, flat] = found + self.score.bias
        return gamma.view(images, regions, count, items).transpose(1, 2)

    def _attend(
        self, scores: Tensor, present: Tensor, k: int, generator: torch.Generator | None
    ) -> Float[Tensor, "images sentences rows items"]:
        """Weights over the last axis."""
        if self.settings.attention == "soft":
            # soft attention has 65.9 text→image R@1 on generated people where
            # top-k has 60.2 (one seed); in the paper it is three points behind
            return attention_weights(scores, present.to(scores.dtype))
        # at test the k highest, without noise: the same query has to find the same pictures
        noise = gumbel_noise(scores, generator) if self.training else None
        normalised = self.settings.noise_on == "normalised"
        chosen = select_top_k(
            scores, present, k, temperature=self.temperature, noise=noise, normalised=normalised
        )
        return attention_weights(scores, chosen)

    def _relevances(
        self,
        projected: Projected,
        others: Projected,
        weights: Float[Tensor, "others sides parts other_parts"],
    ) -> Float[Tensor, "others sides parts"]:
        """σ(MLP(v_i + t_i^f)) of Eq. 8 for each part of `projected`, with what it attends to in each of `others`."""
        begun = projected.relevance.flatten(0, 1) + self.relevance_of_sum.bias
        # one product for each of `others`: all parts of `projected` attend to the same rows there
        # `shape` and not `len`, which a recorded network would have as a constant
        count = others.relevance.shape[0]
        fused = torch.baddbmm(begun.expand(count, -1, -1), weights.flatten(1, 2), others.relevance)
        # in place: neither a product's gradient nor ReLU's reads the sum, which is the largest tensor here
        read = F.relu(fused, inplace=True) @ self.relevance.weight[0] + self.relevance.bias
        return torch.sigmoid(read).view(count, *projected.present.shape)


def _mean(
    each: Float[Tensor, "images sentences parts"], counted: Bool[Tensor, "images sentences parts"]
) -> Float[Tensor, "images sentences"]:
    """The mean over the existing parts."""
    return (each * counted).sum(dim=2) / counted.sum(dim=2).clamp(min=1)


_BLOCK = 1 << 18
"""Numbers of the hidden layer made at once on a CPU: a MiB, which stays in a core's cache."""

_ON_ACCELERATORS = 1 << 26
"""The same elsewhere: 256 MiB, enough to keep many cores busy."""


def additive_scores(
    left: Float[Tensor, "left hidden"], right: Float[Tensor, "right hidden"], weight: Float[Tensor, " hidden"]
) -> Float[Tensor, "left right"]:
    """`s_pq = Σ_h weight_h · ReLU(left_ph + right_qh)` of every row p with every row q.

    With `left = A·x + b` and `right = B·y` this is a perceptron on the pair (x, y) whose first linear layer is
    [A, B]: each half is computed once a row, and only added a pair. Gradients reach all three; the hidden layer, of
    left × right × hidden numbers, is made again for them, a few rows at a time.
    """
    found: Tensor = _AdditiveScores.apply(left, right, weight)  # type: ignore[no-untyped-call]
    return found


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
        # not the hidden layer: 480 × 800 pairs of 512 numbers are 786 MB, and making them again is one addition
        ctx.save_for_backward(left, right, weight)
        scores = left.new_empty(len(left), len(right))
        for rows, columns in _blocks(left, right):
            scores[rows, columns] = (left[rows, None] + right[columns]).relu_() @ weight
        return scores

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (gradient,) = gradients
        left, right, weight = ctx.saved_tensors
        of_left, of_right = torch.zeros_like(left), torch.zeros_like(right)
        for rows, columns in _blocks(left, right):
            # one comparison, one product, two sums: 490 → 265 ms for 480 × 800 rows of 512 numbers
            active = (left[rows, None] + right[columns]).gt_(0).mul_(gradient[rows, columns, None])
            of_left[rows] += active.sum(dim=1)
            of_right[columns] += active.sum(dim=0)
        # Σ_pq g_pq · ReLU(left_p + right_q) = Σ_p left_p · Σ_q g_pq [… > 0] + Σ_q right_q · Σ_p g_pq [… > 0]
        of_weight = (of_left * left).sum(dim=0) + (of_right * right).sum(dim=0)
        return of_left * weight, of_right * weight, of_weight


def _blocks(left: Tensor, right: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows of `left` and of `right` in one block."""
    block = _BLOCK if left.device.type == "cpu" else _ON_ACCELERATORS
    pairs = max(1, block // max(1, left.shape[1]))
    # about square, so that a row once in the cache meets as many rows of the other side as it can
    right_rows = max(1, min(len(right), math.isqrt(pairs)))
    left_rows = max(1, pairs // right_rows)
    for first in range(0, len(left), left_rows):
        for second in range(0, len(right), right_rows):
            yield slice(first, first + left_rows), slice(second, second + right_rows)


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """−log(−log u) with u uniform over (0, 1), as many as `like` has numbers (Algorithm 1, lines 9–10)."""
    uniform = torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype)
    # rand may give 0 exactly; two clamps keep both logarithms finite
    least = torch.finfo(like.dtype).tiny
    return -torch.log((-torch.log(uniform.clamp(min=least))).clamp(min=least))


def select_top_k(
    scores: Float[Tensor, "*rows items"],
    present: Bool[Tensor, "*rows items"],
    k: int,
    *,
    temperature: float = 1.0,
    noise: Float[Tensor, "*rows items"] | None = None,
    normalised: bool = True,
) -> Float[Tensor, "*rows items"]:
    """k-hot rows α: 1 at the k highest of scores plus noise, 0 elsewhere (Algorithm 1, lines 8–12; Eq. 5).

    Our name = their symbol: `scores` = γ, `temperature` = E, `noise` = −log(−log u). Without noise, which is how it
    works at test, they are the k highest scores. Items that are not `present` are never selected; where fewer
    than k are, all of them. The gradient is that of softmax((γ' + noise) / E), as if it were the output
    (straight-through), so it reaches items that were not selected.

    **Decided**: γ' is the row divided by its L2 norm where `normalised` (Algorithm 1, line 8), and γ itself where not
    (section 3.3: r = γ + G). The paper contradicts itself, and the two are far apart: of the best 4 of 20 normal
    scores the first keeps 0.26, where chance is 0.20, whatever their deviation and E; the second keeps 0.47 at a
    deviation of 1 and 0.80 at 4, so a network can make its selection surer by larger scores.
    """
    keys = scores.masked_fill(~present, 0.0)
    # a row of length 1 is drowned by noise of deviation 1.28, and no training can lift it: the norm takes away
    # whatever length the perceptron gives its scores
    if normalised:
        keys = F.normalize(keys, dim=-1)
    if noise is not None:
        keys = keys + noise
    # masked twice: with 0 before the norm, so that absent items do
    # not change its length, with −∞ here, so that they come last
    keys = (keys / temperature).masked_fill(~present, -torch.inf)
    first = keys.topk(min(k, keys.shape[-1]), dim=-1).indices
    # topk fills a row of fewer than k items with absent ones; `present` takes them out again
    chosen = torch.zeros_like(keys).scatter_(-1, first, 1.0) * present
    soft = torch.nan_to_num(keys.softmax(dim=-1))  # a row without any item
    # the parentheses keep the value exactly 0 or 1. The paper calls this gradient
    # unbiased; it is not: at E = 1 its mean is 0.59 of the length off (cosine 0.998),
    # with a ninth of REINFORCE's deviation (`benchmarks/gumbel_gradients.py`)
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
    # of a row without any the softmax is NaN, its gradient as
    # well; masked_fill writes 0 over the latter on the way back
    softmax = scores.masked_fill(~selected, -torch.inf).softmax(dim=-1)
    return torch.nan_to_num(softmax) * chosen
