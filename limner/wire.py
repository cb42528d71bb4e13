"""The types of answers: those of the library, the HTTP server, its client and the command line's JSON.

Each is defined here and nowhere else. `model_dump(mode="json")` is the JSON of the server and of `--json`;
`TYPE.model_json_schema()` describes it. The module needs pydantic alone, so that a client machine needs no torch.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, overload

from pydantic import ConfigDict, Field, JsonValue, WithJsonSchema

from limner.documented import Documented
from limner.query_text import QueryTerm, WordField
from limner.tables import COLUMNS, arrow_table, text_table

T = TypeVar("T", bound="ResponseModel")

Grouping = Literal["identity", "near"]
"""Groups of which a search keeps only the best hit: identities, or near duplicates."""

Where = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""Conditions: `"camera=3"`, `{"camera": 3}`, or several of either, which must all be met."""

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from PIL import Image

    ImageInput = str | Path | bytes | bytearray | Image.Image | np.ndarray
else:
    # a client that sends files needs neither Pillow nor NumPy
    ImageInput = Any
"""An image to search by or to add: its file, the bytes of a file, a Pillow image, or RGB pixels as an array."""

# RFC 3339's `date-time` wants a time zone, which a camera's clock does not have: the schema says no format
LocalTime = Annotated[datetime, WithJsonSchema({"type": "string"})]
"""A time by the camera's own clock; ISO 8601 without a zone in JSON."""


def _is_none(value: Any) -> bool:
    return value is None


def no_picture_has(absent: Mapping[str, str | None]) -> str:
    """One line for names in conditions that no picture has, with the nearest that one has; "" for none."""
    told = [f"{name!r} (is it {near!r}?)" if near else repr(name) for name, near in absent.items()]
    return f"no picture has {', '.join(told)}" if told else ""


def _behind(told: str) -> str:
    return f", {told}" if told else ""


class ResponseModel(Documented):
    """The base of answers: frozen, documented, and strict about names."""

    # forbid: a misspelt field is an error of ours and must not vanish. frozen: an answer is a value, of which
    # `model_copy` makes another
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls: type[T], values: Any) -> T:
        """Build an answer from another process's JSON values, leaving out fields of a later version."""
        # a newer server may know more fields; an old client must go on reading its answers
        return cls.model_validate(values, extra="ignore")


class Attention(ResponseModel):
    """The attention of a reranker over words and regions."""

    words: tuple[str, ...]
    """The text's words as the model reads them."""

    # lists, not arrays: JSON has no arrays, and `numpy.asarray(attention.of_regions)` is one call for whoever draws it
    of_regions: list[list[list[float]]] | None
    """Each word's attention over rows and columns of the picture's regions, which sums to 1."""

    of_words: list[list[float]] | None
    """The attention of each reader over the words, which sums to 1."""

    reader: Literal["step", "region"]
    """The readers of the words: the steps of a decoder, or the regions row by row."""

    crop: tuple[float, float, float, float]
    """The part of the upright picture that the regions divide: left, top, right and bottom, as shares of its sides."""

    def __repr__(self) -> str:
        return f"Attention({' '.join(self.words)[:60]!r}, reader={self.reader!r})"


