"""Array shapes and the parts that layers hand to each other.

The one legend of axis names, used in every shape annotation (`Float[Tensor, "batch dim"]`):

    batch       samples of one step                  images      pictures of a set
    words       tokens of a sentence                 sentences   sentences of a set
    dim         width of the shared embedding        queries     rows that are ranked for
    channels    width of a feature before that       gallery     items that are ranked
    height      rows of pixels or of a feature map   identities  groups or persons = classes
    width       columns of the same                  regions     parts of a picture

A one-axis shape is written `" batch"` (the space keeps linters from reading a name).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Int64, UInt8

Pixels = UInt8[np.ndarray, "height width 3"]
"""One decoded picture, RGB, row by row from the top left."""


Maps = Float[np.ndarray, "images map_height map_width channels"]
"""The last maps of pictures, float16, channels last: the region of row y and column x stands at [y, x]."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a matcher says of one sentence and some pictures.

    - `logits`: what it says of each picture; higher is a better match. See `Judge.scores`.
    - `words`: the sentence's words as the model reads them.
    - `of_regions`: each word's attention over the regions, which sums to 1; None without such attention.
    - `of_words`: the attention over the words of each `reader`, which sums to 1: of each step of a decoder, or of each
      region, row by row; None without such attention.
    """

    logits: Float[np.ndarray, " images"]
    words: tuple[str, ...]
    of_regions: Float[np.ndarray, "images words map_height map_width"] | None = None
    of_words: Float[np.ndarray, "images readers words"] | None = None
    reader: Literal["step", "region"] = "step"


@runtime_checkable
class Judge(Protocol):
    """What re-ranking needs of a trained model, beside the embedding that screens."""

    @property
    def map_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture's map."""

    def maps(self, pixels: UInt8[np.ndarray, "batch height width 3"]) -> Maps:
        """The maps of pictures that `Encoder.prepare_image` gave, float16."""

    def judge(self, sentence: str, maps: Maps) -> Judgement:
        """Match a sentence with every map (at least one), together as far as memory should hold it."""

    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """What pictures are ranked by: of the embedding's similarities and the logits of a judgement."""

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """Scores on a scale of 0 to 1."""


PADDING = 0
"""Token id of an empty position, whatever the tokenizer; tokens count from 1."""

TextNeed = Literal["phrases", "whole words"]
"""What a network asks of text beyond token ids: the noun phrase of each token; that each token is a whole word."""


class Word(NamedTuple):
    """A word of a sentence: its characters are `sentence[start:stop]`, its tokens stand at the positions `tokens`.

    `text` is the word as the tokenizer spells it. A word that is unknown, or behind where a sentence was cut, has no
    tokens; of a word that was cut in two, those before the cut.
    """

    text: str
    start: int
    stop: int
    tokens: range


