"""What every text path is: word numbers in, a feature of the sentence out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int64
from torch import Tensor, nn


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


@runtime_checkable
class TextSettings(Protocol):
    """What every text path can be asked of its settings."""

    @property
    def words(self) -> int:
        """Length of a sentence in words."""

    @property
    def word_dim(self) -> int:
        """Width of a word vector."""


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

    def word_vectors(self) -> Float[Tensor, "vocabulary width"]:
        """A vector of each word, in the vocabulary's order: what words are compared by."""
        return self.table.weight[1:]
