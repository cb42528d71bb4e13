"""A text path of a recurrent network: word numbers → LSTM → its last hidden state.

Source: Li et al., ICCV 2017, sections 3.1 and 4.2 ("the last hidden state of the LSTM"); the word vectors are what its
fully connected layer on one-hot words comes to.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.data.vocabulary import PADDING
from limner.models.text_path import TextPath
from limner.settings import Settings


class TextLSTMSettings(Settings):
    """The recurrent text path up to its last hidden state."""

    words: int = Field(default=50, ge=8, le=1024)
    """Length of a sentence in words; longer ones lose their end (the paper does not say)."""
    word_dim: int = Field(default=512, ge=1)
    """Width of a word vector (the paper does not say)."""
    hidden: int = Field(default=512, ge=1)
    """Width of the hidden state (the paper does not say)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the word vectors (not in the paper)."""


class TextLSTM(TextPath):
    """Word numbers to the LSTM's hidden state at each sentence's last word.

    Our name = their symbol: `encode_words` = h_1 … h_T, `channels` = D_H.

    Sentences stand at the left of their rows; empty positions behind them are not read. A sentence
    without a word has the state after one empty position.
    """

    def __init__(self, settings: TextLSTMSettings, vocabulary_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.table = nn.Embedding(vocabulary_size + 1, settings.word_dim, padding_idx=PADDING)
        nn.init.normal_(self.table.weight, std=0.1)
        self.table.weight.data[PADDING].zero_()
        self.dropout = nn.Dropout(settings.dropout)
        self.lstm = nn.LSTM(settings.word_dim, settings.hidden, batch_first=True)
        self.channels = settings.hidden

    def forward(self, numbers: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch {self.channels}"]:
        """The last hidden states."""
        states, present = self.encode_words(numbers)
        return states[torch.arange(len(states), device=states.device), present.sum(dim=1) - 1]

    def encode_words(
        self, numbers: Int64[Tensor, "batch words"]
    ) -> tuple[Float[Tensor, "batch words {self.channels}"], Bool[Tensor, "batch words"]]:
        """The hidden state at each word, 0 behind a sentence's end, and which positions are before it.

        A state depends on what stands before it alone, so rows run to the longest sentence's end and what lies behind a
        shorter one's is cut off. Packed sequences give the same and are slower on a CPU (docs/log.md).
        """
        ends = lengths(numbers)
        longest = int(ends.max())
        states, _ = self.lstm(self.dropout(self.table(numbers[:, :longest])))
        present = torch.arange(numbers.shape[1], device=numbers.device) < ends[:, None]
        kept = torch.where(present[:, :longest, None], states, 0)
        return F.pad(kept, (0, 0, 0, numbers.shape[1] - longest)), present


def lengths(numbers: Int64[Tensor, "batch words"]) -> Int64[Tensor, " batch"]:
    """Positions up to each sentence's last word, at least 1.

    >>> import torch
    >>> lengths(torch.tensor([[3, 4, 0], [0, 0, 0], [5, 0, 6]])).tolist()
    [2, 1, 3]
    """
    return (numbers != PADDING).long().cumsum(1).argmax(1) + 1
