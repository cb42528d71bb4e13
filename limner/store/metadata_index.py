"""An index of a snapshot's metadata: values by name, and the rows that meet a condition."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from limner.conditions import Condition, number_of, value_of
from limner.names import same_name
from limner.wire import MetadataField

OWN = ("path", "identity", "taken")
"""Names that conditions know beside those of the metadata; they take precedence."""

_LISTED = 20
"""Largest number of distinct values of a field that are listed."""

_CONDITIONS = 64
"""Number of conditions whose rows are kept; each takes a byte an image."""

_COLUMNS = 16
"""Number of names whose values are kept; each takes four bytes an image, beside the values."""


@dataclass(frozen=True, eq=False)
class _Column:
    """The values of one name, each different one once, and for each image the place of its value among them."""

    values: list[Any]
    codes: Int[np.ndarray, " images"]

    @classmethod
    def of(cls, values: Sequence[Any]) -> "_Column":
        places: dict[Any, tuple[int, Any]] = {}
        found = (places.setdefault(_key(one), (len(places), one))[0] for one in values)
        # int32 in place of the values themselves: a condition is then one indexing for all rows
        codes = np.fromiter(found, np.int32, len(values))
        return cls([one for _, one in places.values()], codes)


class MetadataIndex:
    """The metadata of rows, as JSON, and their `own` values by name (`OWN`)."""

    def __init__(self, metadata: Sequence[str], own: Mapping[str, Any]) -> None:
        # each different text once: pictures of one camera share theirs, and most stores have none
        places: dict[str, int] = {}
        found = (places.setdefault(text, len(places)) for text in metadata)
        self._texts: Int[np.ndarray, " images"] = np.fromiter(found, np.int32, len(metadata))
        self._metadata: list[dict[str, Any]] = [json.loads(text) for text in places]
        self._own = own
        self._fields: list[MetadataField] | None = None
        # caches of the instance: one on the method would keep every old snapshot alive. Of 200,000 rows a first
        # condition takes 0.06 to 0.7 s, the same one again less than 1 ms (docs/log/2026-11-22.md)
        self._column = lru_cache(_COLUMNS)(self._read)
        self.meeting = lru_cache(_CONDITIONS)(self._meeting)

    def _meeting(self, condition: Condition) -> Bool[np.ndarray, " images"]:
        """Test each row against a condition; each different value is tested once."""
        column = self._column(condition.name)
        # a store of 100,000 images has few cameras: the test runs once for each value, the rest is one indexing
        holds = np.fromiter((condition.test(one) for one in column.values), bool, len(column.values))
        found: Bool[np.ndarray, " images"] = holds[column.codes]
        return found

    def fields(self) -> list[MetadataField]:
        """List the names of the metadata, with the values of those that have few."""
        if self._fields is None:
            names = {name for metadata in self._metadata for name in metadata} - {*OWN}
            found = [_field(name, self._column(name).values) for name in sorted(names)]
            self._fields = [field for field in found if field is not None]
        return self._fields

    def absent(self, conditions: Sequence[Condition]) -> dict[str, str | None]:
        """Names in conditions that no image has, and for each the nearest that one has, if any is near."""
        asked = [condition.name for condition in conditions]
        if not asked:
            return {}
        known = {same_name(name) for metadata in self._metadata for name in metadata} | {*OWN}
        folded = {name.casefold(): name for name in sorted(known)}
        found = {}
        for name in asked:
            if same_name(name) not in known:
                near = get_close_matches(name.casefold(), folded, 1)
                found[name] = folded[near[0]] if near else None
        return found

    def _read(self, name: str) -> _Column:
        if name not in OWN:
            column = _Column.of([value_of(metadata, name) for metadata in self._metadata])
            return _Column(column.values, column.codes[self._texts])
        own = self._own[name]
        values = own.tolist() if isinstance(own, np.ndarray) else own
        # conditions on `taken` read ISO 8601, which a datetime's str() is not
        return _Column.of([value.isoformat() if value and name == "taken" else value for value in values])


def _key(value: Any) -> Any:
    """Make a key that keeps values apart: 1, true and 1.0 have three keys."""
    if value is None or isinstance(value, str):
        return value
    # to Python 1, True and 1.0 are equal and one key of a dict, but conditions tell them apart; lists have no hash
    return type(value), json.dumps(value) if isinstance(value, list | dict) else value


def _field(name: str, values: Sequence[Any]) -> MetadataField | None:
    """Make the field of these values; None if conditions can compare none of them."""
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    plain = {str(one) for one in flat if isinstance(one, str | int | float) and not isinstance(one, bool)}
    if not plain:
        return None
    listed = sorted(plain, key=_numbers_first) if len(plain) <= _LISTED else []
    # texts that spell numbers count: every value of a CSV file is text
    numeric = all(number_of(one) is not None for one in plain)
    return MetadataField(name=name, values=tuple(listed), kind="number" if numeric else "text")


def _numbers_first(value: str) -> tuple[bool, int | float, str]:
    number = number_of(value)
    return (number is None, 0 if number is None else number, value)
