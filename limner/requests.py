"""Requests: what a search asks for, as the library, the client, the HTTP server and the command line build it.

A new option is a field of `SearchRequest` and a line of `SearchOptions`, both here, and what `limner.search` does with
it. Like `limner.wire` the module needs pydantic alone.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from limner.arguments import several
from limner.conditions import Condition, local_time
from limner.documented import Documented
from limner.errors import SettingsError
from limner.judgements import MarkName, Marks
from limner.query_text import QueryTerm, read_query
from limner.wire import Grouping, ImageInput, Where

if TYPE_CHECKING:
    from limner.types import ImageSource
else:
    # as `limner.wire.ImageInput`: a client that sends files needs neither Pillow nor NumPy
    ImageSource = Any

R = TypeVar("R", bound="SentencesRequest")


def where_strings(where: Where) -> list[str]:
    """Write conditions in the spelling of `--where`, each `NAME`, an operator and a value.

    A mapping means `=`, and with a list as a value one of its values. Raises `SettingsError` for other values.

    >>> where_strings(["height>=170", {"camera": [3, 4], "place": "gate|door"}])
    ['height>=170', 'camera=3|4', 'place="gate|door"']
    """
    if isinstance(where, str):
        return [where]
    if isinstance(where, Mapping):
        return [f"{name}={_alternatives(name, value)}" for name, value in where.items()]
    return [
        text for one in several(where, (str, Mapping), "where: a condition") for text in where_strings(one)
    ]


def _alternatives(name: str, value: Any) -> str:
    # `--where` could not spell it, and "a<b=3" would be read as a condition on a
    if not name or any(sign in name for sign in "=<>!~"):
        raise SettingsError(f"where: expected a name without =, <, >, ! and ~, got {name!r}")
    # not any iterable: a text is one, of letters
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    if not values or any(not isinstance(one, str | int | float | datetime) for one in values):
        raise SettingsError(f"where: expected a text, a number or a list of them for {name!r}, got {value!r}")
    # in quotes a text means itself: neither | nor an operator in it has a meaning
    plain = [one.isoformat() if isinstance(one, datetime) else one for one in values]
    # json.dumps, because a condition reads its quoted values as JSON: one rule for backslashes and quotes
    return "|".join(json.dumps(one, ensure_ascii=False) for one in plain)


def _whole(value: Any) -> Any:
    """Turn 27.0 and NumPy's integers into 27: strict mode refuses both."""
    # 27.0 is valid by our own JSON schema, since JSON has one kind of number. True is an Integral, and no number here
    is_whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and not isinstance(value, bool) else value


def _readable(value: datetime | str) -> datetime | str:
    try:
        _time(value)
    except ValueError:
        raise PydanticCustomError(
            "time", "expected a time in ISO 8601, e.g. 2026-11-20 or 2026-11-20T08:15"
        ) from None
    return value


def _time(value: datetime | str | None) -> datetime | None:
    return local_time(value) if isinstance(value, str) else value


def _picture(value: Any) -> Any:
    # a request is a value: its caller may go on writing into a bytearray
    return bytes(value) if isinstance(value, bytearray) else value


Whole = BeforeValidator(_whole)
"""Stands behind the limits of an integer: before them, the OpenAPI description would lose the limits."""

_Time = Annotated[
    datetime | str,
    AfterValidator(_readable),
    WithJsonSchema({"type": "string", "maxLength": 40, "format": "date-time"}),
]