class Hit(ResponseModel):
    """A picture that a search found."""

    rank: int
    """The rank, from 1."""

    # of re-ranked hits, too: they are in the order of `confidence`
    score: float
    """Cosine with the query."""

    id: str
    """The picture's key."""

    name: str
    """Name of its file."""

    # left out of the JSON if it is None: answers of a server have no such field, not even null
    path: Path | None = Field(default=None, exclude_if=_is_none)
    """Its file when it was indexed; a server sends none unless it shows paths."""

    copies: tuple[Path, ...] = Field(default=(), exclude_if=operator.not_)
    """Further files of the same bytes; as `path`."""

    identity: str | None
    """The identity that it shows."""

    metadata: dict[str, JsonValue]
    """Other facts that were given for it."""

    taken: LocalTime | None
    """Capture time by the camera's clock, ISO 8601 without a zone."""

    taken_from: Literal["file", "told"] | None = None
    """Where this time is from: its file, or what somebody told limner, which stays when the file changes."""

    confidence: float | None
    """Confidence of the reranker that re-ranked it, 0 to 1."""

    # None for a search by picture: the calibration is fitted to searches by text
    probability: float | None
    """Probability that it is a right answer, 0 to 1, if the model is calibrated."""

    group: int | None
    """With grouping: the number of ranked pictures in its group, itself included."""

    words_in: tuple[WordField, ...] = Field(default=(), exclude_if=operator.not_)
    """Where words of the text stand, if words were searched."""

    rank_before: int | None = Field(default=None, exclude_if=_is_none)
    """Rank by the cosine alone, from 1, if a reranker re-ranked it; equal ones share the best. None with grouping."""

    attention: Attention | None = Field(default=None, exclude_if=_is_none)
    """Attention of the reranker, if asked for."""

    def __repr__(self) -> str:
        # one short line: pydantic's own repr prints all metadata, and a list of ten hits fills the screen
        return f"Hit({self.rank}, {self.score:+.3f}, {str(self.path or self.name)!r}, id={self.id!r})"


class Answer(ResponseModel):
    """The result of a search."""

    # in Python it is a sequence of its hits, `print(answer)` shows a table, `answer.to_table()` is one of pyarrow; the
    # docstring says nothing of that, since it is the schema's description, also in /openapi.json

    hits: tuple[Hit, ...]
    """The hits, best first."""

    total: int
    """Pictures of the store."""

    matching: int
    """Pictures that meet the conditions."""

    absent: dict[str, str | None] = Field(default={}, exclude_if=operator.not_)
    """Names in conditions that no picture has, each with the nearest that one has, or null."""

    threshold: float | None
    """Match probability from which an answer is called good; null without one that can be used."""

    good: bool | None
    """True if the best reaches the threshold; null without one that can be used, false if any word is in `turned`."""

    # said in each answer: a search for "red xylophone" by a model without the second word finds anything red
    unknown: tuple[str, ...]
    """Words of the text that the model does not know; the search ignores them."""

    turned: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Those of them without which the text says the opposite, such as "not": no hit is called good then."""

    language: str | None = Field(default=None, exclude_if=_is_none)
    """Language of the text, if the model surely does not read it."""

    terms: tuple[QueryTerm, ...] = Field(default=(), exclude_if=operator.not_)
    """Words that the text takes away or weighs: `without`, `-word` and `2*word`. No match probability is told then."""

    unread: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Words at the end of a text that is longer than the model reads; the search ignores them, too."""

    composed: bool = Field(default=False, exclude_if=operator.not_)
    """True if a picture and a text were read as one sentence, which the model has learnt."""

    reference: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Ids of the store's pictures that are the picture of a composed query; they are left out of its hits."""
    left_out: int = Field(default=0, exclude_if=operator.not_)
    """Last hits that are left out, because the answer would be longer than the server sends."""
    snapshot: str = Field(default="", exclude_if=operator.not_)
    """Name of the store's state that was searched: parts of a list fit together if they are of one state."""
    took_ms: float | None = Field(default=None, exclude_if=_is_none)
    """Milliseconds from the request to the answer, waiting included; a server's answers only."""

    # pydantic iterates over (field, value) pairs, which nobody wants of a list of hits
    def __iter__(self) -> Iterator[Hit]:  # type: ignore[override]
        return iter(self.hits)

    # with it an answer without hits is false, as an empty list is
    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...

    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __repr__(self) -> str:
        best = f", best {self.hits[0].score:+.3f} {self.hits[0].name!r}" if self.hits else ""
        return f"Answer({len(self.hits)} of {self.matching} pictures{best}{_behind(no_picture_has(self.absent))})"

    def __str__(self) -> str:
        """A table for people: the columns that any hit fills."""
        return text_table(self.to_rows())

    def to_rows(self) -> list[dict[str, Any]]:
        """A plain dict a hit, for `csv.DictWriter` or `pandas.DataFrame`; metadata as `metadata.NAME`, no attention."""
        # of all hits, since each image has metadata of its own: rows of different keys make no table
        names = sorted({name for hit in self.hits for name in hit.metadata})
        return [
            {
                **{name: getattr(hit, name) for name in COLUMNS},
                # pyarrow and csv know no Path
                "path": None if hit.path is None else str(hit.path),
                **{f"metadata.{name}": hit.metadata.get(name) for name in names},
            }
            for hit in self.hits
        ]

    def to_table(self) -> "pa.Table":
        """The hits as a pyarrow table (`.to_pandas()` goes on from there); metadata of mixed kinds as JSON text."""
        return arrow_table(self.to_rows())


