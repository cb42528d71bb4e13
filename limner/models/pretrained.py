"""A pair of pretrained towers as a system: CLIP, SigLIP, AltCLIP, Chinese CLIP, or any two encoders.

Sources: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021 (CLIP);
Zhai et al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023 (SigLIP). The networks are transformers'.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.channel_norm import ChannelNorm
from limner.models.dual_encoder import DualEncoderSettings
from limner.models.image import LAST_MAP, BackboneSettings, build_backbone
from limner.models.image.encoder import PixelBatch
from limner.models.image.tower import ImageTower
from limner.models.known import DEFAULT_MODEL
from limner.models.late import LateInteraction, LateSettings, maxsim
from limner.models.levels import LevelledEncoder, LevelsSettings, WordsAndPhrases, expect_levels_of
from limner.models.local_matching import LocalMatch
from limner.models.pretrained_source import read_once
from limner.models.text_encoder import FixedText
from limner.models.text_hgan import SentenceParts
from limner.models.text_tower import TextTower, TextTowerSettings, TokenStates
from limner.types import PADDING


class PretrainedSettings(DualEncoderSettings):
    """The settings of a pair of pretrained towers; `limner import` writes them for a pair of the hub."""

    system: Literal["pretrained"] = "pretrained"
    """The system."""
    backbone: BackboneSettings = BackboneSettings(name="auto", auto_model=DEFAULT_MODEL)
    """The image tower, or any image backbone."""
    text: TextTowerSettings = TextTowerSettings(words=64, model=DEFAULT_MODEL, filled="right", masked=False)
    """The text tower."""
    dim: int = Field(default=768, ge=1)
    """Width of the embedding; that of the pair where its projections are kept."""
    projection: Literal["pretrained", "new", "normalised"] = "pretrained"
    """The layers into the shared space: the pair's own, or above each tower a new linear layer ("new"), or batch
    normalisation and a new linear layer ("normalised")."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of a tower's feature that is dropped in training before a new linear layer."""
    late: LateSettings | None = None
    """Late interaction of regions and words, which re-ranks; {} = by its defaults, None = none."""

    levels: LevelsSettings | None = None
    """HGAN's words and phrases against regions, which re-rank; {} = by their defaults, None = none."""

    offers: ClassVar[frozenset[str]] = DualEncoderSettings.offers | {"late", "levels", "states"}

    @model_validator(mode="after")
    def _one_reranker(self) -> "PretrainedSettings":
        if self.late is not None and self.levels is not None:
            raise ValueError("late and levels both re-rank; set one of them to null")
        return self

    @property
    def starts_from_run(self) -> bool:
        """A pair comes with its tokenizer and preprocessing, which `limner import` reads."""
        return self.projection == "pretrained"

    def identity(self) -> dict[str, Any]:
        """Without what the pair has not, so that earlier fingerprints stay, and without dropout."""
        # dropout changes no embedding of a trained network
        without = {"dropout"} | {name for name in ("late", "levels") if getattr(self, name) is None}
        found = super().identity()
        if self.levels is not None:
            found["levels"] = self.levels.identity()
        return {name: found[name] for name in found if name not in without}

    def parts(self) -> frozenset[str]:
        """As of every network, and the layers of late interaction or of words and phrases."""
        return super().parts() | self._local

    @property
    def _local(self) -> frozenset[str]:
        late = frozenset() if self.late is None else frozenset({"late"})
        return late if self.levels is None else late | {"local"}

    def reached(self, *, embedding: bool, levels: bool) -> frozenset[str]:
        """The projections are behind the embedding alone, what compares parts behind their losses alone."""
        heads = frozenset({"image_projection", "text_projection"})
        return (
            (self.parts() - heads - self._local)
            | (heads if embedding else frozenset())
            | (self._local if levels else frozenset())
        )

    def check_stage(self, stage: Any) -> None:
        """The losses over parts need what compares parts, and that needs the towers' patches and tokens."""
        if "late" in stage.needs and self.late is None:
            raise ValueError("losses.maxsim needs late interaction; set model.late={}")
        if "levels" in stage.needs and self.levels is None:
            raise ValueError("losses.levels needs words and phrases; set model.levels={}")
        if stage.needs & {"late", "levels"} and (beside := sorted(stage.needs & {"mined", "sextuples"})):
            raise ValueError(
                f"losses over regions and words compare the pairs of a batch alone, and another loss brings rows of "
                f"{beside[0]} negatives beside it; leave one of them out"
            )
        if self.levels is not None:
            expect_levels_of(stage, self.levels.granularities, "model.levels.granularities")
            if "levels" in stage.needs and "phrase" in self.levels.granularities and stage.position_shift:
                raise ValueError(
                    "noun phrases are counted in sentences that stand at the left; set position_shift=false"
                )
        if not self._local:
            return
        frozen = set(stage.frozen)
        if "backbone" in frozen or stage.backbone_from is not None:
            # a pair's tower pools by itself, so its feature is not that of a cached map; which of the others do is
            # known only once they are read
            self._expect_cacheable(stage, "image", self.backbone.name != "auto")
        if {"words", "text"} <= frozen:
            self._expect_cacheable(stage, "text", self.text.feature != "own")
            if stage.views and stage.position_shift:
                raise ValueError(
                    "the tokens of a text tower that is held fixed are cached as they stand; set position_shift=false, "
                    "or views to 0"
                )

    def _expect_cacheable(self, stage: Any, side: str, cacheable: bool) -> None:
        if stage.views and not cacheable:
            name = "late" if self.levels is None else "levels"
            raise ValueError(
                f"{'late interaction reads' if name == 'late' else 'levels read'} patches and tokens, which are not "
                f"cached of the {side} tower of a pair (backbone 'auto', feature 'own') while it is held fixed; set "
                f"the stage's views to 0, or model.{name}=null"
            )


