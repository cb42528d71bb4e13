"""Vietnamese descriptions: nouns with their classifiers, a verb for each way of wearing, and seven forms of sentences.

All text is in Unicode's NFC. In a noun's entry the classifier stands behind the slash; colours follow the noun.
"""

from dataclasses import dataclass
from typing import Final

from limner.people.attributes import Thing
from limner.people.telling import Telling, Voice, shuffled

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "t-shirt": ("áo thun/chiếc", "áo phông/chiếc", "áo thun ngắn tay/chiếc"),
    "shirt": ("áo sơ mi/chiếc",),
    "sweater": ("áo len/chiếc", "áo len chui đầu/chiếc"),
    "hoodie": ("áo hoodie/chiếc", "áo nỉ có mũ/chiếc"),
    "jacket": ("áo khoác/chiếc",),
    "coat": ("áo măng tô/chiếc", "áo măng tô dài/chiếc"),
    "tank top": ("áo ba lỗ/chiếc", "áo không tay/chiếc"),
    "dress": ("váy liền/chiếc", "váy liền thân/chiếc", "đầm/chiếc"),
    "jeans": ("quần bò/chiếc", "quần jean/chiếc"),
    "trousers": ("quần dài/chiếc", "quần tây/chiếc"),
    "leggings": ("quần legging/chiếc", "quần legging bó/chiếc"),
    "shorts": ("quần soóc/chiếc", "quần đùi/chiếc"),
    "skirt": ("chân váy/chiếc", "chân váy ngang gối/chiếc"),
    "long skirt": ("chân váy dài/chiếc",),
    "sneakers": ("giày thể thao/đôi", "giày sneaker/đôi"),
    "shoes": ("giày/đôi", "giày đế bằng/đôi"),
    "boots": ("bốt/đôi", "bốt cao cổ/đôi"),
    "sandals": ("xăng đan/đôi", "dép quai hậu/đôi"),
    "cap": ("mũ lưỡi trai/chiếc", "mũ bóng chày/chiếc"),
    "beanie": ("mũ len/chiếc",),
    "hat": ("mũ rộng vành/chiếc", "mũ vành rộng/chiếc"),
    "backpack": ("ba lô/chiếc",),
    "shoulder bag": ("túi đeo vai/chiếc", "túi đeo chéo/chiếc"),
    "handbag": ("túi xách tay/chiếc", "túi xách nhỏ/chiếc"),
    "suitcase": ("va li/chiếc", "va li kéo/chiếc"),
    "tote bag": ("túi tote/chiếc", "túi tote lớn/chiếc"),
    "plastic bag": ("túi ni lông/chiếc", "túi nhựa/chiếc"),
    "phone": ("điện thoại/chiếc", "điện thoại di động/chiếc", "điện thoại thông minh/chiếc"),
    "bottle": ("chai nước/", "bình nước/"),
    "book": ("sách/quyển", "sách/cuốn"),
    "coffee cup": ("cốc cà phê/", "ly cà phê/", "cốc giấy/chiếc"),
    "umbrella": ("ô/chiếc", "dù/chiếc", "ô đang mở/chiếc"),
    "dog": ("chó/con",),
    "glasses": ("kính/cặp", "kính mắt/chiếc"),
    "sunglasses": ("kính râm/chiếc", "kính mát/chiếc"),
    "scarf": ("khăn quàng/chiếc", "khăn quàng cổ/chiếc"),
    "tie": ("cà vạt/chiếc",),
    "belt": ("thắt lưng/chiếc", "dây nịt/chiếc"),
}
"""Kind → words for it."""

COLOURS: Final[dict[str, str]] = {
    "black": "đen",
    "white": "trắng",
    "grey": "xám",
    "red": "đỏ",
    "orange": "cam",
    "yellow": "vàng",
    "green": "xanh lá cây",
    "turquoise": "xanh ngọc",
    "blue": "xanh dương",
    "purple": "tím",
    "pink": "hồng",
    "brown": "nâu",
    "beige": "be",
}
"""Colour → its name."""

HAIR_COLOURS: Final[dict[str, str]] = {
    "black": "đen",
    "brown": "nâu",
    "blond": "vàng",
    "grey": "xám",
    "red": "đỏ",
}
"""Colour of hair → its name."""

