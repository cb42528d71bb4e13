"""Languages of texts and of models, and the words that turn a meaning: what is said of a text that is not understood.

**Decided**: languages are told by their script, and those in Latin letters by their most frequent words; a text of
which nothing is certain is said to be of none. No library: what a search needs to say is that a text is surely not of
the model's language, and libraries that name one for every two words are wrong for half of such texts.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Final

from limner.errors import SettingsError
from limner.models.known import KNOWN
from limner.types import Encoder

_TURNING: Final = {
    "English": "not no without never none nobody nothing neither nor except excluding cannot isn't aren't wasn't "
    "weren't doesn't don't didn't hasn't haven't isn aren wasn weren doesn don didn hasn haven",
    "German": "nicht kein keine keinen keinem keiner keines ohne nie niemand nichts außer weder",
    "French": "ne sans pas jamais aucun aucune ni",
    "Spanish": "sin nunca ningún ninguna nadie",
    "Italian": "non senza mai nessuno nessuna",
    "Dutch": "niet geen zonder nooit niemand",
    "Portuguese": "não sem nenhum nenhuma",
    "Vietnamese": "không chưa chẳng",
    "Chinese": "不 没 没有 无 沒 沒有 無 未 非 别",
    "Japanese": "ない なし ません",
    "Cyrillic script": "без не нет ни",
}
"""Words without which a text says the opposite."""

_FREQUENT: Final = {
    "English": "a the and with is are of on at her his she he wearing who an in to two one",
    "German": "der das und mit ein eine einen einem einer ist im auf trägt hat von dem den für zwei",
    "French": "le la les et avec un une des est dans sur qui du elle il porte aux",
    "Spanish": "el la los las y con un una es en del que lleva al su por",
    "Italian": "il lo la gli e con un una è nel di che indossa della sul",
    "Dutch": "de het een en met van op draagt zijn haar twee",
    "Portuguese": "os e com um uma é em na da que veste dois",
    "Vietnamese": "và có một đang mặc với người của là trên cầm màu chiếc áo",
}
"""No word of another list is one of the first."""

_SCRIPTS: Final = {
    "CJK": "Chinese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "CYRILLIC": "Cyrillic script",
    "ARABIC": "Arabic script",
    "HEBREW": "Hebrew",
    "GREEK": "Greek",
    "THAI": "Thai",
    "DEVANAGARI": "Devanagari script",
}


def language_of(text: str) -> tuple[str, ...]:
    """The language, or script, of a text, or several that it could be; () where nothing is certain.

    >>> language_of("eine Frau mit einer roten Tasche"), language_of("red bag"), language_of("穿红色外套的女人")
    (('German',), (), ('Chinese',))
    """
    scripts = Counter(script for letter in text if letter.isalpha() and (script := _script(letter)))
    if scripts:
        # Japanese has Chinese signs among its own
        first = "Japanese" if "Japanese" in scripts else scripts.most_common(1)[0][0]
        return (first,) if 2 * scripts.total() >= sum(map(str.isalpha, text)) else ()
    words = set(re.findall(r"\w+", unicodedata.normalize("NFC", text).casefold()))
    counts = {name: len(words & listed) for name, listed in _WORDS.items()}
    most = max(counts.values())
    return tuple(name for name, count in counts.items() if count == most) if most >= 2 else ()


def turning(words: Iterable[str]) -> list[str]:
    """Those of some words that turn a meaning."""
    return [word for word in words if word.casefold() in _TURNS]


def is_frequent(word: str) -> bool:
    """True for a word that half of all texts of a language have, such as "the"."""
    return any(word.casefold() in listed for listed in _WORDS.values())


def languages_of(encoder: Encoder) -> tuple[str, ...]:
    """Languages that a model reads; () where it is not known, or reads very many.

    Of a pretrained pair as its authors state them (`limner models`), of a vocabulary of whole words those whose most
    frequent words are in it.
    """
    # an encoder of another package need not have either
    source = (getattr(encoder, "description", {}).get("data") or {}).get("source") or ""
    for known in KNOWN:
        if known.name in source:
            return () if known.languages[0].isdigit() else tuple(known.languages.split(", "))
    try:
        tokenizer = getattr(encoder, "tokenizer", None)
    # a network of another library, which limner only calls
    except SettingsError:
        return ()
    if not getattr(tokenizer, "whole_words", False):
        return ()
    entries = set(getattr(tokenizer, "entries", ()))
    found = {name for name, listed in _WORDS.items() if 3 * len(listed & entries) >= len(listed)}
    return tuple(sorted(found | {script for word in entries if (script := _SCRIPTS.get(_block(word[:1])))}))


def unread_language(text: str, languages: tuple[str, ...]) -> str | None:
    """The language of a text if a model of these languages does not read it."""
    found = language_of(text) if languages else ()
    return " or ".join(found) if found and not set(found) & set(languages) else None


def _block(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0] if letter else ""


def _script(letter: str) -> str | None:
    return None if letter.isascii() else _SCRIPTS.get(_block(letter))


_TURNS: Final = frozenset(word for listed in _TURNING.values() for word in listed.split())
_WORDS: Final = {name: frozenset(listed.split()) for name, listed in _FREQUENT.items()}
