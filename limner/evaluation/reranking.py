"""Re-ranking: a slower scorer of pairs orders the first of what similarities have ranked.

Source: Li et al., ICCV 2017, sections 3.2 and 4.2: "stage-1 screens", its first 20 are matched by stage 2. What is not
re-ranked keeps its order below.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from limner.errors import SettingsError
from limner.evaluation.scores import Scores
from limner.types import PairScorer

ByClass = Literal["confidences", "scores"]

First = int | Literal["all"]
"""How many of a query's first items are matched; 0 = none."""

_REMEMBERED = 1 << 26
"""Pairs whose logits are kept at most, 256 MB."""

_PAIRS = 2**22
"""Pairs of pictures with the sentences of classes that are asked for at once."""

# Cosines end at 1 and float32 tells places from 2 to 3 apart to 2.4e-7, enough for four million items.
_ABOVE = 2.0
"""Where the scores of matched items begin: above any similarity of unit rows."""


def remembered(scorer: PairScorer, images: int, sentences: int) -> PairScorer:
    """The same scorer, which scores no pair twice: both directions ask for many of the same ones.

    Where there are more than 2²⁶ pairs, the scorer as it is.
    """
    if images * sentences > _REMEMBERED:
        return scorer
    # NaN says "not asked": 0 is a logit like any other.
    known = np.full((images, sentences), np.nan, np.float32)

    def cached_scorer(
        of_images: Int[np.ndarray, " pairs"], of_sentences: Int[np.ndarray, " pairs"]
    ) -> Float[np.ndarray, " pairs"]:
        new = np.isnan(known[of_images, of_sentences])
        # A pair that stands twice in one call is scored twice, with the same result.
        if new.any():
            known[of_images[new], of_sentences[new]] = scorer(of_images[new], of_sentences[new])
        return np.asarray(known[of_images, of_sentences])

    return cached_scorer


class Reranking(ABC):
    """Changes blocks of similarities so that they rank as a scorer of pairs says."""

    @abstractmethod
    def rescore(
        self,
        to_text: bool,
        queries: Int[np.ndarray, " queries"],
        gallery: Int[np.ndarray, " gallery"],
        scores: Float[Tensor, "queries gallery"],
    ) -> None:
        """Write into a block, whose rows and columns are images and sentences (or the reverse) by position."""

    @abstractmethod
    def of_sentences(self, chosen: Int[np.ndarray, " chosen"]) -> "Reranking":
        """The same where only some of the sentences take part, which are then counted from 0."""

    @property
    @abstractmethod
    def described(self) -> str:
        """The words for it in a report's protocol."""


def reranked(
    similarities: Scores,
    reranking: Reranking | None,
    to_text: bool,
    queries: Int[np.ndarray, " queries"],
    gallery: Int[np.ndarray, " gallery"],
) -> Scores:
    """The similarities as the re-ranking leaves them; without one as they are."""
    if reranking is None:
        return similarities

    # Positions in the whole set: in a fold the scorer still knows pictures by their own numbers.
    def rescore(start: int, stop: int, block: Tensor) -> None:
        reranking.rescore(to_text, queries[start:stop], gallery, block)

    # Levels differ by less than the tolerance of similarities where a whole gallery is matched; equal ones are equal.
    def tolerance(start: int, stop: int, chosen: Tensor) -> Tensor:
        return similarities.tolerance(start, stop, chosen).masked_fill(chosen > _ABOVE, 0)

    return replace(similarities, rescore=rescore, tolerance=tolerance)


@dataclass(frozen=True, eq=False)
class PairReranking(Reranking):
    """The first items of each query by similarity, ordered by their logits, above all others.

    Equal logits stay equal, so that ties count as anywhere. Of similarities that are equal at the end of the first,
    any may be taken. `by_class` says what a class of several sentences has the mean of (`ClassReranking`). Raises
    `SettingsError` for `first` below 0.
    """

    scorer: PairScorer
    first: First = 20
    by_class: ByClass = "confidences"
    sentences: Int[np.ndarray, " sentences"] | None = None

    def __post_init__(self) -> None:
        if self.first != "all" and self.first < 0:
            raise SettingsError(f"rerank: expected at least 0 or 'all', got {self.first}")

    def rescore(
        self,
        to_text: bool,
        queries: Int[np.ndarray, " queries"],
        gallery: Int[np.ndarray, " gallery"],
        scores: Float[Tensor, "queries gallery"],
    ) -> None:
        """Match the first of each row and put them above the rest."""
        items = shortlist(scores, self.first)
        if not items.shape[1]:
            return
        # The scorer takes flat lists of pairs, image first whichever side asks.
        pair_items = gallery[items.cpu().numpy()].ravel()
        pair_queries = np.repeat(queries, items.shape[1])
        images, sentences = (pair_queries, pair_items) if to_text else (pair_items, pair_queries)
        if self.sentences is not None:
            sentences = self.sentences[sentences]
        logits = torch.from_numpy(self.scorer(images, sentences)).view(items.shape)
        # Levels, not logits: 2 and a logit of −5 would fall below the similarities of items that were not matched.
        scores.scatter_(1, items, _ABOVE + _levels(logits).to(scores))

    def of_sentences(self, chosen: Int[np.ndarray, " chosen"]) -> "PairReranking":
        """The same scorer, asked about the chosen sentences."""
        before = self.sentences
        # Chosen once already: the new positions count among those of the first choice.
        return replace(self, sentences=chosen if before is None else before[chosen])

    @property
    def described(self) -> str:
        """For a report's protocol."""
        return _described(self.first, "re-ranked")


