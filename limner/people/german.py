"""German descriptions: nouns with their gender, adjectives that agree, and seven forms of sentences.

In a noun's entry "~" marks an ending, which depends on gender, case and article: "knielang~ Rock/m". Behind the slash
stands m, f, n or p (plural); "pn" takes an n in the dative.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from limner.people.attributes import Thing
from limner.people.telling import Telling, Voice, shuffled

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "t-shirt": ("T-Shirt/n", "T-Shirt/n", "kurzärmelig~ T-Shirt/n"),
    "shirt": ("Hemd/n", "Hemd/n", "Oberhemd/n", "geknöpft~ Hemd/n"),
    "sweater": ("Pullover/m", "Pulli/m", "Strickpullover/m"),
    "hoodie": ("Kapuzenpullover/m", "Hoodie/m", "Kapuzenpulli/m"),
    "jacket": ("Jacke/f",),
    "coat": ("Mantel/m", "lang~ Mantel/m"),
    "tank top": ("Tanktop/n", "ärmellos~ Oberteil/n", "Trägertop/n"),
    "dress": ("Kleid/n",),
    "jeans": ("Jeans/f", "Jeanshose/f"),
    "trousers": ("Hose/f", "lang~ Hose/f", "Stoffhose/f"),
    "leggings": ("Leggings/p", "eng~ Leggings/p"),
    "shorts": ("Shorts/p", "kurz~ Hose/f"),
    "skirt": ("Rock/m", "knielang~ Rock/m"),
    "long skirt": ("lang~ Rock/m", "Maxirock/m"),
    "sneakers": ("Turnschuhe/pn", "Sneaker/pn", "Sportschuhe/pn"),
    "shoes": ("Schuhe/pn", "flach~ Schuhe/pn", "Halbschuhe/pn"),
    "boots": ("Stiefel/pn", "hoh~ Stiefel/pn"),
    "sandals": ("Sandalen/p",),
    "cap": ("Kappe/f", "Schirmmütze/f", "Baseballkappe/f"),
    "beanie": ("Mütze/f", "Wollmütze/f", "Strickmütze/f"),
    "hat": ("breitkrempig~ Hut/m", "Hut/m"),
    "backpack": ("Rucksack/m",),
    "shoulder bag": ("Umhängetasche/f", "Schultertasche/f"),
    "handbag": ("Handtasche/f", "klein~ Handtasche/f"),
    "suitcase": ("Koffer/m", "Rollkoffer/m"),
    "tote bag": ("Stofftasche/f", "groß~ Stofftasche/f"),
    "plastic bag": ("Plastiktüte/f", "Plastikbeutel/m"),
    "phone": ("Handy/n", "Mobiltelefon/n", "Smartphone/n"),
    "bottle": ("Flasche/f", "Wasserflasche/f"),
    "book": ("Buch/n",),
    "coffee cup": ("Kaffeebecher/m", "Pappbecher/m"),
    "umbrella": ("Regenschirm/m", "aufgespannt~ Regenschirm/m", "Schirm/m"),
    "dog": ("Hund/m",),
    "glasses": ("Brille/f",),
    "sunglasses": ("Sonnenbrille/f", "dunkl~ Brille/f"),
    "scarf": ("Schal/m",),
    "tie": ("Krawatte/f", "Schlips/m"),
    "belt": ("Gürtel/m",),
}
"""Kind → words for it."""

# "rosa" and "lila" take no ending, and "oranger" and "beiger" are not everybody's German.
COLOURS: Final[dict[str, str]] = {
    "black": "schwarz",
    "white": "weiß",
    "grey": "grau",
    "red": "rot",
    "orange": "orangefarben",
    "yellow": "gelb",
    "green": "grün",
    "turquoise": "türkisfarben",
    "blue": "blau",
    "purple": "violett",
    "pink": "rosafarben",
    "brown": "braun",
    "beige": "beigefarben",
}
"""Colour → its adjective without an ending."""

HAIR_COLOURS: Final[dict[str, str]] = {
    "black": "schwarz",
    "brown": "braun",
    "blond": "blond",
    "grey": "grau",
    "red": "rot",
}
"""Colour of hair → its adjective without an ending."""

HAIR: Final[dict[str, tuple[str, ...]]] = {
    "short": ("kurz~ {} Haare/pn", "kurz~ {} Haare/pn", "{} Kurzhaarfrisur/f"),
    "long": ("lang~ {} Haare/pn",),
    "curly": ("lockig~ {} Haare/pn", "{} Locken/p"),
    "bald": ("Glatze/f", "kahl~ Kopf/m", "kahl rasiert~ Kopf/m"),
    "ponytail": ("{} Pferdeschwanz/m", "zum Pferdeschwanz gebunden~ {} Haare/pn"),
    "bun": ("{} Dutt/m", "zum Knoten gebunden~ {} Haare/pn", "zum Dutt hochgesteckt~ {} Haare/pn"),
}
"""Style → words for it; the colour's adjective stands at {}."""

PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "stripes": ("{first}~ | mit {second}en Streifen", "{short}-{second_short} gestreift~ |"),
    "checks": ("{first}~ | mit {second}em Karomuster", "{short}-{second_short} kariert~ |"),
    "dots": (
        "{first}~ | mit {second}en Punkten",
        "{first}~ | mit {second}en Tupfen",
        "{second} gepunktet~ {first}~ |",
    ),
    "logo": (
        "{first}~ | mit einem {second}en Logo auf der Brust",
        "{first}~ | mit einem {second}en Aufdruck auf der Vorderseite",
    ),
    "sleeves": ("{first}~ | mit {second}en Ärmeln",),
    "bottom half": ("{first}~ | mit {second}er unterer Hälfte", "oben {first}~ und unten {second}~ |"),
}
"""Pattern → adjectives of the top, and what stands behind its noun; first and second are its colours."""

Case = Literal["nominative", "accusative", "dative"]
_ARTICLES: Final[dict[Case, dict[str, str]]] = {
    "nominative": {"m": "ein", "f": "eine", "n": "ein", "p": ""},
    "accusative": {"m": "einen", "f": "eine", "n": "ein", "p": ""},
    "dative": {"m": "einem", "f": "einer", "n": "einem", "p": ""},
}
# After "ein", and in the plural without an article; the nominative is the same without "ein".
_ENDINGS: Final[dict[Case, dict[str, str]]] = {
    "nominative": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "accusative": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dative": {"m": "en", "f": "en", "n": "en", "p": "en"},
}


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun with its adjectives and what stands behind it, in any case."""

    adjectives: str
    noun: str
    gender: str
    plural_n: bool = False
    after: str = ""

    @classmethod
    def of(cls, entry: str) -> "Phrase":
        """Read an entry of `NAMES`."""
        words, _, gender = entry.rpartition("/")
        adjectives, _, noun = words.rpartition(" ")
        return cls(adjectives, noun, gender[0], gender == "pn")

    def described(self, adjectives: str, after: str = "") -> "Phrase":
        """With more adjectives before the noun, and more behind it."""
        return replace(self, adjectives=f"{self.adjectives} {adjectives}".strip(), after=self.after + after)

    def in_case(self, case: Case, *, article: bool = True) -> str:
        """As it is said; without an article only in the nominative."""
        adjectives = self.adjectives.replace("~", _ENDINGS[case][self.gender])
        noun = f"{self.noun}n" if self.plural_n and case == "dative" else self.noun
        parts = (_ARTICLES[case][self.gender] if article else "", adjectives, noun)
        return " ".join(part for part in parts if part) + self.after


@dataclass(frozen=True, slots=True)
class _Facts:
    """Phrases of what the sentence tells."""

    noun: str
    article: str
    pronoun: str
    main: list[Phrase]
    shoes: list[Phrase]
    extras: list[Phrase]
    looks: list[Phrase]
    load: list[tuple[str, str]]
    """Verb and what follows it."""
    carried: list[Phrase]
    moving: str

    @property
    def subject(self) -> str:
        """Ein Mann mit kurzen Haaren."""
        looks = f" mit {_join(_all(self.looks, 'dative'))}" if self.looks else ""
        return f"{self.article} {self.noun}{looks}"


def tell(telling: Telling, say: Voice) -> str:
    """The sentence in German."""
    f = _facts(telling, say)
    match telling.shown_form:
        case "wearing":
            text = _wearing(say, f)
        case "in clothes":
            action = _doing(f) or say.pick(*_STILL_OR_WALKING[telling.walking])
            more = [f"hat {_join(_all(f.looks, 'accusative'))}"] if f.looks else []
            if others := _all([*f.shoes, *f.extras], "accusative"):
                more.append(f"trägt {_join(others)}")
            text = f"{f.article} {f.noun} in {_join(_all(f.main, 'dative'))} {action}"
            text += f". {f.pronoun} {' und '.join(more)}" if more else ""
        case "starting with clothes":
            verb, rest, last = _parts(f)
            text = f"{_dressed(say, f)} {verb} {f.subject} {rest}".strip() + last
        case "listed":
            text = _listed(say, f)
        case "clothes are":
            text = _clothes_are(say, f)
        case "load first":
            load = _join(_all(f.carried, "dative"))
            looks = f". {f.pronoun} hat {_join(_all(f.looks, 'accusative'))}" if f.looks else ""
            text = f"mit {load} {f.moving} {f.article} {f.noun} {_dressed(say, f, inside=True)}{looks}"
        case "moving in":
            more = [f"hat {_join(_all(f.looks, 'accusative'))}"] if f.looks else []
            more += [doing] if (doing := _doing(f)) else []
            text = f"{f.article} {f.noun} {f.moving} {_dressed(say, f, inside=True)}"
            if more:
                text += f"{say.pick('; ', '. ')}{f.pronoun} {' und '.join(shuffled(say, more))}"
    return ". ".join(part[:1].upper() + part[1:] for part in text.split(". ")) + "."


_STILL_OR_WALKING: Final = {True: ("geht zu Fuß", "ist zu Fuß unterwegs"), False: ("steht da", "steht still")}


def _facts(telling: Telling, say: Voice) -> _Facts:
    noun, articles, pronoun = "Person", ("eine", "die", "diese"), "sie"
    if telling.sex and telling.who.sex == "man":
        noun, articles, pronoun = say.pick("Mann", "Mann", "Mann", "Herr"), ("ein", "der", "dieser"), "er"
    elif telling.sex:
        noun = say.pick("Frau", "Frau", "Frau", "Dame")
    who, told = telling.who, telling.told
    main = [_upper(say, telling)] if "upper" in told else []
    if "lower" in told and who.lower:
        main.append(_thing(say, Thing(who.lower, who.lower_colour)))
    things = {name: _thing(say, thing) for name, thing in telling.things.items()}
    looks = _looks(say, telling)
    load = [
        _carrying(say, name, telling.things[name].kind, things[name])
        for name in ("bag", "carried")
        if name in things
    ]
    return _Facts(
        noun,
        say.pick(articles[0], *articles),
        pronoun,
        main,
        [_thing(say, Thing(who.shoes, who.shoes_colour))] if "shoes" in told else [],
        [things[name] for name in ("headwear", "worn") if name in things],
        looks,
        shuffled(say, load),
        [things[name] for name in ("bag", "carried") if name in things],
        say.pick("geht", "läuft") if telling.walking else "steht",
    )


def _thing(say: Voice, thing: Thing) -> Phrase:
    phrase = Phrase.of(say.pick(*NAMES[thing.kind]))
    return phrase if thing.colour is None else phrase.described(f"{COLOURS[thing.colour]}~")


def _upper(say: Voice, telling: Telling) -> Phrase:
    who = telling.who
    phrase = Phrase.of(say.pick(*NAMES[who.upper]))
    first = COLOURS[who.upper_colour]
    adjectives, after = f"{first}~", ""
    if telling.pattern and who.pattern is not None:
        second = COLOURS[who.pattern.colour or ""]
        wording = say.pick(*PATTERNS[who.pattern.kind]).format(
            first=first,
            second=second,
            short=first.removesuffix("farben"),
            second_short=second.removesuffix("farben"),
        )
        adjectives, after = (part.rstrip() for part in wording.split("|"))
    elif telling.plain:
        adjectives = f"einfarbig~ {adjectives}"
    if telling.inner and who.inner is not None:
        under = COLOURS[who.inner]
        wordings = [f" über einem {under}en T-Shirt", f" offen über einem {under}en Oberteil"]
        # Two phrases with "mit" would hang together.
        if not after:
            wordings.append(f" mit einem {under}en T-Shirt darunter")
        after += say.pick(*wordings)
        if "offen" not in after:
            phrase = Phrase(f"offen~ {phrase.adjectives}".strip(), phrase.noun, phrase.gender)
    return phrase.described(adjectives, after)


def _looks(say: Voice, telling: Telling) -> list[Phrase]:
    who, found = telling.who, []
    if "hair" in telling.told and (telling.hair_style or (telling.hair_colour and who.hair != "bald")):
        entry = say.pick(*HAIR[who.hair]) if telling.hair_style else "{} Haare/pn"
        tone = f"{HAIR_COLOURS[who.hair_colour]}~" if telling.hair_colour else ""
        found.append(Phrase.of(" ".join(entry.format(tone).split())))
    if "beard" in telling.told:
        found.append(Phrase.of("Bart/m"))
    return found


def _carrying(say: Voice, name: str, kind: str, phrase: Phrase) -> tuple[str, str]:
    """The verb and what follows it."""
    what = phrase.in_case("accusative")
    if kind == "dog":
        return "führt", f"{what} an der Leine"
    if name == "carried":
        return "hält", say.pick(what, what, f"{what} in der Hand")
    if kind == "suitcase" and say.chance(0.6):
        return "zieht", f"{what} hinter sich her"
    if kind == "backpack" and say.chance(0.3):
        return "trägt", f"{what} auf dem Rücken"
    return ("trägt", what) if say.chance(0.6) else ("hat", f"{what} dabei")


def _wearing(say: Voice, f: _Facts) -> str:
    """Ein Mann mit … trägt … und hält …."""
    clothes = shuffled(say, [*f.main, *f.shoes, *f.extras])
    worn = f"trägt {_join(_all(clothes, 'accusative'))}"
    if say.chance(0.3):
        worn = f"ist mit {_join(_all(clothes, 'dative'))} bekleidet"
    elif not f.extras and say.chance(0.3):
        worn = f"hat {_join(_all(clothes, 'accusative'))} an"
    doing = _doing(f)
    return f"{f.subject} {worn}" + (f" und {doing}" if doing else "")


def _listed(say: Voice, f: _Facts) -> str:
    """Mann, rotes T-Shirt, blaue Jeans, Rucksack."""
    things = shuffled(say, [*f.main, *f.shoes, *f.extras, *f.looks, *f.carried])
    if len(things) == 1 or say.chance(0.5):
        return f"{f.noun} mit {_join(_all(things, 'dative'))}"
    return f"{f.noun}, {', '.join(phrase.in_case('nominative', article=False) for phrase in things)}"


def _clothes_are(say: Voice, f: _Facts) -> str:
    """Der Mann hat …. Er trägt …. An den Füßen hat er …, und er hält …."""
    main = _join(_all([*f.main, *f.extras], "accusative"))
    if f.looks and say.chance(0.5):
        first = f"{f.article} {f.noun} hat {_join(_all(f.looks, 'accusative'))}. {f.pronoun} trägt {main}"
    else:
        first = f"{f.subject} trägt {main}"
    doing, shoes = _doing(f), _join(_all(f.shoes, "accusative")) if f.shoes else ""
    if not shoes:
        return f"{first}. {f.pronoun} {doing}" if doing else first
    return f"{first}. An den Füßen hat {f.pronoun} {shoes}" + (f", und {f.pronoun} {doing}" if doing else "")


def _doing(f: _Facts) -> str:
    return " und ".join(f"{verb} {rest}" for verb, rest in f.load)


def _parts(f: _Facts) -> tuple[str, str, str]:
    """The first verb, what follows it, and the rest: the subject stands behind the first verb."""
    if not f.load:
        return f.moving, "", ""
    (verb, what), *others = f.load
    return verb, what, "".join(f" und {more} {further}" for more, further in others)


def _dressed(say: Voice, f: _Facts, *, inside: bool = False) -> str:
    """In einem roten Mantel und Stiefeln und mit einer Brille."""
    clothes = _join(_all(shuffled(say, [*f.main, *f.shoes]), "dative"))
    extras = f" und mit {_join(_all(f.extras, 'dative'))}" if f.extras else ""
    if inside or say.chance(0.6):
        return f"in {clothes}{extras}"
    return f"bekleidet mit {_join(_all([*f.main, *f.shoes, *f.extras], 'dative'))}"


def _all(phrases: list[Phrase], case: Case) -> list[str]:
    return [phrase.in_case(case) for phrase in phrases]


def _join(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} und {phrases[-1]}"
