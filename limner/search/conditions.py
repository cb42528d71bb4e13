"""Conditions on what is known of a picture: `camera=3`, `height>=170`, `path~*/gate/*`."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from limner.data.images import local_time
from limner.errors import SettingsError

_FORM = re.compile(r"\s*([^=!<>~\s][^=!<>~]*?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
}
_TEXTS = ("identity", "path")
"""Names whose values are text, whatever they look like."""


class Bound(NamedTuple):
    """The value that a condition compares with: a text, and the number or time that it means, if any."""

    text: str
    meaning: int | float | datetime | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: `name`, one of = != < <= > >= ~, and what to compare with.

    - `=` one of the values, which are separated by |, and `!=` none of them; numbers and their spelling are the same
      (3 is "3" and 3.0), and of a list any element may be the one.
    - `<` to `>=` with a number hold for numbers only, and with a text compare texts, which is right for ISO 8601 times.
    - `~` a pattern with * and ?, upper and lower case alike.

    A value in double quotes is a text as it stands, and so is any value of `identity` and `path`. `taken` is compared
    with times in ISO 8601, by the camera's own clock. A picture of which the name is not known meets `!=` only.
    """

    name: str
    operator: str
    values: tuple[Bound, ...]

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition. Raises `SettingsError` for text of another form.

        >>> Condition.parse("camera=3|gate")
        Condition(name='camera', operator='=', values=(Bound(text='3', meaning=3), Bound(text='gate', meaning=None)))
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise SettingsError(
                f"where: expected NAME=VALUE or another of != < <= > >= ~, e.g. camera=3, got {text[:120]!a}"
            )
        name, operator, value = found.groups()
        if value.startswith(tuple("=!<>~")):
            raise SettingsError(
                f"where: expected one of = != < <= > >= ~ in {text[:120]!a}, got {operator + value[0]!r}; "
                "a value that begins so stands in double quotes"
            )
        values = _alternatives(value) if operator in ("=", "!=") else [value]
        return cls(name, operator, tuple(_bound(name, operator, one) for one in values))

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """True if a picture with these facts meets the condition."""
        return self.test(facts.get(self.name))

    def test(self, value: Any) -> bool:
        """True if a value meets the condition; None is a value that is not known."""
        # != is the opposite of =, so that a picture of which the name is not known meets it
        return self._is_met(value) != (self.operator == "!=")

    def _is_met(self, value: Any) -> bool:
        if value is None:
            return False
        if isinstance(value, list):
            return any(self._is_met(one) for one in value)
        return any(self._compared(value, bound) for bound in self.values)

    def _compared(self, value: Any, bound: Bound) -> bool:
        if self.operator == "~":
            # [ would begin a set of letters
            return fnmatchcase(_spelled(value).casefold(), bound.text.casefold().replace("[", "[[]"))
        meant = None if bound.meaning is None else _meaning(self.name, value)
        if self.operator in _ORDERED:
            compare = _ORDERED[self.operator]
            if bound.meaning is not None:
                return meant is not None and compare(meant, bound.meaning)
            return not isinstance(value, bool | dict) and compare(_spelled(value), bound.text)
        return _spelled(value) == bound.text if meant is None else meant == bound.meaning


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _meaning(name: str, value: Any) -> int | float | datetime | None:
    """The number that a value is, the time for `taken`; None where there is none."""
    if name != "taken":
        return number_of(value)
    try:
        return local_time(str(value))
    except ValueError:
        return None


def _bound(name: str, operator: str, text: str) -> Bound:
    plain = _unquoted(text)
    if operator == "~" or name in _TEXTS or (plain is not None and name != "taken"):
        return Bound(text if plain is None else plain)
    meaning = _meaning(name, text if plain is None else plain)
    if name == "taken" and meaning is None:
        raise SettingsError(
            f"where: expected a time in ISO 8601 for 'taken', e.g. 2026-11-20T08:15, got {text[:40]!a}"
        )
    return Bound(text, meaning)


def _alternatives(text: str) -> list[str]:
    """The parts at each | outside of double quotes."""
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^|"]|")+', text) or [""]
    return [part.strip() for part in parts]


def _unquoted(text: str) -> str | None:
    """Return the text inside double quotes; None if the text has no quotes."""
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return None
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]


_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,4000}\s*")  # Python reads no more than 4,300 digits


def number_of(value: Any) -> int | float | None:
    """A number, or a text that spells one; whole ones exactly, None for all else, for infinity and NaN too.

    >>> number_of("172"), number_of("1.5"), number_of(True), number_of("nan"), number_of("1_000")
    (172, 1.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        if _WHOLE.fullmatch(value):
            return int(value)
        try:
            value = float("nan" if "_" in value else value)
        except ValueError:
            return None
    return value if math.isfinite(value) else None