HAIR: Final[dict[str, tuple[str, ...]]] = {
    "short": ("để tóc ngắn{}", "có mái tóc ngắn{}"),
    "long": ("để tóc dài{}", "có mái tóc dài{}"),
    "curly": ("để tóc xoăn{}", "có mái tóc xoăn{}"),
    "bald": ("để đầu trọc", "cạo trọc đầu"),
    "ponytail": ("để tóc đuôi ngựa{}", "có tóc buộc đuôi ngựa{}"),
    "bun": ("búi tóc{}", "có mái tóc búi{}"),
}
"""Style → what is said of somebody; the colour stands at {}."""

PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "stripes": ("{first} có sọc {second}", "{first} kẻ sọc {second}"),
    "checks": ("{first} kẻ ca rô {second}", "{first} có họa tiết ca rô {second}"),
    "dots": ("{first} có chấm bi {second}", "{first} chấm bi {second}"),
    "logo": ("{first} có logo {second} trước ngực", "{first} có hình in {second} ở mặt trước"),
    "sleeves": ("{first} có tay áo {second}", "{first} với tay áo {second}"),
    "bottom half": ("{first} có nửa dưới {second}", "có nửa trên {first} và nửa dưới {second}"),
}
"""Pattern → what stands behind the noun of the top; first and second are its colours."""

_WORN: Final = {"cap": "đội", "beanie": "đội", "hat": "đội", "scarf": "quàng"}
_LOAD: Final = {
    "backpack": ("đeo",),
    "shoulder bag": ("đeo",),
    "handbag": ("xách", "cầm"),
    "suitcase": ("kéo",),
    "tote bag": ("xách",),
    "plastic bag": ("xách", "cầm"),
    "umbrella": ("che", "cầm"),
    "dog": ("dắt",),
}
_MOVING: Final = {True: ("đang đi bộ", "đang bước đi"), False: ("đang đứng", "đang đứng yên")}


@dataclass(frozen=True, slots=True)
class _Facts:
    """Phrases of what the sentence tells; extras, looks and load begin with their verbs."""

    who: str
    noun: str
    pronoun: str
    main: list[str]
    shoes: list[str]
    extras: list[str]
    looks: list[str]
    load: list[str]
    moving: str

    def worn(self, say: Voice) -> list[str]:
        """Mặc một chiếc áo thun đỏ và một chiếc quần dài đen; đi một đôi giày trắng; đội ..."""
        shoes = [f"{say.pick('đi', 'mang')} {self.shoes[0]}"] if self.shoes else []
        return shuffled(say, [f"mặc {_join(shuffled(say, self.main))}", *shoes, *self.extras])


def tell(telling: Telling, say: Voice) -> str:
    """The sentence in Vietnamese."""
    f = _facts(telling, say, counted=telling.form != "listed" or say.chance(0.4))
    acting = _clauses(f.load) if f.load else f.moving
    match telling.shown_form:
        case "wearing":
            text = f"{f.who} {_clauses([*f.looks, *f.worn(say), *f.load])}"
        case "in clothes":
            more = [*f.looks, *([f"{say.pick('đi', 'mang')} {f.shoes[0]}"] if f.shoes else []), *f.extras]
            action = f"đang {acting}" if f.load else acting
            text = f"{f.who} mặc {_join(f.main)} {action}"
            text += f". {f.pronoun} {_clauses(more)}" if more else ""
        case "starting with clothes":
            looks = f" {_clauses(f.looks)}" if f.looks else ""
            action = f"đang {acting}" if f.load else acting
            text = f"{_clauses(f.worn(say))}, {f.who}{looks} {action}"
        case "listed":
            text = _listed(say, f)
        case "clothes are":
            first = f"{f.who} {_clauses(f.looks)}. {f.pronoun}" if f.looks else f.who
            text = f"{first} {_clauses([f'mặc {_join(f.main)}', *f.extras])}"
            if f.shoes:
                text += f". dưới chân {f.pronoun} {say.pick('là', 'đi')} {f.shoes[0]}"
            if f.load:
                text += f". {f.pronoun} {_clauses(f.load)}"
        case "load first":
            text = f"{_clauses(f.load)}, {f.who} {_clauses([*f.worn(say), f.moving])}"
            text += f". {f.pronoun} {_clauses(f.looks)}" if f.looks else ""
        case "moving in":
            text = f"{f.who} {f.moving}, {_clauses(f.worn(say))}"
            if more := shuffled(say, [*f.looks, *f.load]):
                text += f"{say.pick('; ', '. ')}{f.pronoun} {_clauses(more)}"
    return ". ".join(part[:1].upper() + part[1:] for part in text.split(". ")) + "."


