"""Bodies of requests: their base class, the types of their fields, and the conditions that a server takes."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from limner.conditions import Condition
from limner.documented import Documented
from limner.server.problems import RefusedError

# each value is compared with each different value of the store, while others wait for the model
_ALTERNATIVES = 100
"""Largest number of values that one condition may name."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""An image's key: 32 hex digits."""

Where = Annotated[str, Field(pattern=r"^[^=!<>~]+(!=|[<>]=?|=|~)", max_length=2000)]
"""A condition, e.g. `camera=3`: see `limner.conditions`."""


def _decoded(value: Any) -> bytes:
    if value == "":
        raise PydanticCustomError("base64", "the file is empty")
    if not isinstance(value, str) or len(value) < 4:
        raise PydanticCustomError("base64", "expected at least 4 letters of base64")
    try:
        # without validate Python drops letters that are not of base64, and reads another file
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "expected the bytes of a picture file in base64") from None


Picture = Annotated[
    bytes,
    BeforeValidator(_decoded),
    WithJsonSchema({"type": "string", "minLength": 4, "format": "byte"}),
]
"""The bytes of an image file, sent in base64."""

Sentence = Annotated[str, Field(min_length=1, max_length=2000)]
"""A description."""


# far more than any body has; without it 600,000 unknown names took 8.5 s and an answer of 40 MB
_NAMES = 50


class RequestModel(Documented):
    """The base of request bodies: no unknown names, no text for a number."""

    # forbid: a misspelt `wehre` must not search without its condition. strict: "5" is no number
    model_config = ConfigDict(extra="forbid", strict=True)

    # before: pydantic would first make a fault for each unknown name
    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, values: Any) -> Any:
        """Refuse very many names at once: each unknown one would be a fault of its own."""
        if isinstance(values, dict) and len(values) > _NAMES:
            raise PydanticCustomError("too_many_names", "expected at most {most} names", {"most": _NAMES})
        return values


def conditions_of(where: Sequence[str], *, paths: bool) -> tuple[Condition, ...]:
    """Parse conditions.

    Raises `RefusedError` for one on paths, unless `paths` are shown, and for one of very many values.
    """
    conditions = tuple(Condition.parse(one) for one in where)
    if any(len(condition.values) > _ALTERNATIVES for condition in conditions):
        raise RefusedError(422, f"where: a condition names at most {_ALTERNATIVES} values")
    # path~/home/a* is met or not: by such questions a client could spell out the folders of this machine
    if not paths and any(condition.name.strip() == "path" for condition in conditions):
        raise RefusedError(
            403,
            "where: this server tells nothing of where its files lie (--show-paths); ask by another fact",
        )
    return conditions
