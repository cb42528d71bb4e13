"""English descriptions of one view: what is mentioned, in which order and in which kind of sentence.

Only details that can be seen in the view are spoken of, some are left out, and nothing else is said of the
person than what holds in every view, except whether they walk or stand.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from limner.people.attributes import Identity
from limner.people.cast import Person
from limner.people.phrases import (
    Speaker,
    hair_phrase,
    lower_phrase,
    shoes_phrase,
    upper_phrase,
)
from limner.people.telling import Form, Telling, shuffled

_MENTION: Final = {
    "upper": 0.99,
    "lower": 0.97,
    "shoes": 0.74,
    "hair": 0.74,
    "headwear": 0.92,
    "beard": 0.6,
    "bag": 0.95,
    "carried": 0.9,
    "worn": 0.75,
}
"""How often a visible detail is mentioned in a full description."""

_COMPLETENESS: Final = ((0.55, 0.15), (0.85, 0.4), (1.0, 0.45))
"""Factor on these, and how often it occurs: short, usual and full descriptions."""

_FEWEST: Final = 3
"""Details that even a short description mentions, if so many can be seen."""

_DECIDING: Final = 0.9
"""How often the one detail that tells near-twins apart is mentioned where it can be seen."""

_FACT_OF: Final = {
    "upper_colour": ("upper",),
    "lower_colour": ("lower",),
    "swapped colours": ("upper", "lower"),
    "pattern": ("upper",),
    "shoes_colour": ("shoes",),
    "hair_colour": ("hair",),
}


@dataclass(frozen=True, slots=True)
class _Subject:
    noun: str
    pronoun: str
    possessive: str
    several: bool = False

    def verb(self, one: str, many: str) -> str:
        """The verb after the pronoun: "they" takes the plural."""
        return many if self.several else one


@dataclass(frozen=True, slots=True)
class _Facts:
    """Phrases of what a sentence mentions; empty strings are left out."""

    upper: str
    lower: str
    shoes: str
    extras: list[str]
    looks: list[str]
    bag: str
    bag_kind: str
    carried: str
    carried_kind: str
    walking: bool
    told: frozenset[str]
    flags: dict[str, bool]
    """Which parts of hair and top are told, by their names in `Telling`."""

    def clothes(self) -> list[str]:
        return [phrase for phrase in (self.upper, self.lower, self.shoes, *self.extras) if phrase]


def describe(
    person: Person, visible: Collection[str], walking: bool, rng: np.random.Generator, count: int
) -> list[str]:
    """`count` different descriptions of one view in which the details `visible` can be seen."""
    return list(describe_and_tell(person, visible, walking, rng, count))


def describe_and_tell(
    person: Person, visible: Collection[str], walking: bool, rng: np.random.Generator, count: int
) -> dict[str, Telling]:
    """`describe`, with the content of each sentence, for other languages."""
    sentences: dict[str, Telling] = {}
    while len(sentences) < count:
        say = Speaker(rng)
        facts = _choose(person, visible, walking, say)
        subject = _subject(person.identity, say)
        form, pattern = _PATTERNS[int(rng.integers(len(_PATTERNS)))]
        sentence = _finish(pattern(say, subject, facts))
        if sentence not in sentences:
            sentences[sentence] = Telling(
                person.identity, form, facts.told, not subject.several, walking, **facts.flags
            )
    return sentences


def words_of(sentence: str) -> list[str]:
    """Its words in lower case without punctuation; hyphens and apostrophes stay."""
    return re.findall(r"[a-z0-9]+(?:[-'][a-z0-9]+)*", sentence.lower())


def _choose(person: Person, visible: Collection[str], walking: bool, say: Speaker) -> _Facts:
    who = person.identity
    shares = [share for _, share in _COMPLETENESS]
    factor = _COMPLETENESS[int(say.rng.choice(len(shares), p=shares))][0]
    deciding = _FACT_OF.get(person.detail or "", (person.detail or "",)) if say.chance(_DECIDING) else ()

    def mention(fact: str) -> bool:
        return say.chance(_MENTION[fact] * factor) or fact in deciding

    told = {fact for fact in _MENTION if mention(fact) and _can_tell(fact, visible) and _has(who, fact)}
    if not told & {"upper", "lower"}:
        told |= {"upper"}
    # Two garments alone describe too many people, even in a short description.
    for fact in ("upper", "lower", "bag", "shoes", "hair", "headwear"):
        if len(told) < _FEWEST and _can_tell(fact, visible) and _has(who, fact):
            told.add(fact)
    decides = person.detail == "pattern" and bool(deciding)
    extras, looks = [], []
    style = colour = False
    if "headwear" in told and who.headwear:
        extras.append(say.thing(who.headwear))
    if "worn" in told and who.worn:
        extras.append(say.thing(who.worn))
    if "hair" in told:
        style = "hair" in visible and (say.chance(0.9) or "hair" in deciding)
        colour = "hair_colour" in visible and (not style or say.chance(0.85) or "hair" in deciding)
        if style or colour:
            looks.append(hair_phrase(say, who, style=style, colour=colour))
    if "beard" in told:
        looks.append("a beard")
    shows_pattern = "pattern" in visible and who.pattern is not None
    pattern = inner = plain = False
    if "upper" in told:
        # In this order, which the draws of each seed have had from the start.
        pattern = shows_pattern and (decides or say.chance(0.93))
        inner = "inner" in visible and say.chance(0.85)
        plain = "pattern" in visible and say.chance(0.6 if decides else 0.06)
    return _Facts(
        upper=upper_phrase(say, who, pattern=pattern, inner=inner, plain=plain) if "upper" in told else "",
        lower=lower_phrase(say, who) if "lower" in told else "",
        shoes=shoes_phrase(say, who) if "shoes" in told else "",
        extras=extras,
        looks=looks,
        bag=say.thing(who.bag) if "bag" in told and who.bag else "",
        bag_kind=who.bag.kind if who.bag else "",
        carried=say.thing(who.carried) if "carried" in told and who.carried else "",
        carried_kind=who.carried.kind if who.carried else "",
        walking=walking,
        told=frozenset(told),
        flags={
            "hair_style": style,
            "hair_colour": colour,
            "pattern": pattern,
            "inner": inner and who.inner is not None,
            "plain": plain and who.pattern is None,
        },
    )


def _has(who: Identity, fact: str) -> bool:
    return bool(getattr(who, fact))


def _can_tell(fact: str, visible: Collection[str]) -> bool:
    return fact in visible or (fact == "hair" and "hair_colour" in visible)


def _subject(who: Identity, say: Speaker) -> _Subject:
    if say.chance(0.14):
        return _Subject(say.pick("person", "pedestrian"), "they", "their", several=True)
    if who.sex == "man":
        return _Subject(say.pick("man", "man", "man", "guy", "gentleman"), "he", "his")
    return _Subject(say.pick("woman", "woman", "woman", "lady"), "she", "her")


def _wearing(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """A man with short hair wears …, and carries …."""
    looks = f" with {_join(f.looks)}" if f.looks else ""
    verb = say.pick("wears", "is wearing", "is dressed in", "has on")
    load = _carrying(say, f, "carries", "holds")
    return (
        f"{say.pick('a', 'a', 'the', 'this')} {subject.noun}{looks} {verb} {_join(shuffled(say, f.clothes()))}"
        + (f", and {load}" if load else "")
    )


def _in_clothes(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """A woman in … is carrying …. She has … and wears …."""
    main = [phrase for phrase in (f.upper, f.lower) if phrase]
    rest = [phrase for phrase in (f.shoes, *f.extras) if phrase]
    load = _carrying(say, f, "is carrying", "is holding") or say.pick(_moving(f, "is "), _moving(f, "is "))
    first = f"{say.pick('a', 'the', 'this')} {subject.noun} in {_join(main)} {load}"
    more = []
    if f.looks:
        more.append(f"{subject.verb('has', 'have')} {_join(f.looks)}")
    if rest:
        more.append(f"{subject.verb('wears', 'wear')} {_join(rest)}")
    return f"{first}. {subject.pronoun} {' and '.join(more)}" if more else first


def _starting_with_clothes(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """Wearing … and …, this man with … carries …."""
    looks = f" with {_join(f.looks)}" if f.looks else ""
    opening = say.pick("wearing", "dressed in", "in")
    load = _carrying(say, f, "carries", "holds") or _moving(f, "is ")
    who = f"{say.pick('a', 'this', 'the')} {subject.noun}{looks}"
    return f"{opening} {_join(shuffled(say, f.clothes()))}, {who} {load}"


def _listed(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """Man, red t-shirt, blue jeans, backpack."""
    things = [*f.clothes(), *f.looks, *(phrase for phrase in (f.bag, f.carried) if phrase)]
    bare = [_without_article(phrase) for phrase in shuffled(say, things)]
    if len(bare) == 1:
        return f"{subject.noun} with {things[0]}"
    return say.pick(
        f"{subject.noun} with {_join(shuffled(say, things))}", f"{subject.noun}, {', '.join(bare)}"
    )


def _his_clothes_are(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """The man has …. He is wearing …, and on his feet are …."""
    start = f"{say.pick('a', 'the')} {subject.noun}"
    looks = f" {say.pick('has', 'with')} {_join(f.looks)}" if f.looks else ""
    main = [phrase for phrase in (f.upper, f.lower, *f.extras) if phrase]
    shoes = (
        f"{say.pick('on', 'on')} {subject.possessive} feet {subject.pronoun} {subject.verb('has', 'have')} {f.shoes}"
        if f.shoes
        else ""
    )
    load = _carrying(say, f, subject.verb("carries", "carry"), subject.verb("holds", "hold"))
    if looks.startswith(" has"):
        first = f"{start}{looks}"
        second = f"{subject.pronoun} {subject.verb('is', 'are')} wearing {_join(main)}" if main else ""
    else:
        first, second = f"{start}{looks} {say.pick('wears', 'is wearing')} {_join(main or [f.shoes])}", ""
        shoes = shoes if main else ""
    tail = [part for part in (shoes, f"{subject.pronoun} {load}" if load else "") if part]
    return ". ".join(part for part in (first, second, " and ".join(tail)) if part)


def _load_first(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """With …, a woman in … walks along."""
    load = [phrase for phrase in (f.bag, f.carried) if phrase]
    if not load:
        return _wearing(say, subject, f)
    looks = f". {subject.pronoun} {subject.verb('has', 'have')} {_join(f.looks)}" if f.looks else ""
    who = f"{say.pick('a', 'this', 'the')} {subject.noun}"
    return f"with {_join(load)}, {who} in {_join(shuffled(say, f.clothes()))} {_moving(f, 'is ')}{looks}"


def _moving_in(say: Speaker, subject: _Subject, f: _Facts) -> str:
    """A man is walking in …; he has … and carries …."""
    first = (
        f"{say.pick('a', 'the')} {subject.noun} {_moving(f, 'is ')} in {_join(shuffled(say, f.clothes()))}"
    )
    load = _carrying(say, f, subject.verb("carries", "carry"), subject.verb("holds", "hold"))
    more = ([f"{subject.verb('has', 'have')} {_join(f.looks)}"] if f.looks else []) + ([load] if load else [])
    if not more:
        return first
    return f"{first}{say.pick('; ', '. ')}{subject.pronoun} {' and '.join(shuffled(say, more))}"


_Pattern = Callable[[Speaker, _Subject, _Facts], str]
_PATTERNS: Final[tuple[tuple[Form, _Pattern], ...]] = (
    ("wearing", _wearing),
    ("wearing", _wearing),
    ("in clothes", _in_clothes),
    ("starting with clothes", _starting_with_clothes),
    ("listed", _listed),
    ("clothes are", _his_clothes_are),
    ("load first", _load_first),
    ("moving in", _moving_in),
)


def _carrying(say: Speaker, f: _Facts, carries: str, holds: str) -> str:
    parts = []
    if f.bag:
        with_wheels = f.bag_kind == "suitcase" and say.chance(0.6)
        verb = carries.replace("carrying", "pulling").replace("carries", "pulls").replace("carry", "pull")
        parts.append(f"{verb if with_wheels else carries} {f.bag}")
        if f.bag_kind == "backpack" and say.chance(0.2):
            parts[-1] = f"{carries} {f.bag} on the back"
    if f.carried:
        verb = holds
        if f.carried_kind == "dog":
            verb = holds.replace("holding", "leading").replace("holds", "leads").replace("hold", "lead")
            parts.append(f"{verb} {f.carried} on a {say.pick('lead', 'leash')}")
        else:
            parts.append(f"{verb} {f.carried}")
    joined = " and ".join(shuffled(say, parts))
    # "is carrying … and is holding …" reads badly.
    return joined.replace(" and is ", " and ")


def _moving(f: _Facts, auxiliary: str) -> str:
    return f"{auxiliary}walking" if f.walking else f"{auxiliary}standing"


def _join(phrases: list[str]) -> str:
    # A phrase with "with" or "over" inside would swallow what follows it after a bare "and".
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _without_article(phrase: str) -> str:
    return re.sub(r"^(an?|a pair of) (?!pair of)", "", phrase).removeprefix("pair of ")


def _finish(text: str) -> str:
    sentences = [part[:1].upper() + part[1:] for part in text.split(". ") if part]
    return ". ".join(sentences) + "."