WordMethodName = Literal["masked-regression", "leave-one-out", "substitution"]  # docs/searching.md


class Phrase(ResponseModel):
    """Words that belong together, such as a colour with its noun, or a single word."""

    text: str
    """The words."""

    weight: float
    """How much the score falls without them: the sum of their weights."""

    noise: float | None
    """A weight that is no further from zero lies within noise; null if that is not known."""


class Explanation(ResponseModel):
    """An explanation of a picture's score for a text."""

    words: tuple[str, ...]
    """The text's words as the model reads them."""

    weights: tuple[float, ...] | None
    """How much the score falls without each word; null for a text of one word."""

    phrases: tuple[Phrase, ...]
    """The words, joined to phrases; empty for a text of one word."""

    method: WordMethodName
    """The method that gave words their weights."""

    attention: Attention | None
    """Attention of the reranker; null without one."""

    score: float
    """Cosine of text and picture."""

    confidence: float | None
    """Confidence of the reranker, 0 to 1."""

    unknown: tuple[str, ...]
    """Words of the text that the model does not know."""

    def __repr__(self) -> str:
        return f"Explanation({self.score:+.3f} for {' '.join(self.words)[:60]!r})"


class FoundSentence(ResponseModel):
    """A sentence of the store."""

    rank: int
    """The rank, from 1."""

    score: float
    """Cosine with the query, in [-1, 1]."""

    text: str
    """The sentence."""

    id: str | None
    """Key of the picture that it describes, if the store holds it."""

    key: str
    """Key of the sentence itself, by which it can be erased."""

    path: Path | None = Field(default=None, exclude_if=_is_none)
    """File of the picture that it describes; a server sends none unless it shows paths."""

    def __repr__(self) -> str:
        return f"FoundSentence({self.rank}, {self.score:+.3f}, {self.text[:60]!r})"


class SentencesAnswer(ResponseModel):
    """The sentences that a search found."""

    sentences: tuple[FoundSentence, ...]
    """The hits, best first."""

    total: int
    """Sentences of the store."""

    left_out: int = Field(default=0, exclude_if=operator.not_)
    """Last hits that are left out, because the answer would be longer than the server sends."""


class Item(ResponseModel):
    """A picture of the store."""

    id: str
    """Its key."""

    name: str
    """Name of its file."""

    path: Path | None = Field(default=None, exclude_if=_is_none)
    """Its file; a server sends none unless it shows paths."""

    copies: tuple[Path, ...] = Field(default=(), exclude_if=operator.not_)
    """Further files of the same bytes; as `path`."""

    identity: str | None
    """The identity that it shows."""

    metadata: dict[str, JsonValue]
    """Other facts that were given for it."""

    taken: LocalTime | None
    """Capture time by the camera's clock, ISO 8601 without a zone."""

    taken_from: Literal["file", "told"] | None = None
    """Where this time is from: its file, or what somebody told limner, which stays when the file changes."""

    def __repr__(self) -> str:
        return f"Item({str(self.path or self.name)!r}, id={self.id!r})"


