"""An image encoder of one's own, beside the text encoder of the other example: no network of limner's is in it."""

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import nn

from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.image import IMAGENET, ImageEncoder, Layer
from limner.models.registry import System
from limner.models.text_encoder import WordTableSettings
from limner_example.encoder import MeanOfWords


class Patches(ImageEncoder):
    """Squares of 4 × 4 pixels, each a vector, and squares of 2 × 2 of these: a map of an eighth of the sides."""

    def __init__(self, channels: int) -> None:
        # widths of the pooled feature and of the map; how pixels of 0 to 255 are normalised before the first layer
        super().__init__(channels, channels, IMAGENET)
        self.first = nn.Conv2d(3, channels, 4, stride=4)
        self.second = nn.Conv2d(channels, channels, 2, stride=2)

    def layers(self) -> list[Layer]:
        """The layers in their order, by the names of their modules; stages can be frozen up to one of them."""
        return [("first", self.first), ("second", lambda maps: self.second(F.gelu(maps)))]


class PatchesSettings(DualEncoderSettings):
    """Patches and word vectors, with one linear layer on each. `backbone` stays None: it is for limner's own CNNs."""

    system: Literal["patches"] = "patches"
    """The name of the encoder."""
    channels: int = Field(default=32, ge=1)
    """Width of the patches' vectors."""
    text: WordTableSettings = WordTableSettings(words=10, word_dim=16)
    """Length of a sentence and width of a word vector."""
    dim: int = Field(default=16, ge=1)
    """Width of the embedding."""


class PatchesAndWords(DualEncoder):
    """The mean patch and the mean word, each with a linear layer into one space."""

    def __init__(self, settings: PatchesSettings, vocabulary_size: int, *, load_weights: bool = True) -> None:
        # a network that starts from a file of weights reads it here, if `load_weights`
        patches, words = Patches(settings.channels), MeanOfWords(settings.text, vocabulary_size)
        of_images, of_texts = (nn.Linear(part.channels, settings.dim) for part in (patches, words))
        super().__init__(patches, of_images, words, of_texts, settings.dim)
        self.settings = settings


SYSTEM = System(PatchesSettings, PatchesAndWords)
"""What the entry point names."""
