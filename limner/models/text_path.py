"""What every text path is: word numbers in, a feature of the sentence out."""

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int64
from torch import Tensor, nn


@runtime_checkable
class TextSettings(Protocol):
    """What every text path can be asked of its settings."""

    @property
    def words(self) -> int:
        """Length of a sentence in words."""

    @property
    def word_dim(self) -> int:
        """Width of a word vector."""


class TextEncoder(nn.Module, ABC):
    """A text path up to its feature: a word table, and what is learnt on top of it.

    - `table`: a word vector a row; row 0 is that of an empty position.
    - `channels`: width of the feature that `forward` gives.
    - `test_positions`: places of a sentence that its embedding is averaged over at testing; see `place_evenly`.
    """

    table: nn.Embedding
    channels: int
    test_positions = 1

    @abstractmethod
    def forward(self, numbers: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch {self.channels}"]:
        """Features of word numbers."""

    def word_vectors(self) -> Float[Tensor, "vocabulary width"]:
        """A vector of each word, in the vocabulary's order: what words are compared by."""
        return self.table.weight[1:]

    def read_vocabulary(self, entries: tuple[str, ...]) -> None:
        """Take in what the words of the vocabulary are; most text paths know them by number alone."""
