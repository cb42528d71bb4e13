"""A text encoder of a recurrent network: token ids → LSTM → its last hidden state, or the mean of all.

Without a layer it is a bag of words: the mean of the word vectors.

Sources: Li et al., ICCV 2017, sections 3.1 and 4.2 ("the last hidden state of the LSTM"); the word vectors are what its
fully connected layer on one-hot words comes to. MNiL, MM 2017, section 3.1 (two layers, the mean of the words'
outputs).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor, nn

from limner.errors import CheckpointError, SettingsError
from limner.models.text_bert import BertSettings, BertWords, whole_words
from limner.models.text_encoder import TextEncoder, WordTableSettings
from limner.types import PADDING, TextNeed, Tokenizer


class TextLSTMSettings(WordTableSettings):
    """The recurrent text encoder up to its feature."""

    words: int = Field(default=50, ge=8, le=1024)
    """Length of a sentence in tokens; longer ones lose their end (the paper does not say)."""
    word_dim: int = Field(default=512, ge=1)
    """Width of a word vector (the paper does not say)."""
    hidden: int = Field(default=512, ge=1)
    """Width of the hidden state (the identity-aware paper does not say; MNiL's code: 512)."""
    layers: int = Field(default=1, ge=0, le=8)
    """Layers, each reading the hidden states of the one below; 0 = none, the word vectors themselves are the states
    (not in the papers)."""
    feature: Literal["last", "mean"] = "last"
    """A sentence's feature: the last layer's state at its last word, or the mean of its states at all words."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the word vectors (not in the paper)."""
    bert: BertSettings | None = None
    """A BERT held fixed, whose states of the words in their sentence stand in place of a table of word vectors;
    `word_dim` is their width (not in the papers). None = a table."""

    @property
    def table_width(self) -> int | None:
        """Width of a word vector; None above BERT, which has its own."""
        return self.word_dim if self.bert is None else None

    def further_words(self) -> Sequence[str]:
        """The whole words of a pretrained BERT, which it can read without a training sentence."""
        return () if self.bert is None or self.bert.model is None else whole_words(self.bert.model)

    def with_folder(self, folder: Path) -> "TextLSTMSettings":
        """With the BERT whose configuration lies in the folder."""
        if self.bert is None:
            raise CheckpointError(f"{folder}: a checkpoint carries a BERT, and its text encoder has none")
        return self.replace(bert=self.bert.replace(model=str(folder)))

    def identity(self) -> dict[str, Any]:
        """Without the name or folder of a BERT, whose configuration the checkpoint carries."""
        found = super().identity()
        # models that were trained before the setting was there keep their fingerprint
        if self.bert is None:
            del found["bert"]
            return found
        return {**found, "bert": {**found["bert"], "model": None}}


class TextLSTM(TextEncoder):
    """Token ids to a feature of the last layer's hidden states.

    Our name = their symbol: `encode_words` = h_1 … h_T (identity-aware), y_i1 … y_iT (MNiL); `channels` = D_H, D_y.

    Sentences stand at the left of their rows; empty positions behind them are not read. A sentence
    without a word has the state after one empty position, and a mean of 0.
    """

    def __init__(
        self, settings: TextLSTMSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.settings = settings
        self.bert: BertWords | None = None
        if settings.bert is None:
            table = nn.Embedding(vocabulary_size + 1, settings.word_dim, padding_idx=PADDING)
            nn.init.normal_(table.weight, std=0.1)
            # padding_idx keeps this row's gradient at 0, but `normal_` has written over its zeros
            table.weight.data[PADDING].zero_()
            # nn.Module keeps it among its modules, where the property of this name reads it
            self.table = table  # type: ignore[misc]
        else:
            self.bert = BertWords(settings.bert, vocabulary_size, load_weights=load_weights)
            if self.bert.channels != settings.word_dim:
                raise SettingsError(
                    f"setting 'model.text.word_dim': {settings.word_dim}, but the states of the words have "
                    f"{self.bert.channels} numbers"
                )
        self.dropout = nn.Dropout(settings.dropout)
        # `nn.LSTM` has one layer at least
        if settings.layers:
            self.lstm = nn.LSTM(settings.word_dim, settings.hidden, settings.layers, batch_first=True)
        self.channels = settings.hidden if settings.layers else settings.word_dim

    @property
    def table(self) -> nn.Embedding:  # type: ignore[override]
        """The word vectors, or BERT's own table of pieces."""
        if self.bert is not None:
            return self.bert.table
        found: nn.Embedding = self._modules["table"]  # type: ignore[assignment]
        return found

    @property
    def needs_of_text(self) -> frozenset[TextNeed]:  # type: ignore[override]
        """BERT splits limner's words into its own pieces, and gives a state for each word."""
        return frozenset() if self.bert is None else frozenset({"whole words"})

    @property
    def any_length(self) -> bool:
        """Empty places behind a sentence are not read."""
        return True

    def read_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Tell BERT what the words of the tokenizer are."""
        if self.bert is not None:
            self.bert.read_vocabulary(tokenizer.entries)

    def files(self) -> dict[str, dict[str, Any]]:
        """The configuration of a pretrained BERT; one that starts at random is built from the settings alone."""
        if self.bert is None or self.bert.settings.model is None:
            return {}
        return self.bert.files()

    def forward(
        self,
        token_ids: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "batch words width"] | None = None,
    ) -> Float[Tensor, "batch {self.channels}"]:
        """The last hidden states, or their means; `words_below` as `encode_words` takes them."""
        states, present = self.encode_words(token_ids, words_below)
        if self.settings.feature == "mean":
            # `present` counts the first position of an empty sentence and the padding before a shifted one, too.
            filled = token_ids != PADDING
            return (states * filled[:, :, None]).sum(dim=1) / filled.sum(dim=1, keepdim=True).clamp(min=1)
        return states[torch.arange(states.shape[0], device=states.device), present.sum(dim=1) - 1]

    def input_features(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch {self.channels}"]:
        """The LSTM's own feature, which is what MNiL's Figure 5 compares with the embedding."""
        return self(token_ids[:, : self.settings.words])  # type: ignore[no-any-return]

    def word_vectors(self) -> Float[Tensor, "vocabulary {self.channels}"]:
        """The last layer's output for each word alone (MNiL, section 4.4 and Table 3).

        **Decided**: a word is read as a sentence of its own; the paper does not say in which it stands.
        """
        rows = len(self.table.weight if self.bert is None else self.bert.pieces)
        alone = torch.arange(1, rows, device=self.table.weight.device)
        return torch.cat([self.encode_words(block[:, None])[0][:, 0] for block in torch.split(alone, 1024)])

    @property
    def state_channels(self) -> int:
        """Width of the last layer."""
        return self.channels

    def encode_words(
        self,
        token_ids: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "batch words width"] | None = None,
    ) -> tuple[Float[Tensor, "batch words {self.channels}"], Bool[Tensor, "batch words"]]:
        """The last layer's state at each word, 0 behind a sentence's end, and which positions are before it.

        `words_below` is what BERT gives for the words, where it was computed before.
        """
        if self.bert is not None and words_below is None:
            with torch.no_grad():
                words_below = self.bert(token_ids)
        ends = lengths(token_ids)
        present = torch.arange(token_ids.shape[1], device=token_ids.device) < ends[:, None]
        # on an accelerator each step of a loop is several small kernels; nn.LSTM is one call of cuDNN there
        if token_ids.device.type == "cpu" and not torch.compiler.is_exporting():
            return self._packed(token_ids, words_below, ends, present), present
        longest = token_ids.shape[1] if torch.compiler.is_exporting() else int(ends.max())
        read = self.table(token_ids[:, :longest]) if words_below is None else words_below[:, :longest].float()
        states = self.dropout(read)
        if self.settings.layers:
            states, _ = self.lstm(states)
        # a state depends on what stands before it alone, so what lies behind a sentence's end is cut off
        kept = torch.where(present[:, :longest, None], states, 0)
        return F.pad(kept, (0, 0, 0, token_ids.shape[1] - longest)), present

    def _packed(
        self,
        token_ids: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "batch words width"] | None,
        ends: Int64[Tensor, " batch"],
        present: Bool[Tensor, "batch words"],
    ) -> Float[Tensor, "batch words {self.channels}"]:
        # stable: which of two sentences of one length comes first is the order of sums in gradients
        order = ends.argsort(descending=True, stable=True)
        # nonzero of the transpose goes word by word, and the longest
        # sentence comes first in each: what `run_packed` wants
        place, row = present[order].T.nonzero(as_tuple=True)
        counts = [count for count in present.sum(dim=0).tolist() if count]
        # from places in the sorted order back to rows of the batch
        row = order[row]
        read = self.table(token_ids[row, place]) if words_below is None else words_below[row, place].float()
        packed: Tensor = self.dropout(read)
        if self.settings.layers:
            packed = run_packed(self.lstm, packed, counts)
        states = packed.new_zeros(*token_ids.shape, self.channels)
        return states.index_put((row, place), packed)


def lengths(token_ids: Int64[Tensor, "batch words"]) -> Int64[Tensor, " batch"]:
    """Positions up to each sentence's last word, at least 1.

    >>> import torch
    >>> lengths(torch.tensor([[3, 4, 0], [0, 0, 0], [5, 0, 6]])).tolist()
    [2, 1, 3]
    """
    return (token_ids != PADDING).long().cumsum(1).argmax(1) + 1


def run_packed(
    lstm: nn.LSTM, rows: Float[Tensor, "words inputs"], counts: Sequence[int]
) -> Float[Tensor, "words hidden"]:
    """The last layer's hidden state at each word, from a state of zeros.

    For CPUs: only the words that are there are computed. `nn.LSTM` gives the same, padded or packed, and takes 2.1 and
    1.4 times as long to learn on one core (`benchmarks/text_lstm.py`).

    The first words of all sentences come first, that of the longest one at the head, then the second words of those
    that have one, and so on; `counts` says how many there are of each. `lstm` has one direction, biases, and neither
    projections nor dropout. The cells are in float32 also under autocast.
    """
    for layer in range(lstm.num_layers):
        into, again, first_bias, second_bias = (
            lstm.get_parameter(f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        # all words of a layer in one product; cuDNN's two biases act by their sum alone
        entering = F.linear(rows, into, first_bias + second_bias)
        hidden = cell = rows.new_zeros(counts[0], lstm.hidden_size)
        states = []
        for step, gates in enumerate(torch.split(entering, list(counts))):
            # before the first word the state is 0, and so is its product
            if step:
                # sentences that have ended are the last rows, so that a slice drops them
                gates = gates + F.linear(hidden[: len(gates)], again)
            i, f, g, o = gates.to(torch.promote_types(gates.dtype, torch.float32)).chunk(4, dim=1)
            # in float32: a cell adds up over a whole sentence, where bf16 loses what is small beside the sum
            cell = torch.addcmul(f.sigmoid() * cell[: len(gates)], i.sigmoid(), g.tanh())
            hidden = o.sigmoid() * cell.tanh()
            states.append(hidden)
        rows = torch.cat(states)
    return rows
