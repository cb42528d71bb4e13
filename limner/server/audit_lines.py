"""Lines of the audit log: the keys that they name, and a line without what it tells of images and texts."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from limner.conditions import Condition
from limner.durable import from_json
from limner.errors import SettingsError

TEXTS = ("text", "where", "after", "before", "refused", "unmet", "similar")
"""Fields that may say whom a request was about."""

_KEYS = ("found", "marked", "naming")
"""Fields that are lists of keys of images and sentences."""


class Said:
    """Texts to forget, which lines may have as words of a question or as values of a condition."""

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = [text for text in texts if text.strip()]
        forms = [re.escape(_folded(text)) for text in self._texts]
        self._pattern = re.compile("|".join(rf"(?<!\w){form}(?!\w)" for form in forms)) if forms else None

    def are_in(self, line: Mapping[str, Any]) -> bool:
        """True if a line has one of the texts as a whole word or phrase."""
        if self._pattern is None:
            return False
        where = _texts(line, "where")
        told = [str(line.get("text", "")), *where, *(value for one in where for value in self._values(one))]
        told += [*_texts(line, "similar"), *_texts(line, "unmet")]
        # a refusal may repeat what it refuses, and a page begins at a name
        told += [str(line.get(name, "")) for name in ("refused", "after", "before")]
        return any(self._pattern.search(_folded(one)) for one in told)

    def _values(self, where: str) -> Iterator[str]:
        """The values of a condition as they are meant: in quotes they are spelled with backslashes."""
        try:
            condition = Condition.parse(where)
        except SettingsError:
            return
        yield from (bound.text for bound in condition.values)
        # a pattern that fits an identity tells of it
        if condition.name == "identity" and condition.operator == "~":
            patterns = [bound.text.casefold().replace("[", "[[]") for bound in condition.values]
            # in both forms, since "A*" has once fitted an À whose accent is a sign of its own
            yield from (
                text
                for text in self._texts
                for form in ("NFC", "NFD")
                if any(fnmatchcase(unicodedata.normalize(form, text).casefold(), one) for one in patterns)
            )


def _folded(text: str) -> str:
    # an ä may be one sign or two, and blanks are of many kinds
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())


def without(line: Mapping[str, Any], keys: Collection[str], said: Said) -> Mapping[str, Any]:
    """Return a line without what it tells of images and texts; the same object if it tells nothing of them."""
    names = [name for name in ("id", "like") if line.get(name) in keys]
    lists = {name: _texts(line, name) for name in _KEYS if name in line}
    if not (names or any(key in keys for some in lists.values() for key in some) or said.are_in(line)):
        return line
    bare = {name: value for name, value in line.items() if name not in (*names, *TEXTS, "salt")}
    bare |= {name: [key for key in some if key not in keys] for name, some in lists.items()}
    return {**bare, "forgotten": True}


def keys_in(line: Mapping[str, Any]) -> list[str]:
    """The keys of images that a line names."""
    named = (str(line[name]) for name in ("id", "like") if name in line)
    return [*(key for name in _KEYS for key in _texts(line, name)), *named]


def _texts(line: Mapping[str, Any], name: str) -> list[str]:
    texts = line.get(name)
    # of a line that somebody else has written it could be anything
    return [str(text) for text in texts] if isinstance(texts, list) else []


def read_line(line: bytes) -> dict[str, Any] | None:
    """The fields of a line; None for what is no JSON object."""
    try:
        read = from_json(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def number_of(read: Mapping[str, Any]) -> int:
    """A line's number in the chain; 0 if it has none."""
    number = read.get("number")
    return number if isinstance(number, int) else 0


def is_forgotten(read: Mapping[str, Any]) -> bool:
    """True for a line that says that parts of it were forgotten, and which digest it had."""
    return read.get("forgotten") is True and isinstance(read.get("digest"), str)
