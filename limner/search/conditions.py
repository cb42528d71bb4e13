"""Conditions on what is known of a picture: `camera=3`, `height>=170`, `path~*/gate/*`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from limner.errors import SettingsError

_FORM = re.compile(r"\s*([^=!<>~\s][^=!<>~]*?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: `name`, one of = != < <= > >= ~, and what to compare with.

    - `=` one of the values, which are separated by |, and `!=` none of them; numbers and their spelling are the same
      (3 is "3"), and of a list any element may be the one.
    - `<` to `>=` compare numbers as numbers and other text as text, which is right for ISO 8601 times.
    - `~` a pattern with * and ?, upper and lower case alike.

    A value in double quotes is taken as it stands. A picture of which the name is not known meets `!=` only.
    """

    name: str
    operator: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition. Raises `SettingsError` for text of another form.

        >>> Condition.parse("camera=3|4")
        Condition(name='camera', operator='=', values=('3', '4'))
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise SettingsError(
                f"where: expected NAME=VALUE or another of != < <= > >= ~, e.g. camera=3, got {text[:120]!a}"
            )
        name, operator, value = found.groups()
        return cls(name, operator, _values(value) if operator in ("=", "!=") else (_unquoted(value),))

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether a picture with these facts meets it."""
        return self.test(facts.get(self.name))

    def test(self, value: Any) -> bool:
        """Whether a value meets it; None = not known."""
        if self.operator in ("=", "!="):
            return _is_one_of(value, self.values) == (self.operator == "=")
        if value is None:
            return False
        if isinstance(value, list):
            return any(self.test(one) for one in value)
        if self.operator == "~":
            return fnmatchcase(_spelled(value).casefold(), self.values[0].casefold())
        left, right = _number(value), _number(self.values[0])
        compare = _ORDERED[self.operator]
        if left is not None and right is not None:
            return compare(left, right)
        return compare(_spelled(value), self.values[0])


def _is_one_of(value: Any, values: tuple[str, ...]) -> bool:
    if value is None:
        return False
    if isinstance(value, list):
        return any(_is_one_of(one, values) for one in value)
    spelled, number = _spelled(value), _number(value)
    return any(spelled == one or (number is not None and number == _number(one)) for one in values)


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _values(text: str) -> tuple[str, ...]:
    """Alternatives at each | outside of double quotes."""
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^|"]|")+', text) or [""]
    return tuple(_unquoted(part.strip()) for part in parts)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return text
