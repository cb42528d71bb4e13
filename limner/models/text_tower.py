"""A text tower of transformers: token ids in, the sentence's feature out.

It is one half of a pretrained pair (CLIP, SigLIP, AltCLIP, Chinese CLIP), any text encoder of transformers such as
MiniLM, or a small BERT that starts at random. What a pair was trained with (padding to the full length, no attention
mask, the place of the end of text) is part of the model: SigLIP without its padding has a cosine of -0.07 to 0.29 with
itself.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from limner.errors import CheckpointError, SettingsError
from limner.models.pretrained_source import (
    empty,
    is_pair,
    portable,
    read_config,
    read_half,
    read_weights,
    transformers_library,
)
from limner.models.text_encoder import FixedText, TextEncoder, TextSettings
from limner.models.text_lstm import lengths
from limner.types import PADDING

LAST = (-1,)
"""The states of the last layer alone."""

TOGETHER = 32
"""Sentences that go through a tower at once where they are not filled to one length."""


Feature = Literal["own", "mean", "first"]


class TextTowerSettings(TextSettings):
    """The settings of a text tower of transformers."""

    words: int = Field(default=77, ge=2, le=2048)
    """Length of a sentence in tokens, special ones counted; longer ones lose their end."""
    model: str | None = None
    """A folder, or a name on the hub; None = a BERT that starts at random, of the sizes below."""
    filled: Literal["no", "right", "left"] = "no"
    """Side on which sentences are filled to `words` tokens, as SigLIP needs it; "no" = to the batch's longest."""
    masked: bool = True
    """True where the tower is told which tokens are padding."""
    padding_id: int = Field(default=0, ge=0)
    """The tokenizer's own number of its padding token."""
    feature: Feature = "own"
    """A sentence's feature: the pair's own, the mean of its tokens' states, or the first token's."""
    states: Annotated[tuple[int, ...], Field(min_length=1)] = (-1,)
    """Layers whose states stand side by side in a feature, of a tower that is no half of a pair: -1 = the last, 0 = the
    table of tokens."""
    width: int = Field(default=128, ge=8)
    """Width of a tower that starts at random."""
    layers: int = Field(default=2, ge=1)
    """Its layers."""
    heads: int = Field(default=4, ge=1)
    """Its attention heads."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "TextTowerSettings":
        if self.width % self.heads:
            raise ValueError(f"width={self.width} cannot be shared by heads={self.heads}")
        if self.model is None and self.feature == "own":
            raise ValueError("feature='own' needs a pretrained pair; take 'mean' or 'first'")
        if self.feature == "own" and self.states != LAST:
            raise ValueError(
                "states needs feature='mean' or 'first': a pair's own feature is of its last layer"
            )
        return self

    @property
    def tokenizer(self) -> str | None:
        """That of the pretrained model."""
        return self.model

    def with_folder(self, folder: Path) -> "TextTowerSettings":
        """With the model whose configuration lies in the folder."""
        return self.replace(model=str(folder))

    def identity(self) -> dict[str, Any]:
        """Without the name or folder of the model, whose configuration the checkpoint carries."""
        found = {**super().identity(), "model": None}
        # models that were trained before the setting was there keep their fingerprint
        if self.states == LAST:
            del found["states"]
        return found


class TextTower(TextEncoder, FixedText):
    """Token ids to the feature of a text tower below its projection.

    `projection` is the pair's own layer into the shared space, `nn.Identity` where it has none; the network above holds
    it. `load_weights=False` leaves the values undefined, for a checkpoint to fill. Raises `CheckpointError` for a
    model that cannot be had.
    """

    of_sentences = True
    settings: TextTowerSettings

    def __init__(
        self, settings: TextTowerSettings, vocabulary_size: int, *, load_weights: bool = True
    ) -> None:
        super().__init__()
        self.settings = settings
        self.config, self.tower, projections = _opened(settings, vocabulary_size, load_weights)
        # in a list, which nn.Module does not register: the network above has it as its projection
        self.projection_of_pair = projections
        text: Any = getattr(self.config, "text_config", self.config)
        self.channels = int(text.hidden_size)
        # AltCLIP's text tower ends in a layer to the pair's own width
        if settings.feature == "own" and hasattr(text, "project_dim"):
            self.channels = int(text.project_dim)
        self.channels *= len(settings.states)
        most = int(text.num_hidden_layers)
        if not all(-most - 1 <= layer <= most for layer in settings.states):
            raise SettingsError(
                f"setting 'model.text.states': {list(settings.states)}, but the tower has {most} layers; take "
                f"{-most - 1} to {most}"
            )
        rows = self.table.num_embeddings
        if rows < vocabulary_size:
            raise CheckpointError(
                f"model '{settings.model}': its word table has {rows} rows, the tokenizer {vocabulary_size} tokens; "
                "they are not of one model"
            )
        if settings.padding_id >= rows:
            raise CheckpointError(
                f"model '{settings.model}': padding_id={settings.padding_id} is no row of its word table ({rows})"
            )

    @property
    def any_length(self) -> bool:
        """Unless the tower was trained with rows that are filled to their full length."""
        return self.settings.filled == "no"

    def above_table(self) -> list[nn.Module]:
        """As of every text encoder; the table lies within the tower."""
        return _beside(self.tower, self.table)

    @property
    def projection(self) -> nn.Module:
        """The pair's own layer into the shared space."""
        return self.projection_of_pair[0] if self.projection_of_pair else nn.Identity()

    @property
    def table(self) -> nn.Embedding:  # type: ignore[override]
        """The tower's own table of tokens; its row i is that of token id i + 1."""
        text: Any = getattr(self.tower, "text_model", self.tower)
        found: nn.Embedding = text.get_input_embeddings()
        return found

    def word_vectors(self) -> Float[Tensor, "vocabulary width"]:
        """A vector of each token. The tower's own numbers begin at 0, so no row is the empty position's."""
        return self.table.weight

    def files(self) -> dict[str, dict[str, Any]]:
        """By file name, what a folder must hold to build the same tower without its weights."""
        return {} if self.settings.model is None else {"config.json": portable(self.config)}

    def forward(self, token_ids: Int64[Tensor, "batch words"]) -> Float[Tensor, "batch {self.channels}"]:
        """Features of sentences.

        Where nothing is filled, sentences of like length go through the tower together.
        """
        return self._of_like_length(token_ids, lambda part: (self._feature(*self._run(part)),))[0]

    def read(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> tuple[Float[Tensor, "batch {self.channels}"], Float[Tensor, "batch words {self.channels}"]]:
        """Features of sentences and of their tokens, as `forward` and `token_features`, by one pass of the tower."""

        def both(part: Tensor) -> tuple[Tensor, ...]:
            output, present = self._run(part)
            return self._feature(output, present), self._placed(output, present, part)

        features, states = self._of_like_length(token_ids, both)
        return features, states

    @property
    def state_channels(self) -> int:
        """Width of a token's state, which is that of a feature."""
        return self.channels

    def encode_words(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> tuple[Float[Tensor, "batch words {self.channels}"], Bool[Tensor, "batch words"]]:
        """The states of the tokens, 0 at empty positions, and which positions are before a sentence's end."""
        states = self._of_like_length(token_ids, lambda part: (self.token_features(part),))[0]
        places = torch.arange(token_ids.shape[1], device=token_ids.device)
        return states, places < lengths(token_ids)[:, None]

    @property
    def token_width(self) -> int:
        """Width of the tower's table of tokens."""
        return int(self.table.embedding_dim)

    def forward_with(
        self,
        token_ids: Int64[Tensor, "batch words"],
        marked: Bool[Tensor, "batch words"],
        vectors: Float[Tensor, "marked width"],
    ) -> Float[Tensor, "batch {self.channels}"]:
        """Features of sentences in which vectors stand in place of the marked tokens.

        The vectors replace rows of the table alone; positions, types and norms are added to them as to any token.
        """
        tokens, present = _laid_out(token_ids, self.settings)
        places = torch.zeros_like(present)
        # both sides hold the tokens of a row in the same order, so the masks pair them up
        places[present] = marked[token_ids != PADDING]

        # a hook and not `inputs_embeds`: CLIP's tower takes none, and finds its end of text by the ids
        def replaced(table: nn.Module, arguments: tuple[Tensor, ...], found: Tensor) -> Tensor:
            # another thread may read other sentences with the same tower meanwhile
            if arguments[0].data_ptr() != tokens.data_ptr():
                return found
            return found.masked_scatter(places[:, :, None], vectors.to(found.dtype))

        handle = self.table.register_forward_hook(replaced)
        try:
            output = self._tower_output(tokens, present)
        finally:
            handle.remove()
        return self._feature(output, present)

    def _of_like_length(
        self, token_ids: Int64[Tensor, "batch words"], read: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """Apply `read` to sentences, those of like length together where nothing is filled."""
        if self.settings.filled != "no" or torch.compiler.is_exporting() or len(token_ids) <= TOGETHER:
            return read(token_ids)
        # of 128 captions the longest has twice the tokens of the mean, and all would be padded to it
        order = (token_ids != PADDING).sum(1).argsort(stable=True)
        parts = [read(part) for part in torch.split(token_ids[order], TOGETHER)]
        return tuple(torch.cat(rows)[order.argsort()] for rows in zip(*parts, strict=True))

    def _feature(
        self, output: Any, present: Bool[Tensor, "batch read"]
    ) -> Float[Tensor, "batch {self.channels}"]:
        if self.settings.feature == "own":
            own: Tensor = output.pooler_output
            return own
        return _pooled(_states(output, self.settings.states), present, self.settings.feature)

    def token_features(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch words {self.channels}"]:
        """The states of the tokens in the places of `token_ids`, 0 at empty positions.

        SigLIP's last layer of sentences lies within its tower and is applied to each token.
        """
        return self._placed(*self._run(token_ids), token_ids)

    def feature_of(
        self, states: Float[Tensor, "batch words {self.channels}"], token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch {self.channels}"]:
        """Features of sentences from what `token_features` gave of them; 0 of an empty one.

        Raises `SettingsError` as `expect_pooled_states`.
        """
        self.expect_pooled_states()
        return _pooled(states, token_ids != PADDING, self.settings.feature)

    def expect_pooled_states(self) -> None:
        """Raise `SettingsError` where a sentence's feature is not made of what `token_features` gives."""
        # SigLIP's tokens pass its last layer, and the mean of them is not the mean that `forward` takes below it
        if self.settings.feature == "own" or _head(self.tower) is not None:
            raise SettingsError(
                "the feature of this text tower cannot be had from the cached states of its tokens; set the stage's "
                "views to 0"
            )

    def _placed(
        self, output: Any, present: Bool[Tensor, "batch read"], token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch words {self.channels}"]:
        states = _states(output, self.settings.states)
        head = _head(self.tower)
        states = states if head is None else head(states)
        if torch.compiler.is_exporting():
            # sentences stand at the left of their rows, and in the tower from its first token on
            places = present.long().argmax(1)[:, None] + torch.arange(token_ids.shape[1])
            places = places.clamp(max=states.shape[1] - 1)[:, :, None].expand(-1, -1, states.shape[2])
            return torch.where((token_ids != PADDING)[:, :, None], states.gather(1, places), 0.0)
        found = states.new_zeros(*token_ids.shape, states.shape[2])
        # both sides hold the tokens of a row in the same order, so the masks pair them up
        found[token_ids != PADDING] = states[present]
        return found

    def _run(self, token_ids: Int64[Tensor, "batch words"]) -> tuple[Any, Bool[Tensor, "batch read"]]:
        """The tower's output, and which of the positions that it read hold tokens."""
        tokens, present = _laid_out(token_ids, self.settings)
        return self._tower_output(tokens, present), present

    def _tower_output(self, tokens: Int64[Tensor, "batch read"], present: Bool[Tensor, "batch read"]) -> Any:
        features = getattr(self.tower, "get_text_features", self.tower)
        # a mask where the model was trained with one, and none where it was not
        options: dict[str, Any] = {"attention_mask": present.long()} if self.settings.masked else {}
        if self.settings.states != LAST:
            options["output_hidden_states"] = True
        return features(input_ids=tokens, **options)


def _laid_out(
    token_ids: Int64[Tensor, "batch words"], settings: TextTowerSettings
) -> tuple[Int64[Tensor, "batch read"], Bool[Tensor, "batch read"]]:
    """The tower's own numbers, filled as the settings say."""
    present = token_ids != PADDING
    counts = present.sum(1)
    if torch.compiler.is_exporting():
        return _laid_out_at_the_left(token_ids, counts, settings)
    # a row without any token would give a tower with a mask NaN
    length = settings.words if settings.filled != "no" else max(1, int(counts.max()))
    place = torch.arange(length, device=token_ids.device)
    read = place >= (length - counts)[:, None] if settings.filled == "left" else place < counts[:, None]
    tokens = token_ids.new_full((len(token_ids), length), settings.padding_id)
    # token ids count from 1, so that 0 is padding in every tokenizer; the tower's own count from 0
    tokens[read] = token_ids[present] - 1
    return tokens, read


def _laid_out_at_the_left(
    token_ids: Int64[Tensor, "batch words"], counts: Int64[Tensor, " batch"], settings: TextTowerSettings
) -> tuple[Int64[Tensor, "batch read"], Bool[Tensor, "batch read"]]:
    """The same of sentences at the left of their rows, by shapes that no value changes."""
    if settings.filled != "no":
        token_ids = F.pad(token_ids, (0, settings.words - token_ids.shape[1]))
    place = torch.arange(token_ids.shape[1], device=token_ids.device)
    start = (
        token_ids.shape[1] - counts[:, None]
        if settings.filled == "left"
        else torch.zeros_like(counts)[:, None]
    )
    read = (place >= start) & (place < start + counts[:, None])
    tokens = token_ids.gather(1, (place - start).clamp(min=0)) - 1
    return torch.where(read, tokens, settings.padding_id), read


def _pooled(
    states: Float[Tensor, "batch read channels"], present: Bool[Tensor, "batch read"], feature: Feature
) -> Float[Tensor, "batch channels"]:
    if feature == "first":
        return states[torch.arange(len(states), device=states.device), present.long().argmax(1)]
    # sums in float32: half precision of a long sentence loses its last digits
    weights = present.to(torch.float32)[:, :, None]
    mean = (states.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
    return mean.to(states.dtype)


def _states(output: Any, layers: tuple[int, ...]) -> Float[Tensor, "batch read channels"]:
    last: Tensor = output.last_hidden_state
    return last if layers == LAST else torch.cat([output.hidden_states[layer] for layer in layers], dim=2)


def _head(tower: nn.Module) -> nn.Module | None:
    """SigLIP's last layer of sentences, which lies within its tower."""
    found: nn.Module | None = getattr(getattr(tower, "text_model", None), "head", None)
    return found


class TokenStates(FixedText):
    """A text tower's states of single tokens, as a layer whose features are kept while the tower is held fixed."""

    of_sentences = False

    def __init__(self, tower: TextTower) -> None:
        super().__init__()
        self.tower, self.settings, self.channels = tower, tower.settings, tower.channels
        # whoever computes features puts the layer back into the mode that it was in
        self.training = tower.training

    def files(self) -> dict[str, dict[str, Any]]:
        """The tower's."""
        return self.tower.files()

    def forward(
        self, token_ids: Int64[Tensor, "batch words"]
    ) -> Float[Tensor, "batch words {self.channels}"]:
        """The states of the tokens in their places."""
        return self.tower.token_features(token_ids)


def _beside(module: nn.Module, excluded: nn.Module) -> list[nn.Module]:
    """The modules that together hold all parameters of a module but those of `excluded` within it."""
    if excluded not in set(module.modules()):
        return [module]
    if module is excluded:
        return []
    # a parameter of a module around the table would be in no part, and would never learn
    assert not module._parameters, type(module)
    return [found for child in module.children() for found in _beside(child, excluded)]


def _opened(
    settings: TextTowerSettings, vocabulary_size: int, load_weights: bool
) -> tuple[Any, nn.Module, list[nn.Module]]:
    """Configuration and network of a tower, and the projection of its pair if it is of one."""
    if settings.model is None:
        return *_fresh(settings, vocabulary_size), []
    config = read_config(settings.model)
    if is_pair(config):
        if settings.states != LAST:
            raise SettingsError(
                "setting 'model.text.states': a pair's text tower gives its last states alone"
            )
        half = read_half(settings.model, "text", load_weights=load_weights)
        return config, half.tower, [half.projection]
    if settings.feature == "own":
        raise CheckpointError(
            f"model '{settings.model}': a '{config.model_type}' alone has no feature of a pair; set "
            "model.text.feature=mean or first"
        )
    # the pooler above [CLS] is never read, so its parameters would have no gradient
    if load_weights:
        return config, read_weights(settings.model, config, add_pooling_layer=False), []
    return config, empty(config, add_pooling_layer=False), []


def _fresh(settings: TextTowerSettings, vocabulary_size: int) -> tuple[Any, nn.Module]:
    """A BERT that starts at random."""
    transformers = transformers_library("a text tower")
    config = transformers.BertConfig(
        # the tower's own numbers run from 0; one more row is for padding
        vocab_size=vocabulary_size + 1,
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.width,
        max_position_embeddings=settings.words,
        pad_token_id=vocabulary_size,
    )
    # the pooler above [CLS] is never read, so its parameters would have no gradient
    network: nn.Module = transformers.BertModel(config, add_pooling_layer=False)
    return config, network
