"""HGAN's text encoder: word features → self-attention → a bi-LSTM, and noun phrases beside the words.

Source: Zheng et al., "Hierarchical Gumbel Attention Network for Text-based Person Search", MM 2020, section 3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.errors import CheckpointError
from limner.models.text_bert import BertSettings, BertWords, whole_words
from limner.models.text_encoder import TextEncoder, WordTableSettings
from limner.models.text_lstm import lengths
from limner.types import PADDING, TextNeed, Tokenizer


class HierarchicalTextSettings(WordTableSettings):
    """The settings from words to a sentence feature, word features and phrase features."""

    words: int = Field(default=64, ge=8, le=500)
    """Length of a sentence in tokens; longer ones lose their end (the paper does not say)."""
    bert: BertSettings | None = BertSettings()
    """BERT as the first layer; None = a table of word vectors instead (Table 3's rows without BERT)."""
    word_dim: int = Field(default=300, ge=1)
    """Width of a word vector without BERT."""
    dim: int = Field(default=512, ge=8)
    """C', width of word and phrase features (section 4: 512)."""
    heads: int = Field(default=8, ge=1)
    """Heads of both self-attention layers (the paper does not say)."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout in both self-attention layers (Vaswani et al.: 0.1)."""
    hidden: int = Field(default=512, ge=1)
    """Width of each direction of the bi-LSTM (section 4: 512)."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "HierarchicalTextSettings":
        if self.dim % self.heads:
            raise ValueError(f"dim={self.dim} cannot be shared by heads={self.heads}")
        return self

    @property
    def table_width(self) -> int | None:
        """Width of a word vector; None above BERT, which has its own."""
        return self.word_dim if self.bert is None else None

    def further_words(self) -> Sequence[str]:
        """The whole words of a pretrained BERT, which it can read without a training sentence."""
        return () if self.bert is None or self.bert.model is None else whole_words(self.bert.model)

    def with_folder(self, folder: Path) -> "HierarchicalTextSettings":
        """With the BERT whose configuration lies in the folder."""
        if self.bert is None:
            raise CheckpointError(f"{folder}: a checkpoint carries a BERT, and its text encoder has none")
        return self.replace(bert=self.bert.replace(model=str(folder)))

    def identity(self) -> dict[str, Any]:
        """Without the name or folder of the pretrained BERT, whose configuration the checkpoint carries."""
        found = super().identity()
        return found if self.bert is None else {**found, "bert": {**found["bert"], "model": None}}


@dataclass(frozen=True)
class SentenceParts:
    """A sentence at its three levels.

    - `feature`: T_g; `words`: T_w; `phrases`: T_p; the last two 0 where `there_are` of them is False.
    """

    feature: Float[Tensor, "sentences channels"]
    words: Float[Tensor, "sentences words dim"]
    words_present: Bool[Tensor, "sentences words"]
    phrases: Float[Tensor, "sentences phrases dim"]
    phrases_present: Bool[Tensor, "sentences phrases"]


class HierarchicalText(TextEncoder):
    """Token ids to T_g, and with the phrases' numbers to T_w and T_p.

    Our name = their symbol: `forward` = T_g, `encode` = T_g, T_w and T_p; `channels` = the width of T_g, twice that of
    a direction.

    **Decided**: a linear layer takes BERT's features to C' before self-attention, one Transformer encoder layer each
    for words and phrases; what enters the phrases' is the mean of each phrase's words as they enter the words'; T_g is
    the last states over T_w. Without BERT, the word vectors take its features' place, and where a word stands is
    told by the bi-LSTM alone.
    """

    def __init__(
        self, settings: HierarchicalTextSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.settings = settings
        self.bert: BertWords | None = None
        self.vectors: nn.Embedding | None = None
        if settings.bert is not None:
            self.bert = BertWords(settings.bert, vocabulary_size, load_weights=load_weights)
            width = self.bert.channels
        else:
            self.vectors = nn.Embedding(vocabulary_size + 1, settings.word_dim, padding_idx=PADDING)
            nn.init.normal_(self.vectors.weight, std=0.1)
            # padding_idx keeps this row's gradient at 0, but `normal_` has written over its zeros
            self.vectors.weight.data[PADDING].zero_()
            width = settings.word_dim
        self.entry = nn.Linear(width, settings.dim)
        self.word_attention, self.phrase_attention = attention_layers(
            settings.dim, settings.heads, settings.dropout
        )
        # two of one direction, since a bidirectional one needs packed rows: 34 ms forward and 110 backward
        # for 32 sentences, where padded rows take 8 and 15; training went from 95 to 170 pairs a second
        self.forwards, self.backwards = (
            nn.LSTM(settings.dim, settings.hidden, batch_first=True) for _ in range(2)
        )
        self.channels = 2 * settings.hidden

    @property
    def table(self) -> nn.Embedding:  # type: ignore[override]
        """The word vectors, or BERT's own table of pieces."""
        if self.vectors is not None:
            return self.vectors
        assert self.bert is not None
        return self.bert.table

    @property
    def needs_of_text(self) -> frozenset[TextNeed]:  # type: ignore[override]
        """BERT splits limner's words into its own pieces, and gives a feature for each word."""
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
        """T_g alone; `words_below` as `encode` takes them."""
        token_ids, present = up_to_the_longest(token_ids)
        return self._summarised(self._attended(self._entered(token_ids, words_below), present), present)

    def encode(
        self,
        token_ids: Int64[Tensor, "batch words"],
        phrases: Int64[Tensor, "batch words"],
        words_below: Float[Tensor, "batch words width"] | None = None,
    ) -> SentenceParts:
        """All three levels; `phrases` holds the number of the phrase that each word is in, from 1, 0 = in none.

        `words_below` is what BERT gives for the words, where it was computed before.
        An empty sentence has one word, which is empty.
        """
        token_ids, present = up_to_the_longest(token_ids)
        # rows are cut to the longest sentence, so what stands beside the token ids is cut likewise
        phrases = phrases[:, : token_ids.shape[1]]
        entered = self._entered(token_ids, words_below)
        words = self._attended(entered, present)
        of_phrases, found = attended_phrases(self.phrase_attention, entered, phrases)
        return SentenceParts(
            self._summarised(words, present), words * present[:, :, None], present, of_phrases, found
        )

    def word_vectors(self) -> Float[Tensor, "vocabulary width"]:
        """The features of each word alone, as they enter self-attention."""
        if self.vectors is not None:
            return self.vectors.weight[1:]
        assert self.bert is not None
        # 1,024 words at a time: BERT's 13 hidden states of 30,000 words with [CLS] and [SEP] would be 3.6 GB
        alone = torch.arange(1, len(self.bert.pieces), device=self.entry.weight.device)
        return torch.cat([self._entered(block[:, None], None)[:, 0] for block in torch.split(alone, 1024)])

    def _entered(self, token_ids: Tensor, words_below: Tensor | None) -> Float[Tensor, "batch words dim"]:
        if words_below is None:
            below = self.vectors if self.vectors is not None else self.bert
            assert below is not None
            found = below(token_ids)
        else:
            # a fixed BERT is run once; the feature cache keeps what it gives in float16
            found = words_below[:, : token_ids.shape[1]].float()
        entered: Tensor = self.entry(found)
        return entered

    def _attended(self, entered: Tensor, present: Tensor) -> Float[Tensor, "batch words dim"]:
        attended: Tensor = self.word_attention(entered, src_key_padding_mask=~present)
        return attended

    def _summarised(self, words: Tensor, present: Tensor) -> Float[Tensor, "batch {self.channels}"]:
        """[→h_r, ←h_1]: the last states of both directions of the bi-LSTM.

        Each direction reads rows that start at its first word: what lies behind a sentence's end then changes no state
        that is taken. One step of a packed sequence costs about as much as one of the whole padded batch, and
        `nn.LSTM` on a CPU has a fast path for the latter alone.
        """
        ends = present.sum(dim=1)
        places = torch.arange(words.shape[1], device=words.device)
        # behind the end the first word is read again and again, after the state that is taken
        turned = (ends[:, None] - 1 - places).clamp(min=0)
        from_the_end = words.gather(1, turned[:, :, None].expand_as(words))
        rows = torch.arange(words.shape[0], device=words.device)
        return torch.cat(
            [
                lstm(x)[0][rows, ends - 1]
                for lstm, x in ((self.forwards, words), (self.backwards, from_the_end))
            ],
            dim=1,
        )


def attention_layers(
    dim: int, heads: int, dropout: float
) -> tuple[nn.TransformerEncoderLayer, nn.TransformerEncoderLayer]:
    """The Transformer encoder layer over the words of a sentence, and that over its phrases."""
    # four times the width inside, as in the paper's reference 29 (Vaswani et al.: 2,048 over 512)
    words, phrases = (
        nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout, batch_first=True) for _ in range(2)
    )
    return words, phrases


