"""Reads German, Chinese and Vietnamese descriptions back into claims, with vocabularies of its own.

As `tests.people.reader` does for English: a colour counts as that of a thing only where grammar binds the two.
German endings are checked on the way, since a noun phrase is only found with the right ones.
"""

import re

from tests.people.reader import Claim, kinds_in

COLOUR_OF = {
    "de": "schwarz weiß grau rot orangefarben gelb grün türkisfarben blau violett rosafarben braun beigefarben blond",
    "zh": "黑色 白色 灰色 红色 橙色 黄色 绿色 青色 蓝色 紫色 粉色 棕色 米色 金色",
    "vi": "đen,trắng,xám,đỏ,cam,vàng,xanh lá cây,xanh ngọc,xanh dương,tím,hồng,nâu,be,~",
}
ENGLISH = (
    *("black", "white", "grey", "red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink"),
    *("brown", "beige", "blond"),
)
HAIR = {
    "de": {"kurz": "short", "Kurzhaarfrisur": "short", "lang": "long", "lockig": "curly", "Locken": "curly"}
    | {"Pferdeschwanz": "ponytail", "Dutt": "bun", "Knoten": "bun"},
    "zh": {"短发": "short", "长发": "long", "卷发": "curly", "马尾辫": "ponytail", "马尾": "ponytail"}
    | {"发髻": "bun", "丸子头": "bun"},
    "vi": {"ngắn": "short", "dài": "long", "xoăn": "curly", "đuôi ngựa": "ponytail", "búi": "bun"},
}


def claims_in(language: str, sentence: str) -> set[Claim]:
    """What a sentence says: pairs of a detail and its value; `ValueError` for what the grammar does not allow."""
    return {"de": _german, "zh": _chinese, "vi": _vietnamese}[language](sentence)


def _colours(language: str) -> dict[str, str]:
    names = COLOUR_OF[language].split("," if language == "vi" else " ")
    return dict(zip(names, ENGLISH, strict=True))


def _any(words: object) -> str:
    return "|".join(sorted(map(str, words), key=len, reverse=True))  # type: ignore[call-overload]


def _say(claims: set[Claim], slot: str, kind: str, colour: str | None) -> None:
    if slot in ("upper", "lower", "shoes"):
        claims.add((slot, kind))
        if colour:
            claims.add((f"{slot}_colour", colour))
    else:
        claims.add((slot, (kind, colour)))


# A noun is masculine unless it stands here.
_FEMININE = (
    *("Jacke", "Jeans", "Jeanshose", "Hose", "Stoffhose", "Kappe", "Schirmmütze", "Baseballkappe", "Mütze"),
    *("Wollmütze", "Strickmütze", "Umhängetasche", "Schultertasche", "Handtasche", "Stofftasche"),
    *("Plastiktüte", "Flasche", "Wasserflasche", "Brille", "Sonnenbrille", "Krawatte", "Glatze"),
    "Kurzhaarfrisur",
)
_NEUTER = (
    *("T-Shirt", "Hemd", "Oberhemd", "Tanktop", "Oberteil", "Trägertop", "Kleid", "Handy", "Mobiltelefon"),
    *("Smartphone", "Buch"),
)
_PLURAL = (
    *("Leggings", "Shorts", "Turnschuhe", "Sneaker", "Sportschuhe", "Schuhe", "Halbschuhe", "Stiefel"),
    *("Sandalen", "Haare", "Locken"),
)
_LOOKS = ("Haare", "Kopf", "Glatze", "Kurzhaarfrisur", "Locken", "Pferdeschwanz", "Dutt", "Bart")
_ADJECTIVES = (
    *("kurzärmelig", "geknöpft", "lang", "ärmellos", "eng", "kurz", "knielang", "flach", "hoh", "klein"),
    *("groß", "breitkrempig", "aufgespannt", "dunkl", "lockig", "kahl", "rasiert"),
    *("gebunden", "hochgesteckt"),
    *("offen", "einfarbig", "gepunktet", "gestreift", "kariert"),
)
# They stand among the adjectives without an ending.
_BETWEEN = ("oben", "unten", "zum", "Knoten", "Dutt", "Pferdeschwanz", "kahl")


def _inflected(word: str) -> tuple[str, str]:
    """Stem and ending of an adjective; of other words that stand among them no ending."""
    stems = {*_ADJECTIVES, *_colours("de")}
    for ending in ("e", "en", "em", "er", "es"):
        if word.endswith(ending) and word.removesuffix(ending).lower() in stems:
            return word.removesuffix(ending).lower(), ending
    return word, ""


def _before(words: list[str]) -> list[str]:
    """The words at the end of these that belong to the noun behind them."""
    found: list[str] = []
    for word in reversed(words):
        behind = found[0] if found else ""
        joined = "-" in word and behind.startswith(("gestreift", "kariert"))
        dotted = word.lower() in _colours("de") and behind.startswith("gepunktet")
        last = word == "und" and behind == "unten"
        if not (_inflected(word)[1] or word in _BETWEEN or joined or dotted or last):
            break
        found.insert(0, word)
    return found


