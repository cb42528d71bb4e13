"""Conditions on the metadata of an image: `camera=3`, `height>=170`, `path~*/gate/*`."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from limner.errors import SettingsError
from limner.names import same_name

# a name ends at the first sign of an operator; the operators of two signs stand first, or <= would be read as <
_FORM = re.compile(r"\s*([^=!<>~\s][^=!<>~]*?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
}
_BEHIND = {"<=": _ORDERED["<"], ">": _ORDERED[">="]}
"""How times are compared with the end of a day for these."""
# an identity "007" is not 7, and a folder called 2024 is no number
_TEXTS = ("identity", "path")
"""Names whose values are always text, also if they look like numbers."""


class Bound(NamedTuple):
    """The value that a condition compares with: a text, and the number or time that it means, if any.

    `end` is the first time behind a day, a month or a year, which `meaning` begins.
    """

    text: str
    meaning: int | float | datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: `name`, one of = != < <= > >= ~, and the values to compare with.

    - `=` means one of the values, which are separated by |, and `!=` none of them. Numbers and their spellings are
      equal (3, "3" and 3.0); for a list any element counts.
    - `<` to `>=` with a number hold for numbers only; with a text they compare texts, which is right for ISO 8601
      times.
    - `~` means a pattern with * and ?; upper and lower case are the same.

    Names and texts are equal however their accents are written. A value in double quotes is a literal text, and so is
    any value of `identity` and `path`. `taken` is compared with times in ISO 8601, by the camera's own clock; a day
    (2026-11-20), a month or a year is all of its time. An image without the name meets `!=` only.
    """

    name: str
    operator: str
    values: tuple[Bound, ...]

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read a condition. Raises `SettingsError` for text of another form.

        >>> [(bound.text, bound.meaning) for bound in Condition.parse("camera=3|gate").values]
        [('3', 3), ('gate', None)]
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise SettingsError(
                f"where: expected NAME=VALUE or another of != < <= > >= ~, e.g. camera=3, got {text[:120]!a}"
            )
        name, operator, value = found.groups()
        value = same_name(value)
        # ==, => and =~ of other languages would otherwise compare with a value that begins with a sign
        if value.startswith(tuple("=!<>~")):
            raise SettingsError(
                f"where: expected one of = != < <= > >= ~ in {text[:120]!a}, got {operator + value[0]!r}; "
                "a value that begins so stands in double quotes"
            )
        # a pattern and a bound may hold a | of their own
        values = _alternatives(value) if operator in ("=", "!=") else [value]
        return cls(name, operator, tuple(_bound(name, operator, one) for one in values))

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """True if an image with these facts meets the condition."""
        return self.test(value_of(facts, self.name))

    def test(self, value: Any) -> bool:
        """True if a value meets the condition; None stands for an unknown value."""
        # != is the opposite of = as a whole: an unknown value meets it, and a list only if no element is equal
        return self._is_met(value) != (self.operator == "!=")

    def _is_met(self, value: Any) -> bool:
        if value is None:
            return False
        if isinstance(value, list):
            return any(self._is_met(element) for element in value)
        return any(self._compared(value, bound) for bound in self.values)

    def _compared(self, value: Any, bound: Bound) -> bool:
        if self.operator == "~":
            # casefold and fnmatchcase: plain fnmatch takes the rules for case and separators from the operating system
            # [ would begin a set of letters
            return fnmatchcase(_spelled(value).casefold(), bound.text.casefold().replace("[", "[[]"))
        meant = None if bound.meaning is None else _meaning(self.name, value)
        if self.operator in _ORDERED:
            compare = _ORDERED[self.operator]
            if bound.meaning is not None:
                # a bound that is a number is met by numbers only: as texts "9" is greater than "170"
                # all of a day is in a day: what is later is behind its end
                limit = bound.end if bound.end is not None and self.operator in ("<=", ">") else bound.meaning
                compare = _BEHIND.get(self.operator, compare) if bound.end is not None else compare
                return meant is not None and compare(meant, limit)
            # true and {} have no order; as JSON text they would be compared by their letters
            return not isinstance(value, bool | dict) and compare(_spelled(value), bound.text)
        if bound.end is not None:
            assert isinstance(bound.meaning, datetime)
            return isinstance(meant, datetime) and bound.meaning <= meant < bound.end
        return _spelled(value) == bound.text if meant is None else meant == bound.meaning


