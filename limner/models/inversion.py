"""Textual inversion: a picture becomes words that a text tower reads, so that a sentence can go on about it.

Sources: Saito et al., "Pic2Word: Mapping Pictures to Words for Zero-shot Composed Image Retrieval", CVPR 2023; Liu et
al., "Word for Person: Zero-shot Composed Person Retrieval" (Word4Per), arXiv 2311.16515, 2023. Of both the published
code was read; the sections are cited from memory.
"""

from typing import Final

from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from limner.settings import Settings

STAR: Final = "*"
"""Stands in a prompt for the picture."""


class InversionSettings(Settings):
    """The settings of a mapping from pictures to pseudo words, and of the sentences that they stand in."""

    prompt: str = "a photo of *"
    """The beginning of each sentence; the star is the picture, and a query's text follows."""
    words: int = Field(default=1, ge=1, le=16)
    """Pseudo words of a picture (Pic2Word and Word4Per: 1)."""
    hidden: int = Field(default=512, ge=1)
    """Width of the hidden layers."""
    layers: int = Field(default=2, ge=0)
    """Hidden layers."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout behind each hidden layer."""

    @field_validator("prompt")
    @classmethod
    def _has_one_star(cls, prompt: str) -> str:
        if prompt.split().count(STAR) != 1 or prompt.count(STAR) != 1:
            raise ValueError(
                f"expected one {STAR} with blanks around it, for the picture, got {prompt[:40]!r}"
            )
        return prompt


class PictureWords(nn.Module):
    """The mapping network: an image's embedding to the vectors of its pseudo words.

    Our name = Pic2Word's symbol: this module = f_M, its output = s, the token "[*]". Hidden layers of width `hidden`,
    each followed by dropout and ReLU, then a linear layer.

    **Decided**: it reads the unit embedding, where Pic2Word reads the embedding before its normalisation: a store keeps
    unit vectors alone. More words than one are ours, too. A mapping that reads the text's embedding as well, so that
    the word could leave out what the text replaces, was no better on other triplets than those of its training
    (docs/log/2026-11-25.md).
    """

    def __init__(self, settings: InversionSettings, dim: int, token_width: int) -> None:
        super().__init__()
        self.settings = settings
        layers: list[nn.Module] = []
        width = dim
        for _ in range(settings.layers):
            layers += [nn.Linear(width, settings.hidden), nn.Dropout(settings.dropout), nn.ReLU()]
            width = settings.hidden
        self.layers = nn.Sequential(*layers, nn.Linear(width, settings.words * token_width))

    def forward(self, images: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch words width"]:
        """Vectors of the pseudo words of unit embeddings, for the places of tokens."""
        found: Tensor = self.layers(images)
        return found.reshape(len(images), self.settings.words, -1)
