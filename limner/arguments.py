"""Arguments as callers give them: one line for what is of another kind than the library takes.

Python does not check them, and their mistakes ended deep inside, or in an empty answer: a generator was read twice, and
a text letter by letter.
"""

import os
from collections.abc import Iterable
from typing import Any

from limner.errors import DataError

PATH = (str, os.PathLike)
"""Kinds of a path."""


def expect(given: object, kinds: tuple[type, ...], expected: str) -> None:
    """Raise `DataError` for an argument of another kind, e.g. "load: a run's folder" was `expected`."""
    if not isinstance(given, kinds):
        raise DataError(f"{expected} was expected, got {shown(given)}")


def several(given: Any, kinds: tuple[type, ...], expected: str) -> list[Any]:
    """One or any iterable of these kinds as a list, which is read once. Raises `DataError` for others."""
    # a text is an iterable, too, of letters
    if isinstance(given, kinds):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DataError(f"{expected} was expected, or several; got {shown(given)}")
    listed = list(given)
    for place, one in enumerate(listed):
        if not isinstance(one, kinds):
            raise DataError(f"{expected} was expected at place {place}, got {shown(one)}")
    return listed


def expect_call(progress: object) -> None:
    """Raise `DataError` for a `progress` that cannot be called."""
    if progress is not None and not callable(progress):
        raise DataError(
            f"progress: a function was expected, which is called with counts; got {shown(progress)}"
        )


def shown(given: object) -> str:
    """An argument in a message: its value where it is short and plain, else its kind."""
    plain = given is None or isinstance(given, str | bytes | int | float)
    return ascii(given)[:60] if plain else f"{type(given).__module__}.{type(given).__qualname__}"