def value_of(facts: Mapping[str, Any], name: str) -> Any:
    """The value of a name, or of the first name that is canonically equal to it; None if the picture has neither."""
    if name in facts or name.isascii():
        return facts.get(name)
    return next((value for known, value in facts.items() if same_name(known) == same_name(name)), None)


def wrong_name(name: object) -> str | None:
    """Why a fact of a picture cannot have this name, since no condition could ask for it; None if it can.

    >>> wrong_name("path")
    "'path' is the picture's own in conditions; give it another name"
    """
    if not isinstance(name, str):
        return f"expected text as the name of a fact, got {ascii(name)[:40]}"
    # conditions are read without the blanks around a name; and " path" would look like the picture's own
    if not name or name != name.strip():
        return f"expected names without blanks at their ends, got {ascii(name)[:40]}"
    return "'path' is the picture's own in conditions; give it another name" if name == "path" else None


def local_time(text: str) -> datetime:
    """Read a time in ISO 8601; the zone of a time is dropped, its clock reading kept. Raises `ValueError`.

    >>> local_time("2026-11-20T08:15+02:00")
    datetime.datetime(2026, 11, 20, 8, 15)
    """
    return datetime.fromisoformat(text.strip()).replace(tzinfo=None)


def _spelled(value: Any) -> str:
    return same_name(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _meaning(name: str, value: Any) -> int | float | datetime | None:
    """Read a value as a number, or as a time for `taken`; None if it is neither."""
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
    if name == "taken":
        if (period := _period(text if plain is None else plain)) is not None:
            return Bound(text, *period)
        if meaning is None:
            raise SettingsError(
                "where: expected a time in ISO 8601 for 'taken', e.g. 2026-11-20T08:15 or 2026-11-20, got "
                f"{text[:40]!a}"
            )
    return Bound(text, meaning)


_DATE = re.compile(r"\s*([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?\s*")


def _period(text: str) -> tuple[datetime, datetime] | None:
    """First time of a year, a month or a day, and the first behind it; None for any other text."""
    if (found := _DATE.fullmatch(text)) is None:
        return None
    year, month, day = (int(part) if part else None for part in found.groups())
    try:
        start = datetime(year or 0, month or 1, day or 1)
        if day is not None:
            return start, start + timedelta(1)
        following = (start.year + 1, 1) if month in (None, 12) else (start.year, start.month + 1)
        return start, datetime(*following, 1)
    # no such day, or the last year that Python has
    except (ValueError, OverflowError):
        return None


def _alternatives(text: str) -> list[str]:
    """Split a text at each | outside of double quotes."""
    # the last branch of the pattern takes a quote that nothing closes as a plain sign
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^|"]|")+', text) or [""]
    return [part.strip() for part in parts]


def _unquoted(text: str) -> str | None:
    """Return the text inside double quotes; None if the text has no quotes."""
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return None
    try:
        return str(json.loads(text))
    except ValueError:
        # a backslash that JSON does not know: the text is meant as it stands
        return text[1:-1]


_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,4000}\s*")  # Python reads no more than 4,300 digits


def number_of(value: Any) -> int | float | None:
    """Read a number, or a text that spells one; whole numbers stay exact, anything else, infinity and NaN give None.

    >>> number_of("172"), number_of("1.5"), number_of(True), number_of("nan"), number_of("1_000")
    (172, 1.5, None, None, None)
    """
    # bool is a subclass of int, but true is not 1 here
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        # not through a float, which cannot tell 2^53 from 2^53 + 1
        if _WHOLE.fullmatch(value):
            return int(value)
        try:
            # float() takes the digit groups of Python's own syntax, which no metadata file means by 1_000
            value = float("nan" if "_" in value else value)
        except ValueError:
            return None
    return value if math.isfinite(value) else None
