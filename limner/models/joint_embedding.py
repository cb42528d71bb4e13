"""What the systems' embedding networks share: an image path and a text path that end in one space."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.co_attention import CoAttentionSettings, CrossEncoder
from limner.models.image import BackboneSettings, ImageEncoder
from limner.models.local_matching import LocalMatch
from limner.models.parts import PartedNetwork
from limner.models.text_bert import BertWords
from limner.models.text_encoder import TextEncoder, TextSettings
from limner.settings import Settings


class DualEncoderSettings(Settings):
    """The base of the settings of each system's network: what training asks of it.

    - `offers`: what losses may need of it and its data (see `limner.losses.loss.Need`).
    - `leaves_parameters_unused`: whether a step may leave parameters without a gradient.
    """

    offers: ClassVar[frozenset[str]] = frozenset({"classes", "labels", "mined", "sextuples"})
    leaves_parameters_unused: ClassVar[bool] = False

    def parts(self) -> frozenset[str]:
        """The names of its parts, which stages freeze and scale rates by."""
        return frozenset({"backbone", "image_projection", "words", "text", "text_projection"})

    def reached(self, *, embedding: bool, levels: bool) -> frozenset[str]:
        """The parts behind the embedding of the whole, and behind the levels below it."""
        return self.parts()

    def check_stage(self, stage: Any) -> None:
        """Raise `ValueError` for a stage (`limner.training.recipe.StageSettings`) that does not fit the network."""

    @property
    def own_vectors(self) -> bool:
        """Whether its word vectors come with it, so that nothing else may start them."""
        return False

    def known_words(self) -> Sequence[str]:
        """Words that it knows before it is trained, beside those of the captions."""
        return ()


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
    normalises. `dim` is the width of the embedding. `matcher` re-ranks what the embedding finds, where a second stage
    has been trained for that.
    """

    settings: EmbeddingSettings
    matcher: CrossEncoder | None
    cached_map: ClassVar[str | None] = None
    """What is cached of a backbone that is held fixed: the map a layer reads, or None, its pooled features."""

    def __init__(
        self,
        backbone: ImageEncoder,
        image_projection: nn.Module,
        text: TextEncoder,
        text_projection: nn.Module,
        dim: int,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.image_projection = image_projection
        self.text = text
        self.text_projection = text_projection
        self.dim = dim
        self.matcher = None

    def add_cross_encoder(self, settings: CoAttentionSettings) -> CrossEncoder:
        """Give the network a matcher that starts from its weights as they are now; one that is there stays."""
        if self.matcher is None:
            self.matcher = CrossEncoder(settings, self.backbone, self.text).to(next(self.parameters()).device)
        return self.matcher

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
        out: Tensor = self.image_projection(pooled)
        return out

    def encode_texts(self, numbers: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch dim"]:
        """Embeddings of word numbers, not normalised."""
        out: Tensor = self.text_projection(self.text(numbers))
        return out

    def embed_pairs(
        self,
        images: Tensor,
        numbers: Int64[Tensor, "rows words"],
        phrases: Int64[Tensor, "rows words"] | None = None,
        words_below: Float[Tensor, "rows words width"] | None = None,
        *,
        local: bool = False,
    ) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"], Mapping[str, LocalMatch]]:
        """Embeddings of images and of sentences, not normalised, and, if asked for, all pairs matched at each level.

        `images` are pixels, uint8 (rows, 3, height, width), or what `pool_cached` takes.
        """
        pooled = self.pool_cached(images) if images.is_floating_point() else self.pool_images(images)
        return self.embed_images(pooled), self.encode_texts(numbers), {}

    def kept_words(self, frozen: Collection[str]) -> BertWords | None:
        """The layer whose features of words never change while these parts are frozen; None where there is none."""
        return None

    @property
    def reads_phrases(self) -> bool:
        """Whether it reads noun phrases."""
        return False

    def anneal(self, done: float) -> None:
        """Called before each step with the share of the stage that is done, for what changes over a stage."""

    def after_step(self) -> None:
        """Bring the weights back to what a system holds them to, after each step; most hold them to nothing."""

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """The modules of each part; the matcher has parts of its own."""
        above = [module for module in self.text.children() if module is not self.text.table]
        return {
            "backbone": [self.backbone],
            "image_projection": [self.image_projection],
            "words": [self.text.table],
            "text": above,
            "text_projection": [self.text_projection],
        }
