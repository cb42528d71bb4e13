"""Dual encoders, the networks of all systems: an image encoder and a text encoder that end in one space."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, UInt8
from pydantic import Field
from torch import Tensor, nn

from limner.errors import SettingsError
from limner.models.co_attention import CoAttentionSettings, CrossEncoder
from limner.models.hub_correction import MORE_COORDINATES, HubCorrection, HubCorrectionSettings
from limner.models.image import BackboneSettings, ImageEncoder
from limner.models.local_matching import LocalMatch
from limner.models.text_encoder import FixedText, PartedNetwork, TextEncoder, TextSettings
from limner.settings import Settings
from limner.types import TextNeed, TokenBatch, Tokenizer

# typing.Self would say it shorter, but the run-time check of shapes refuses it on single methods.
SettingsT = TypeVar("SettingsT", bound="DualEncoderSettings")


class DualEncoderSettings(Settings):
    """The settings that every system's dual encoder has, and what training asks of them."""

    offers: ClassVar[frozenset[str]] = frozenset({"classes", "labels", "mined", "sextuples"})
    """Needs of losses that the network can meet (see `limner.losses.loss.Need`)."""

    system: str
    """The published system."""
    backbone: BackboneSettings | None = None
    """The image CNN; None for a network whose image encoder is of another kind, with settings of its own."""
    text: TextSettings
    """The text encoder."""
    dim: int = Field(ge=1)
    """Width of the embedding."""
    hub_correction: HubCorrectionSettings | None = None
    """Scores lowered of items that are near to every query; {} = by its defaults, None = none."""

    @property
    def starts_from_run(self) -> bool:
        """True for a network that only a run can bring, with its tokenizer and its preprocessing."""
        return False

    def parts(self) -> frozenset[str]:
        """The names of the network's parts, which stages freeze and scale rates by."""
        return frozenset({"backbone", "image_projection", "words", "text", "text_projection"})

    def reached(self, *, embedding: bool, levels: bool) -> frozenset[str]:
        """The parts behind the embedding of the whole, and behind the levels below it."""
        return self.parts()

    def check_stage(self, stage: Any) -> None:
        """Raise `ValueError` for a stage (`limner.training.recipe.StageSettings`) that does not fit the network."""

    def check_cross_encoder(self) -> None:
        """Raise `ValueError` where the network as it is set can have no cross-encoder above it."""

    def with_folders(self: SettingsT, folders: Mapping[str, Path]) -> SettingsT:
        """The same network built from folders that hold, by part, what `DualEncoder.files` gave."""
        changes: dict[str, Any] = {}
        # a checkpoint's folder takes the place of a hub name: opening a trained
        # model needs neither a network nor the weights that it began with
        if (backbone := folders.get("backbone")) is not None and self.backbone is not None:
            changes["backbone"] = self.backbone.replace(auto_model=str(backbone))
        if (text := folders.get("text")) is not None:
            changes["text"] = self.text.with_folder(text)
        return self.replace(**changes)

    def identity(self) -> dict[str, Any]:
        """The settings as plain values without where weights came from: equal where the same numbers come out."""
        plain = self.model_dump(mode="json")
        # models that were trained before the setting was there keep their fingerprint
        if self.hub_correction is None:
            del plain["hub_correction"]
        # the fingerprint is made of these and of the weights' values: with a path in them, one model would be two
        backbone = None if self.backbone is None else self.backbone.identity()
        return {**plain, "backbone": backbone, "text": self.text.identity()}


