"""Breaking a query into lines of a given width in pixels."""

import unicodedata

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_ASCII = {
    "ß": "ss",
    "–": "-",
    "—": "-",
    "×": "x",
    "æ": "ae",
    "Æ": "Ae",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
}


def wrap(text: str, font: Font, width: int, lines: int) -> list[str]:
    """Lines of at most `width` pixels; a longer word is cut, text beyond `lines` lines ends in an ellipsis.

    Any white space, line breaks included, counts as one blank; characters that cannot be printed are left
    out, and the rest passes through `drawable`.
    """
    # Cut first: a whole book as a query must not take minutes, and its end would not be seen.
    text = drawable(text[:10_000])
    words = "".join(letter for letter in text if letter.isprintable() or letter.isspace()).split()
    wrapped: list[str] = []
    line = ""
    while words and len(wrapped) < lines:
        longer = f"{line} {words[0]}" if line else words[0]
        if font.getlength(longer) <= width:
            line = longer
            words.pop(0)
        elif line:
            wrapped.append(line)
            line = ""
        else:
            head = _fitting(words[0], font, width)
            wrapped.append(head)
            words[0] = words[0][len(head) :]
    if len(wrapped) < lines:
        return [*wrapped, line] if line else wrapped
    if line or words:
        last = wrapped[-1]
        while last and font.getlength(f"{last}…") > width:
            last = last[:-1]
        wrapped[-1] = f"{last.rstrip()}…"
    return wrapped


def drawable(text: str) -> str:
    """Latin letters and signs that Pillow's own font lacks, in ASCII; all else as it is.

    >>> drawable("Größe – naïve, ﬁn, 犬")
    'Grosse - naive, fin, 犬'
    """
    return "".join(_plain(letter) for letter in text)


def _plain(letter: str) -> str:
    decomposed = unicodedata.normalize("NFKD", _ASCII.get(letter, letter))
    bare = "".join(part for part in decomposed if not unicodedata.combining(part))
    return bare if bare.isascii() and letter != "…" else letter


def _fitting(word: str, font: Font, width: int) -> str:
    """The longest beginning that fits, at least one letter."""
    short, long = 1, len(word)
    while short < long:
        middle = (short + long + 1) // 2
        if font.getlength(word[:middle]) <= width:
            short = middle
        else:
            long = middle - 1
    return word[:short]
