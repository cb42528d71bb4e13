"""An encoder: a dual encoder whose sentence feature is the mean of its words' vectors."""

from typing import Literal

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.models.dual_encoder import DualEncoder, DualEncoderSettings
from limner.models.image import BackboneSettings, build_backbone
from limner.models.registry import System
from limner.models.text_encoder import TextEncoder, WordTableSettings
from limner.types import PADDING


class MeanWordsSettings(DualEncoderSettings):
    """The image CNN, the word vectors, and one linear layer on each."""

    system: Literal["mean-words"] = "mean-words"
    """The name of the encoder."""
    backbone: BackboneSettings = BackboneSettings(name="resnet-18")
    """The image CNN."""
    text: WordTableSettings = WordTableSettings(words=32, word_dim=300)
    """Length of a sentence and width of a word vector."""
    dim: int = Field(default=256, ge=1)
    """Width of the embedding."""


class MeanOfWords(TextEncoder):
    """The mean vector of the words of a sentence; zero for a sentence without a known word."""

    def __init__(self, settings: WordTableSettings, vocabulary_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary_size + 1, settings.word_dim, padding_idx=PADDING)
        self.channels = settings.word_dim

    def forward(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch width"]:
        """Features of token ids."""
        known = (token_ids != PADDING).sum(dim=1, keepdim=True)
        return self.table(token_ids).sum(dim=1) / known.clamp(min=1)  # type: ignore[no-any-return]


class MeanWords(DualEncoder):
    """A frozen or learning CNN and the mean of word vectors, each with a linear layer into one space."""

    def __init__(
        self, settings: MeanWordsSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        backbone = build_backbone(settings.backbone, load_weights=load_weights)
        text = MeanOfWords(settings.text, vocabulary_size)
        of_images, of_texts = (nn.Linear(part.channels, settings.dim) for part in (backbone, text))
        super().__init__(backbone, of_images, text, of_texts, settings.dim)
        self.settings = settings


SYSTEM = System(MeanWordsSettings, MeanWords)
"""What the entry point names."""
