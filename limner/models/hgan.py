"""HGAN: scores images and sentences as wholes, by words and by phrases.

Source: Zheng et al., "Hierarchical Gumbel Attention Network for Text-based Person Search", MM 2020, section 3.2 and
Figure 2, implementation section 4.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.image import LAST_MAP, BackboneSettings, build_backbone
from limner.models.local_matching import LocalMatch, LocalMatching, LocalMatchingSettings, Projected
from limner.models.text_bert import BertWords
from limner.models.text_hgan import HierarchicalText, HierarchicalTextSettings, SentenceParts
from limner.settings import Settings
from limner.types import TextNeed

Level = Literal["word", "phrase"]
LEVELS: tuple[Level, ...] = ("word", "phrase")

Sizes = tuple[int, int]
"""Rows and columns."""


class RegionSettings(Settings):
    """The division of the CNN's map into regions (Table 4)."""

    map_size: Sizes = (16, 8)
    """Rows and columns that the map is averaged to before windows are laid over it; Table 4 needs 16 × 8."""
    kernel: Sizes = (4, 4)
    """Rows and columns of a window (Table 4, best: 4 × 4)."""
    stride: Sizes = (3, 2)
    """Steps between windows (Table 4, best: 3 × 2)."""
    convolution: Literal[1, 3] = 3
    """Filter size of each branch's own convolution (the paper does not say)."""

    @model_validator(mode="after")
    def _windows_fit(self) -> "RegionSettings":
        # asked here, since avg_pool2d would only complain in the first step of a training
        for size, kernel, stride in zip(self.map_size, self.kernel, self.stride, strict=True):
            if min(size, kernel, stride) < 1 or kernel > size:
                raise ValueError(
                    f"kernel={self.kernel} and stride={self.stride} do not fit map_size={self.map_size}"
                )
        return self

    @property
    def grid(self) -> Sizes:
        """Rows and columns of regions."""
        rows, columns = (
            # as avg_pool2d counts, a rest at the right or bottom is in no window: 5 × 3 = 15 regions, Table 4's best
            (size - kernel) // stride + 1
            for size, kernel, stride in zip(self.map_size, self.kernel, self.stride, strict=True)
        )
        return rows, columns


class ScoreSettings(Settings):
    """The weights of a pair's score: the cosine of both wholes, and the similarities of words and of phrases."""

    sentence: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of the cosine of V_g and T_g."""
    word: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of S(V_w, T_w)."""
    phrase: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight of S(V_p, T_p)."""


class HGANSettings(DualEncoderSettings):
    """HGAN's image parts, text encoder and levels."""

    system: Literal["hgan"] = "hgan"
    """The published system."""
    backbone: BackboneSettings = BackboneSettings(name="resnet-50", weights="imagenet", last_stride=1)
    """The image CNN (section 4: ResNet-50; its last stage keeps the size of the map, as Table 4 needs)."""
    text: HierarchicalTextSettings = HierarchicalTextSettings()
    """The text encoder."""
    dim: int = Field(default=512, ge=1)
    """Width of the embedding, in which V_g meets T_g."""
    levels: tuple[Level, ...] = LEVELS
    """Levels below the sentence (Table 3)."""
    regions: RegionSettings = RegionSettings()
    """The windows."""
    local: LocalMatchingSettings = LocalMatchingSettings()
    """Attention and similarity at both levels."""
    scores: ScoreSettings = ScoreSettings()
    """Weights of the granularities in a pair's score (the paper does not say: all 1)."""

    offers: ClassVar[frozenset[str]] = frozenset({"classes", "levels"})

    def identity(self) -> dict[str, Any]:
        """Without where noise is added, which acts in training alone."""
        found = super().identity()
        # stores of a model that was trained before the setting was there keep their fingerprint
        local = {name: value for name, value in found["local"].items() if name != "noise_on"}
        return {**found, "local": local}

    def parts(self) -> frozenset[str]:
        """BERT in the place of the word table, and what is local where there are levels."""
        words = "words" if self.text.bert is None else "bert"
        return frozenset({"backbone", "image_projection", words, "text", "text_projection"}) | self._local

    @property
    def _local(self) -> frozenset[str]:
        return frozenset({"local"} if self.levels else ())

    def reached(self, *, embedding: bool, levels: bool) -> frozenset[str]:
        """The heads are behind the embedding alone, what is local behind the levels alone."""
        heads = frozenset({"image_projection", "text_projection"})
        return (
            (self.parts() - heads - self._local)
            | (heads if embedding else frozenset())
            | (self._local if levels else frozenset())
        )

    def check_stage(self, stage: Any) -> None:
        """Its sentences stand at the left, and a stage learns no level that there is not."""
        if stage.position_shift:
            # the second direction of the bi-LSTM is turned around at a
            # sentence's end, counted from the first position of its row
            raise ValueError("HGAN's sentences stand at the left; set position_shift=false")
        for loss in stage.losses:
            # a level of weight 0 is not computed, so it asks nothing of the network
            if "levels" in loss.needs and (
                lacking := [n for n, w in loss.weights.items() if w and n not in self.levels]
            ):
                raise ValueError(f"losses.{loss.kind}.{lacking[0]} needs '{lacking[0]}' among model.levels")

    @model_validator(mode="after")
    def _levels_differ(self) -> "HGANSettings":
        if len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels={list(self.levels)} names one twice")
        if not any(getattr(self.scores, level) for level in ("sentence", *self.levels)):
            raise ValueError(
                f"scores: the weights of all levels that there are (sentence, {', '.join(self.levels)}) are 0"
            )
        return self