def _agrees(article: str, endings: set[str], noun: str, said: str) -> bool:
    """True if article, adjectives and noun can stand in one case."""
    if noun in _PLURAL:
        # "Schuhen" is a dative, and "Schuhe" is none; of "Sandalen" and "Sneaker" one form is both, or takes an n.
        takes_n = noun not in ("Leggings", "Shorts", "Sandalen", "Locken")
        cases = [("", "e", noun), ("", "en", f"{noun}n" if takes_n else noun)]
    else:
        gender = "f" if noun in _FEMININE else "n" if noun in _NEUTER else "m"
        allowed = {
            "m": (("ein", "er"), ("einen", "en"), ("einem", "en"), ("", "er")),
            "f": (("eine", "e"), ("einer", "en"), ("", "e")),
            "n": (("ein", "es"), ("einem", "en"), ("", "es")),
        }[gender]
        cases = [(one, ending, noun) for one, ending in allowed]
    return any((article, said) == (one, form) and endings <= {ending} for one, ending, form in cases)


def _german(sentence: str) -> set[Claim]:
    claims: set[Claim] = set()
    colours, kinds = _colours("de"), kinds_in("de")
    short = {name.removesuffix("farben"): english for name, english in colours.items()}
    c = f"({_any(colours)})"
    text = sentence
    for pattern, what in (
        (rf" (?:offen )?über einem {c}en (?:T-Shirt|Oberteil)| mit einem {c}en T-Shirt darunter", "inner"),
        (rf" mit {c}en Streifen", "stripes"),
        (rf" mit {c}em Karomuster", "checks"),
        (rf" mit {c}en (?:Punkten|Tupfen)", "dots"),
        (rf" mit einem {c}en (?:Logo auf der Brust|Aufdruck auf der Vorderseite)", "logo"),
        (rf" mit {c}en Ärmeln", "sleeves"),
        (rf" mit {c}er unterer Hälfte", "bottom half"),
    ):
        for found in re.finditer(pattern, text):
            named = colours[next(group for group in found.groups() if group)]
            claims.add(("inner", named) if what == "inner" else ("pattern", (what, named)))
        text = re.sub(pattern, "", text)
    tokens = re.findall(r"[\w-]+|[,.;]", text)
    for place, token in enumerate(tokens):
        noun = token if token in kinds or token in _LOOKS else token.removesuffix("n")
        if (noun in kinds or noun in _LOOKS) and tokens[place - 1] != "zum":
            claims |= _german_thing(noun, token, tokens[:place], kinds, colours, short, sentence)
    for word, claim in {
        r"Mann|Herr": ("sex", "man"),
        r"Frau|Dame": ("sex", "woman"),
        r"geht|läuft|unterwegs": ("walking", True),
        r"steht": ("walking", False),
    }.items():
        if re.search(rf"\b(?:{word})\b", sentence):
            claims.add(claim)
    return claims


def _german_thing(
    noun: str,
    token: str,
    words: list[str],
    kinds: dict[str, tuple[str, str]],
    colours: dict[str, str],
    short: dict[str, str],
    sentence: str,
) -> set[Claim]:
    claims: set[Claim] = set()
    before = _before(words)
    front = words[-len(before) - 1] if len(words) > len(before) else ""
    article = front.lower() if re.fullmatch("[Ee]in(e[nmr]?)?", front) else ""
    read = [_inflected(word) for word in before]
    stems = [stem for stem, _ in read]
    if not _agrees(article, {ending for _, ending in read if ending}, noun, token):
        raise ValueError(f"{' '.join([article, *before, token])!r} does not agree in {sentence!r}")
    named = [colours[stem] for stem in stems if stem in colours]
    if "gepunktet" in stems:
        claims.add(("pattern", ("dots", named.pop(0))))
    for what, kind in (("gestreift", "stripes"), ("kariert", "checks")):
        if what in stems:
            first, second = stems[stems.index(what) - 1].split("-")
            named = [short[first]]
            claims.add(("pattern", (kind, short[second])))
    if "oben" in stems:
        claims.add(("pattern", ("bottom half", named.pop())))
    if "einfarbig" in stems:
        claims.add(("pattern", None))
    if len(named) > 1:
        raise ValueError(f"two colours of {token!r} in {sentence!r}")
    colour = named[0] if named else None
    if noun == "Bart":
        claims.add(("beard", True))
    elif noun in ("Kopf", "Glatze"):
        claims.add(("hair", "bald"))
    elif noun in _LOOKS:
        claims.update(("hair", HAIR["de"][word]) for word in [*stems, noun] if word in HAIR["de"])
        claims.update([("hair_colour", colour)] if colour else [])
    else:
        slot, kind = kinds[noun]
        for name, stem, other in (
            *(("Hose", "kurz", "shorts"), ("Rock", "lang", "long skirt")),
            ("Brille", "dunkl", "sunglasses"),
        ):
            kind = other if noun == name and stem in stems else kind
        _say(claims, slot, kind, colour)
    return claims


