"""What `/v1/sentences` is asked and answers."""

from typing import Annotated

from pydantic import ConfigDict, Field

from limner.server.schemas import SEARCHES, Asked, Key, Picture, Sentence, Told, Whole


class SentencesBody(Asked):
    """A search for sentences: those that describe a picture, or say what a text says."""

    model_config = ConfigDict(json_schema_extra={**SEARCHES, "examples": [{"text": "a green coat", "k": 5}]})

    text: Sentence | None = None
    """A text."""

    image: Picture | None = None
    """A picture file in base64."""

    like: Key | None = None
    """Key of a picture of the store."""

    text_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight of the text where it stands beside a picture, which has the rest."""

    k: Annotated[int, Field(ge=1), Whole] = 10
    """Most sentences in the answer."""


class SentenceFound(Told):
    """A sentence of the store."""

    rank: int
    """From 1."""

    score: float
    """Cosine with the query, in [-1, 1]."""

    text: str
    """The sentence."""

    id: str | None
    """Key of the picture that it is of, where the store holds that."""


class SentencesAnswer(Told):
    """What was found."""

    sentences: list[SentenceFound]
    """Best first."""

    total: int
    """Sentences of the store."""