class SentencesRequest(Documented):
    """A search for sentences: by a text, a picture, a picture of the store, or a text beside one of these."""

    # strict: "5" is no number. forbid: a misspelt `wehre` must not search without its condition
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    text: str | None = None
    """A description."""

    image: Annotated[ImageSource, BeforeValidator(_picture)] | None = None
    """A picture: its file, the bytes of a file, a Pillow image, or RGB pixels as an array."""

    like: str | None = None
    """Key of a picture of the store, to find others like it; it is not part of the answer."""

    text_weight: Annotated[float, Field(ge=0, le=1)] | None = None
    """Weight of the text beside a picture, which has the rest; without it as the model has learnt, or
    0.5."""

    # no upper limit here: `max_k` is a setting of the server, and stands in its own /openapi.json
    k: Annotated[int, Field(ge=1), Whole] = 10
    """Largest number of pictures, or of groups, in the answer."""

    @classmethod
    def parse(cls: type[R], values: Mapping[str, Any]) -> R:
        """Build a request of arguments as callers spell them.

        Raises `SettingsError` with one line that names the argument, the value and the nearest known name.
        """
        # as `limner.settings.Settings`: the constructor's ValidationError is for programmers, and of several lines
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise SettingsError(wrong_argument(cls, error)) from None

    def replace(self: R, **changes: Any) -> R:
        """Make a copy with some fields changed, and check it. Raises `SettingsError`."""
        return self.parse({**dict(self), **changes})

    @model_validator(mode="after")
    def _has_subject(self: R) -> R:
        self._check_subject()
        return self

    def _check_subject(self) -> None:
        # no SettingsError, which the server answers with 409: /openapi.json says these two
        if self.text is None and self.image is None and self.like is None:
            raise PydanticCustomError("subject", "give a text, a picture, or a picture of the store (like)")
        if self.image is not None and self.like is not None:
            raise PydanticCustomError("subject", "give one picture to search by: image or like")

    @property
    def wanted(self) -> str | None:
        """The text that is searched by, without what it takes away; None for none."""
        return self.text

    @property
    def terms(self) -> tuple[QueryTerm, ...]:
        """The terms that the text takes away or weighs, see `limner.query_text`."""
        return ()

    @property
    def has_both(self) -> bool:
        """True for a picture with a text beside it, without a weight for their sum."""
        return (
            self.wanted is not None
            and self.text_weight is None
            and (self.image is not None or self.like is not None)
        )


class SearchRequest(SentencesRequest):
    """A search: by a text, a picture, a picture of the store, or a text beside one of these."""

    offset: Annotated[int, Field(ge=0), Whole] | None = None
    """How many of the first are left out: the next part of a list. With a number, 0 too, the answer is a part of the
    exact ranking; without one a graph may answer. Parts fit together if their `snapshot` is the same."""

    where: Annotated[tuple[str, ...], BeforeValidator(lambda given: tuple(where_strings(given)))] = ()
    """Conditions, all of which a picture must meet, e.g. `camera=3|4`, `height>=170`, `place~market*`."""

    after: _Time | None = None
    """Only pictures taken at this time or later, by the camera's clock."""

    before: _Time | None = None
    """Only pictures taken before this time."""

    marks: dict[str, MarkName] | None = None
    """Judgements by the pictures' keys: "right" and "wrong" move the query and are left out of the answer, "maybe"
    changes nothing. No reranker orders an answer with marks."""

    group: Grouping | None = None
    """Only the best of each identity, or of pictures that are nearly the same."""

    rerank: Annotated[int, Field(ge=0), Whole] | Literal["all"] | None = None
    """How many of the first pictures the reranker orders again: 0 = none, or "all"; without it as many as the recipe
    says."""

    explain: bool = False
    """Re-ranked pictures come with the reranker's attention, word by word."""

    words: bool | None = None
    """Search names, facts and sentences for the text's words, too, beside the embedding; without it a pretrained pair
    does, and the four systems do not. An answer by words is not re-ranked."""

    literal: bool = False
    """Read the text as one sentence, in which `without`, `-word` and `2*word` are words like others."""

    @model_validator(mode="after")
    def _check_options(self) -> "SearchRequest":
        # now, so that a mistake in the last of many requests is told before the first is answered
        assert len(self.conditions) == len(self.where)
        after, before = self.period
        if after is not None and before is not None and after >= before:
            raise SettingsError(
                f"after and before: no time is at or after {after.isoformat()} and before {before.isoformat()}; "
                "exchange them, or leave one out"
            )
        reranks = self.explain or self.rerank not in (None, 0)
        if self.explain and self.rerank == 0:
            raise SettingsError("rerank: expected at least 1 or 'all' to explain, got 0")
        if self.text is None and reranks:
            raise SettingsError("rerank and explain: a reranker reads a text, not a picture")
        # it reads the text alone, and would order as if nothing was marked
        if self.is_marked and reranks:
            raise SettingsError("marks: a reranker does not know them; leave rerank and explain")
        if self.words and reranks:
            raise SettingsError("words: a reranker does not know them; leave rerank and explain")
        if self.terms and reranks:
            raise SettingsError(
                f"rerank and explain: a reranker reads whole sentences, and cannot take {self.terms[0].text!r} by "
                "itself; leave them, or ask with literal"
            )
        if self.terms and self.wanted is None and self.image is None and self.like is None:
            raise SettingsError(f"text: {self.text!r} says only what is not wanted; say what is, too")
        return self

    @property
    def wanted(self) -> str | None:
        """The text that is searched by, without what it takes away; None for none."""
        return self.text if not self.text or self.literal else read_query(self.text).wanted or None

    @property
    def terms(self) -> tuple[QueryTerm, ...]:
        """The terms that the text takes away or weighs, see `limner.query_text`."""
        return () if self.text is None or self.literal else read_query(self.text).terms

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of `where`, parsed."""
        return tuple(map(Condition.parse, self.where))

    @property
    def period(self) -> tuple[datetime | None, datetime | None]:
        """`after` and `before` as times by the camera's clock: the first included, the second not."""
        return _time(self.after), _time(self.before)

    @property
    def right(self) -> tuple[str, ...]:
        """Keys of images that are marked right, sorted."""
        return self._marked("right")

    @property
    def wrong(self) -> tuple[str, ...]:
        """Keys of images that are marked wrong, sorted."""
        return self._marked("wrong")

    def _marked(self, name: MarkName) -> tuple[str, ...]:
        return tuple(sorted(key for key, mark in (self.marks or {}).items() if mark == name))

    @property
    def start(self) -> int:
        """Place of the answer's first hit in the ranking, from 0."""
        return self.offset or 0

    @property
    def is_limited(self) -> bool:
        """True if some rows take no part, or the best of groups are looked for."""
        conditions = self.where or self.after is not None or self.before is not None
        return bool(conditions or self.like is not None or self.is_marked or self.group is not None)

    @property
    def is_marked(self) -> bool:
        """True if marks move the query."""
        return bool(self.right or self.wrong)

    @property
    def quoted(self) -> tuple[str, ...]:
        """Parts of the text that stand in quotes."""
        return () if self.text is None or self.literal else read_query(self.text).quoted

    @property
    def is_moved(self) -> bool:
        """True if marks or terms move the query: a reranker and a calibration, which know a text alone, have no say."""
        return self.is_marked or bool(self.terms)


