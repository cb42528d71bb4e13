"""Splits text into words, with the place of each in the text.

This is the one definition of a word for the word vocabulary, the noun phrases and the checks of captions. A sub-word
tokenizer brings its own (`limner.data.tokenizers`).
"""

import re
import sys
import unicodedata
from functools import cache
from typing import NamedTuple

# `\w` counts the underscore among the letters, so it is taken out again: "red_coat" is two words.
_WORD = re.compile(r"[^\W_]+")

# Letters of scripts without blanks between words: Thai, Lao, Myanmar, Khmer, kana, bopomofo, Han. Korean has blanks.
_UNSPACED = re.compile(
    r"(?=[^\W\d_])[\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
    r"\u3041-\u312f\u31a0-\u31bf\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"
    r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]"
)
_LETTER = re.compile(r"[^\W\d_]")

# Latin, Greek and Cyrillic, beside which a sign without width means nothing. In other scripts it parts words (Khmer),
# shapes letters (Persian, Hindi) or joins pictures into one.
_OTHERS = "[^\x00-\u052f\u1e00-\u1fff]"
UNSEEN = (
    "[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]",
    f"(?<!{_OTHERS})[\u200b-\u200d]+|[\u200b-\u200d]+(?!{_OTHERS})",
)
"""Patterns of what a reader does not see, to be taken out one after the other: soft hyphens, marks of direction and of
byte order; then signs without width. Python, Oniguruma and JavaScript read them alike."""

WIDE = {
    wide: wide - 0xFEE0 for wide in (*range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))
}
"""Digits and letters as wide as a Chinese character, and the plain ones; wide commas are Chinese and stay."""

_LETTERS_A_BLANK = 8
"""Text that has blanks between its words has fewer of such letters for each: Chinese about 2, Thai about 4."""


class WordSpan(NamedTuple):
    """A word in its folded form, and the characters `start` to `stop` - 1 of the text that it stands for."""

    text: str
    start: int
    stop: int


def words(sentence: str) -> list[str]:
    """Split a sentence into lower-case runs of letters and digits of any script, with their combining marks.

    >>> words("A man's T-shirt, size 42.")
    ['a', 'man', 's', 't', 'shirt', 'size', '42']
    """
    folded = fold(sentence)
    return _pattern(folded).findall(folded)


def word_spans(sentence: str) -> list[WordSpan]:
    """Split as `words` does, and say where in the given sentence each word stands; ascending and disjoint.

    >>> word_spans("A T-shirt")
    [WordSpan(text='a', start=0, stop=1), WordSpan(text='t', start=2, stop=3), WordSpan(text='shirt', start=4, stop=9)]
    """
    plain = as_it_looks(sentence)
    if len(plain) < len(sentence):
        seen = seen_places(sentence)
        return [WordSpan(text, seen[start], seen[stop - 1] + 1) for text, start, stop in word_spans(plain)]
    folded = fold(sentence)
    found = _pattern(folded).finditer(folded)
    # ASCII folds character by character, and so does what folds to ASCII in as many (U+212A, the Kelvin sign).
    if folded.isascii() and len(folded) == len(sentence):
        return [WordSpan(match.group(), *match.span()) for match in found]
    origins = _origins(sentence)
    return [
        WordSpan(match.group(), origins[match.start()][0], origins[match.end() - 1][1]) for match in found
    ]


def fold(text: str) -> str:
    """The form in which words are compared: as they look, in lower case, characters composed (Unicode's NFC)."""
    # NFC comes last: `lower()` may take characters apart ("İ" becomes "i" and a dot).
    return unicodedata.normalize("NFC", as_it_looks(text).lower())


def as_it_looks(text: str) -> str:
    """A text without the characters that nobody sees, and with wide letters and digits as plain ones.

    Pages, chats and documents leave such characters in what is copied from them. A text without any is the same.

    >>> as_it_looks("\\u200ered co\\u00adat ＸＬ")
    'red coat XL'
    """
    if text.isascii():
        return text
    # first, or a wide letter would count as one of another script
    text = text.translate(WIDE)
    for pattern in UNSEEN:
        text = re.sub(pattern, "", text)
    return text


def seen_places(text: str) -> list[int]:
    """Where in a text each character of `as_it_looks` stands."""
    text = text.translate(WIDE)
    places = list(range(len(text)))
    for pattern in UNSEEN:
        left = "".join(text[place] for place in places)
        unseen = {place for match in re.finditer(pattern, left) for place in range(*match.span())}
        places = [one for place, one in enumerate(places) if place not in unseen]
    return places


def is_unspaced(text: str) -> bool:
    """True for text without blanks between its words, which `words` takes for one word up to the next comma.

    **Decided**: more than half of its letters are of scripts that are written so (Chinese, Japanese, Thai, Lao, Khmer,
    Myanmar), and more than eight of them stand for each blank. A few such characters in an English sentence do not
    count, nor does text that somebody has split into words by blanks.

    >>> is_unspaced("一个穿红衣服的女人"), is_unspaced("一个 穿 红 衣服 的 女人"), is_unspaced("a man, 男人")
    (True, False, False)
    """
    if text.isascii():
        return False
    letters = len(_UNSPACED.findall(text))
    blanks = max(0, len(text.split()) - 1)
    return 2 * letters > len(_LETTER.findall(text)) and letters > _LETTERS_A_BLANK * blanks


def has_unspaced_letter(word: str) -> bool:
    """True for a word with a letter of a script that puts no blanks between words."""
    return _UNSPACED.search(word) is not None


def _pattern(folded: str) -> re.Pattern[str]:
    return _WORD if folded.isascii() else _word_with_marks()


@cache
def _word_with_marks() -> re.Pattern[str]:
    """`_WORD` with the vowel signs and accents on its letters, which `re` has no class for.

    Looking for them among all characters takes 0.1 s, once.
    """
    # Without marks, Hindi and Thai words fell apart at each vowel sign, and NFD text at each accent.
    characters = map(chr, range(sys.maxunicode + 1))
    marks = "".join(character for character in characters if unicodedata.category(character).startswith("M"))
    return re.compile(rf"[^\W_]+(?:[{marks}]+[^\W_]*)*")


def _origins(sentence: str) -> list[tuple[int, int]]:
    """For each character of the folded sentence, the start and stop of the characters that it was made of.

    Folding changes lengths both ways: "İ" becomes two characters, an "e" and its accent become one.
    """
    # Lower case is taken of the whole sentence, since that of "Σ" depends on what follows; but its length does not, so
    # lengths can be asked of each character alone.
    lower = sentence.lower()
    owners = [place for place, character in enumerate(sentence) for _ in character.lower()]
    origins: list[tuple[int, int]] = []
    start = 0
    for end in range(1, len(lower) + 1):
        if end < len(lower) and _composes(lower[start:end], lower[end]):
            continue
        composed = unicodedata.normalize("NFC", lower[start:end])
        origins += [(owners[start], owners[end - 1] + 1)] * len(composed)
        start = end
    return origins


def _composes(before: str, character: str) -> bool:
    """True where NFC composes a character with those right before it, or sorts it among them."""
    # A combining class says "sorted"; but Hangul vowels and some vowel signs have class 0 and compose all the same.
    if unicodedata.combining(character):
        return True
    if character.isascii():
        return False
    apart = unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", character)
    return unicodedata.normalize("NFC", before + character) != apart