class TokenizedSentence(NamedTuple):
    """One sentence's tokens, not padded; `phrases` and `words` as in `TokenBatch`."""

    token_ids: tuple[int, ...]
    truncated: bool
    phrases: tuple[int, ...] | None = None
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Sentences as networks read them.

    - `token_ids`: a row a sentence, filled with `PADDING`.
    - `truncated`: which sentences had more tokens than a row holds and lost their end.
    - `phrases`: of each token the number of its noun phrase, from 1, 0 = in none; None where they were not asked for.
    - `words`: each sentence's words in order; a token belongs to at most one. None where they were not asked for.
    """

    token_ids: Int64[np.ndarray, "sentences words"]
    truncated: Bool[np.ndarray, " sentences"]
    phrases: Int64[np.ndarray, "sentences words"] | None = None
    words: tuple[tuple[Word, ...], ...] | None = None

    @property
    def mask(self) -> Bool[np.ndarray, "sentences words"]:
        """Which positions hold a token."""
        return np.not_equal(self.token_ids, PADDING)

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, rows: slice | Int[np.ndarray, " rows"]) -> "TokenBatch":
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        return TokenBatch(
            self.token_ids[rows],
            self.truncated[rows],
            None if self.phrases is None else self.phrases[rows],
            None if self.words is None else tuple(self.words[row] for row in chosen),
        )


class Tokenizer(ABC):
    """Turns text into token ids, with offsets back to the words; part of a trained model.

    - `padding_id`: `PADDING`, in every tokenizer, so that no network has to be told.
    - `whole_words`: each token is a whole word.
    """

    padding_id = PADDING
    whole_words: bool

    @property
    @abstractmethod
    def entries(self) -> Sequence[str]:
        """The text of each token; that of token id i is `entries[i - 1]`."""

    @property
    def size(self) -> int:
        """How many tokens there are, padding not counted: token ids are 1 … size."""
        return len(self.entries)

    @abstractmethod
    def tokenize(
        self, sentences: Sequence[str], length: int, *, phrases: bool = False, words: bool = False
    ) -> list[TokenizedSentence]:
        """Read sentences of at most `length` tokens, not padded."""

    @abstractmethod
    def encode(
        self,
        sentences: Sequence[str],
        length: int,
        *,
        phrases: bool = False,
        words: bool = False,
        shift: np.random.Generator | None = None,
    ) -> TokenBatch:
        """Read sentences into rows of `length` tokens; with `shift` each begins at a random position that fits it."""

    @abstractmethod
    def words(self, sentence: str) -> list[str]:
        """All words of a sentence, in order and as the tokenizer spells them."""

    @abstractmethod
    def known_words(self, sentence: str) -> list[str]:
        """Those that have a meaning to the model."""

    def unknown_words(self, sentence: str) -> list[str]:
        """The others, each once."""
        known = set(self.known_words(sentence))
        return [word for word in dict.fromkeys(self.words(sentence)) if word not in known]

    @abstractmethod
    def check(self, sentence: str) -> None:
        """Raise `DataError` for a sentence without a meaning: an empty one, or one without a known word."""

    @abstractmethod
    def to_description(self) -> dict[str, Any]:
        """Everything that makes the tokenizer, as JSON: it travels in the checkpoint and enters the fingerprint."""


@runtime_checkable
class Encoder(Protocol):
    """What evaluation and search need of a trained model: a `limner.inference.TrainedModel` is one.

    Embeddings are float32, L2-normalised, one row an input, so that a dot product is the cosine similarity.
    """

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything that changes an embedding: weights, vocabulary, transform."""

    @property
    def dim(self) -> int:
        """Width of the embedding."""

    def prepare_image(self, source: str | Path | bytes) -> Pixels:
        """Decode and crop a picture, a file or the bytes of one, to what `encode_pixels` takes. Raises `ImageError`."""

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Embed pictures that `prepare_image` gave."""

    def encode_images(self, paths: Sequence[str | Path]) -> Float[np.ndarray, "batch dim"]:
        """Embed picture files; the first unreadable one raises `ImageError`."""

    def encode_texts(self, sentences: Sequence[str]) -> Float[np.ndarray, "batch dim"]:
        """Embed sentences."""

    def encode_queries(self, sentences: Sequence[str]) -> Float[np.ndarray, "batch dim"]:
        """Embed sentences so that an embedding depends on its sentence alone, to rounding in fp32."""

    @property
    def judge(self) -> Judge | None:
        """What re-ranks the first of the embedding's ranking; None where nothing does."""

    @property
    def rerank(self) -> int | Literal["all"]:
        """How many of the first are re-ranked unless a query says otherwise; 0 = none."""

    def check_query(self, sentence: str) -> None:
        """Raise `DataError` for a query whose embedding would be arbitrary, e.g. without a known word."""

    def known_words(self, sentence: str) -> list[str]:
        """The words of a query that the model reads, in order."""

    def unknown_words(self, sentence: str) -> list[str]:
        """The words of a query that the model does not know and leaves out, each once."""
