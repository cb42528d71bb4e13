"""Levels below the sentence: regions of an image against the words and the noun phrases of a sentence.

They are HGAN's, and any network has them above its own map of the image and its own features of words.

Source: Zheng et al., "Hierarchical Gumbel Attention Network for Text-based Person Search", MM 2020, section 3.2 and
Figure 2, implementation section 4.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.models.dual_encoder import DualEncoder
from limner.models.local_matching import LocalMatch, LocalMatching, LocalMatchingSettings, Projected
from limner.models.text_hgan import SentenceParts, attended_phrases, attention_layers, up_to_the_longest
from limner.settings import Settings
from limner.types import TextNeed

Level = Literal["word", "phrase"]
LEVELS: tuple[Level, ...] = ("word", "phrase")

Sizes = tuple[int, int]
"""Rows and columns."""


class RegionSettings(Settings):
    """The division of an image's last map into regions (Table 4)."""

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


class LevelsSettings(Settings):
    """The settings of words and phrases that are matched with regions, above any two encoders."""

    granularities: tuple[Level, ...] = LEVELS
    """Levels below the sentence (Table 3)."""
    dim: int = Field(default=512, ge=8)
    """C', width of the features of regions, words and phrases (section 4: 512)."""
    heads: int = Field(default=8, ge=1)
    """Heads of the self-attention over words, and of that over phrases (the paper does not say)."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout in both (Vaswani et al.: 0.1)."""
    regions: RegionSettings = RegionSettings()
    """The windows."""
    local: LocalMatchingSettings = LocalMatchingSettings()
    """Attention and similarity at both levels."""
    scores: ScoreSettings = ScoreSettings()
    """Weights of the granularities in a pair's score (the paper does not say: all 1)."""

    @model_validator(mode="after")
    def _fits(self) -> "LevelsSettings":
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} cannot be shared by heads={self.heads}")
        if not self.granularities:
            raise ValueError("granularities is empty; name 'word', 'phrase' or both, or leave the levels out")
        expect_levels("granularities", self.granularities, self.scores)
        return self

    def identity(self) -> dict[str, Any]:
        """As plain values without what acts in training alone."""
        return {**self.model_dump(mode="json", exclude={"dropout"}), "local": self.local.identity()}


def expect_levels(setting: str, levels: Collection[Level], scores: ScoreSettings) -> None:
    """Raise `ValueError` where a setting names a level twice, or no level that there is has a weight in the score."""
    if len(set(levels)) < len(levels):
        raise ValueError(f"{setting}={list(levels)} names one twice")
    if not any(getattr(scores, level) for level in ("sentence", *levels)):
        raise ValueError(
            f"scores: the weights of all levels that there are (sentence, {', '.join(levels)}) are 0"
        )


def expect_levels_of(stage: Any, levels: Collection[Level], setting: str) -> None:
    """Raise `ValueError` for a stage whose losses learn a level that a network has not."""
    for loss in stage.losses:
        # a level of weight 0 is not computed, so it asks nothing of the network
        lacking = [name for name, weight in loss.weights.items() if weight and name not in levels]
        if "levels" in loss.needs and lacking:
            raise ValueError(f"losses.{loss.kind}.{lacking[0]} needs '{lacking[0]}' among {setting}")


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


class WordsAndPhrases(nn.Module):
    """T_w and T_p above the states that a text encoder has for single tokens.

    A departure: tokens of special meaning, such as the end of the text, are words here. A linear layer takes the states
    to C', and one Transformer encoder layer each follows for words and for phrases, as
    in `limner.models.text_hgan.HierarchicalText`, whose BERT the encoder stands for.
    """

    def __init__(self, settings: LevelsSettings, channels: int) -> None:
        super().__init__()
        self.entry = nn.Linear(channels, settings.dim)
        self.word_attention, self.phrase_attention = attention_layers(
            settings.dim, settings.heads, settings.dropout
        )

    def forward(
        self,
        feature: Float[Tensor, "batch channels"],
        states: Float[Tensor, "batch words channels"],
        token_ids: Int64[Tensor, "batch words"],
        phrases: Int64[Tensor, "batch words"],
    ) -> SentenceParts:
        """The parts of sentences, whose feature as a whole is passed on; see `HierarchicalText.encode`."""
        token_ids, present = up_to_the_longest(token_ids)
        width = token_ids.shape[1]
        entered = self.entry(states[:, :width])
        words: Tensor = self.word_attention(entered, src_key_padding_mask=~present)
        means, found = attended_phrases(self.phrase_attention, entered, phrases[:, :width])
        return SentenceParts(feature, words * present[:, :, None], present, means, found)


