"""What the systems' embedding networks share: an image path and a text path that end in one space."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.co_attention import CoAttentionSettings, CrossEncoder
from limner.models.image import BackboneSettings, ImageEncoder
from limner.models.text_path import PartedNetwork, TextPath, TextSettings
from limner.types import TextNeed


@runtime_checkable
class EmbeddingSettings(Protocol):
    """What every system's settings of its embedding network hold."""

    @property
    def backbone(self) -> BackboneSettings:
        """The image CNN."""

    @property
    def text(self) -> TextSettings:
        """The text path."""

    @property
    def dim(self) -> int:
        """Width of the embedding."""


class DualEncoder(PartedNetwork):
    """An image path and a text path; a system says which, by the four modules it is made of.

    `embed_images` is above the backbone's pooled feature, so that a frozen backbone is run once; neither path
    normalises. `dim` is the width of the embedding. `cross_encoder` re-ranks what the embedding finds,
    where a second stage has been trained for that.
    """

    settings: EmbeddingSettings
    cross_encoder: CrossEncoder | None

    def __init__(
        self, backbone: ImageEncoder, image_head: nn.Module, text: TextPath, text_head: nn.Module, dim: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.image_head = image_head
        self.text = text
        self.text_head = text_head
        self.dim = dim
        self.cross_encoder = None

    def add_cross_encoder(self, settings: CoAttentionSettings) -> CrossEncoder:
        """Give the network a cross-encoder that starts from its weights as they are now; one that is there stays.

        Raises `SettingsError` where the text encoder has no states of single words.
        """
        if self.cross_encoder is None:
            made = CrossEncoder(settings, self.backbone, self.text)
            self.cross_encoder = made.to(next(self.parameters()).device)
        return self.cross_encoder

    def pool_images(
        self, pixels: UInt8[Tensor, "batch 3 height width"] | Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch channels"]:
        """The backbone's pooled features of RGB pixels in 0 … 255."""
        pooled: Tensor = self.backbone(pixels)
        return pooled

    def pool_cached(
        self,
        cached: Float[Tensor, "batch channels"] | Float[Tensor, "batch height width map_channels"],
    ) -> Float[Tensor, "batch channels"]:
        """The backbone's pooled features of what the feature cache keeps.

        These are the features themselves while the backbone is frozen, or its last maps, channels last; and maps for
        the layer `backbone.learns_from` while it learns from there on.
        """
        if cached.dim() == 2:
            return cached.float()
        maps = cached.permute(0, 3, 1, 2).float()
        if self.backbone.learns_from is not None:
            return self.backbone.forward_from(maps, self.backbone.learns_from)
        if not self.backbone.frozen:
            raise SettingsError("cached maps need a backbone that is frozen, or frozen up to some layer")
        return self.backbone.pool(maps)

    def embed_images(self, pooled: Float[Tensor, "batch channels"]) -> Float[Tensor, "batch dim"]:
        """Embeddings of pooled features, not normalised."""
        out: Tensor = self.image_head(pooled)
        return out

    def encode_texts(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch dim"]:
        """Embeddings of token ids, not normalised."""
        out: Tensor = self.text_head(self.text(token_ids))
        return out

    @property
    def needs_of_text(self) -> frozenset[TextNeed]:
        """What the network asks of a tokenizer beyond token ids."""
        return self.text.needs_of_text

    def after_step(self) -> None:
        """Bring the weights back to what a system holds them to, after each step; most hold them to nothing."""

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """The modules of each part; the cross-encoder has parts of its own."""
        above = [module for module in self.text.children() if module is not self.text.table]
        return {
            "backbone": [self.backbone],
            "image_head": [self.image_head],
            "words": [self.text.table],
            "text": above,
            "text_head": [self.text_head],
        }
