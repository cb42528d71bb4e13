"""Small JSON files that hold a digest of their own content, so that a changed byte is found when they are read."""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

KEY = "digest"
"""Key of the digest, which is of all other keys, whatever their order and layout."""


def sealed(values: Mapping[str, Any]) -> str:
    """Write values as JSON with their digest."""
    return json.dumps({**values, KEY: digest_of_values(values)}, indent=2) + "\n"


def opened(values: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Return values without their digest.

    Raises `ValueError` if the digest is another one, or is missing where it is required.

    >>> opened(json.loads(sealed({"dim": 512})))
    {'dim': 512}
    """
    rest = {name: value for name, value in values.items() if name != KEY}
    if values.get(KEY) != digest_of_values(rest) and (required or KEY in values):
        raise ValueError("its digest is another")
    return rest


def digest_of_values(values: Mapping[str, Any]) -> str:
    """Digest of values that JSON can hold: 32 hex digits."""
    # dumped and parsed: a tuple is a list in the file, and a number as a key a text
    plain = json.loads(json.dumps(values))
    return blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()
