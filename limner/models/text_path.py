"""What every text encoder is: word numbers in, a feature of the sentence out; and networks divided into parts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.data.vocabulary import PADDING
from limner.errors import CheckpointError
from limner.settings import Settings


class PartedNetwork(nn.Module, ABC):
    """A network whose parameters are divided into named parts."""

    @abstractmethod
    def modules_of_parts(self) -> dict[str, list[nn.Module]]:
        """The modules of each part; every parameter that learns with this network is in exactly one."""

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The parameters by the names of their parts."""
        return {
            name: [parameter for module in modules for parameter in module.parameters()]
            for name, modules in self.modules_of_parts().items()
        }

    def eval_parts(self, names: Iterable[str]) -> None:
        """Put parts into eval mode, so that their batch norm neither uses nor gathers the batch's statistics."""
        modules = self.modules_of_parts()
        for name in names:
            for module in modules.get(name, ()):
                module.eval()


class TextSettings(Settings):
    """The settings that every text encoder has, and what shared code may ask of them."""

    words: int = Field(default=32, ge=8, le=1024)
    """Length of a sentence in words; longer ones lose their end."""
    word_dim: int = Field(default=300, ge=1)
    """Width of a word vector."""

    @property
    def has_word_vectors(self) -> bool:
        """Whether the encoder starts with a table of word vectors, which may be learnt or read beforehand."""
        return True

    def whole_words(self) -> list[str]:
        """Words that a pretrained encoder knows beside those of the training sentences."""
        return []

    def with_folder(self, folder: Path) -> "TextSettings":
        """The same encoder built from a folder that holds what `TextPath.files` gave."""
        raise CheckpointError(f"{folder}: a checkpoint carries files of a text encoder that reads none")

    def identity(self) -> dict[str, Any]:
        """The settings as plain values without where weights came from."""
        return self.model_dump(mode="json")


class TextPath(nn.Module, ABC):
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

    def read_vocabulary(self, entries: tuple[str, ...]) -> None:
        """Learn what the words of the vocabulary are; an encoder with a table of its own needs nothing of them."""

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, the JSON files that a folder must hold to build the same encoder without its weights."""
        return {}

    def input_features(self, numbers: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch width"]:
        """What a figure shows as the sentences before the encoder: the mean vector of their words, 0 without any."""
        vectors = self.word_vectors().float()
        present = numbers != PADDING
        sums = (vectors[numbers - 1] * present[:, :, None]).sum(dim=1)
        return sums / present.sum(dim=1, keepdim=True).clamp(min=1)

    def word_vectors(self) -> Float[Tensor, "vocabulary width"]:
        """A vector of each word, in the vocabulary's order: what words are compared by."""
        return self.table.weight[1:]
