"""HGAN: scores images and sentences as wholes, by words and by phrases.

Source: Zheng et al., "Hierarchical Gumbel Attention Network for Text-based Person Search", MM 2020, section 3.2 and
Figure 2, implementation section 4.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.models.dual_encoder import DualEncoderSettings
from limner.models.image import LAST_MAP, BackboneSettings, build_backbone
from limner.models.levels import (
    LEVELS,
    Level,
    LevelledEncoder,
    LevelsSettings,
    RegionSettings,
    ScoreSettings,
    expect_levels,
    expect_levels_of,
)
from limner.models.local_matching import LocalMatch, LocalMatchingSettings
from limner.models.text_bert import BertWords
from limner.models.text_hgan import HierarchicalText, HierarchicalTextSettings, SentenceParts


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
        return {**super().identity(), "local": self.local.identity()}

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
        expect_levels_of(stage, self.levels, "model.levels")

    @model_validator(mode="after")
    def _levels_differ(self) -> "HGANSettings":
        expect_levels("levels", self.levels, self.scores)
        return self


@dataclass(frozen=True)
class PictureParts:
    """A picture as a whole and cut into regions.

    - `embedding`: V_g through its layer; `regions`: V_w and V_p by level.
    """

    embedding: Float[Tensor, "images dim"]
    regions: Mapping[Level, Float[Tensor, "images regions part_dim"]]


class HGAN(LevelledEncoder):
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
        self.add_levels()

    @property
    def level_settings(self) -> LevelsSettings | None:
        """Those of the network, whose text encoder has the words' self-attention."""
        settings = self.settings
        if not settings.levels:
            return None
        return LevelsSettings(
            granularities=settings.levels,
            dim=settings.text.dim,
            heads=settings.text.heads,
            dropout=settings.text.dropout,
            regions=settings.regions,
            local=settings.local,
            scores=settings.scores,
        )

    @property
    def reranked_by(self) -> str | None:
        """The granularities that it has below the sentence."""
        return "levels" if self.settings.levels else None

    def read_pictures(self, pictures: Tensor) -> PictureParts:
        """The embedding (not normalised) and the regions of an image, as `ImageEncoder.read_map` takes it."""
        feature_map = self.backbone.read_map(pictures)
        return PictureParts(self.embed_images(self.backbone.pool(feature_map).float()), self.cut(feature_map))

    def read_sentences(
        self,
        token_ids: Int64[Tensor, "batch words"],
        phrases: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "batch words width"] | None = None,
    ) -> tuple[Float[Tensor, "batch dim"], SentenceParts]:
        """The embeddings of sentences, not normalised, and all of their parts; see `HierarchicalText.encode`."""
        parts = self.text.encode(token_ids, phrases, words_below)
        return self.text_projection(parts.feature), parts

    def sentence_parts(
        self, token_ids: Int64[Tensor, "batch words"], phrases: Int64[Tensor, "batch words"]
    ) -> SentenceParts:
        """The words and phrases of sentences, and T_g."""
        return self.text.encode(token_ids, phrases)

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
