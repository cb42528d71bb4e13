"""What requests and answers look like: the models behind `/openapi.json`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""A picture's key: 32 hex digits."""

Where = Annotated[str, Field(pattern=r"^[^=!<>~]+(!=|[<>]=?|=|~)", max_length=2000)]
"""A condition, e.g. `camera=3`: see `limner.search.conditions`."""

Time = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
"""A time in ISO 8601."""

Picture = Annotated[str, Field(min_length=4, json_schema_extra={"format": "byte"})]
"""The bytes of a picture file in base64."""

Sentence = Annotated[str, Field(min_length=1, max_length=2000)]
"""A description."""


def _whole(value: Any) -> Any:
    """27.0 is an integer to JSON Schema, though not to Python."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)
"""To be written behind the limits of an integer, which the description would lose otherwise."""


_NAMES = 50


class Asked(BaseModel):
    """The base of request bodies: no unknown names, no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, values: Any) -> Any:
        """Refuse very many names at once: each unknown one would be a fault of its own."""
        if isinstance(values, dict) and len(values) > _NAMES:
            raise PydanticCustomError("too_many_names", "expected at most {most} names", {"most": _NAMES})
        return values


class Told(BaseModel):
    """The base of answers."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


_TEXT: dict[str, JsonValue] = {"type": "string"}
SEARCHES: dict[str, JsonValue] = {
    "examples": [{"text": "a woman in a green coat", "k": 5, "where": ["camera=3"]}],
    "allOf": [
        {"anyOf": [{"required": [one], "properties": {one: _TEXT}} for one in ("text", "image", "like")]},
        {"not": {"required": ["image", "like"], "properties": {"image": _TEXT, "like": _TEXT}}},
    ],
}
"""At least one, and one picture only."""


class SearchBody(Asked):
    """A search: by a text, a picture, a picture of the store, or a text beside one of these."""

    model_config = ConfigDict(json_schema_extra=SEARCHES)

    text: Sentence | None = None
    """A description."""

    image: Picture | None = None
    """A picture file in base64."""

    like: Key | None = None
    """Key of a picture of the store that others shall be like; it is no answer itself."""

    text_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight of the text where it stands beside a picture, which has the rest."""

    k: Annotated[int, Field(ge=1), Whole] = 10
    """Most pictures, or groups of them, in the answer."""

    where: list[Where] = Field(default=[], max_length=20)
    """Conditions that a picture must all meet, e.g. `camera=3|4`, `height>=170`, `place~market*`."""

    after: Time | None = None
    """Only pictures taken then or later, by the camera's clock."""

    before: Time | None = None
    """Only pictures taken earlier."""

    group: Literal["identity", "near"] | None = None
    """Only the best of each identity, or of pictures that are nearly the same."""

    rerank: Annotated[int, Field(ge=0, le=1_000_000), Whole] | Literal["all"] | None = None
    """How many of the first the matcher re-ranks; null = as many as the recipe says."""

    explain: bool = False
    """Whether re-ranked pictures come with the matcher's attention."""


class Attention(Told):
    """Where a matcher looked."""

    words: list[str]
    """The text's words as the model reads them."""

    of_regions: list[list[list[float]]] | None
    """Each word's attention over rows and columns of the picture's regions, which sums to 1."""

    of_words: list[list[float]] | None
    """Each reader's attention over the words, which sums to 1."""

    reader: Literal["step", "region"]
    """What reads the words: the steps of a decoder, or the regions row by row."""

    crop: tuple[float, float, float, float]
    """The part of the upright picture that the regions divide: left, top, right and bottom, as shares of its sides."""


class Hit(Told):
    """A picture that a search found."""

    rank: int
    """From 1."""

    score: float
    """Cosine with the query."""

    id: str
    """The picture's key."""

    name: str
    """Name of its file."""

    identity: str | None
    """Whom or what it shows."""

    metadata: dict[str, JsonValue]
    """What else was given for it."""

    taken: str | None
    """When, by the camera's clock, ISO 8601 without a zone."""

    confidence: float | None
    """Of the matcher that re-ranked it, 0 to 1."""

    probability: float | None
    """That it is a right answer, 0 to 1, where the model is calibrated."""

    group: int | None
    """With grouping: how many of the ranked pictures are of its group, itself among them."""

    attention: Attention | None = None
    """Where the matcher looked, if asked for."""


class SearchAnswer(Told):
    """What a search found."""

    hits: list[Hit]
    """Best first."""

    total: int
    """Pictures of the store."""

    matching: int
    """Those that meet the conditions."""

    good: bool | None
    """Whether the best reaches the threshold; null without calibration."""

    threshold: float | None
    """Match probability from which an answer is called good."""

    unknown: list[str]
    """Words of the text that the model does not know: it searched without them."""

    took_ms: float
    """Milliseconds from the request to the answer, waiting included."""


class ExplainBody(Asked):
    """Why does a picture have its score?"""

    text: Sentence
    """A description."""

    id: Key
    """The picture's key."""


class Explanation(Told):
    """Why a picture has its score for a text."""

    words: list[str]
    """The text's words as the model reads them."""

    weights: list[float] | None
    """How much the score falls without each word; null for a text of one word."""

    attention: Attention | None
    """Where the matcher looked; null without a matcher."""

    score: float
    """Cosine of text and picture."""

    confidence: float | None
    """Of the matcher, 0 to 1."""

    unknown: list[str]
    """Words of the text that the model does not know."""


class Model(Told):
    """The model of a store."""

    fingerprint: str
    """Digest of everything that changes an embedding."""

    system: str | None
    """Which of the systems it is."""

    dim: int
    """Width of an embedding."""


class FieldOfMetadata(Told):
    """What the pictures' metadata tell under one name."""

    name: str
    """To be used in conditions."""

    values: list[str]
    """All that there are, where there are at most 20."""

    kind: Literal["text", "number"]
    """Whether every value is a number."""


class Info(Told):
    """What can be searched, and how."""

    pictures: int
    """Pictures of the store."""

    model: Model
    """Its model."""

    reranks: bool
    """Whether a matcher re-ranks."""

    calibrated: bool
    """Whether answers have match probabilities."""

    explains: Literal["attention", "words"]
    """Whether explanations tell of a matcher's attention, or of the words only."""

    max_k: int
    """Most pictures in one answer."""

    changes: bool
    """Whether pictures can be deleted."""

    adds: bool
    """Whether pictures can be added."""

    fields: list[FieldOfMetadata]
    """What conditions may speak of."""

    sentences: int
    """Sentences of the store."""

    examples: list[str]
    """A few of them that fit pictures of the store."""

    identities: bool
    """Whether any picture has an identity."""

    times: list[str] | None
    """When the first and the last picture were taken; null where that is known of none."""


class Health(Told):
    """That the server is there."""

    status: Literal["ok"] = "ok"
    """Always "ok"."""


class Fault(Told):
    """What is wrong with one part of a request."""

    loc: list[str]
    """Which part."""

    msg: str
    """What was expected."""


class Problem(BaseModel):
    """Why a request was not done (RFC 9457)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """The kind of problem, `limner:KIND`."""

    title: str
    """The same in words."""

    status: int
    """The HTTP status."""

    detail: str
    """What was wrong with this request, and what to do."""

    errors: list[Fault] | None = None
    """With status 422: each fault."""


def problem_schema() -> dict[str, Any]:
    """JSON Schema of a problem, whole."""
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {name: value for name, value in schema.items() if name != "$defs"}
