"""Chinese descriptions: nouns with their measure words, a verb for each way of wearing, and seven forms of sentences.

Nothing is parted by blanks, as Chinese is written. In a noun's entry the measure word stands behind the slash, and "~"
is where the colour goes, if not in front.
"""

from dataclasses import dataclass
from typing import Final

from limner.people.attributes import Thing
from limner.people.telling import Telling, Voice, shuffled

NAMES: Final[dict[str, tuple[str, ...]]] = {
    "t-shirt": ("T恤/件", "T恤/件", "短袖T恤/件"),
    "shirt": ("衬衫/件", "衬衫/件", "衬衣/件"),
    "sweater": ("毛衣/件", "针织衫/件", "套头毛衣/件"),
    "hoodie": ("连帽衫/件", "连帽卫衣/件"),
    "jacket": ("夹克/件",),
    "coat": ("大衣/件", "长大衣/件"),
    "tank top": ("背心/件", "无袖上衣/件"),
    "dress": ("连衣裙/条",),
    "jeans": ("牛仔裤/条",),
    "trousers": ("长裤/条", "裤子/条"),
    "leggings": ("紧身裤/条", "打底裤/条"),
    "shorts": ("短裤/条",),
    "skirt": ("半身裙/条", "及膝裙/条"),
    "long skirt": ("长裙/条",),
    "sneakers": ("运动鞋/双", "球鞋/双"),
    "shoes": ("鞋子/双", "平底鞋/双"),
    "boots": ("靴子/双", "长靴/双"),
    "sandals": ("凉鞋/双",),
    "cap": ("鸭舌帽/顶", "棒球帽/顶"),
    "beanie": ("毛线帽/顶", "针织帽/顶"),
    "hat": ("宽檐帽/顶", "宽边帽/顶"),
    "backpack": ("双肩包/个", "双肩包/个", "背包/个"),
    "shoulder bag": ("单肩包/个", "斜挎包/个"),
    "handbag": ("手提包/个", "小手提包/个"),
    "suitcase": ("行李箱/个", "拉杆箱/个"),
    "tote bag": ("托特包/个", "大托特包/个"),
    "plastic bag": ("塑料袋/个", "塑料购物袋/个"),
    "phone": ("手机/部", "智能手机/部"),
    "bottle": ("瓶子/个", "水瓶/个"),
    "book": ("书/本",),
    "coffee cup": ("咖啡杯/个", "纸杯/个"),
    "umbrella": ("雨伞/把", "撑开的~雨伞/把"),
    "dog": ("狗/只", "狗/条"),
    "glasses": ("眼镜/副",),
    "sunglasses": ("墨镜/副", "太阳镜/副"),
    "scarf": ("围巾/条",),
    "tie": ("领带/条",),
    "belt": ("腰带/条", "皮带/条"),
}
"""Kind → words for it."""

COLOURS: Final[dict[str, str]] = {
    "black": "黑色",
    "white": "白色",
    "grey": "灰色",
    "red": "红色",
    "orange": "橙色",
    "yellow": "黄色",
    "green": "绿色",
    "turquoise": "青色",
    "blue": "蓝色",
    "purple": "紫色",
    "pink": "粉色",
    "brown": "棕色",
    "beige": "米色",
}
"""Colour → its name."""

HAIR_COLOURS: Final[dict[str, str]] = {
    "black": "黑色",
    "brown": "棕色",
    "blond": "金色",
    "grey": "灰色",
    "red": "红色",
}
"""Colour of hair → its name."""

HAIR: Final[dict[str, tuple[str, ...]]] = {
    "short": ("留着{}短发", "一头{}短发"),
    "long": ("留着{}长发", "一头{}长发"),
    "curly": ("留着{}卷发", "一头{}卷发"),
    "bald": ("剃着光头", "顶着光头"),
    "ponytail": ("扎着{}马尾", "梳着{}马尾辫"),
    "bun": ("盘着{}发髻", "梳着{}丸子头"),
}
"""Style → what is said of somebody; the colour stands at {}."""

PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "stripes": (
        "带{second}条纹的{first}{noun}",
        "{first}底{second}条纹的{noun}",
        "有{second}条纹的{first}{noun}",
    ),
    "checks": ("带{second}格纹的{first}{noun}", "{first}底{second}格子的{noun}"),
    "dots": ("带{second}圆点的{first}{noun}", "{first}底{second}波点的{noun}"),
    "logo": ("胸前有{second}标志的{first}{noun}", "胸前印着{second}图案的{first}{noun}"),
    "sleeves": ("带{second}袖子的{first}{noun}", "袖子是{second}的{first}{noun}"),
    "bottom half": ("下半截是{second}的{first}{noun}", "上半截{first}下半截{second}的{noun}"),
}
"""Pattern → the top with it; first and second are its colours."""

_WORN: Final = {"tie": ("系着", "打着"), "belt": ("系着",), "scarf": ("围着",)}
_LOAD: Final = {
    "backpack": ("背着",),
    "shoulder bag": ("背着", "挎着"),
    "handbag": ("拎着", "提着"),
    "suitcase": ("拉着", "拖着"),
    "tote bag": ("提着", "拎着"),
    "plastic bag": ("提着", "拎着"),
    "coffee cup": ("拿着", "端着"),
    "umbrella": ("撑着", "打着"),
    "dog": ("牵着",),
}
_HOLDS: Final = ("拿着", "手里拿着")
_MOVING: Final = {True: ("正在走路", "正在行走"), False: ("站着", "正站着", "站在那里")}


@dataclass(frozen=True, slots=True)
class _Facts:
    """Phrases of what the sentence tells: a measure word and a noun, or a verb with its object."""

    this: str
    """一个, 这位: with the measure word of the noun."""
    looking: str
    """留着黑色短发的男人, after "this" or "one"."""
    noun: str
    pronoun: str
    main: list[str]
    shoes: list[str]
    extras: list[str]
    looks: list[str]
    load: list[str]
    moving: str

    @property
    def who(self) -> str:
        """这个男人, without what he looks like."""
        return self.this + self.noun


def tell(telling: Telling, say: Voice) -> str:
    """The sentence in Chinese."""
    if telling.shown_form == "listed":
        return _listed(telling, say)
    f = _facts(telling, say)
    clothes = _worn(say, [*f.main, *f.shoes], f.extras)
    acting = "，".join(f.load) or f.moving
    match telling.shown_form:
        case "wearing":
            return f"{f.looking}{'，'.join([clothes, *f.load])}。"
        case "in clothes":
            more = [*f.looks, *([f"{say.pick('穿着', '脚穿')}{f.shoes[0]}"] if f.shoes else []), *f.extras]
            rest = f"{f.pronoun}{'，'.join(more)}。" if more else ""
            return f"{f.who}{say.pick('身穿', '穿着')}{_join(f.main)}，{acting}。{rest}"
        case "starting with clothes":
            return f"{clothes}，{f.looking}{acting}。"
        case "clothes are":
            first = f"{f.who}{'，'.join(f.looks)}。{f.pronoun}" if f.looks else f.who
            shoes = [f"脚上{say.pick('是', '穿着')}{f.shoes[0]}"] if f.shoes else []
            return f"{first}{'，'.join([_worn(say, f.main, f.extras), *shoes, *f.load])}。"
        case "load first":
            looks = f"{f.pronoun}{'，'.join(f.looks)}。" if f.looks else ""
            return f"{f.this}{'、'.join(f.load)}的{f.noun}{clothes}，{f.moving}。{looks}"
    more = shuffled(
        say, [*(["，".join(f.looks)] if f.looks else []), *(["，".join(f.load)] if f.load else [])]
    )
    rest = f"{say.pick('；', '。')}{f.pronoun}{'，'.join(more)}" if more else ""
    return f"{f.who}{f.moving}，{clothes}{rest}。"


def _listed(telling: Telling, say: Voice) -> str:
    """男人，红色T恤，蓝色牛仔裤，双肩包。"""
    f = _facts(telling, say, counted=say.chance(0.4))
    clothes = [*f.main, *f.shoes]
    if say.chance(0.5):
        return f"{f.noun}，{'，'.join([*shuffled(say, [*clothes, *f.extras]), *f.looks, *f.load])}。"
    return f"{f.noun}，{'，'.join([*f.looks, _worn(say, clothes, f.extras), *f.load])}。"


