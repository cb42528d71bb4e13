"""Reads a description back into claims, with a vocabulary of its own; a word it cannot place is an error."""

import re
from collections.abc import Callable
from typing import Any

C = r"(black|white|grey|red|orange|yellow|green|turquoise|blue|purple|pink|brown|beige)"
HAIR = r"(black|brown|blond|grey|red)"
BEFORE = r"(?:(?:open|small|large|long|tight|flat|high|knee-length|wide-brimmed|plain|dotted|checked) )*"

_KINDS = """\
upper: t-shirt; short-sleeved t-shirt|t-shirt|tee; T-Shirt; 短袖T恤|T恤; áo thun ngắn tay|áo thun|áo phông
upper: shirt; button-up shirt|collared shirt|shirt; Hemd|Oberhemd; 衬衫|衬衣; áo sơ mi
upper: sweater; sweater|pullover|jumper; Pullover|Pulli|Strickpullover; 套头毛衣|毛衣|针织衫; áo len chui đầu|áo len
upper: hoodie; hooded sweatshirt|hoodie; Kapuzenpullover|Kapuzenpulli|Hoodie; 连帽衫|连帽卫衣; áo hoodie|áo nỉ có mũ
upper: jacket; jacket; Jacke; 夹克; áo khoác
upper: coat; overcoat|coat; Mantel; 长大衣|大衣; áo măng tô dài|áo măng tô
upper: tank top; tank top|sleeveless top; Tanktop|Oberteil|Trägertop; 背心|无袖上衣; áo ba lỗ|áo không tay
upper: dress; dress; Kleid; 连衣裙; váy liền thân|váy liền|đầm
lower: jeans; jeans; Jeans|Jeanshose; 牛仔裤; quần bò|quần jean
lower: trousers; trousers|pants; Hose|Stoffhose; 长裤|裤子; quần dài|quần tây
lower: leggings; leggings; Leggings; 紧身裤|打底裤; quần legging bó|quần legging
lower: shorts; shorts; Shorts; 短裤; quần soóc|quần đùi
lower: skirt; skirt; Rock; 半身裙|及膝裙; chân váy ngang gối|chân váy
lower: long skirt; ; Maxirock; 长裙; chân váy dài
shoes: sneakers; sneakers|trainers|sports shoes; Turnschuhe|Sneaker|Sportschuhe; 运动鞋|球鞋; giày thể thao|giày sneaker
shoes: shoes; shoes; Schuhe|Halbschuhe; 鞋子|平底鞋; giày đế bằng|giày
shoes: boots; boots; Stiefel; 靴子|长靴; bốt cao cổ|bốt
shoes: sandals; sandals; Sandalen; 凉鞋; xăng đan|dép quai hậu
headwear: cap; baseball cap|cap; Kappe|Schirmmütze|Baseballkappe; 鸭舌帽|棒球帽; mũ lưỡi trai|mũ bóng chày
headwear: beanie; woolly hat|beanie; Mütze|Wollmütze|Strickmütze; 毛线帽|针织帽; mũ len
headwear: hat; brimmed hat|hat; Hut; 宽檐帽|宽边帽; mũ rộng vành|mũ vành rộng
bag: backpack; backpack|rucksack; Rucksack; 双肩包|背包; ba lô
bag: shoulder bag; shoulder bag|crossbody bag; Umhängetasche|Schultertasche; 单肩包|斜挎包; túi đeo vai|túi đeo chéo
bag: handbag; handbag; Handtasche; 小手提包|手提包; túi xách tay|túi xách nhỏ
bag: suitcase; wheeled suitcase|suitcase; Koffer|Rollkoffer; 行李箱|拉杆箱; va li kéo|va li
bag: tote bag; tote bag|tote; Stofftasche; 大托特包|托特包; túi tote lớn|túi tote
bag: plastic bag; plastic bag|carrier bag; Plastiktüte|Plastikbeutel; 塑料袋|塑料购物袋; túi ni lông|túi nhựa
carried: phone; mobile phone|smartphone|phone; Handy|Mobiltelefon|Smartphone; 智能手机|手机; \
điện thoại thông minh|điện thoại di động|điện thoại
carried: bottle; water bottle|bottle; Flasche|Wasserflasche; 瓶子|水瓶; chai nước|bình nước
carried: book; book; Buch; 书; sách
carried: coffee cup; coffee cup|paper cup; Kaffeebecher|Pappbecher; 咖啡杯|纸杯; cốc cà phê|ly cà phê|cốc giấy
carried: umbrella; umbrella; Regenschirm|Schirm; 雨伞; ô đang mở|ô|dù
carried: dog; dog; Hund; 狗; chó
worn: glasses; glasses; Brille; 眼镜; kính mắt|kính
worn: sunglasses; sunglasses|dark glasses; Sonnenbrille; 墨镜|太阳镜; kính râm|kính mát
worn: scarf; scarf; Schal; 围巾; khăn quàng cổ|khăn quàng
worn: tie; necktie|tie; Krawatte|Schlips; 领带; cà vạt
worn: belt; belt; Gürtel; 腰带|皮带; thắt lưng|dây nịt
"""
"""What a thing is worn or carried as, its kind, and its words in English, German, Chinese and Vietnamese."""


def kinds_in(language: str) -> dict[str, tuple[str, str]]:
    """Slot and kind of each word of a language."""
    column = 1 + ("en", "de", "zh", "vi").index(language)
    rows = [row.split(": ")[:1] + row.split(": ")[1].split("; ") for row in _KINDS.splitlines()]
    return {word: (row[0], row[1]) for row in rows for word in row[1 + column].split("|") if word}


NOUNS = kinds_in("en")
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
        *("a", "an", "the", "this", "is", "are", "has", "have", "in", "on", "of", "pair", "with"),
        *("and", "to"),
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