class SentencesOptions(TypedDict, total=False):
    """The arguments of `sentences` by name, as callers spell them; a test compares these classes with the requests."""

    image: ImageInput | None
    like: str | None
    text_weight: float | None
    k: int


class SearchOptions(TypedDict, total=False):
    """The options of `search_many`, as callers spell them."""

    text_weight: float | None
    k: int
    offset: int | None
    where: Where
    after: datetime | str | None
    before: datetime | str | None
    marks: Marks | None
    group: Grouping | None
    rerank: int | Literal["all"] | None
    explain: bool
    words: bool | None
    literal: bool


class SearchArguments(SearchOptions, total=False):
    """The arguments of `search` by name."""

    image: ImageInput | None
    like: str | None


def requests_of(
    queries: str | Iterable[str | Mapping[str, Any]], options: Mapping[str, Any]
) -> list[SearchRequest]:
    """Build the requests of `search_many`: texts, or arguments, which take precedence over the options of all."""
    listed = several(queries, (str, Mapping), "search_many: a text or a mapping of arguments")
    return [
        SearchRequest.parse({**options, **({"text": one} if isinstance(one, str) else one)}) for one in listed
    ]


_EXPECTED = {
    "greater_than_equal": "expected at least {ge:g}",
    "less_than_equal": "expected at most {le:g}",
    "literal_error": "expected {expected}",
}
"""Errors of pydantic in our words; others keep its own."""


def wrong_argument(cls: type[BaseModel], error: ValidationError) -> str:
    """The first wrong argument of those that a class holds, in one line."""
    faults = error.errors(include_url=False)
    first = faults[0]
    if not first["loc"]:
        return first["msg"]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, cls.model_fields, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known here: {', '.join(cls.model_fields)}"
        return f"unknown argument '{name}'; {hint}"
    # a field of several types has a fault for each of them
    said = [
        _EXPECTED.get(fault["type"], fault["msg"]).format(**fault.get("ctx", {}))
        for fault in faults
        if fault["loc"][:1] == first["loc"][:1]
    ]
    which = f" for {str(first['loc'][1])[:40]!r}" if name == "marks" and len(first["loc"]) > 1 else ""
    return (
        f"{name}: {' or '.join(said).replace(' or expected', ' or')}{which}, got {repr(first['input'])[:80]}"
    )