def _chinese(sentence: str) -> set[Claim]:
    if re.search(r"\s", sentence) or not sentence.endswith("。"):
        raise ValueError(f"blanks, or no full stop, in {sentence!r}")
    claims: set[Claim] = set()
    colours, kinds = _colours("zh"), kinds_in("zh")
    c = f"({_any(colours)})"
    text = sentence
    for pattern in (rf"内搭{c}T恤[的、]", rf"里面是{c}T恤[的、]", rf"敞开露出{c}上衣[的、]"):
        claims.update(("inner", colours[found[1]]) for found in re.finditer(pattern, text))
        text = re.sub(pattern, "", text)
    for pattern, what in (
        (rf"[带有]{c}条纹的|(?<=底){c}条纹的", "stripes"),
        (rf"带{c}格纹的|(?<=底){c}格子的", "checks"),
        (rf"带{c}圆点的|(?<=底){c}波点的", "dots"),
        (rf"胸前有{c}标志的|胸前印着{c}图案的", "logo"),
        (rf"带{c}袖子的|袖子是{c}的", "sleeves"),
        (rf"下半截是{c}的|下半截{c}的", "bottom half"),
    ):
        for found in re.finditer(pattern, text):
            claims.add(("pattern", (what, colours[next(group for group in found.groups() if group)])))
        text = re.sub(pattern, "", text)
    if re.search("纯色的|没有图案的", text):
        claims.add(("pattern", None))
    for found in re.finditer(rf"(?:上半截)?(?:{c}[的底]?)?({_any([*kinds, *HAIR['zh'], '头发'])})", text):
        colour = colours[found[1]] if found[1] else None
        if found[2] in kinds:
            _say(claims, *kinds[found[2]], colour)
        else:
            if found[2] in HAIR["zh"]:
                claims.add(("hair", HAIR["zh"][found[2]]))
            claims.update([("hair_colour", colour)] if colour else [])
    for word, claim in {
        "男": ("sex", "man"),
        "女": ("sex", "woman"),
        "他": ("sex", "man"),
        "她": ("sex", "woman"),
        "胡": ("beard", True),
        "光头": ("hair", "bald"),
        "正在": ("walking", True),
        "站": ("walking", False),
    }.items():
        if word in sentence:
            claims.add(claim)
    return claims


def _vietnamese(sentence: str) -> set[Claim]:
    claims: set[Claim] = set()
    colours, kinds = _colours("vi"), kinds_in("vi")
    c = f"(?:màu )?({_any(colours)})"
    text = sentence[0].lower() + sentence[1:]
    text = re.sub(r"[A-ZĐ]", lambda found: found[0].lower(), text)
    for pattern in (rf" mở ra để lộ áo thun {c} bên trong", rf" khoác ngoài một chiếc áo thun {c}"):
        claims.update(("inner", colours[found[1]]) for found in re.finditer(pattern, text))
        text = re.sub(pattern, "", text)
    for pattern, what in (
        (rf" (?:có|kẻ) sọc {c}", "stripes"),
        (rf" (?:kẻ|có họa tiết) ca rô {c}", "checks"),
        (rf"(?: có)? chấm bi {c}", "dots"),
        (rf" có logo {c} trước ngực| có hình in {c} ở mặt trước", "logo"),
        (rf" (?:có|với) tay áo {c}", "sleeves"),
        (rf" (?:có|và) nửa dưới {c}", "bottom half"),
    ):
        for found in re.finditer(pattern, text):
            claims.add(("pattern", (what, colours[next(group for group in found.groups() if group)])))
        text = re.sub(pattern, "", text)
    text = text.replace(" có nửa trên", "")
    if " trơn " in text:
        claims.add(("pattern", None))
        text = text.replace(" trơn ", " ")
    for found in re.finditer(rf"(?<!\w)({_any(kinds)})(?: {c})?(?!\w)", text):
        _say(claims, *kinds[found[1]], colours[found[2]] if found[2] else None)
    for found in re.finditer(rf"tóc((?: (?:buộc|{_any(HAIR['vi'])}))*)(?: {c})?", text):
        style = next((name for word, name in HAIR["vi"].items() if word in found[1]), None)
        style = "bun" if text[: found.start()].endswith("búi ") else style
        if style:
            claims.add(("hair", style))
        if found[2]:
            claims.add(("hair_colour", "blond" if colours[found[2]] == "yellow" else colours[found[2]]))
    for word, claim in {
        "đàn ông": ("sex", "man"),
        "anh ấy": ("sex", "man"),
        "phụ nữ": ("sex", "woman"),
        "cô ấy": ("sex", "woman"),
        " râu": ("beard", True),
        "trọc": ("hair", "bald"),
        "đi bộ": ("walking", True),
        "bước đi": ("walking", True),
        "đang đứng": ("walking", False),
    }.items():
        if word in text:
            claims.add(claim)
    return claims
