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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Int64, UInt8
from PIL import Image

Pixels = UInt8[np.ndarray, "height width 3"]
"""One decoded picture, RGB, row by row from the top left."""

ImageSource = str | Path | bytes | Image.Image | np.ndarray
"""An image as the library takes it: a file, a file's bytes, a Pillow image, or RGB pixels, uint8 (height, width, 3)."""


# half precision, since a store keeps them for every image (7 × 7 × 512 are 50 kB); numpy has no bfloat16
RegionFeatures = Float[np.ndarray, "images map_height map_width channels"]
"""Features of the regions of images, float16, channels last: the region of row y and column x stands at [y, x]."""

PairScorer = Callable[[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]], Float[np.ndarray, " pairs"]]
"""Scores of pairs, from positions of images and of sentences; higher is a better match."""


# eq=False: == on arrays gives an array, which a generated __eq__ would take for a truth value
@dataclass(frozen=True, eq=False)
class RerankScores:
    """A reranker's answer for one sentence and some images.

    - `logits`: a number an image; higher is a better match. `Reranker.scores` makes of them what images are ranked by.
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


# a Protocol, since rerankers live in `inference`, which may import this module and not the reverse
@runtime_checkable
class Reranker(Protocol):
    """Scores pairs of a sentence and an image; validation, evaluation, calibration and search re-rank with it.

    It reads a sentence and the features of an image's regions, which are computed once an image. The embedding screens:
    only the first of its ranking are re-ranked.
    """

    @property
    def class_mean(self) -> Literal["confidences", "scores"]:
        """The values that the query of a class averages over its sentences (`limner.evaluation.reranking`)."""

    @property
    def region_shape(self) -> tuple[int, int, int]:
        """Rows and columns of an image's regions, and the numbers of each."""

    def region_features(self, pixels: UInt8[np.ndarray, "batch height width 3"]) -> RegionFeatures:
        """Features of the regions of images that `Encoder.prepare_image` gave.

        Raises `DataError` for values beyond half precision.
        """

    # apart from `region_features`: the cache may hold the map before the layer that learns, and not the last one
    def region_features_of_cached(
        self, cached: Float[np.ndarray, "images _height _width _channels"]
    ) -> RegionFeatures:
        """The same of what the feature cache of training keeps of images."""

    def rerank(self, sentence: str, regions: RegionFeatures) -> RerankScores:
        """Score a sentence with every image (at least one), together as far as memory should hold it."""

    # by positions, and no matrix: of 5,000 × 25,000 pairs an
    # evaluation asks for the first few of each query, each pair once
    def pair_scorer(
        self,
        images: Float[np.ndarray, "images dim"],
        texts: Float[np.ndarray, "sentences dim"],
        regions: RegionFeatures,
        sentences: Sequence[str],
    ) -> PairScorer:
        """Scores of pairs of these images and sentences by their positions: what `scores` gives of each.

        `images` and `texts` are the embeddings, `regions` the features of the same images.
        """

    # of both: HGAN adds the cosine of the wholes to its levels, co-attention ranks by its logits alone
    def scores(
        self, similarities: Float[np.ndarray, " images"], logits: Float[np.ndarray, " images"]
    ) -> Float[np.ndarray, " images"]:
        """The scores to rank images by, from the embedding's similarities and the logits of `rerank`."""

    def confidences(self, scores: Float[np.ndarray, " images"]) -> Float[np.ndarray, " images"]:
        """Scores on a scale of 0 to 1."""


# 0, so that row 0 of every word table is the empty position and a mask is one comparison
PADDING = 0
"""Token id of an empty position, whatever the tokenizer; tokens count from 1."""

TextNeed = Literal["phrases", "whole words"]
"""A network's need of text beyond token ids: the noun phrase of each token; that each token is a whole word."""


# a NamedTuple: one is made for each word of each sentence, and a frozen dataclass takes three times as long to make
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
        return np.asarray(self.token_ids != PADDING)

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, rows: slice | Int[np.ndarray, " rows"]) -> "TokenBatch":
        # `words` is a tuple, which takes no array of rows as its index
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        return TokenBatch(
            self.token_ids[rows],
            self.truncated[rows],
            None if self.phrases is None else self.phrases[rows],
            None if self.words is None else tuple(self.words[row] for row in chosen),
        )


# an ABC and not a Protocol, since `size` and `unknown_words` are the same for all of them
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
        # dict.fromkeys keeps the order of the sentence, which a set would lose: people read this list
        return [word for word in dict.fromkeys(self.words(sentence)) if word not in known]

    @abstractmethod
    def check(self, sentence: str) -> None:
        """Raise `DataError` for a sentence without a meaning: an empty one, or one without a known word."""

    # plain values and no pickle: a checkpoint is read without running any of its code
    @abstractmethod
    def to_description(self) -> dict[str, Any]:
        """Everything that makes the tokenizer, as JSON: it travels in the checkpoint and enters the fingerprint.

        Where there is a `content`, its digest stands for it.
        """

    def content(self) -> bytes | None:
        """A file that travels in the checkpoint beside the description, such as tokenizer.json; None without one."""
        return None


@runtime_checkable
class Encoder(Protocol):
    """A trained model as evaluation and search need it; `limner.inference.TrainedModel` is one.

    Embeddings are float32, L2-normalised, one row an input, so that a dot product is the cosine similarity.
    """

    # a store keeps it: vectors of two models would be compared without a word otherwise
    @property
    def fingerprint(self) -> str:
        """Hex digest of everything that changes an embedding: weights, vocabulary, transform."""

    @property
    def dim(self) -> int:
        """Width of the embedding."""

    # apart from `encode_pixels`, since images are decoded in threads while the network encodes those before
    def prepare_image(self, source: ImageSource) -> Pixels:
        """Decode and crop an image to what `encode_pixels` takes. Raises `ImageError`."""

    def encode_pixels(
        self, pixels: UInt8[np.ndarray, "batch height width 3"]
    ) -> Float[np.ndarray, "batch dim"]:
        """Embed pictures that `prepare_image` gave."""

    def encode_images(self, images: ImageSource | Iterable[ImageSource]) -> Float[np.ndarray, "batch dim"]:
        """Embed images; the first unreadable one raises `ImageError`."""

    def encode_texts(
        self, sentences: str | Iterable[str], *, check: bool = True
    ) -> Float[np.ndarray, "batch dim"]:
        """Embed sentences. Raises `DataError` as `check_query` does, unless `check` is off."""

    # apart from `encode_texts`, and in fp32: in bf16 a row of a product depends on how many rows there are,
    # so that of 256 sentences served together one had another order, and scores differed by up to 6e-4
    def encode_queries(self, sentences: str | Iterable[str]) -> Float[np.ndarray, "batch dim"]:
        """Embed sentences so that an embedding depends on its sentence alone, to rounding in fp32."""

    @property
    def reranker(self) -> Reranker | None:
        """The reranker of the first of the embedding's ranking; None for a model without one."""

    @property
    def rerank(self) -> int | Literal["all"]:
        """How many of the first are re-ranked unless a query says otherwise; 0 = none."""

    def check_query(self, sentence: str) -> None:
        """Raise `DataError` for a query whose embedding would be arbitrary, e.g. without a known word."""

    def known_words(self, sentence: str) -> list[str]:
        """The words of a query that the model reads, in order."""

    def unknown_words(self, sentence: str) -> list[str]:
        """The words of a query that the model does not know and leaves out, each once."""
