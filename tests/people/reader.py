"""Reads a description back into claims, with a vocabulary of its own; a word it cannot place is an error."""

import re
from collections.abc import Callable
from typing import Any

C = r"(black|white|grey|red|orange|yellow|green|turquoise|blue|purple|pink|brown|beige)"
HAIR = r"(black|brown|blond|grey|red)"
BEFORE = r"(?:(?:open|small|large|long|tight|flat|high|knee-length|wide-brimmed|plain|dotted|checked) )*"

NOUNS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("short-sleeved t-shirt", "t-shirt", "tee"), ("upper", "t-shirt")),
    **dict.fromkeys(("button-up shirt", "collared shirt", "shirt"), ("upper", "shirt")),
    **dict.fromkeys(("sweater", "pullover", "jumper"), ("upper", "sweater")),
    **dict.fromkeys(("hooded sweatshirt", "hoodie"), ("upper", "hoodie")),
    "jacket": ("upper", "jacket"),
    **dict.fromkeys(("overcoat", "coat"), ("upper", "coat")),
    **dict.fromkeys(("tank top", "sleeveless top"), ("upper", "tank top")),
    "dress": ("upper", "dress"),
    "jeans": ("lower", "jeans"),
    **dict.fromkeys(("trousers", "pants"), ("lower", "trousers")),
    "leggings": ("lower", "leggings"),
    "shorts": ("lower", "shorts"),
    "skirt": ("lower", "skirt"),
    **dict.fromkeys(("sneakers", "trainers", "sports shoes"), ("shoes", "sneakers")),
    "shoes": ("shoes", "shoes"),
    "boots": ("shoes", "boots"),
    "sandals": ("shoes", "sandals"),
    **dict.fromkeys(("baseball cap", "cap"), ("headwear", "cap")),
    **dict.fromkeys(("woolly hat", "beanie"), ("headwear", "beanie")),
    **dict.fromkeys(("brimmed hat", "hat"), ("headwear", "hat")),
    **dict.fromkeys(("backpack", "rucksack"), ("bag", "backpack")),
    **dict.fromkeys(("shoulder bag", "crossbody bag"), ("bag", "shoulder bag")),
    "handbag": ("bag", "handbag"),
    **dict.fromkeys(("wheeled suitcase", "suitcase"), ("bag", "suitcase")),
    **dict.fromkeys(("tote bag", "tote"), ("bag", "tote bag")),
    **dict.fromkeys(("plastic bag", "carrier bag"), ("bag", "plastic bag")),
    **dict.fromkeys(("mobile phone", "smartphone", "phone"), ("carried", "phone")),
    **dict.fromkeys(("water bottle", "bottle"), ("carried", "bottle")),
    "book": ("carried", "book"),
    **dict.fromkeys(("coffee cup", "paper cup"), ("carried", "coffee cup")),
    "umbrella": ("carried", "umbrella"),
    "dog": ("carried", "dog"),
    **dict.fromkeys(("sunglasses", "dark glasses"), ("worn", "sunglasses")),
    "glasses": ("worn", "glasses"),
    "scarf": ("worn", "scarf"),
    **dict.fromkeys(("necktie", "tie"), ("worn", "tie")),
    "belt": ("worn", "belt"),
}
PATTERN_WORDS = {
    "stripes": "stripes",
    "striped": "stripes",
    "dots": "dots",
    "spots": "dots",
    "check pattern": "checks",
    "checked": "checks",
    "lines": "checks",
    "logo on the chest": "logo",
    "print on the front": "logo",
    "sleeves": "sleeves",
    "lower half": "bottom half",
}
FILLERS = frozenset(
    (
        *(
            "a",
            "an",
            "the",
            "this",
            "is",
            "are",
            "has",
            "have",
            "in",
            "on",
            "of",
            "pair",
            "with",
            "and",
            "to",
        ),
        *("wears", "wear", "wearing", "dressed", "carries", "carry", "carrying", "holds", "hold", "holding"),
        *("pulls", "pull", "pulling", "leads", "lead", "leading", "leash", "back", "feet"),
        *("person", "pedestrian", "they", "their"),
    )
)
_NOUN = "|".join(sorted(NOUNS, key=len, reverse=True))

Claim = tuple[str, Any]


