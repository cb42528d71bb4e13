"""English noun phrases for single details, in several wordings each; all of them true of the detail."""

from dataclasses import dataclass
from typing import Final

from limner.people.attributes import Identity, Thing
from limner.people.telling import Voice

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "t-shirt": ("t-shirt", "t-shirt", "tee", "short-sleeved t-shirt"),
    "shirt": ("shirt", "shirt", "button-up shirt", "collared shirt"),
    "sweater": ("sweater", "pullover", "jumper"),
    "hoodie": ("hoodie", "hoodie", "hooded sweatshirt"),
    "jacket": ("jacket",),
    "coat": ("coat", "long coat", "overcoat"),
    "tank top": ("tank top", "sleeveless top"),
    "dress": ("dress",),
    "jeans": ("jeans",),
    "trousers": ("trousers", "pants"),
    "leggings": ("leggings", "tight leggings"),
    "shorts": ("shorts",),
    "skirt": ("skirt", "knee-length skirt"),
    "long skirt": ("long skirt",),
    "sneakers": ("sneakers", "trainers", "sports shoes", "shoes"),
    "shoes": ("shoes", "flat shoes"),
    "boots": ("boots", "high boots"),
    "sandals": ("sandals",),
    "cap": ("cap", "baseball cap"),
    "beanie": ("beanie", "woolly hat"),
    "hat": ("wide-brimmed hat", "brimmed hat"),
    "backpack": ("backpack", "backpack", "rucksack"),
    "shoulder bag": ("shoulder bag", "crossbody bag"),
    "handbag": ("handbag", "small handbag"),
    "suitcase": ("suitcase", "wheeled suitcase"),
    "tote bag": ("tote bag", "large tote"),
    "plastic bag": ("plastic bag", "carrier bag"),
    "phone": ("phone", "mobile phone", "smartphone"),
    "bottle": ("bottle", "water bottle"),
    "book": ("book",),
    "coffee cup": ("coffee cup", "paper cup"),
    "umbrella": ("umbrella", "open umbrella"),
    "dog": ("dog",),
    "glasses": ("glasses",),
    "sunglasses": ("sunglasses", "dark glasses"),
    "scarf": ("scarf",),
    "tie": ("tie", "necktie"),
    "belt": ("belt",),
}
"""Kind → words for it. "Shoes" is said of sneakers as well, never of boots or sandals."""

_PAIRS: Final = ("jeans", "trousers", "leggings", "shorts", "sneakers", "shoes", "boots", "sandals")
_BEFORE_COLOUR: Final = (
    "open",
    "small",
    "large",
    "long",
    "tight",
    "flat",
    "high",
    "knee-length",
    "wide-brimmed",
)
UNCOUNTED: Final = (*_PAIRS, "glasses", "sunglasses")
"""Kinds whose words take no article."""


@dataclass(frozen=True)
class Speaker(Voice):
    """One way of speaking: which spelling of grey and which synonyms."""

    def name(self, kind: str) -> str:
        """A word for a kind of thing."""
        return self.pick(*NAMES[kind])

    def colour(self, name: str | None) -> str:
        """A colour's name; grey has two spellings."""
        return "gray" if name == "grey" and self.chance(0.15) else (name or "")

    def thing(self, thing: Thing) -> str:
        """A thing with its article and colour: "a red scarf", "sunglasses"."""
        return self.article(thing.kind, coloured(self.colour(thing.colour), self.name(thing.kind)))

    def article(self, kind: str, words: str) -> str:
        """`words` with "a", "an", "a pair of" or nothing, as the kind of thing asks for."""
        if kind in UNCOUNTED:
            return f"a pair of {words}" if kind in _PAIRS and self.chance(0.2) else words
        return with_article(words)


def coloured(colour: str, name: str) -> str:
    """A colour before its noun but after size and shape: "a long red skirt", not "a red long skirt"."""
    front, _, noun = name.partition(" ")
    return (
        f"{front} {colour} {noun}".replace("  ", " ")
        if front in _BEFORE_COLOUR
        else f"{colour} {name}".strip()
    )


def with_article(words: str) -> str:
    """`words` after "a" or "an"."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def upper_phrase(say: Speaker, who: Identity, *, pattern: bool, inner: bool, plain: bool) -> str:
    """The top or dress; `pattern`, `inner`: mention these, `plain`: say that it has no pattern."""
    name, colour = say.name(who.upper), say.colour(who.upper_colour)
    words = coloured(colour, name)
    if pattern and who.pattern is not None:
        words = _patterned(say, words, colour, name, who.pattern)
    elif plain and who.pattern is None:
        words = f"plain {words}"
    if inner and who.inner is not None:
        under = say.colour(who.inner)
        return say.pick(
            f"{with_article(words)} open over {with_article(f'{under} top')}",
            f"{with_article(f'open {words}')} with {with_article(f'{under} t-shirt')} underneath",
            f"{with_article(words)} over {with_article(f'{under} t-shirt')}",
        )
    return with_article(words)


def _patterned(say: Speaker, words: str, colour: str, name: str, pattern: Thing) -> str:
    second = say.colour(pattern.colour)
    match pattern.kind:
        case "stripes":
            return say.pick(
                f"{words} with {second} stripes",
                f"{colour} and {second} striped {name}",
                f"{words} striped in {second}",
            )
        case "checks":
            return say.pick(
                f"{words} with {with_article(second)} check pattern",
                f"{colour} and {second} checked {name}",
                f"checked {words} with {second} lines",
            )
        case "dots":
            return say.pick(
                f"{words} with {second} dots", f"{words} with {second} spots", f"{words} dotted with {second}"
            )
        case "logo":
            return say.pick(
                f"{words} with {with_article(second)} logo on the chest",
                f"{words} with {with_article(second)} print on the front",
            )
        case "sleeves":
            return say.pick(f"{words} with {second} sleeves", f"{words} that has {second} sleeves")
    return say.pick(
        f"{words} with {with_article(second)} lower half", f"{name} that is {colour} above and {second} below"
    )


def lower_phrase(say: Speaker, who: Identity) -> str:
    """Trousers, shorts or skirt."""
    kind = who.lower or ""
    return say.article(kind, coloured(say.colour(who.lower_colour), say.name(kind)))


def shoes_phrase(say: Speaker, who: Identity) -> str:
    """Shoes with their colour."""
    return say.article(who.shoes, coloured(say.colour(who.shoes_colour), say.name(who.shoes)))


def hair_phrase(say: Speaker, who: Identity, *, style: bool, colour: bool) -> str:
    """Hair by its style, its colour, or both."""
    tone = ""
    if colour and who.hair != "bald":
        tone = "blonde" if who.hair_colour == "blond" and say.chance(0.3) else say.colour(who.hair_colour)
    if not style:
        return f"{tone} hair"
    match who.hair:
        case "bald":
            return say.pick("a bald head", "a shaved head")
        case "ponytail":
            return say.pick(
                with_article(f"{tone} ponytail".strip()),
                f"{tone} hair in a ponytail".strip(),
                f"{tone} hair tied back in a ponytail".strip(),
            )
        case "bun":
            return say.pick(f"{tone} hair in a bun".strip(), f"{tone} hair tied up in a bun".strip())
    return f"{who.hair} {tone} hair".replace("  ", " ")
