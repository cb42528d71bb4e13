"""Requests: the base class of their bodies, the types of their fields, and the reading of conditions and images."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from limner.documented import Documented
from limner.search.conditions import Condition
from limner.server.problems import RefusedError

# each value is compared with each different value of the store, while others wait for the model
_ALTERNATIVES = 100
"""Largest number of values that one condition may name."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""An image's key: 32 hex digits."""

Where = Annotated[str, Field(pattern=r"^[^=!<>~]+(!=|[<>]=?|=|~)", max_length=2000)]
"""A condition, e.g. `camera=3`: see `limner.search.conditions`."""

Time = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
"""A time in ISO 8601."""

Picture = Annotated[str, Field(min_length=4, json_schema_extra={"format": "byte"})]
"""The bytes of an image file in base64."""

Sentence = Annotated[str, Field(min_length=1, max_length=2000)]
"""A description."""


def _whole(value: Any) -> Any:
    """Turn 27.0 into 27: it is an integer to JSON Schema, though not to Python."""
    # strict mode refuses 27.0, though it is valid by our own schema: JSON has one kind of number
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)
"""Stands behind the limits of an integer: before them, the OpenAPI description would lose the limits."""


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


def conditions_of(where: Sequence[str]) -> tuple[Condition, ...]:
    """Parse conditions.

    Raises `RefusedError` for a condition on paths, and for one of very many values.
    """
    conditions = tuple(Condition.parse(one) for one in where)
    if any(len(condition.values) > _ALTERNATIVES for condition in conditions):
        raise RefusedError(422, f"where: a condition names at most {_ALTERNATIVES} values")
    # path~/home/a* is met or not: by such questions a client could spell out the folders of this machine
    if any(condition.name.strip() == "path" for condition in conditions):
        raise RefusedError(403, "where: this server tells nothing of where its files lie")
    return conditions


def picture_of(text: str) -> bytes:
    """Decode the bytes of an image. Raises `RefusedError` (422) for other text than base64."""
    try:
        # without validate Python drops letters that are not of base64, and reads another file
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(422, "image: expected the bytes of a picture file in base64") from None
