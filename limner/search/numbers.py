"""What counts as a number in metadata and conditions."""

import math
import re
from typing import Any

LARGEST = 2**63 - 1
"""Largest whole number that metadata may hold: other programs read JSON's numbers into 64 bits."""

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
