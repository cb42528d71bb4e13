"""The arguments of a search as library and client take them, checked and in the server's spelling."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from limner.errors import SettingsError
from limner.wire import Where


def query_arguments(query: str | Mapping[str, Any]) -> dict[str, Any]:
    """Turn one query of `search_many` into arguments of `search`. Raises `SettingsError` for unknown ones."""
    # checked here for library and client: as keyword arguments they would be a TypeError that names no query
    arguments = {"text": query} if isinstance(query, str) else dict(query)
    if unknown := sorted(arguments.keys() - _ARGUMENTS):
        raise SettingsError(f"query: unknown argument {unknown[0]!r}; known here: {', '.join(_ARGUMENTS)}")
    return arguments


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
    return [text for one in where for text in where_strings(one)]


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


_ARGUMENTS = (
    *("text", "image", "like", "text_weight", "k", "offset", "where", "after", "before"),
    *("marks", "group", "rerank", "explain"),
)
"""Arguments of `search`."""