def claims_of(sentence: str) -> set[Claim]:
    """What a sentence says: pairs of a detail and its value."""
    text = sentence.lower().replace("gray", "grey").replace("blonde", "blond")
    text = re.sub(r"[.,;]", " ; ", text)
    text = re.sub(r"\s+", " ", text)
    claims: set[Claim] = set()

    def take(pattern: str, read: Callable[[re.Match[str]], str]) -> None:
        nonlocal text
        text = re.sub(rf"(?<![\w-])(?:{pattern})(?![\w-])", read, text)

    def inner(found: re.Match[str]) -> str:
        claims.add(("inner", next(group for group in found.groups() if group)))
        return " ; "

    take(rf"open over an? {C} top|(?<=jacket )over an? {C} t-shirt|(?<=coat )over an? {C} t-shirt", inner)
    take(rf"(?<=below )over an? {C} t-shirt|(?<=sleeves )over an? {C} t-shirt|over an? {C} t-shirt", inner)
    take(rf"with an? {C} t-shirt underneath", inner)

    def pattern_after(found: re.Match[str]) -> str:
        claims.add(("pattern", (PATTERN_WORDS[found[2]], found[1])))
        return " ; "

    take(rf"(?:with|that has) (?:an? )?{C} ({'|'.join(PATTERN_WORDS)})", pattern_after)

    def pattern_in(found: re.Match[str]) -> str:
        claims.add(("pattern", ("stripes" if found[1] == "striped in" else "dots", found[2])))
        return " ; "

    take(rf"(striped in|dotted with) {C}", pattern_in)

    def above_below(found: re.Match[str]) -> str:
        claims.update({("upper", NOUNS[found[1]][1]), ("upper_colour", found[2])})
        claims.add(("pattern", ("bottom half", found[3])))
        return " ; "

    take(rf"(?:open |long )?({_NOUN}) that is {C} above and {C} below", above_below)

    def two_colours(found: re.Match[str]) -> str:
        claims.add(("pattern", (PATTERN_WORDS[found[3]], found[2])))
        return found[1]

    take(rf"{C} and {C} (striped|checked)", two_colours)

    def hair(found: re.Match[str]) -> str:
        style, colour, after, tail, _ = found.groups()
        named = (
            "ponytail" if "ponytail" in (after or tail or "") else "bun" if "bun" in (after or "") else style
        )
        if named:
            claims.add(("hair", named))
        if colour:
            claims.add(("hair_colour", colour))
        return " ; "

    tied = r"( in a ponytail| tied back in a ponytail| in a bun| tied up in a bun)?"
    take(rf"(?:(short|long|curly) )?(?:{HAIR} )?(?:hair{tied}|(ponytail))()", hair)

    def bald(found: re.Match[str]) -> str:
        claims.add(("hair", "bald"))
        return " ; "

    take("(?:bald|shaved) head", bald)

    def thing(found: re.Match[str]) -> str:
        first, colour, second, noun = found.groups()
        slot, kind = NOUNS[noun]
        adjectives = f"{first} {second}"
        if noun == "skirt" and re.search(r"(?<!-)\blong\b", adjectives):
            kind = "long skirt"
        if "plain" in adjectives:
            claims.add(("pattern", None))
        if slot in ("upper", "lower", "shoes"):
            claims.add((slot, kind))
            if colour:
                claims.add((f"{slot}_colour", colour))
        else:
            claims.add((slot, (kind, colour)))
        return " ; "

    take(rf"({BEFORE})(?:{C} )?({BEFORE})({_NOUN})", thing)
    for word in text.replace(";", " ").split():
        if word in ("man", "guy", "gentleman", "he", "his"):
            claims.add(("sex", "man"))
        elif word in ("woman", "lady", "she", "her"):
            claims.add(("sex", "woman"))
        elif word == "beard":
            claims.add(("beard", True))
        elif word in ("walking", "standing"):
            claims.add(("walking", word == "walking"))
        elif word not in FILLERS:
            raise ValueError(f"cannot read {word!r} in {sentence!r}")
    return claims


def is_true(claim: Claim, attributes: dict[str, Any], walking: bool) -> bool:
    """Whether a claim holds of an attribute record (JSON values)."""
    name, value = claim
    if name == "walking":
        return bool(value == walking)
    record = attributes[name]
    if name == "shoes":
        # "Shoes" is the general word for sneakers as well.
        return bool(value == record or (value == "shoes" and record == "sneakers"))
    if isinstance(record, dict):
        return bool(value == (record["kind"], record["colour"]))
    return bool(value == record)