@dataclass(frozen=True, eq=False)
class ClassReranking(Reranking):
    """A text query of a whole class is scored by the mean confidence over its sentences.

    **Decided**: stage 1 screens for each sentence by itself, as everywhere, and a picture that is not among a
    sentence's first counts for it with confidence 0; pictures that no sentence of the class has matched keep their
    order below. Were the first 20 of the class's mean feature ordered instead, AP@50 could not change. Picture
    queries are not re-ranked, as in the paper (section 4.5).

    With `by_class="scores"` (HGAN) it is the mean score instead, and picture queries rank classes by it, too: of a
    picture the first classes by their mean feature, each scored with all of its sentences.

    `members[c]` are the sentences of class c by position, `images` and `texts` all embeddings.
    """

    pairs: PairReranking
    members: Sequence[Int[np.ndarray, " _members"]]
    images: Float[np.ndarray, "images dim"]
    texts: Float[np.ndarray, "sentences dim"]

    def rescore(
        self,
        to_text: bool,
        queries: Int[np.ndarray, " queries"],
        gallery: Int[np.ndarray, " gallery"],
        scores: Float[Tensor, "queries gallery"],
    ) -> None:
        """Put the pictures that any sentence of a class has matched above the rest, by mean confidence."""
        if self.pairs.first == 0:
            return
        if to_text:
            if self.pairs.by_class == "scores":
                self._of_pictures(queries, gallery, scores)
            return
        # Cosines anew, because `scores` holds those of the class's mean and not of its sentences.
        images = self.images[gallery]
        for row, which in enumerate(queries):
            members = self.members[which]
            items = shortlist(torch.from_numpy(self.texts[members] @ images.T), self.pairs.first).numpy()
            sentences = np.repeat(members, items.shape[1])
            if self.pairs.sentences is not None:
                sentences = self.pairs.sentences[sentences]
            logits = self.pairs.scorer(gallery[items].ravel(), sentences)
            # float64: sure confidences round to 1 in float32, tie, and a tie counts against the model.
            pair_scores = logits.astype(np.float64)
            if self.pairs.by_class == "confidences":
                pair_scores = 1 / (1 + np.exp(-pair_scores))
            # A picture that is not among a sentence's first adds nothing: confidence 0, as decided above.
            sums = np.bincount(items.ravel(), weights=pair_scores, minlength=len(gallery))
            matched = np.bincount(items.ravel(), minlength=len(gallery)) > 0
            at = torch.from_numpy(np.flatnonzero(matched)).to(scores.device)
            # Sums rank as the means do: each is over the same number of sentences.
            scores[row, at] = _ABOVE + _levels(torch.from_numpy(sums[matched])[None])[0].to(scores)

    def _of_pictures(
        self,
        queries: Int[np.ndarray, " queries"],
        gallery: Int[np.ndarray, " gallery"],
        scores: Float[Tensor, "queries gallery"],
    ) -> None:
        """Put the first classes of each picture above the rest, by the mean score over their sentences."""
        items = shortlist(scores, self.pairs.first)
        wanted = items.cpu().numpy()
        means = torch.empty(items.shape, dtype=torch.float64)
        # Each call encodes its sentences anew, so it takes as many pictures as have pairs that fit into memory.
        longest = sum(map(len, self.members))
        step = max(1, _PAIRS // max(longest, 1))
        for start in range(0, len(queries), step):
            members = [
                self.members[which] for classes in wanted[start : start + step] for which in gallery[classes]
            ]
            # Classes differ in their number of sentences, so pairs come flat and are split again below.
            counts = np.array([len(each) for each in members]).reshape(-1, items.shape[1])
            sentences = np.concatenate(members)
            if self.pairs.sentences is not None:
                sentences = self.pairs.sentences[sentences]
            pictures = np.repeat(queries[start : start + step], counts.sum(axis=1))
            logits = self.pairs.scorer(pictures, sentences).astype(np.float64)
            parts = np.split(logits, np.cumsum(counts.ravel())[:-1])
            means[start : start + step] = torch.tensor([part.mean() for part in parts]).view(counts.shape)
        scores.scatter_(1, items, _ABOVE + _levels(means).to(scores))

    def of_sentences(self, chosen: Int[np.ndarray, " chosen"]) -> "ClassReranking":
        """Some of the classes, which stand where sentences do."""
        return replace(self, members=[self.members[which] for which in chosen])

    @property
    def described(self) -> str:
        """For a report's protocol."""
        mean = {"confidences": "confidence", "scores": "score"}[self.pairs.by_class]
        return _described(self.pairs.first, f"of each sentence of a class matched, its mean {mean}")


def shortlist(scores: Float[Tensor, "queries gallery"], first: First) -> Int[Tensor, "queries first"]:
    """Columns of each row's highest scores, best first; all of them in a fixed order where all are asked for."""
    count = scores.shape[1] if first == "all" else min(first, scores.shape[1])
    # `topk` may take any of equal scores at the end, which costs less than a stable sort of the row.
    return scores.topk(count, dim=1).indices


def _levels(logits: Float[Tensor, "queries first"]) -> Float[Tensor, "queries first"]:
    """The order of each row's logits as numbers in (0, 1]: equal for equal ones, apart by at least 1 / first."""
    ordered, places = logits.sort(dim=1)
    # Equal logits stay on one level, so that they tie after re-ranking as before.
    steps = torch.cat([torch.ones_like(ordered[:, :1]), (ordered.diff(dim=1) > 0).to(ordered)], dim=1)
    # Counted in float64, which is exact for any gallery.
    levels = steps.double().cumsum(1) / logits.shape[1]
    return torch.empty_like(levels).scatter_(1, places, levels)


def _described(first: First, how: str) -> str:
    # Nothing to say: with 0 the protocol is the plain one.
    if first == 0:
        return ""
    return f"{'all' if first == 'all' else f'first {first}'} {how}"