def _facts(telling: Telling, say: Voice, *, counted: bool = True) -> _Facts:
    noun, pronoun = say.pick("行人", "路人"), "此人"
    if telling.sex and telling.who.sex == "man":
        noun, pronoun = say.pick("男人", "男人", "男子", "男士"), "他"
    elif telling.sex:
        noun, pronoun = say.pick("女人", "女人", "女子", "女士"), "她"
    # 位 is the polite measure word, which goes with 男士 and 女士 alone.
    this = say.pick("一", "一", "这") + ("位" if noun.endswith("士") else "个")
    who, told, looks = telling.who, telling.told, _looks(say, telling)
    main = [_top(say, telling, counted)] if "upper" in told else []
    if "lower" in told and who.lower:
        main.append(_thing(say, Thing(who.lower, who.lower_colour), counted))
    worn, load = [], []
    for name, thing in telling.things.items():
        phrase = _thing(say, thing, counted)
        if name in ("headwear", "worn"):
            worn.append(f"{say.pick(*_WORN.get(thing.kind, ('戴着',)))}{phrase}")
        else:
            load.append(f"{say.pick(*_LOAD.get(thing.kind, _HOLDS))}{phrase}")
    return _Facts(
        this=this,
        looking=f"{this}{'、'.join(looks)}的{noun}" if looks else f"{this}{noun}",
        noun=noun,
        pronoun=pronoun,
        main=main,
        shoes=[_thing(say, Thing(who.shoes, who.shoes_colour), counted)] if "shoes" in told else [],
        extras=worn,
        looks=looks,
        load=shuffled(say, load),
        moving=say.pick(*_MOVING[telling.walking]),
    )


def _thing(say: Voice, thing: Thing, counted: bool) -> str:
    noun, _, measure = say.pick(*NAMES[thing.kind]).partition("/")
    front, _, back = noun.rpartition("~")
    colour = COLOURS[thing.colour] if thing.colour else ""
    # 红色的T恤 and 红色T恤 are both said.
    of = "的" if colour and not front and say.chance(0.2) else ""
    return f"{'一' + measure if counted else ''}{front}{colour}{of}{back}"


def _top(say: Voice, telling: Telling, counted: bool) -> str:
    who = telling.who
    noun, _, measure = say.pick(*NAMES[who.upper]).partition("/")
    first = COLOURS[who.upper_colour]
    text = f"{first}{noun}"
    if telling.pattern and who.pattern is not None:
        second = COLOURS[who.pattern.colour or ""]
        text = say.pick(*PATTERNS[who.pattern.kind]).format(first=first, second=second, noun=noun)
    elif telling.plain:
        text = say.pick(f"纯色的{text}", f"没有图案的{text}")
    if telling.inner and who.inner is not None:
        under = COLOURS[who.inner]
        # Two modifiers are parted by a comma of lists: with 的 the second would belong to the first.
        link = "、" if telling.pattern else "的"
        text = say.pick(f"内搭{under}T恤", f"里面是{under}T恤", f"敞开露出{under}上衣") + link + text
    return f"{'一' + measure if counted else ''}{text}"


def _looks(say: Voice, telling: Telling) -> list[str]:
    who, found = telling.who, []
    if "hair" in telling.told and (telling.hair_style or (telling.hair_colour and who.hair != "bald")):
        wordings = HAIR[who.hair] if telling.hair_style else ("留着{}头发", "一头{}头发")
        tone = HAIR_COLOURS[who.hair_colour] if telling.hair_colour else ""
        found.append(say.pick(*wordings).format(tone))
    if "beard" in telling.told:
        found.append(say.pick("留着胡子", "蓄着胡须"))
    return found


def _worn(say: Voice, clothes: list[str], extras: list[str]) -> str:
    """穿着一件红色T恤和一条黑色长裤，戴着一顶帽子."""
    return "，".join([f"{say.pick('穿着', '穿着', '身穿')}{_join(shuffled(say, clothes))}", *extras])


def _join(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{'、'.join(phrases[:-1])}和{phrases[-1]}"
