"""The base of every settings class: typed, documented, frozen, and strict about names.

Each field carries one docstring line with its unit; `limner recipes show` and the docs print them, and a
test fails when one is missing.
"""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from limner.documented import Documented
from limner.errors import SettingsError

_SHOWN = 80
"""Largest number of characters of a refused value that an error repeats."""

S = TypeVar("S", bound="Settings")


class Settings(Documented):
    """Settings that refuse unknown names and values out of range at construction."""

    # extra: a misspelt setting must not leave its default in force. protected_namespaces: older versions of pydantic 2
    # warn of fields whose names begin with `model_`
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    @classmethod
    def parse(cls: type[S], values: Mapping[str, Any]) -> S:
        """Build settings from plain values, e.g. those of a JSON file.

        Raises `SettingsError` with one line that names the field, the value and the nearest known name.
        """
        try:
            # here and not in __init__, whose ValidationError is for programmers and prints several lines
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise SettingsError(_one_line(cls, error, values)) from None

    def replace(self: S, **changes: Any) -> S:
        """Make a copy with some fields changed, and validate it. Raises `SettingsError`."""
        # not model_copy, which validates nothing
        return self.parse({**self.model_dump(), **changes})


def _one_line(cls: type[BaseModel], error: ValidationError, values: Any) -> str:
    # one fault: a wrong class in a union brings a fault for each of its members
    first = error.errors(include_url=False)[0]
    where = ".".join(_address(first["loc"], values)) or cls.__name__
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])
        return f"unknown setting '{where}'{_nearest(name, _names(cls, first['loc'][:-1]))}{more}"
    # pydantic puts this before the text of a validator of ours
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and isinstance(first["input"], Mapping):
        return f"setting '{where}': {message}{more}"  # of settings that contradict each other the message names both
    got = repr(first["input"])
    # a whole recipe may stand where a number was expected
    excerpt = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}…"
    return f"setting '{where}': {message}, got {excerpt}{more}"


def _address(loc: tuple[int | str, ...], values: Any) -> list[str]:
    """Write a place of these values as `--set` addresses it: a name, or the tag of a kind, replaces a number."""
    found: list[str] = []
    for place in loc:
        if isinstance(values, Mapping):
            values = values.get(place, values)
        # a value that lacks has a place, too
        elif isinstance(values, list | tuple) and isinstance(place, int) and place < len(values):
            values = values[place]
        named = isinstance(place, int) and isinstance(values, Mapping) and isinstance(values.get("name"), str)
        part = values["name"] if named else str(place)
        # tags are written <kind>, which no field can be called
        if not part.startswith("<"):
            found.append(part)
        elif found and found[-1].isdecimal():
            found[-1] = part[1:-1]
    return found


def _names(cls: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    names: set[str] = set()

    def collect(model: type[BaseModel]) -> None:
        names.update(model.model_fields)

    current: list[type[BaseModel]] = [cls]
    for part in loc:
        following: list[type[BaseModel]] = []
        if str(part).startswith("<"):
            current = [member for model in current for member in _of_tag(model, str(part)[1:-1])] or current
            continue
        for model in current:
            field = model.model_fields.get(str(part))
            if field is not None:
                following += _models_in(field.annotation)
            # a place in a list, or the member of a union, which pydantic names by its class
            elif isinstance(part, int) or model.__name__ == part:
                following.append(model)
        # a part that is no field, such as a tag of pydantic's own, leaves the search where it is
        current = following or current
    for model in current:
        collect(model)
    return sorted(names)


def _of_tag(model: type[BaseModel], tag: str) -> list[type[BaseModel]]:
    """Find the classes among a model and its subclasses that have a kind as a default."""
    family = [model, *(found for child in model.__subclasses__() for found in _of_tag(child, tag))]
    return [
        member
        for member in family
        if tag in {field.default for field in member.model_fields.values() if isinstance(field.default, str)}
    ]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        # a field of a base class takes the settings of any class below it (`limner.models.registry`)
        below = [model for child in annotation.__subclasses__() for model in _models_in(child)]
        return [annotation, *below]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known here: {', '.join(known)}"
