"""BERT as a word encoder: token ids of words in, hidden states of the words out.

Source: Devlin et al., "BERT", NAACL 2019, by the transformers library; which hidden layers are read is HGAN's Table 2
(Zheng et al., MM 2020).
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.errors import CheckpointError, install_hint
from limner.models.pretrained_source import portable, quiet
from limner.models.text_encoder import FixedText
from limner.settings import Settings
from limner.types import PADDING

HiddenLayers = Literal["last", "second-to-last", "last-four"]

PIECES = 8
"""The most pieces of a word that are read; few words have more."""

_CLS, _SEP, _PAD, _UNKNOWN = "[CLS]", "[SEP]", "[PAD]", "[UNK]"


class BertSettings(Settings):
    """The settings of BERT: which one, and which of its hidden layers are read."""

    model: str | None = "bert-base-uncased"
    """A folder, or a name on the hub; None = one that starts at random, of the sizes below, with a piece a word."""
    hidden: HiddenLayers = "last-four"
    """Hidden layers that make a word's feature (Table 2); "last-four" are concatenated."""
    width: int = Field(default=128, ge=8)
    """Width of a BERT that starts at random."""
    layers: int = Field(default=4, ge=1)
    """Its layers."""
    heads: int = Field(default=4, ge=1)
    """Its attention heads."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "BertSettings":
        if self.width % self.heads:
            raise ValueError(f"width={self.width} cannot be shared by heads={self.heads}")
        # a pretrained one says how many layers it has only in its config.json: `BertWords` asks it
        if self.model is None and self.hidden == "last-four" and self.layers < 4:
            raise ValueError(f"hidden=last-four needs at least 4 layers, got layers={self.layers}")
        return self


class BertWords(FixedText):
    """Token ids of words to the chosen hidden layers, the mean over the pieces of each word.

    Words are those of limner's vocabulary, so that phrases and explanations speak of whole words; `pieces` holds what
    each is to BERT, and is part of the checkpoint. [CLS] and [SEP] stand around a sentence and are dropped again.
    `load_weights=False` leaves the values random, for a checkpoint to fill. Raises `CheckpointError` for a model that
    cannot be had or is no BERT.
    """

    of_sentences = False
    settings: BertSettings
    pieces: Tensor

    def __init__(self, settings: BertSettings, vocabulary_size: int, *, load_weights: bool = True) -> None:
        super().__init__()
        self.settings = settings
        self.bert, special = _bert(settings, vocabulary_size, load_weights)
        self.cls, self.sep = special
        config: Any = self.bert.config
        # [CLS] and [SEP] take two of the positions
        self.longest = int(config.max_position_embeddings) - 2
        self.channels = int(config.hidden_size) * (4 if settings.hidden == "last-four" else 1)
        if settings.hidden == "last-four" and config.num_hidden_layers < 4:
            raise CheckpointError(
                f"bert '{settings.model}': {config.num_hidden_layers} hidden layers, and hidden=last-four needs 4"
            )
        # −1 = no piece: 0 is a piece of BERT's, [PAD]
        table = torch.full((vocabulary_size + 1, PIECES), -1, dtype=torch.int32)
        table[1:, 0] = torch.arange(1, vocabulary_size + 1)
        self.register_buffer("pieces", table)

    @property
    def table(self) -> nn.Embedding:
        """BERT's own table of pieces."""
        found: nn.Embedding = self.bert.get_submodule("embeddings.word_embeddings")  # type: ignore[assignment]
        return found

    def read_vocabulary(self, entries: Sequence[str]) -> None:
        """Fill `pieces` for the words of a vocabulary; a BERT that starts at random has a piece a word as it is."""
        if self.settings.model is None:
            return
        tokenizer = load_tokenizer(self.settings.model)
        for number, word in enumerate(entries, start=1):
            ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word))[:PIECES]
            # a word of which BERT's cleaning leaves nothing would have no state
            ids = ids or [tokenizer.convert_tokens_to_ids(_UNKNOWN)]
            # `__init__` has put the piece of a random BERT there
            self.pieces[number] = -1
            self.pieces[number, : len(ids)] = torch.tensor(ids, dtype=torch.int32)

    def forward(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch words {self.channels}"]:
        """Features of words, 0 at empty positions. Pieces beyond what BERT can read at once are 0 as well."""
        if torch.compiler.is_exporting():
            return self._by_masks(token_ids)
        pieces = self.pieces[token_ids].long()
        present = (pieces >= 0) & (token_ids != PADDING)[:, :, None]
        row, word, _ = present.nonzero(as_tuple=True)
        # without gaps: BERT's position embeddings count pieces, of which a word has one to eight
        place = (present.flatten(1).cumsum(1) - 1)[present.flatten(1)]
        read = place < self.longest
        row, word, place, ids = row[read], word[read], place[read], pieces[present][read]
        ends = torch.zeros(len(token_ids), dtype=torch.long, device=token_ids.device)
        ends = ends.index_add(0, row, torch.ones_like(row))
        width = int(ends.max()) + 2
        # filled with [SEP], so that the one behind each sentence needs no index; the mask hides those after it
        tokens = token_ids.new_full((len(token_ids), width), self.sep)
        tokens[:, 0] = self.cls
        tokens[row, place + 1] = ids
        mask = torch.arange(width, device=token_ids.device) < (ends + 2)[:, None]
        states = self.bert(
            input_ids=tokens, attention_mask=mask.long(), output_hidden_states=True
        ).hidden_states
        of_pieces = self._chosen(states)[row, place + 1]
        # the paper does not say how the pieces of a word make one
        # feature: their mean, summed in one pass without a loop
        sums = of_pieces.new_zeros(token_ids.numel(), self.channels)
        at = row * token_ids.shape[1] + word
        sums = sums.index_add(0, at, of_pieces)
        counts = torch.bincount(at, minlength=token_ids.numel()).clamp(min=1)
        return (sums / counts[:, None].to(sums.dtype)).view(*token_ids.shape, self.channels)

    def _by_masks(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch words {self.channels}"]:
        """The same where a network is traced: each sentence has room for all pieces that its words may have."""
        pieces = self.pieces[token_ids].long()
        batch, words, most = pieces.shape
        present = ((pieces >= 0) & (token_ids != PADDING)[:, :, None]).flatten(1)
        place = present.cumsum(1)
        read = present & (place <= self.longest)
        ends = read.sum(1)
        room = words * most + 2
        # what is not read goes to a place of its own behind all others, and is cut off with it
        at = torch.where(read, place, room)
        tokens = token_ids.new_full((batch, room + 1), self.sep)
        tokens = tokens.scatter(1, at, pieces.flatten(1).clamp(min=0))
        tokens = torch.cat([tokens.new_full((batch, 1), self.cls), tokens[:, 1:]], dim=1)
        # a word may have several pieces and most have one, so that most of the room is empty
        longest = ends.max().item()
        torch._check(longest >= 0)  # type: ignore[no-untyped-call]
        width = longest + 2
        # chosen one by one: of a slice the tracer would have to know that the row is long enough
        columns = torch.arange(width, device=token_ids.device)
        tokens = tokens.index_select(1, columns)
        mask = columns < (ends + 2)[:, None]
        states = self.bert(
            input_ids=tokens, attention_mask=mask.long(), output_hidden_states=True
        ).hidden_states
        chosen = self._chosen(states)
        where = torch.where(read, place, 0)[:, :, None].expand(-1, -1, chosen.shape[2])
        of_pieces = chosen.gather(1, where) * read[:, :, None]
        counts = read.view(batch, words, most).sum(2).clamp(min=1)
        return of_pieces.view(batch, words, most, chosen.shape[2]).sum(2) / counts[:, :, None]

    def _chosen(self, states: Sequence[Tensor]) -> Tensor:
        if self.settings.hidden == "last-four":
            # states[0] is the embedding layer, so that four encoder layers are needed for these
            return torch.cat(list(states[-4:]), dim=2)
        return states[-1] if self.settings.hidden == "last" else states[-2]

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, what a folder must hold to build the same network without its weights."""
        return {"config.json": portable(self.bert.config)}


def whole_words(model: str) -> list[str]:
    """The pieces of a BERT's vocabulary that are whole words, in its order."""
    vocabulary: dict[str, int] = load_tokenizer(model).get_vocab()
    # pieces that continue a word (##ing) and special ones ([CLS]) hold characters that are no letters
    return [piece for piece in sorted(vocabulary, key=vocabulary.__getitem__) if piece.isalnum()]


def load_tokenizer(model: str) -> Any:
    """The tokenizer that came with a BERT. Raises `CheckpointError` if it cannot be loaded."""
    _expect_folder(model)
    # transformers lets through what its own libraries raise: OSError, ValueError, KeyError, SafetensorError …
    try:
        tokenizer = _transformers().AutoTokenizer.from_pretrained(model)
    # `_transformers` says what to install: not to be wrapped in "its tokenizer cannot be read"
    except CheckpointError:
        raise
    except Exception as error:
        raise _unusable(model, "its tokenizer cannot be read", error) from error
    pieces = tokenizer.get_vocab()
    if any(special not in pieces for special in (_CLS, _SEP, _UNKNOWN)):
        raise CheckpointError(f"bert '{model}': its tokenizer is not BERT's (no {_CLS}); choose a BERT")
    # without its files transformers makes one that knows the special pieces alone
    if not any(piece.isalnum() for piece in pieces):
        raise CheckpointError(
            f"bert '{model}': its tokenizer knows no word; vocab.txt or tokenizer.json is missing in the folder"
        )
    return tokenizer


def _expect_folder(model: str) -> None:
    """A path is no name on the hub."""
    if (Path(model).is_absolute() or model.startswith((".", "~"))) and not Path(model).is_dir():
        raise CheckpointError(
            f"bert '{model}': no such folder; give one with config.json, or a name on the hub"
        )


def _bert(
    settings: BertSettings, vocabulary_size: int, load_weights: bool
) -> tuple[nn.Module, tuple[int, int]]:
    """The network, and the token_ids of [CLS] and [SEP]."""
    transformers = _transformers()
    if settings.model is None:
        config = transformers.BertConfig(
            # padding, the words, [CLS] and [SEP]
            vocab_size=vocabulary_size + 3,
            hidden_size=settings.width,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=4 * settings.width,
            pad_token_id=PADDING,
        )
        # the pooler above [CLS] is never read, so its parameters would have no gradient
        bert: nn.Module = transformers.BertModel(config, add_pooling_layer=False)
        return bert, (vocabulary_size + 1, vocabulary_size + 2)
    _expect_folder(settings.model)
    try:
        config = transformers.AutoConfig.from_pretrained(settings.model)
    except Exception as error:
        raise _unusable(settings.model, "its config.json cannot be read", error) from error
    if config.model_type != "bert":
        raise CheckpointError(
            f"bert '{settings.model}': it is a '{config.model_type}'; choose a BERT, e.g. bert-base-uncased"
        )
    if not load_weights:
        # a checkpoint carries config.json and no tokenizer, so the
        # ids travel in it; 101 and 102 are bert-base-uncased's
        special = getattr(config, "limner_special", (101, 102))
        return transformers.BertModel(config, add_pooling_layer=False), (int(special[0]), int(special[1]))
    tokenizer = load_tokenizer(settings.model)
    special = tokenizer.convert_tokens_to_ids([_CLS, _SEP])
    config.limner_special = special
    try:
        with quiet(transformers):
            bert, report = transformers.BertModel.from_pretrained(
                settings.model,
                config=config,
                add_pooling_layer=False,
                output_loading_info=True,
                # off, transformers raises a page of its own; on, it reports the names, which make one line below
                ignore_mismatched_sizes=True,
            )
    except Exception as error:
        raise _unusable(settings.model, "its weights cannot be read", error) from error
    # transformers fills what a file lacks with random values and only logs it
    if missing := sorted(report["missing_keys"]):
        raise CheckpointError(
            f"bert '{settings.model}': its weights lack '{missing[0]}'; fetch the model again"
        )
    if misshapen := sorted(str(entry[0]) for entry in report["mismatched_keys"]):
        raise CheckpointError(
            f"bert '{settings.model}': its weights do not fit its config.json: '{misshapen[0]}' has another shape; "
            "fetch the model again"
        )
    return bert, (special[0], special[1])


def _transformers() -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise CheckpointError(
            f"a BERT needs the transformers library; install it with: {install_hint('hgan')}"
        ) from error


def _unusable(model: str, what: str, error: Exception) -> CheckpointError:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return CheckpointError(
        f"bert '{model}': {what} ({reason}); give a folder with config.json, model.safetensors and its tokenizer, or a "
        "hub name while there is a network"
    )