@dataclass(frozen=True)
class PictureParts:
    """A picture as a whole and cut into regions.

    - `embedding`: V_g through its layer; `regions`: V_w and V_p by level.
    """

    embedding: Float[Tensor, "images dim"]
    regions: Mapping[Level, Float[Tensor, "images regions part_dim"]]


class RegionBranch(nn.Module):
    """V_w or V_p: a convolution of its own, windows averaged, a 1×1 convolution to C' (Eq. 1).

    **Decided**: the map is averaged to `map_size` first, since the CNN's map of 384 × 192 is 24 × 12 and Table 4's
    windows count in 16 × 8; the branch's convolution is 3×3 and narrows to C' at once, with batch norm and ReLU.
    """

    def __init__(self, settings: RegionSettings, channels: int, dim: int) -> None:
        super().__init__()
        self.settings = settings
        kernel = settings.convolution
        # narrowing at once: 9.4 million weights (3 × 3, 2,048 to
        # 512), where keeping the width would take 37.7 million
        self.convolution = nn.Conv2d(channels, dim, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        self.reduce = nn.Conv2d(dim, dim, 1)

    def forward(
        self, feature_map: Float[Tensor, "images channels height width"]
    ) -> Float[Tensor, "images regions dim"]:
        """Regions row by row."""
        averaged = F.adaptive_avg_pool2d(feature_map, self.settings.map_size)
        features = F.relu(self.norm(self.convolution(averaged)))
        # the 1×1 convolution behind it is linear: before the mean it gives the same, at 128 places in place of 15
        windows = F.avg_pool2d(features, self.settings.kernel, self.settings.stride)
        regions: Tensor = self.reduce(windows)
        return regions.flatten(2).transpose(1, 2)


class HGAN(DualEncoder):
    """Sentence level as an embedding; word and phrase level as similarities of pairs.

    Our name = their symbol: `pool_images` = V_g, `text` = T_g, `cut` = V_w and V_p, `text.encode` = T_w and T_p;
    `match` gives S(V, T) of each level; `dim` = the width in which V_g and T_g meet.

    **Decided**: one linear layer each takes V_g (2,048) and T_g (1,024) to `dim`. A pair's score at test is the
    weighted sum of their cosine and of both similarities.
    """

    # words and phrases look at regions of the map, which a pooled feature no longer has
    cached_map = LAST_MAP
    # what a stage's losses do not reach, or a batch without a noun phrase leaves out, has no gradient
    leaves_parameters_unused = True

    settings: HGANSettings
    text: HierarchicalText

    def __init__(self, settings: HGANSettings, vocabulary_size: int, *, load_weights: bool = True) -> None:
        backbone = build_backbone(settings.backbone, load_weights=load_weights)
        # weights are drawn in this order: another one gives every seed other weights
        text = HierarchicalText(settings.text, vocabulary_size, load_weights=load_weights)
        super().__init__(
            backbone,
            nn.Linear(backbone.channels, settings.dim),
            text,
            nn.Linear(text.channels, settings.dim),
            settings.dim,
        )
        self.settings = settings
        width = settings.text.dim
        # a level that is off has no parameters: they would never see a gradient and still be in the checkpoint
        self.branches = nn.ModuleDict(
            {level: RegionBranch(settings.regions, backbone.map_channels, width) for level in settings.levels}
        )
        self.local = nn.ModuleDict({level: LocalMatching(settings.local, width) for level in settings.levels})

    @property
    def reranked_by(self) -> str | None:
        """The granularities that it has below the sentence."""
        return "hgan" if self.settings.levels else None

    def read_map(self, pictures: Tensor) -> Float[Tensor, "images channels height width"]:
        """The CNN's last map of pixels, uint8 (images, 3, height, width), or of cached features."""
        if not pictures.is_floating_point():
            return self.backbone.forward_map(pictures)
        cached = pictures.permute(0, 3, 1, 2).float()
        if self.backbone.learns_from is None:
            return cached
        return self.backbone.map_from(cached, self.backbone.learns_from)

    def read_pictures(self, pictures: Tensor) -> PictureParts:
        """The embedding (not normalised) and the regions of an image, as `read_map` takes it."""
        feature_map = self.read_map(pictures)
        return PictureParts(self.embed_images(self.backbone.pool(feature_map).float()), self.cut(feature_map))

    def cut(
        self, feature_map: Float[Tensor, "images channels height width"]
    ) -> dict[Level, Float[Tensor, "images regions part_dim"]]:
        """The regions of a map, by level."""
        return {level: self.branches[level](feature_map) for level in self.settings.levels}

    def read_sentences(
        self,
        token_ids: Int64[Tensor, "batch words"],
        phrases: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "batch words width"] | None = None,
    ) -> tuple[Float[Tensor, "batch dim"], SentenceParts]:
        """The embeddings of sentences, not normalised, and all of their parts; see `HierarchicalText.encode`."""
        parts = self.text.encode(token_ids, phrases, words_below)
        return self.text_projection(parts.feature), parts

    def embed_pairs(
        self,
        images: Tensor,
        token_ids: Int64[Tensor, "rows words"],
        phrases: Int64[Tensor, "rows words"] | None = None,
        words_below: Float[Tensor, "rows words width"] | None = None,
        *,
        local: bool = False,
    ) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"], Mapping[str, LocalMatch]]:
        """As every network does; `local` matches all pairs by words and by phrases."""
        seen = self.read_pictures(images)
        # phrases of 0 = in none: a network without the phrase level is given no phrases
        texts, parts = self.read_sentences(
            token_ids, torch.zeros_like(token_ids) if phrases is None else phrases, words_below
        )
        # all pairs are batch² perceptrons a level (7,800 pairs a
        # second on one thread): only for losses that read them
        if not local:
            return seen.embedding, texts, {}
        matches = self.match(self.project_pictures(seen.regions), self.project_sentences(parts))
        return seen.embedding, texts, {str(level): match for level, match in matches.items()}

    def kept_words(self, frozen: Collection[str]) -> BertWords | None:
        """BERT, while it is frozen."""
        return self.text.bert if "bert" in frozen else None

    def project_pictures(self, regions: Mapping[Level, Tensor]) -> dict[Level, Projected]:
        """Project images for their pairs, by level."""
        return {level: self._local(level).project_regions(features) for level, features in regions.items()}

    def project_sentences(self, parts: SentenceParts) -> dict[Level, Projected]:
        """Project sentences for their pairs, by level."""
        of_level = {
            "word": (parts.words, parts.words_present),
            "phrase": (parts.phrases, parts.phrases_present),
        }
        return {level: self._local(level).project_items(*of_level[level]) for level in self.settings.levels}

    def anneal(self, done: float) -> None:
        """Set the temperature of both levels' selection to what it is when a share `done` of a stage is over."""
        for level in self.settings.levels:
            self._local(level).anneal(done)

    def match(
        self,
        pictures: Mapping[Level, Projected],
        sentences: Mapping[Level, Projected],
        generator: torch.Generator | None = None,
    ) -> dict[Level, LocalMatch]:
        """All pairs at each level."""
        return {
            level: self.local[level](pictures[level], sentences[level], generator)
            for level in self.settings.levels
        }

    def _local(self, level: Level) -> LocalMatching:
        found = self.local[level]
        # a ModuleDict gives any nn.Module; this tells the type checker which
        assert isinstance(found, LocalMatching)
        return found

    @property
    def needs_of_text(self) -> frozenset[TextNeed]:
        """Noun phrases, where the phrase level is on, beside what the text encoder needs."""
        phrases: frozenset[TextNeed] = frozenset({"phrases"} if "phrase" in self.settings.levels else ())
        return self.text.needs_of_text | phrases

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """BERT with its table is a part of its own, "bert"; branches and perceptrons are "local"."""
        above = [module for name, module in self.text.named_children() if name not in ("bert", "vectors")]
        return {
            "backbone": [self.backbone],
            "image_projection": [self.image_projection],
            # one of the two is empty, and `HGANSettings.parts` names only the other
            "words": [] if self.text.vectors is None else [self.text.vectors],
            "bert": [] if self.text.bert is None else [self.text.bert],
            "text": above,
            "text_projection": [self.text_projection],
            # the branches too, since their regions serve the levels alone: V_g is pooled from the map before them
            "local": [self.branches, self.local],
        }