class LevelledEncoder(DualEncoder):
    """A dual encoder that may match the parts of images and of sentences, too.

    Our name = their symbol: `cut` = V_w and V_p; `sentence_parts` = T_w and T_p; `match` gives S(V, T) of each level.
    """

    branches: nn.ModuleDict
    local: nn.ModuleDict

    @property
    @abstractmethod
    def level_settings(self) -> LevelsSettings | None:
        """The settings of its levels; None = it has none."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that it has below the sentence."""
        return () if self.level_settings is None else self.level_settings.granularities

    def add_levels(self) -> None:
        """Make the networks of the levels, which start at random."""
        settings, channels = self.level_settings, self.backbone.map_channels
        # a level that is off has no parameters: they would never see a gradient and still be in the checkpoint
        self.branches, self.local = nn.ModuleDict(), nn.ModuleDict()
        if settings is not None:
            for level in settings.granularities:
                self.branches[level] = RegionBranch(settings.regions, channels, settings.dim)
            for level in settings.granularities:
                self.local[level] = LocalMatching(settings.local, settings.dim)

    @abstractmethod
    def sentence_parts(
        self, token_ids: Int64[Tensor, "batch words"], phrases: Int64[Tensor, "batch words"]
    ) -> SentenceParts:
        """The words and phrases of sentences; `phrases` has the number of the phrase of each token, 0 = in none."""

    def cut(
        self, feature_map: Float[Tensor, "images channels height width"]
    ) -> dict[Level, Float[Tensor, "images regions part_dim"]]:
        """The regions of a map, by level."""
        return {level: self.branches[level](feature_map) for level in self.levels}

    def project_pictures(self, regions: Mapping[Level, Tensor]) -> dict[Level, Projected]:
        """Project images for their pairs, by level."""
        return {level: self._local(level).project_regions(features) for level, features in regions.items()}

    def project_sentences(self, parts: SentenceParts) -> dict[Level, Projected]:
        """Project sentences for their pairs, by level."""
        of_level = {
            "word": (parts.words, parts.words_present),
            "phrase": (parts.phrases, parts.phrases_present),
        }
        return {level: self._local(level).project_items(*of_level[level]) for level in self.levels}

    def anneal(self, done: float) -> None:
        """Set the temperature of both levels' selection to what it is when a share `done` of a stage is over."""
        for level in self.levels:
            self._local(level).anneal(done)

    def match(
        self,
        pictures: Mapping[Level, Projected],
        sentences: Mapping[Level, Projected],
        generator: torch.Generator | None = None,
    ) -> dict[Level, LocalMatch]:
        """All pairs at each level."""
        return {
            level: self.local[level](pictures[level], sentences[level], generator) for level in self.levels
        }

    def _local(self, level: Level) -> LocalMatching:
        found = self.local[level]
        # a ModuleDict gives any nn.Module; this tells the type checker which
        assert isinstance(found, LocalMatching)
        return found

    def match_parts(
        self, feature_map: Float[Tensor, "images channels height width"], parts: SentenceParts
    ) -> dict[str, LocalMatch]:
        """All pairs of images and sentences at each level."""
        matches = self.match(self.project_pictures(self.cut(feature_map)), self.project_sentences(parts))
        return {str(level): match for level, match in matches.items()}

    @property
    def needs_of_text(self) -> frozenset[TextNeed]:
        """Noun phrases, where the phrase level is on, beside what the text encoder needs."""
        phrases: frozenset[TextNeed] = frozenset({"phrases"} if "phrase" in self.levels else ())
        return self.text.needs_of_text | phrases
