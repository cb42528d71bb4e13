"""The base of text encoders, token ids in and a feature of the sentence out; and networks divided into parts."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from limner.errors import CheckpointError, SettingsError
from limner.settings import Settings
from limner.types import PADDING, TextNeed, Tokenizer


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
        # by module and not by parameter: statistics of batch norm are buffers, which `requires_grad` does not hold
        for name in names:
            # a stage may freeze a part that is a loss's and no network's, such as the classifier
            for module in modules.get(name, ()):
                module.eval()


class TextSettings(Settings):
    """The settings that every text encoder has."""

    words: int
    """Length of a sentence in tokens."""

    @property
    def table_width(self) -> int | None:
        """Width of a table of word vectors that may start from given ones; None without such a table."""
        return None

    @property
    def tokenizer(self) -> str | None:
        """The folder or name of the tokenizer that the encoder was pretrained with; None = it reads any token."""
        return None

    def further_words(self) -> Sequence[str]:
        """The words that the encoder knows without a training sentence, such as a pretrained BERT's."""
        return ()

    def with_folder(self, folder: Path) -> "TextSettings":
        """The same encoder built from a folder that holds what `TextEncoder.files` gave."""
        raise CheckpointError(f"{folder}: a checkpoint carries files of a text encoder that reads none")

    def identity(self) -> dict[str, Any]:
        """The settings as plain values without where weights came from."""
        return self.model_dump(mode="json")


class WordTableSettings(TextSettings):
    """The settings of a text encoder with a table of word vectors of its own."""

    word_dim: int
    """Width of a word vector."""

    @property
    def table_width(self) -> int | None:
        """Width of a word vector."""
        return self.word_dim


class FixedText(nn.Module, ABC):
    """A layer whose features of training sentences are computed once where it is held fixed.

    - `channels`: width of a feature; `settings`: what it was built from.
    - `of_sentences`: True where it gives one feature a sentence, False for one a word.
    """

    channels: int
    of_sentences: bool
    settings: Settings

    @abstractmethod
    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, the JSON files that a folder must hold to build the same layer without its weights."""


class TextEncoder(nn.Module, ABC):
    """A text encoder up to its feature: a word table, and what is learnt on top of it.

    - `table`: a word vector a row; row 0 is that of an empty position.
    - `channels`: width of the feature that `forward` gives.
    - `needs_of_text`: what it asks of a tokenizer beyond token ids.
    - `test_positions`: places of a sentence that its embedding is averaged over at testing; see `place_evenly`.
    """

    table: nn.Embedding
    channels: int
    # 1: all places, as in the released code, gave generated people
    # 49.2 for 47.6 text→image R@1 in one run, 43.3 for 45.1 in another
    test_positions = 1
    needs_of_text: frozenset[TextNeed] = frozenset()

    @abstractmethod
    def forward(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch {self.channels}"]:
        """Features of token ids."""

    def above_table(self) -> list[nn.Module]:
        """The modules that together hold all parameters but those of the word table."""
        return [module for module in self.children() if module is not self.table]

    @property
    def state_channels(self) -> int | None:
        """Width of a token's state; None for an encoder that has a feature of the whole sentence alone."""
        return None

    def encode_words(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> tuple[Float[Tensor, "batch words channels"], Bool[Tensor, "batch words"]]:
        """The state at each token, 0 behind a sentence's end, and which positions are before it.

        At least one position of a sentence is before its end. For encoders with `state_channels`.
        """
        raise AssertionError(f"{type(self).__name__} has no states of single words")

    @property
    def token_width(self) -> int:
        """Width of the vector that stands for a token at the encoder's input.

        Raises `SettingsError` for an encoder that takes no vectors in place of tokens (`forward_with`).
        """
        raise SettingsError(
            f"a picture as a word needs a text tower of transformers, as pretrained pairs and `clip-people` have; this "
            f"model reads text by {type(self).__name__}, which takes no vector in place of a token"
        )

    def forward_with(
        self,
        token_ids: Int64[Tensor, "batch words"],
        marked: Bool[Tensor, "batch words"],
        vectors: Float[Tensor, "marked width"],
    ) -> Float[Tensor, "batch {self.channels}"]:
        """Features of token ids in which vectors stand in place of the marked tokens, row by row.

        `vectors` has a row for each marked position, of `token_width` numbers. Raises `SettingsError` as `token_width`.
        """
        raise AssertionError(
            f"a text encoder of token_width {self.token_width} must have its own forward_with"
        )

    @property
    def any_length(self) -> bool:
        """True where rows may be as short as their longest sentence, which changes no feature."""
        return False

    def folded(self) -> "TextEncoder":
        """The encoder for inference alone, with what can be folded into its weights; itself where nothing can."""
        return self

    def read_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Learn what the token ids stand for; most encoders need not know."""

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, the JSON files that a folder must hold to build the same encoder without its weights."""
        return {}

    def input_features(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch width"]:
        """Features of sentences before the encoder, for figures: the mean vector of their tokens, 0 without any."""
        vectors = self.word_vectors().float()
        present = token_ids != PADDING
        # an empty position reads row −1, which is the last word's vector; the mask takes it out again
        sums = (vectors[token_ids - 1] * present[:, :, None]).sum(dim=1)
        return sums / present.sum(dim=1, keepdim=True).clamp(min=1)

    def word_vectors(self) -> Float[Tensor, "vocabulary width"]:
        """A vector of each token, in the order of `Tokenizer.entries`: what words are compared by."""
        return self.table.weight[1:]