def item_values(
    key: str,
    paths: Sequence[str],
    identity: str | None,
    metadata: Mapping[str, Any],
    taken: datetime | None,
    *,
    told: bool,
) -> dict[str, Any]:
    """The fields that a hit and an item share."""
    place, *copies = map(Path, paths)
    return {
        "id": key,
        "name": place.name,
        "path": place,
        "copies": tuple(copies),
        "identity": identity,
        "metadata": metadata,
        "taken": taken,
        "taken_from": taken_from(taken is not None, told),
    }


def taken_from(known: bool, told: bool) -> Literal["file", "told"] | None:
    """Where a capture time is from, as hits and items say it."""
    return None if not known else "told" if told else "file"


class Items(ResponseModel):
    """Pictures of the store, in the order of their paths, or the newest first."""

    items: tuple[Item, ...]
    """The pictures of this part of the list."""

    total: int
    """Number of pictures that meet the conditions."""

    absent: dict[str, str | None] = Field(default={}, exclude_if=operator.not_)
    """Names in conditions that no picture has, each with the nearest that one has, or null."""

    def __iter__(self) -> Iterator[Item]:  # type: ignore[override]
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:  # without the items: pydantic would print all 500 of a part
        return f"Items({len(self.items)} of {self.total}{_behind(no_picture_has(self.absent))})"


class StoreModel(ResponseModel):
    """The model of a store."""

    fingerprint: str
    """Digest of everything that changes an embedding."""

    system: str | None
    """Name of its system."""

    dim: int
    """Width of an embedding."""

    languages: tuple[str, ...] = ()
    """Languages that it reads; empty where that is not known, or they are very many."""


class MetadataField(ResponseModel):
    """One name of the pictures' metadata, with its values."""

    name: str
    """The name, as conditions use it."""

    # as text, since that is how conditions spell them
    values: tuple[str, ...]
    """All values, if there are at most 20; else none."""

    kind: Literal["text", "number"]
    """The kind "number" if every value is one."""


class StoreApproximate(ResponseModel):
    """A graph or lists that answer in place of exact search in a large store."""

    by: str
    """`graph`, or `lists` where the vectors are on disk."""

    width: int
    """Rows of the graph that a search looks at, or lists that it reads, of which conditions may need more."""

    recall: float
    """Share of the ten best pictures that it finds, in [0, 1], measured on the store's own vectors."""


class StoreInfo(ResponseModel):
    """A store, its model and its limits."""

    id: str = ""
    """Random number that tells the store from any other one."""
    pictures: int
    """Pictures of the store."""
    model: StoreModel
    """Its model."""
    reranks: bool
    """True if a reranker re-ranks."""
    calibrated: bool
    """True if answers have match probabilities."""
    question: Literal["described", "fits"] | None = Field(default=None, exclude_if=_is_none)
    """Their question: is a hit the very picture or identity that is described, or does it fit the text?"""
    composes: bool = False
    """True if a picture and a text together are read as one sentence, unless a query weighs their sum."""
    explains: Literal["attention", "words"]
    """Content of explanations: a reranker's attention, or the words only."""
    max_k: int | None
    """Most pictures in one answer; null = no limit, in a local store."""
    changes: bool
    """True if pictures can be deleted."""
    adds: bool
    """True if pictures can be added."""
    fields: tuple[MetadataField, ...]
    """Names of the metadata that conditions may use."""
    sentences: int
    """Sentences of the store."""

    # for a first visit of the page: somebody who does not know the store can hardly think of a sentence that fits
    examples: tuple[str, ...]
    """A few of the store's own sentences, which fit pictures of it; empty if it has none."""
    identities: bool
    """True if any picture has an identity."""
    times: tuple[str, ...] | None
    """Capture times of the first and the last picture; null if no picture has one."""
    approximate: StoreApproximate | None = None
    """How a large store is searched; null for one that is searched exactly, and until graph or lists are built."""

    def __repr__(self) -> str:
        return f"StoreInfo({self.pictures} pictures, model {self.model.fingerprint[:12]})"