def _listed(say: Voice, f: _Facts) -> str:
    """Người đàn ông, áo thun đỏ, quần bò xanh dương, đeo ba lô."""
    noun = "một người" if f.noun == "người" else f.noun
    if say.chance(0.5):
        return f"{noun}, {', '.join([*shuffled(say, [*f.main, *f.shoes]), *f.extras, *f.looks, *f.load])}"
    return f"{noun}, {', '.join([*f.looks, *f.worn(say), *f.load])}"


def _facts(telling: Telling, say: Voice, *, counted: bool) -> _Facts:
    noun, pronoun = "người", "người này"
    if telling.sex and telling.who.sex == "man":
        noun, pronoun = "người đàn ông", "anh ấy"
    elif telling.sex:
        noun, pronoun = "người phụ nữ", "cô ấy"
    who, told = telling.who, telling.told
    main = [_top(say, telling, counted)] if "upper" in told else []
    if "lower" in told and who.lower:
        main.append(_thing(say, Thing(who.lower, who.lower_colour), counted))
    worn, load = [], []
    for name, thing in telling.things.items():
        phrase = _thing(say, thing, counted)
        if name in ("headwear", "worn"):
            worn.append(f"{_WORN.get(thing.kind, 'đeo')} {phrase}")
        else:
            load.append(f"{say.pick(*_LOAD.get(thing.kind, ('cầm', 'cầm trên tay')))} {phrase}")
    return _Facts(
        who=say.pick(f"một {noun}", f"một {noun}", f"{noun} này"),
        noun=noun,
        pronoun=pronoun,
        main=main,
        shoes=[_thing(say, Thing(who.shoes, who.shoes_colour), counted)] if "shoes" in told else [],
        extras=worn,
        looks=_looks(say, telling),
        load=shuffled(say, load),
        moving=say.pick(*_MOVING[telling.walking]),
    )


def _coloured(say: Voice, colour: str) -> str:
    # "màu" (colour) may be left out; alone, "be" and "cam" (orange) would be read as other words.
    return colour if colour not in ("be", "cam") and say.chance(0.4) else f"màu {colour}"


def _named(say: Voice, kind: str, counted: bool) -> str:
    noun, _, classifier = say.pick(*NAMES[kind]).partition("/")
    return " ".join(part for part in ("một" if counted else "", classifier if counted else "", noun) if part)


def _thing(say: Voice, thing: Thing, counted: bool) -> str:
    named = _named(say, thing.kind, counted)
    if thing.colour is None:
        return named
    # After "open" or "large" the bare colour would be one adjective too many.
    long = len(named.split()) > (4 if counted else 2)
    return (
        f"{named} màu {COLOURS[thing.colour]}" if long else f"{named} {_coloured(say, COLOURS[thing.colour])}"
    )


def _top(say: Voice, telling: Telling, counted: bool) -> str:
    who = telling.who
    text, first = _named(say, who.upper, counted), _coloured(say, COLOURS[who.upper_colour])
    if telling.pattern and who.pattern is not None:
        second = _coloured(say, COLOURS[who.pattern.colour or ""])
        text = f"{text} {say.pick(*PATTERNS[who.pattern.kind]).format(first=first, second=second)}"
    else:
        text = f"{text}{' trơn' if telling.plain else ''} {first}"
    if telling.inner and who.inner is not None:
        under = _coloured(say, COLOURS[who.inner])
        text += say.pick(f" mở ra để lộ áo thun {under} bên trong", f" khoác ngoài một chiếc áo thun {under}")
    return text


def _looks(say: Voice, telling: Telling) -> list[str]:
    who, found = telling.who, []
    if "hair" in telling.told and (telling.hair_style or (telling.hair_colour and who.hair != "bald")):
        wordings = HAIR[who.hair] if telling.hair_style else ("có tóc{}", "có mái tóc{}")
        found.append(
            say.pick(*wordings).format(f" màu {HAIR_COLOURS[who.hair_colour]}" if telling.hair_colour else "")
        )
    if "beard" in telling.told:
        found.append(say.pick("để râu", "có râu"))
    return found


def _clauses(clauses: list[str]) -> str:
    """Predicates of one subject; commas alone where one of them has an "and" of its own."""
    return _join(clauses) if not any(" và " in clause for clause in clauses) else ", ".join(clauses)


def _join(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} và {phrases[-1]}"