class DualEncoder(PartedNetwork):
    """An image encoder and a text encoder; a system says which, by the four modules it is made of.

    `embed_images` is above the backbone's pooled feature, so that a frozen backbone is run once; neither path
    normalises. `dim` is the width of the embedding. `cross_encoder` re-ranks what the embedding finds,
    where a second stage has been trained for that.
    """

    cached_map: ClassVar[str | None] = None
    """Layer whose input map the feature cache keeps of a backbone held fixed; None = pooled features are kept."""
    leaves_parameters_unused: ClassVar[bool] = False
    """True where a step may leave parameters without a gradient, which several processes must then look for."""

    settings: DualEncoderSettings
    cross_encoder: CrossEncoder | None

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
        # added by `build_network`, behind all that is drawn at random
        self.hub_correction: HubCorrection | None = None
        # not made here: it starts as a copy of this network, which has to be trained first
        self.cross_encoder = None

    def add_cross_encoder(self, settings: CoAttentionSettings) -> CrossEncoder:
        """Give the network a cross-encoder that starts from its weights as they are now; one that is there stays.

        Raises `SettingsError` where the text encoder has no states of single words.
        """
        if self.cross_encoder is None:
            made = CrossEncoder(settings, self.backbone, self.text)
            # deepcopy keeps the device, but the co-attention above the copies is made on the CPU
            self.cross_encoder = made.to(next(self.parameters()).device)
        return self.cross_encoder

    @property
    def embedding_dim(self) -> int:
        """Width of an embedding at test: `dim`, and the coordinates of the hub correction."""
        return self.dim + (0 if self.hub_correction is None else MORE_COORDINATES)

    def unit_images(self, embedded: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch _embedding_dim"]:
        """Images as they are searched: of length 1, and with the hub correction where there is one."""
        unit = F.normalize(embedded, dim=1)
        return unit if self.hub_correction is None else self.hub_correction.of_images(unit)

    def unit_texts(self, embedded: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch _embedding_dim"]:
        """Sentences as they are searched: of length 1, and with the hub correction where there is one."""
        unit = F.normalize(embedded, dim=1)
        return unit if self.hub_correction is None else self.hub_correction.of_texts(unit)

    def grow(self, settings: DualEncoderSettings) -> None:
        """Add the parts that settings have beyond the network's own, of those that it can be given after its training.

        Of all systems that is the hub correction, which learns nothing and is filled at each validation.
        """
        if settings.hub_correction is not None and self.hub_correction is None:
            self.settings = self.settings.replace(hub_correction=settings.hub_correction)
            made = HubCorrection(settings.hub_correction, self.dim)
            self.hub_correction = made.to(next(self.parameters()).device)

    @property
    def reranked_by(self) -> str | None:
        """The kind of its reranker (`limner.inference.rerankers`); None = the embedding ranks alone."""
        return None if self.cross_encoder is None else self.cross_encoder.reranker

    @property
    def reorders(self) -> bool:
        """True if its reranker gives another order than the embedding."""
        return self.reranked_by is not None

    def tokenize(self, sentences: Sequence[str], tokenizer: Tokenizer, *, words: bool = False) -> TokenBatch:
        """Sentences as this network reads them; with `words`, which tokens each word has."""
        phrases = "phrases" in self.needs_of_text
        return tokenizer.encode(sentences, self.settings.text.words, phrases=phrases, words=words)

    def files(self) -> dict[str, dict[str, dict[str, Any]]]:
        """By part and file name, the JSON files that a checkpoint carries to build the network again.

        What a backbone or a text encoder was once made from need not exist any more.
        """
        # configurations only: weights and tokenizer are in the checkpoint already
        found = {"backbone": self.backbone.files(), "text": self.text.files()}
        return {part: files for part, files in found.items() if files}

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
        """The backbone's pooled features from cached features.

        These are the features themselves while the backbone is frozen, or its last maps, channels last; and maps for
        the layer `backbone.learns_from` while it learns from there on.
        """
        if cached.dim() == 2:
            return cached.float()
        # the cache keeps maps in float16 with channels last, as rerankers
        # take them; convolutions want channels in the second place
        maps = cached.permute(0, 3, 1, 2).float()
        if self.backbone.learns_from is not None:
            return self.backbone.forward_from(maps, self.backbone.learns_from)
        # no gradient flows through a cached last map: a backbone that should learn would stand still without a word
        if not self.backbone.frozen:
            raise SettingsError("cached maps need a backbone that is frozen, or frozen up to some layer")
        return self.backbone.pool(maps)

    def embed_images(self, pooled: Float[Tensor, "batch channels"]) -> Float[Tensor, "batch dim"]:
        """Embeddings of pooled features, not normalised."""
        out: Tensor = self.image_projection(pooled)
        return out

    def encode_texts(
        self,
        token_ids: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "kept kept_words width"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """Embeddings of token ids, not normalised.

        `words_below` is what `kept_words` gives for them, where that was computed before.
        """
        feature = self.text(token_ids) if words_below is None else self.text(token_ids, words_below)
        out: Tensor = self.text_projection(feature)
        return out

    def encode_texts_with(
        self,
        token_ids: Int64[Tensor, "batch words"],
        marked: Bool[Tensor, "batch words"],
        vectors: Float[Tensor, "marked width"],
    ) -> Float[Tensor, "batch dim"]:
        """Embeddings of token ids with vectors in place of the marked tokens (`TextEncoder.forward_with`)."""
        out: Tensor = self.text_projection(self.text.forward_with(token_ids, marked, vectors))
        return out

    @property
    def needs_of_text(self) -> frozenset[TextNeed]:
        """The network's needs of a tokenizer beyond token ids."""
        return self.text.needs_of_text

    def embed_pairs(
        self,
        images: Tensor,
        token_ids: Int64[Tensor, "rows words"],
        phrases: Int64[Tensor, "rows words"] | None = None,
        words_below: Float[Tensor, "rows words width"] | None = None,
        *,
        local: bool = False,
    ) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"], Mapping[str, LocalMatch]]:
        """Embeddings of images and of sentences, not normalised, and, if asked for, all pairs matched at each level.

        `images` are pixels, uint8 (rows, 3, height, width), or what `pool_cached` takes.
        """
        # pixels are uint8; floats are what the feature cache keeps of a frozen backbone
        pooled = self.pool_cached(images) if images.is_floating_point() else self.pool_images(images)
        return self.embed_images(pooled), self.encode_texts(token_ids, words_below), {}

    def kept_words(self, frozen: Collection[str]) -> FixedText | None:
        """The layer whose features of sentences never change while these parts are frozen; None = there is none."""
        return None

    def anneal(self, done: float) -> None:
        """Take in the share of the stage that is done, before each step, for what changes over a stage."""

    def after_step(self) -> None:
        """Project the weights onto a system's constraint after each step; most systems have none."""

    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """The modules of each part; the cross-encoder has parts of its own."""
        return {
            "backbone": [self.backbone],
            "image_projection": [self.image_projection],
            # a word table may start from given vectors, so stages
            # freeze it or scale its rate apart from what is above it
            "words": [self.text.table],
            "text": self.text.above_table(),
            "text_projection": [self.text_projection],
        }
