"""A contact sheet: the images that a search found, in order, on one page."""

import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from limner.data.images import open_rgb
from limner.errors import ChangedPictureError, ImageError, SettingsError, UnknownPictureError
from limner.judgements import Marks
from limner.wire import Hit

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# NFKD takes the accents off other letters, but leaves these whole
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

MARGIN = 28
"""Pixels around the sheet."""
GAP = 18
"""Pixels between tiles."""
FRAME = 4
"""Width of a tile's frame; it lies inside the tile."""
CAPTION = 30
"""Height of the line under a tile."""
NAME = 22
"""Height of the line with a file's name below it."""

TRUE = (0, 128, 72)
"""Frame of an image with the identity that was sought."""
FALSE = (205, 50, 45)
"""Frame of an image with another identity."""
NEUTRAL = (196, 200, 206)
"""Frame of an image whose identity is not known."""

_FRAMES = {"match": TRUE, "right": TRUE, "other": FALSE, "wrong": FALSE}

_PAPER = (255, 255, 255)
_MAT = (241, 243, 245)
_INK = (28, 32, 38)
_FAINT = (110, 118, 128)
_QUERY_SIZE, _TEXT_SIZE = 22, 15
_QUERY_LINES = 6
_LEAST_COLUMNS = 3  # the sheet of one image still needs room for its query