def attended_phrases(
    layer: nn.Module, entered: Float[Tensor, "batch words dim"], phrases: Int64[Tensor, "batch words"]
) -> tuple[Float[Tensor, "batch phrases dim"], Bool[Tensor, "batch phrases"]]:
    """T_p: the mean of each phrase's words after self-attention over the phrases, and which phrases exist."""
    means, found = _means(entered, phrases)
    if means.shape[1]:
        # a sentence without a phrase would have nothing to attend to
        # and a softmax over nothing is NaN; what it then gives is multiplied by 0 below
        looked_at = found.clone()
        looked_at[:, 0] = True
        means = layer(means, src_key_padding_mask=~looked_at)
    return means * found[:, :, None], found


def up_to_the_longest(token_ids: Int64[Tensor, "batch words"]) -> tuple[Tensor, Tensor]:
    """The rows, cut after the longest sentence, and which positions are before a sentence's end."""
    ends = lengths(token_ids)
    if not torch.compiler.is_exporting():
        token_ids = token_ids[:, : int(ends.max())]
    # not by `token_ids != PADDING`: an empty sentence keeps one position, since attention over none is NaN
    return token_ids, torch.arange(token_ids.shape[1], device=token_ids.device) < ends[:, None]


def _means(
    entered: Float[Tensor, "batch words dim"], phrases: Int64[Tensor, "batch words"]
) -> tuple[Float[Tensor, "batch phrases dim"], Bool[Tensor, "batch phrases"]]:
    """The mean of each phrase's words, and which phrases exist."""
    # a recorded network has a place for as many phrases as words, and those beyond the last one count as absent
    count = (
        phrases.shape[1] if torch.compiler.is_exporting() else int(phrases.max()) if phrases.numel() else 0
    )
    inside = phrases[:, None, :] == torch.arange(1, count + 1, device=phrases.device)[:, None]
    sizes = inside.sum(dim=2, keepdim=True)
    # the paper does not say how words make a phrase: **Decided**, their mean
    means = inside.to(entered.dtype) @ entered / sizes.clamp(min=1)
    return means, (sizes > 0).squeeze(2)
