"""Kinds of English words that describe people, such as colours and garments, and the short phrases that they form.

**Decided**: plain lists. A run's own word table does not give them: red and blue decide between pictures, so training
drives them apart. The lists are those of a person's description; a word that is in none of them has no kind.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

KINDS: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(listed.split())
    for kind, listed in {
        "colour": "black white grey red orange yellow green turquoise blue purple pink brown beige",
        "hair colour": "blond blonde brunette ginger",
        "person": "man woman boy girl",
        "top": "shirt jacket coat sweater hoodie dress blouse vest sweatshirt pullover jumper overcoat tee suit",
        "bottom": "jeans trousers pants shorts skirt leggings",
        "shoes": "shoes boots sandals sneakers trainers heels slippers",
        "bag": "backpack handbag suitcase purse rucksack",
        "headwear": "cap hat beanie helmet hood",
        "carried": "phone smartphone bottle book cup umbrella dog",
        "worn": "glasses sunglasses scarf tie belt",
        "pattern": "striped checked plaid dotted plain",
        "pattern part": "stripes checks dots spots logo",
        "length": "long short",
        "size": "small large",
        "hair": "ponytail bun",
        "doing": "walking standing sitting running",
    }.items()
}
"""Kind → its words; each word belongs to one kind. Spellings and near synonyms are in `_ALSO`."""

_ALSO: Final = {
    "gray": "grey",
    "violet": "purple",
    "tan": "beige",
    "cyan": "turquoise",
    "teal": "turquoise",
    "lady": "woman",
    "guy": "man",
    "gentleman": "man",
    "male": "man",
    "female": "woman",
    "necktie": "tie",
}
"""Word → the listed word that it stands for: it is replaced as that one would be."""

_LISTED: Final = {
    name: frozenset(listed.split())
    for name, listed in {
        "modifiers": "light dark bright navy sky open high flat tight wide brimmed knee length sleeved sleeveless "
        "collared hooded curly straight wavy t tank tote plastic carrier shoulder crossbody baseball woolly wheeled "
        "sports leather denim coffee paper water mobile button",
        "no nouns": "a an the this that these those and or but of in on at by to from with without over under up as is "
        "are was were be being has have had he she they it his her its their who which while wears wearing wear "
        "carries carrying carry holds holding hold pulls pulling leads leading dressed above below underneath",
        "empty": "a an the and or is are of in on with this that",
        "hair": "hair ponytail bun head beard",
    }.items()
}

_MODIFIERS: Final = frozenset(("colour", "hair colour", "pattern", "length", "size"))
"""Kinds of words that stand before a noun and belong to it; `_LISTED` has more, and parts such as "t" in t-shirt."""

EMPTY: Final = _LISTED["empty"]
"""Words without a meaning of their own."""

HAIR: Final = _LISTED["hair"]
"""Nouns whose colour is no garment's."""


@cache
def kind_of(word: str) -> str | None:
    """The kind of a word; None = it is in no list.

    >>> kind_of("red"), kind_of("gray"), kind_of("the")
    ('colour', 'colour', None)
    """
    listed = _ALSO.get(word, word)
    return next((kind for kind, members in KINDS.items() if listed in members), None)


def others_of_kind(word: str) -> tuple[str, ...]:
    """The other words of the same kind, without spellings and synonyms of the word itself; () without a kind.

    >>> others_of_kind("lady")
    ('man', 'boy', 'girl')
    """
    kind = kind_of(word)
    listed = _ALSO.get(word, word)
    return () if kind is None else tuple(other for other in KINDS[kind] if other != listed)


def phrases_of(words: Sequence[str]) -> list[tuple[int, int]]:
    """Divide words into phrases, each its first word and the word behind its last: a colour stands with its noun.

    A phrase is a run of modifiers ("red", "long", also "red and white") with the noun behind it; any other word is one
    by itself. Modifiers without a noun behind them are a phrase of their own.

    >>> words = "a lady in a red and white striped t shirt".split()
    >>> [" ".join(words[start:stop]) for start, stop in phrases_of(words)]
    ['a', 'lady', 'in', 'a', 'red and white striped t shirt']
    """
    found: list[tuple[int, int]] = []
    start = 0
    while start < len(words):
        stop = start
        while stop < len(words) and _modifies(words[stop]):
            stop += 1
            # "red and white": the same thing has both, if a modifier follows
            if stop + 1 < len(words) and words[stop] == "and" and _modifies(words[stop + 1]):
                stop += 1
        if stop < len(words) and (stop == start or words[stop] not in _LISTED["no nouns"]):
            stop += 1
        found.append((start, stop))
        start = stop
    return found


def _modifies(word: str) -> bool:
    return kind_of(word) in _MODIFIERS or word in _LISTED["modifiers"]
