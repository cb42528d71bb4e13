"""A pair of pretrained towers as a system: CLIP, SigLIP, AltCLIP, Chinese CLIP, or any two encoders.

Sources: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021 (CLIP);
Zhai et al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023 (SigLIP). The networks are transformers'.
"""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.channel_norm import ChannelNorm
from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.image import BackboneSettings, build_backbone
from limner.models.image.encoder import PixelBatch
from limner.models.image.tower import ImageTower
from limner.models.late import LateInteraction, LateSettings, maxsim
from limner.models.local_matching import LocalMatch
from limner.models.pretrained_source import read_once
from limner.models.text_encoder import FixedText
from limner.models.text_tower import TextTower, TextTowerSettings
from limner.types import PADDING

DEFAULT_MODEL = "google/siglip2-base-patch16-224"
"""The pair of settings that name none."""


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

    offers: ClassVar[frozenset[str]] = DualEncoderSettings.offers | {"late"}

    @property
    def starts_from_run(self) -> bool:
        """A pair comes with its tokenizer and preprocessing, which `limner import` reads."""
        return self.projection == "pretrained"

    def identity(self) -> dict[str, Any]:
        """Without what the pair has not, so that earlier fingerprints stay, and without dropout."""
        # dropout changes no embedding of a trained network
        without = {"dropout"} | ({"late"} if self.late is None else set())
        found = super().identity()
        return {name: found[name] for name in found if name not in without}

    def parts(self) -> frozenset[str]:
        """As of every network, and the layers of late interaction."""
        return super().parts() | self._late

    @property
    def _late(self) -> frozenset[str]:
        return frozenset() if self.late is None else frozenset({"late"})

    def reached(self, *, embedding: bool, levels: bool) -> frozenset[str]:
        """The projections are behind the embedding alone, late interaction behind MaxSim alone."""
        heads = frozenset({"image_projection", "text_projection"})
        return (
            (self.parts() - heads - self._late)
            | (heads if embedding else frozenset())
            | (self._late if levels else frozenset())
        )

    def check_stage(self, stage: Any) -> None:
        """MaxSim needs late interaction, and late interaction the towers' patches and tokens, which no cache keeps."""
        if self.late is None:
            if "late" in stage.needs:
                raise ValueError("losses.maxsim needs late interaction; set model.late={}")
            return
        frozen = set(stage.frozen)
        cached = {
            "image": "backbone" in frozen or stage.backbone_from is not None,
            "text": {"words", "text"} <= frozen,
        }
        if stage.views and (held := [side for side, is_cached in cached.items() if is_cached]):
            raise ValueError(
                f"late interaction reads patches and tokens, which are not cached of the {held[0]} tower while it is "
                "held fixed; set the stage's views to 0, or model.late=null"
            )


class Pretrained(DualEncoder):
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
        # the last random draws, so that everything else starts as without it
        self._add_late()
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

    def grow(self, settings: DualEncoderSettings) -> None:
        """As every network; late interaction that the settings have and the network has not starts at random."""
        super().grow(settings)
        if isinstance(settings, PretrainedSettings) and settings.late is not None and self.late is None:
            self.settings = self.settings.replace(late=settings.late)
            self._add_late()

    @property
    def tower(self) -> ImageTower | None:
        """The vision tower of a pair; None for another image backbone."""
        found = self.backbone if isinstance(self.backbone, ImageTower) else None
        return found if found is not None and found.pooled else None

    @property
    def reranked_by(self) -> str | None:
        """Late interaction re-ranks; without it, the patches of a vision tower show where words point."""
        if self.late is not None:
            return "late"
        return super().reranked_by if self.tower is None else "patches"

    def kept_words(self, frozen: Collection[str]) -> FixedText | None:
        """The text tower, while it is frozen with its table of tokens."""
        return self.text if {"words", "text"} <= set(frozen) else None

    def embed_pairs(
        self,
        images: Tensor,
        token_ids: Int64[Tensor, "rows words"],
        phrases: Int64[Tensor, "rows words"] | None = None,
        words_below: Float[Tensor, "kept 1 channels"] | None = None,
        *,
        local: bool = False,
    ) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"], Mapping[str, LocalMatch]]:
        """As every network does; `words_below` are what the fixed tower gave for the first of the sentences.

        `local` compares all pairs by late interaction, from the same pass of each tower as the embeddings.
        """
        if local:
            # no cache keeps patches or tokens (`PretrainedSettings.check_stage`)
            assert self.late is not None
            assert words_below is None
            pooled, feature_map = self.backbone.forward_with_map(images)
            features, states = self.text.read(token_ids)
            present = token_ids != PADDING
            similarity = maxsim(
                self.late.regions(feature_map).flatten(1, 2), self.late.words(states), present
            )
            match = LocalMatch(similarity, present.any(dim=1))
            return self.embed_images(pooled), self.text_projection(features), {"late": match}
        if words_below is None:
            return super().embed_pairs(images, token_ids, phrases)
        pooled = self.pool_cached(images) if images.is_floating_point() else self.pool_images(images)
        texts = self.text_projection(words_below[:, 0].float())
        # rows beside the batch, of mined negatives, are not in the cache
        if len(texts) < len(token_ids):
            texts = torch.cat([texts, self.encode_texts(token_ids[len(texts) :])])
        return self.embed_images(pooled), texts, {}

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """As of every network; the table of tokens lies within the tower, whose other modules are "text"."""
        late: dict[str, list[nn.Module]] = {} if self.late is None else {"late": [self.late]}
        return {**super().modules_of_parts(), "text": _beside(self.text.tower, self.text.table), **late}

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


def _beside(module: nn.Module, excluded: nn.Module) -> list[nn.Module]:
    """The modules that together hold all parameters of a module but those of `excluded` within it."""
    if excluded not in set(module.modules()):
        return [module]
    if module is excluded:
        return []
    # a parameter of a module around the table would be in no part, and would never learn
    assert not module._parameters, type(module)
    return [found for child in module.children() for found in _beside(child, excluded)]


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
