"""Split names as datasets write them."""

from limner.data.readers.annotations import Entry, shown
from limner.data.records import SPLITS

_ALIASES = {
    **{split: split for split in SPLITS},
    "training": "train",
    "restval": "train",
    "dev": "val",
    "valid": "val",
    "validation": "val",
    "testing": "test",
}


def split_name(entry: Entry, key: str = "split") -> str | None:
    """Our name of an entry's split; None where the entry gives none (no key, null or blank).

    "restval" (the part of MSCOCO's validation pictures that Karpathy's split leaves over) joins "train".
    Raises `DataError` for a name that no dataset uses.
    """
    value = entry.values.get(key)
    if value is None or value == "":
        return None
    known = _ALIASES.get(value.strip().lower()) if isinstance(value, str) else None
    if known is None:
        entry.fail(f"'{key}' must be one of {', '.join(_ALIASES)}, got {shown(value)}")
    return known