def contact_sheet(
    hits: Sequence[Hit],
    *,
    thumbnail: Callable[[str], bytes],
    query: str | Path,
    truth: str | None = None,
    marks: Marks | None = None,
    names: bool = False,
    columns: int = 5,
    tile: int = 200,
) -> Image.Image:
    """Draw hits as rows of square tiles of `tile` pixels, each with rank, probability and score below.

    `names` writes the names of the files there, too. `query` stands on top: a text, wrapped, or a `Path` to an image,
    which is drawn at the left. `truth` is the identity that was sought: frames are green for hits with it, red for hits
    with another and grey for hits without one. Without `truth` all frames are grey. `marks` are somebody's judgements
    by key, in its place: green for "right", red for "wrong", and a word below. `thumbnail` returns an image by its key,
    as `Store.thumbnail` does, which needs no file: its disk may be away. Images are fitted in whole; one that cannot be
    read becomes an empty tile that says so. Accents are dropped, and scripts other than Latin are drawn as
    boxes: Pillow's own font has no more.

    Raises `SettingsError` for less than 1 column or tiles below 48 pixels.
    """
    if columns < 1 or tile < 48:
        raise SettingsError(f"expected at least 1 column and tiles of 48 pixels, got {columns} and {tile}")
    across = min(columns, max(len(hits), _LEAST_COLUMNS))
    width = 2 * MARGIN + across * tile + (across - 1) * GAP
    note = "green: a true match, red: not" if truth is not None else "best first, with the score of each"
    if truth is None and any(hit.probability is not None for hit in hits):
        note = "best first, with the probability of a match and the score"
    if marks is not None:
        note = "green: marked right, red: marked wrong"
    header = _header(query, note, width - 2 * MARGIN, tile)
    rows = -(-len(hits) // across)
    below = CAPTION + (NAME if names else 0)
    top = MARGIN + header.height + MARGIN
    height = top + (rows * (tile + below) + (rows - 1) * GAP if hits else 2 * CAPTION) + MARGIN
    sheet = Image.new("RGB", (width, height), _PAPER)
    sheet.paste(header, (MARGIN, MARGIN))
    draw = ImageDraw.Draw(sheet)
    if not hits:
        draw.text((MARGIN, top), "No pictures found.", fill=_FAINT, font=_font(_TEXT_SIZE))
    for place, hit in enumerate(hits):
        left = MARGIN + place % across * (tile + GAP)
        upper = top + place // across * (tile + below + GAP)
        said = _judged(hit, truth, marks)
        sheet.paste(_framed(partial(thumbnail, hit.id), tile, _FRAMES.get(said, NEUTRAL)), (left, upper))
        _caption(draw, hit, said, (left, upper + tile), tile)
        if names and (lines := wrap(hit.name, _font(_TEXT_SIZE), tile, 1)):
            draw.text((left, upper + tile + CAPTION), lines[0], fill=_FAINT, font=_font(_TEXT_SIZE))
    return sheet


def caption_sheet(rows: Sequence[tuple[Path, str, str]], *, tile: int = 160, width: int = 900) -> Image.Image:
    """Draw pictures one below the other, each with its caption and a note beside it; sizes in pixels."""
    sheet = Image.new("RGB", (width, 2 * MARGIN + max(1, len(rows)) * (tile + GAP) - GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    left = MARGIN + tile + GAP
    for place, (path, caption, note) in enumerate(rows):
        upper = MARGIN + place * (tile + GAP)
        sheet.paste(_framed(path, tile, NEUTRAL), (MARGIN, upper))
        font, step = _font(_TEXT_SIZE), round(_TEXT_SIZE * 1.4)
        lines = wrap(caption, font, width - left - MARGIN, tile // step - 1) or ["(no words)"]
        for number, line in enumerate(lines):
            draw.text((left, upper + number * step), line, fill=_INK, font=font)
        draw.text((left, upper + len(lines) * step), note, fill=_FAINT, font=font)
    return sheet


def _header(query: str | Path, said: str, width: int, tile: int) -> Image.Image:
    font = _font(_QUERY_SIZE)
    picture = _framed(query, tile, NEUTRAL) if isinstance(query, Path) else None
    left = picture.width + GAP if picture else 0
    text = "Pictures like this one" if isinstance(query, Path) else query
    lines = wrap(text, font, width - left, _QUERY_LINES) or ["(no words)"]
    step = round(_QUERY_SIZE * 1.4)
    note = f"{query.name} · " if isinstance(query, Path) else ""
    notes = wrap(note + said, _font(_TEXT_SIZE), width - left, 2)
    small = round(_TEXT_SIZE * 1.5)
    height = len(lines) * step + len(notes) * small + 4
    header = Image.new("RGB", (width, max(height, picture.height if picture else 0)), _PAPER)
    draw = ImageDraw.Draw(header)
    if picture:
        header.paste(picture, (0, 0))
    upper = (header.height - height) // 2
    for index, line in enumerate(lines):
        draw.text((left, upper + index * step), line, fill=_INK, font=font)
    for index, line in enumerate(notes):
        draw.text(
            (left, upper + len(lines) * step + 4 + index * small), line, fill=_FAINT, font=_font(_TEXT_SIZE)
        )
    return header


def _framed(picture: Path | Callable[[], bytes], tile: int, colour: tuple[int, int, int]) -> Image.Image:
    frame = Image.new("RGB", (tile, tile), colour)
    inner = tile - 2 * FRAME
    mat = Image.new("RGB", (inner, inner), _MAT)
    try:
        # a JPEG is decoded near the size it is drawn in: 1920 × 1080 at 133 images/s in place of 61 (Pillow's draft)
        source = picture if isinstance(picture, Path) else picture()
        fitted = _fit(open_rgb(source, short_side=inner, shown=True), inner)
    except (ImageError, ChangedPictureError, UnknownPictureError):
        draw = ImageDraw.Draw(mat)
        draw.multiline_text(
            (inner / 2, inner / 2),
            "cannot\nbe read",
            fill=_FAINT,
            font=_font(_TEXT_SIZE),
            anchor="mm",
            align="center",
        )
    else:
        mat.paste(fitted, ((inner - fitted.width) // 2, (inner - fitted.height) // 2))
    frame.paste(mat, (FRAME, FRAME))
    return frame


def _fit(picture: Image.Image, side: int) -> Image.Image:
    """Scale an image to touch two sides of the square, keeping its proportions."""
    scale = side / max(picture.size)
    # a strip of 10,000 × 20 pixels would have no row left
    size = tuple(max(1, round(length * scale)) for length in picture.size)
    # reducing_gap: large images are first reduced by a whole factor; from 3.0 on the eye sees no difference (Pillow)
    return picture.resize((size[0], size[1]), Image.Resampling.LANCZOS, reducing_gap=3.0)


def _judged(hit: Hit, truth: str | None, marks: Marks | None) -> str:
    """Return a hit's mark, or "match" or "other" by its identity; "" if neither is known."""
    if marks is not None:
        return marks.get(hit.id, "")
    if truth is None or hit.identity is None:
        return ""
    return "match" if hit.identity == truth else "other"


def _caption(draw: ImageDraw.ImageDraw, hit: Hit, said: str, corner: tuple[int, int], tile: int) -> None:
    font = _font(_TEXT_SIZE)
    middle = corner[1] + CAPTION // 2 + 1
    draw.text((corner[0], middle), f"{hit.rank}", fill=_INK, font=font, anchor="lm")
    if said not in ("", "other"):
        # The word says what the colour says, for those who cannot tell green from red.
        colour = _FRAMES.get(said, _FAINT)
        draw.text((corner[0] + tile // 2, middle), said, fill=colour, font=font, anchor="mm")
    draw.text((corner[0] + tile, middle), _score(hit), fill=_FAINT, font=font, anchor="rm")


def _score(hit: Hit) -> str:
    # a re-ranked hit is placed by its confidence, so its cosine would look out of order
    score = f"{hit.score:.3f}" if hit.confidence is None else f"{hit.confidence:.0%}"
    return score if hit.probability is None else f"p={hit.probability:.2f}  {score}"


def _font(size: int) -> Font:
    # the fonts of the system differ from machine to machine; this one comes with Pillow
    return ImageFont.load_default(size)


def wrap(text: str, font: Font, width: int, lines: int) -> list[str]:
    """Wrap a text into at most `lines` lines of `width` pixels; long words are cut, a long text ends in an ellipsis.

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
            # a word without a blank, such as a URL or a sentence in Chinese, must not leave the sheet
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
    """Write Latin letters and signs that Pillow's own font lacks in ASCII; leave all else as it is.

    >>> drawable("Größe – naïve, ﬁn, 犬")
    'Grosse - naive, fin, 犬'
    """
    return "".join(_plain(letter) for letter in text)


def _plain(letter: str) -> str:
    # compatibility form: ligatures such as ﬁ come apart, too
    decomposed = unicodedata.normalize("NFKD", _ASCII.get(letter, letter))
    bare = "".join(part for part in decomposed if not unicodedata.combining(part))
    # the font has …, which NFKD would turn into three dots
    return bare if bare.isascii() and letter != "…" else letter


def _fitting(word: str, font: Font, width: int) -> str:
    """Return the longest beginning that fits, at least one letter."""
    # bisection: a word may have 10,000 letters, and measuring each prefix takes time in the square of that
    short, long = 1, len(word)
    while short < long:
        middle = (short + long + 1) // 2
        if font.getlength(word[:middle]) <= width:
            short = middle
        else:
            long = middle - 1
    return word[:short]
