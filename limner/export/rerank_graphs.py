"""A model's reranker as modules that can be recorded: regions of pictures, parts of sentences, and scores of pairs.

A picture's regions and a sentence's parts are computed once; the scores are those of all pairs of some of both. Blocks,
the alignment of words and the rounding to half precision stay outside (`limner.export.reranker`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from limner.export.onnx_files import Example
from limner.inference.network_reranker import NetworkReranker
from limner.inference.rerank_co_attention import CoAttentionReranker
from limner.inference.rerank_late import ATTENTION_SCALE, LateReranker
from limner.inference.rerank_levels import LevelsReranker
from limner.inference.trained import TrainedModel
from limner.models.co_attention import CrossEncoder
from limner.models.dual_encoder import DualEncoder
from limner.models.image import LAST_MAP, ImageEncoder, folded
from limner.models.late import LateInteraction, maxsim
from limner.models.levels import LevelledEncoder
from limner.models.local_matching import LocalMatch, Projected
from limner.types import PADDING

# odd and different ones: equal sizes would be recorded as one
_IMAGES, _SENTENCES = 3, 2
"""Pictures and sentences that scores are recorded with."""


@dataclass(frozen=True, eq=False)
class RerankGraphs:
    """The three modules of a reranker, and what `limner.export.reranker.ExportedReranker` needs to know of them.

    - `regions`: float pixels (images, height, width, 3) to regions (images, rows, columns, channels).
    - `sentence`: token ids, and with `phrases` the phrases' numbers, to the tensors `sentence_outputs`.
    - `pairs`: regions and these tensors to `pair_outputs`: logits (images, sentences), and attention before them.
    """

    regions: nn.Module
    sentence: nn.Module
    pairs: nn.Module
    sentence_outputs: tuple[str, ...]
    pair_outputs: tuple[str, ...]
    any_length: bool
    phrases: bool
    told: dict[str, Any]

    def sentence_inputs(self, words: int) -> dict[str, Example]:
        """The inputs of `sentence`, of rows of so many tokens."""
        # full rows, so that nothing of the recorded example is empty or of size 1
        token_ids = torch.ones(_SENTENCES, words, dtype=torch.int64)
        axes = (0, 1) if self.any_length else (0,)
        found = {"token_ids": Example(token_ids, axes)}
        if self.phrases:
            found["phrases"] = Example(token_ids.cumsum(1), axes)
        return found

    @torch.no_grad()
    def pair_inputs(self, words: int) -> dict[str, Example]:
        """The inputs of `pairs`."""
        rows = torch.zeros(_IMAGES, *self.told["region_shape"])
        parts = self.sentence(*(one.values for one in self.sentence_inputs(words).values()))
        axes = (0, 1) if self.any_length else (0,)
        return {
            "regions": Example(rows),
            **{name: Example(part, axes) for name, part in zip(self.sentence_outputs, parts, strict=True)},
        }


def rerank_graphs(model: TrainedModel) -> RerankGraphs | None:
    """The reranker of a model as modules; None without one that changes the order, and for one of another package."""
    reranker = model.reranker
    if isinstance(reranker, CoAttentionReranker):
        return _co_attention(reranker)
    if isinstance(reranker, LevelsReranker):
        return _levels(reranker)
    if isinstance(reranker, LateReranker):
        return _late(reranker)
    return None


def _told(reranker: NetworkReranker, *, numbers: int, **values: Any) -> dict[str, Any]:
    scoring = reranker.scoring
    return {
        "region_shape": list(reranker.region_shape),
        "numbers": numbers,
        "weights": list(scoring.weights),
        "confidence": "sigmoid" if scoring.highest is None else scoring.highest,
        "reader": scoring.reader,
        "words_shown": "alphanumeric" if scoring.alphanumeric else "all",
        **values,
    }


class _Regions(nn.Module):
    """Pixels to the last map of an image as it is, without its mirror image, and that to regions."""

    def __init__(self, backbone: ImageEncoder, cut: nn.Module) -> None:
        super().__init__()
        self.backbone = folded(backbone)
        self.cut = cut

    def forward(self, pixels: Tensor) -> Float[Tensor, "images rows columns channels"]:
        last = self.backbone.forward_until(pixels.to(torch.float32).permute(0, 3, 1, 2), LAST_MAP)
        return self.cut(last)  # type: ignore[no-any-return]


def _co_attention(reranker: CoAttentionReranker) -> RerankGraphs:
    cross_encoder = reranker.cross_encoder
    settings = cross_encoder.settings
    rows, columns, _ = reranker.region_shape
    attentions = {"of_regions": settings.spatial, "of_words": settings.semantic}
    return RerankGraphs(
        _Regions(cross_encoder.backbone, _ChannelsLast()),
        _StatesOfWords(cross_encoder),
        _CoAttentionPairs(cross_encoder),
        ("words", "present"),
        ("logits", *(name for name, there in attentions.items() if there)),
        any_length=cross_encoder.text.any_length,
        phrases=False,
        told=_told(
            reranker,
            numbers=rows * columns * settings.spatial_dim,
        ),
    )


class _ChannelsLast(nn.Module):
    def forward(self, last: Tensor) -> Tensor:
        return last.permute(0, 2, 3, 1)


class _StatesOfWords(nn.Module):
    """H, the states of words of sentences, and which of them there are."""

    def __init__(self, cross_encoder: CrossEncoder) -> None:
        super().__init__()
        self.text = cross_encoder.text

    def forward(self, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.text.encode_words(token_ids)


class _CoAttentionPairs(nn.Module):
    """The logits of all pairs, and both attentions where there are."""

    def __init__(self, cross_encoder: CrossEncoder) -> None:
        super().__init__()
        self.co_attention = cross_encoder.co_attention

    def forward(self, regions: Tensor, words: Tensor, present: Tensor) -> tuple[Tensor, ...]:
        images, sentences = regions.shape[0], words.shape[0]
        # a row a pair, which is what the network reads
        seen = regions.flatten(1, 2)[:, None].expand(-1, sentences, -1, -1).flatten(0, 1)
        said, there = (part[None].expand(images, *part.shape).flatten(0, 1) for part in (words, present))
        match = self.co_attention(seen, said, there)
        found = (match.logits, match.of_regions, match.of_words)
        return tuple(part.unflatten(0, (images, sentences)) for part in found if part is not None)


def _levels(reranker: LevelsReranker) -> RerankGraphs:
    model, settings = reranker.model, reranker.settings
    selected = {"of_regions": settings.local.k_of_item, "of_words": settings.local.k_of_region}
    attentions = [name for name, k in selected.items() if "word" in model.levels and k is not None]
    rows, columns, _ = reranker.region_shape
    return RerankGraphs(
        _Regions(model.backbone, _Cut(reranker)),
        _ProjectedSentences(model),
        _LevelPairs(reranker, attentions),
        tuple(f"{level}_{part}" for level in model.levels for part in ("score", "relevance", "present")),
        ("logits", *attentions),
        any_length=model.text.any_length,
        phrases="phrases" in model.needs_of_text,
        told=_told(
            reranker,
            numbers=rows * columns * settings.local.hidden,
            # so many are selected, which a row must have places for
            least_words=settings.local.k_of_region or 1,
        ),
    )


class _Cut(nn.Module):
    """The last map to the regions of all levels behind one another."""

    def __init__(self, reranker: LevelsReranker) -> None:
        super().__init__()
        self.branches = reranker.model.branches
        self.levels = reranker.model.levels
        self.shape = reranker.region_shape

    def forward(self, last: Tensor) -> Tensor:
        joined = torch.cat([self.branches[level](last) for level in self.levels], dim=2)
        found: Tensor = joined.reshape(-1, *self.shape)
        return found


class _ProjectedSentences(nn.Module):
    """Sentences as they enter the perceptrons of each level."""

    def __init__(self, model: LevelledEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor, phrases: Tensor | None = None) -> tuple[Tensor, ...]:
        parts = self.model.sentence_parts(
            token_ids, torch.zeros_like(token_ids) if phrases is None else phrases
        )
        projected = self.model.project_sentences(parts).values()
        return tuple(part for one in projected for part in (one.score, one.relevance, one.present))


class _LevelPairs(nn.Module):
    """The weighted sums of the similarities of both levels, and the attention of words."""

    def __init__(self, reranker: LevelsReranker, attentions: list[str]) -> None:
        super().__init__()
        self.local = reranker.model.local
        self.levels = reranker.model.levels
        self.total: Callable[[dict[Any, LocalMatch]], Tensor] = reranker.total
        self.attentions = attentions

    def forward(self, regions: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        cut = regions.flatten(1, 2).chunk(len(self.levels), dim=2)
        matches = {}
        for number, level in enumerate(self.levels):
            local: Any = self.local[level]
            sentences = Projected(*parts[3 * number : 3 * number + 3])
            matches[level] = local(local.project_regions(cut[number]), sentences)
        # a region's weights over the words are how it reads them
        names = {"of_regions": "of_regions", "of_words": "of_items"}
        return self.total(matches), *(getattr(matches["word"], names[name]) for name in self.attentions)


def _late(reranker: LateReranker) -> RerankGraphs:
    rows, columns, _ = reranker.region_shape
    return RerankGraphs(
        _Regions(reranker.model.backbone, _LateRegions(reranker.late)),
        _LateWords(reranker.model, reranker.late),
        _LatePairs(),
        ("words", "present"),
        ("logits", "of_regions"),
        any_length=reranker.model.text.any_length,
        phrases=False,
        told=_told(
            reranker,
            numbers=rows * columns,
            # as a store keeps regions
            words_in_half=True,
        ),
    )


class _LateRegions(nn.Module):
    """The last map to unit vectors of regions."""

    def __init__(self, late: LateInteraction) -> None:
        super().__init__()
        self.late = late

    def forward(self, last: Tensor) -> Tensor:
        return self.late.regions(last)


class _LateWords(nn.Module):
    """Unit vectors of tokens, and which of them there are."""

    def __init__(self, model: DualEncoder, late: LateInteraction) -> None:
        super().__init__()
        self.text: Any = model.text
        self.late = late

    def forward(self, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.late.words(self.text.token_features(token_ids)), token_ids != PADDING


class _LatePairs(nn.Module):
    """MaxSim of all pairs, and each token's attention over the regions."""

    def forward(self, regions: Tensor, words: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        seen = regions.flatten(1, 2)
        weights = (ATTENTION_SCALE * torch.einsum("swd,ird->iswr", words, seen)).softmax(dim=3)
        return maxsim(seen, words, present), weights