class Pretrained(LevelledEncoder):
    """Two towers and their projections; with `projection="pretrained"` both are those of one pair.

    Embeddings equal those of `get_image_features` and `get_text_features` before their L2 normalisation. The pair's
    temperature has no part in a ranking and is left out.
    """

    # towers have parameters that no embedding reads, such as poolers
    leaves_parameters_unused: ClassVar[bool] = True

    settings: PretrainedSettings
    text: TextTower

    def __init__(
        self, settings: PretrainedSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        # the order of these lines is the order of the random draws: another order gives every seed other weights
        with read_once():
            backbone = build_backbone(settings.backbone, load_weights=load_weights)
            text = TextTower(settings.text, vocabulary_size, load_weights=load_weights)
        if settings.projection != "pretrained":
            image_projection: nn.Module = _new_projection(backbone.channels, settings)
            text_projection: nn.Module = _new_projection(text.channels, settings)
        else:
            if not isinstance(backbone, ImageTower) or not backbone.pooled or not text.projection_of_pair:
                raise SettingsError(
                    "setting 'model.projection': 'pretrained' needs the image and the text tower of one pair; set "
                    "projection=new"
                )
            image_projection, text_projection = backbone.projection, text.projection
        super().__init__(backbone, image_projection, text, text_projection, settings.dim)
        self.settings = settings
        self.late: LateInteraction | None = None
        self.words_and_phrases: WordsAndPhrases | None = None
        # the last random draws, so that everything else starts as without it
        self._add_late()
        self.add_levels()
        for name, layer, width in (
            ("image", image_projection, backbone.channels),
            ("text", text_projection, text.channels),
        ):
            last = layer[-1] if isinstance(layer, nn.Sequential) else layer
            found = getattr(last, "out_features", width)
            if found != settings.dim:
                raise SettingsError(
                    f"setting 'model.dim': {settings.dim}, but the {name} tower ends in {found} numbers; set it to that"
                )

    def _add_late(self) -> None:
        if self.settings.late is not None:
            self.late = LateInteraction(self.settings.late, self.backbone.map_channels, self.text.channels)

    @property
    def level_settings(self) -> LevelsSettings | None:
        """Those of the settings."""
        return self.settings.levels

    def add_levels(self) -> None:
        """Make the networks of the levels, where the settings have any, which start at random."""
        if (settings := self.settings.levels) is not None:
            self.words_and_phrases = WordsAndPhrases(settings, self.text.channels)
        super().add_levels()

    def grow(self, settings: DualEncoderSettings) -> None:
        """As every network; late interaction, or levels, that the settings have and the network has not start at
        random."""
        super().grow(settings)
        if not isinstance(settings, PretrainedSettings):
            return
        for one, other, name in (("late", "levels", "levels"), ("levels", "late", "late interaction")):
            if getattr(settings, one) is not None and getattr(self.settings, other) is not None:
                raise SettingsError(
                    f"setting 'model.{one}': the run that training starts from has {name}, and a network has one of "
                    "both; start from a run without"
                )
        own = self.settings.levels
        if own is not None and settings.levels is not None and own != settings.levels:
            raise SettingsError(
                "setting 'model.levels': they are those of the run that training starts from; leave them as they are"
            )
        if settings.late is not None and self.late is None:
            self.settings = self.settings.replace(late=settings.late)
            self._add_late()
        if settings.levels is not None and self.words_and_phrases is None:
            self.settings = self.settings.replace(levels=settings.levels)
            self.add_levels()

    @property
    def tower(self) -> ImageTower | None:
        """The vision tower of a pair; None for another image backbone."""
        found = self.backbone if isinstance(self.backbone, ImageTower) else None
        return found if found is not None and found.pooled else None

    @property
    def reranked_by(self) -> str | None:
        """A cross-encoder, late interaction or levels; else the patches of a vision tower show where words point."""
        found = super().reranked_by
        if found is None and self.compares_parts:
            return "late" if self.late is not None else "levels"
        return "patches" if found is None and self.tower is not None else found

    @property
    def reorders(self) -> bool:
        """As of every network; patches order nothing."""
        return self.reranked_by not in (None, "patches")

    @property
    def compares_parts(self) -> bool:
        """True where regions are compared with words, by late interaction or at HGAN's levels."""
        return self.late is not None or self.settings.levels is not None

    @property
    def cached_map(self) -> str | None:  # type: ignore[override]
        """The last map, where parts are compared."""
        return LAST_MAP if self.compares_parts else None

    def kept_words(self, frozen: Collection[str]) -> FixedText | None:
        """The text tower while it is frozen with its table of tokens; the states of its tokens if parts are compared.

        Raises `SettingsError` for a tower whose feature cannot be had from those.
        """
        if not {"words", "text"} <= set(frozen):
            return None
        if not self.compares_parts:
            return self.text
        self.text.expect_pooled_states()
        return TokenStates(self.text)

    def sentence_parts(
        self, token_ids: Int64[Tensor, "batch words"], phrases: Int64[Tensor, "batch words"]
    ) -> SentenceParts:
        """The words and phrases of sentences, and the tower's feature of each sentence."""
        return self._parts_of(*self.text.read(token_ids), token_ids, phrases)

    def _parts_of(self, feature: Tensor, states: Tensor, token_ids: Tensor, phrases: Tensor) -> SentenceParts:
        assert self.words_and_phrases is not None
        return self.words_and_phrases(feature, states, token_ids, phrases)  # type: ignore[no-any-return]

    def embed_pairs(
        self,
        images: Tensor,
        token_ids: Int64[Tensor, "rows words"],
        phrases: Int64[Tensor, "rows words"] | None = None,
        words_below: Float[Tensor, "kept kept_words channels"] | None = None,
        *,
        local: bool = False,
    ) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"], Mapping[str, LocalMatch]]:
        """As every network does; `words_below` are what the fixed tower gave for the first of the sentences.

        `local` compares the parts of all pairs, from the same pass of each tower as the embeddings.
        """
        if not local:
            texts = self.encode_texts(token_ids, words_below)
            pooled = self.pool_cached(images) if images.is_floating_point() else self.pool_images(images)
            return self.embed_images(pooled), texts, {}
        if images.is_floating_point():
            feature_map = self.backbone.read_map(images)
            pooled = self.backbone.pool(feature_map).float()
        else:
            pooled, feature_map = self.backbone.forward_with_map(images)
        features, states = self._read(token_ids, words_below)
        texts = self.text_projection(features)
        if self.late is None:
            parts = self._parts_of(
                features, states, token_ids, torch.zeros_like(token_ids) if phrases is None else phrases
            )
            return self.embed_images(pooled), texts, self.match_parts(feature_map, parts)
        present = token_ids != PADDING
        similarity = maxsim(self.late.regions(feature_map).flatten(1, 2), self.late.words(states), present)
        return self.embed_images(pooled), texts, {"late": LocalMatch(similarity, present.any(dim=1))}

    def encode_texts(
        self,
        token_ids: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "kept kept_words channels"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """As of every network; `words_below` are of the first of the sentences."""
        if words_below is None:
            return super().encode_texts(token_ids)
        kept = len(words_below)
        features = (
            self.text.feature_of(words_below.float(), token_ids[:kept])
            if self.compares_parts
            else words_below[:, 0].float()
        )
        texts: Tensor = self.text_projection(features)
        # rows beside the batch, of mined negatives, are not in the cache
        return texts if kept == len(token_ids) else torch.cat([texts, super().encode_texts(token_ids[kept:])])

    def _read(
        self, token_ids: Tensor, words_below: Tensor | None
    ) -> tuple[Float[Tensor, "texts channels"], Float[Tensor, "texts words channels"]]:
        """The tower's features of sentences and of their tokens."""
        if words_below is None:
            return self.text.read(token_ids)
        kept = len(words_below)
        states = words_below.float()
        if kept < len(token_ids):
            states = torch.cat([states, self.text.read(token_ids[kept:])[1]])
        return self.text.feature_of(states, token_ids), states

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """As of every network, and what compares parts."""
        found = super().modules_of_parts()
        if self.late is not None:
            found["late"] = [self.late]
        if self.words_and_phrases is not None:
            found["local"] = [self.words_and_phrases, self.branches, self.local]
        return found

    def embed_patches(self, pixels: PixelBatch) -> Float[Tensor, "batch rows columns dim"]:
        """Each patch of raw pixels in the shared space, not normalised. Raises `SettingsError` without a tower."""
        if self.tower is None:
            raise SettingsError("the image backbone is no vision tower, and has no patches")
        projected: Tensor = self.image_projection(self.tower.patches(pixels))
        return projected

    def embed_tokens(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch words dim"]:
        """Each token in the shared space, not normalised; 0 at empty positions."""
        projected: Tensor = self.text_projection(self.text.token_features(token_ids))
        return projected * (token_ids != PADDING)[:, :, None]


def _new_projection(channels: int, settings: PretrainedSettings) -> nn.Module:
    linear = _DroppingLinear(channels, settings.dim, settings.dropout)
    if settings.projection == "new":
        return linear
    # two encoders that know nothing of one another have features of unlike mean and spread
    return nn.Sequential(ChannelNorm(channels), linear)


class _DroppingLinear(nn.Linear):
    """Dropout and a linear layer in one module, whose weights are named as those of the layer alone."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__(inputs, outputs)
        self.dropout = dropout

    def forward(self, input: Float[Tensor, "*batch channels"]) -> Float[Tensor, "*batch dim"]:
        """The layer's output, in training of what is left of the input."""
        return super().forward(F.dropout(input, self.dropout, self.training))
