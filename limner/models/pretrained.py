"""A pair of pretrained towers as a system: CLIP, SigLIP, AltCLIP, Chinese CLIP, or any two encoders.

Sources: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021 (CLIP);
Zhai et al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023 (SigLIP). The networks are transformers'.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.image import BackboneSettings, build_backbone
from limner.models.image.encoder import PixelBatch
from limner.models.image.tower import ImageTower
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
    projection: Literal["pretrained", "new"] = "pretrained"
    """The layers into the shared space: the pair's own, or a new linear layer above each tower."""

    @property
    def starts_from_run(self) -> bool:
        """A pair comes with its tokenizer and preprocessing, which `limner import` reads."""
        return self.projection == "pretrained"


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
        if settings.projection == "new":
            image_projection: nn.Module = nn.Linear(backbone.channels, settings.dim)
            text_projection: nn.Module = nn.Linear(text.channels, settings.dim)
        else:
            if not isinstance(backbone, ImageTower) or not backbone.pooled or not text.projection_of_pair:
                raise SettingsError(
                    "setting 'model.projection': 'pretrained' needs the image and the text tower of one pair; set "
                    "projection=new"
                )
            image_projection, text_projection = backbone.projection, text.projection
        super().__init__(backbone, image_projection, text, text_projection, settings.dim)
        self.settings = settings
        for name, layer, width in (
            ("image", image_projection, backbone.channels),
            ("text", text_projection, text.channels),
        ):
            found = getattr(layer, "out_features", width)
            if found != settings.dim:
                raise SettingsError(
                    f"setting 'model.dim': {settings.dim}, but the {name} tower ends in {found} numbers; set it to that"
                )

    @property
    def tower(self) -> ImageTower | None:
        """The vision tower of a pair; None for another image backbone."""
        found = self.backbone if isinstance(self.backbone, ImageTower) else None
        return found if found is not None and found.pooled else None

    @property
    def reranked_by(self) -> str | None:
        """The patches of a vision tower show where words point."""
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
        """As every network does; `words_below` are what the fixed tower gave for the first of the sentences."""
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
        return {**super().modules_of_parts(), "text": _beside(self.text.tower, self.text.table)}

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
