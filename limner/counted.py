"""Numbers of things in plain English, for every layer that tells of some."""

from collections.abc import Sequence


def counted(number: int, things: str, *, of: int | None = None) -> str:
    """How many of the things there are, given in the plural, or how many of all.

    >>> counted(1, "identities"), counted(2000, "pictures"), counted(1, "pictures", of=1)
    ('1 identity', '2,000 pictures', '1 of 1 picture')
    """
    last = number if of is None else of
    if last == 1:
        things = (
            "person" if things == "people" else f"{things[:-3]}y" if things.endswith("ies") else things[:-1]
        )
    return f"{number:,} {things}" if of is None else f"{number:,} of {of:,} {things}"


def some(words: Sequence[str], most: int = 10) -> str:
    """The first of many words, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more:,} more" if more > 0 else "")
