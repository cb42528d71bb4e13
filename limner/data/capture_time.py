"""When a picture was taken, by what its file says: EXIF, XMP, IPTC and the texts of a PNG, read as exiftool reads them.

Devices and programs write dates in more forms than the standards have, and into other places of the file.
"""

import io
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

from PIL import Image, ImageFile, IptcImagePlugin

from limner.data.decoding_cost import max_pixels
from limner.data.images import PictureBytes, open_header, quiet

_EXIF_FOLDER = 0x8769
_ORIGINAL, _DIGITISED = 0x9003, 0x9004

# IPTC-IIM, record 2: the date and the time of the original, and of its digital form
_IPTC_ORIGINAL, _IPTC_DIGITISED = ((2, 55), (2, 60)), ((2, 62), (2, 63))

_EXIF_XMP, _XMP = "{http://ns.adobe.com/exif/1.0/}", "{http://ns.adobe.com/xap/1.0/}"
_XMP_ORIGINAL = (f"{_EXIF_XMP}DateTimeOriginal", "{http://ns.adobe.com/photoshop/1.0/}DateCreated")
_XMP_DIGITISED = (f"{_EXIF_XMP}DateTimeDigitized", f"{_XMP}CreateDate")

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST = 2**25
"""Bytes of a PNG beside its pixels that are read."""
_MOST_XMP = 2**20
"""Bytes of XMP that are read: parsed they take fifty times as much memory, and whoever adds a picture chooses them."""
_LONGEST = 256
"""Signs of a text that may be a date."""

T = TypeVar("T")
_NUMBER, _FRACTION = re.compile(r"\d+"), re.compile(r"[.,](\d+)")
_ZONE = re.compile(r"[-+]\d\d:?\d\d$")
_HALF = re.compile(r"\d\s*([ap])\.?m\b", re.IGNORECASE)
_TOGETHER = re.compile(r"(\d{4})(\d\d)(\d\d)\D?(?:(\d\d)(\d\d)(\d\d)?)?(?!\d)")
"""A date, or a date and a time, whose numbers have no marks between them."""


def capture_time(source: str | Path | PictureBytes) -> datetime | None:
    """When a picture was taken, by the camera's own clock: a time zone that stands behind the time is dropped.

    The first of these that holds a date: the original's in EXIF (in its own folder or the main one), XMP (exif, then
    photoshop) and IPTC; then those of its digital form; then the "Creation Time" of a PNG. Times of the last change say
    nothing of the shot. A date alone is its midnight. None if the file has no date or cannot be read: damaged facts are
    common and no reason to refuse an image.
    """
    try:
        with (
            io.BytesIO(source) if isinstance(source, PictureBytes) else Path(source).open("rb") as file,
            quiet(),
            open_header(_without_pixels(file), max_pixels()) as image,
        ):
            return next(filter(None, map(parsed, _texts(image))), None)
    except Exception:  # Whatever Pillow raises for what a file may hold.
        return None


def parsed(text: str) -> datetime | None:
    """Read a date and time as devices write them: year, month and day, then the time, with any marks between them.

    >>> parsed("2026-11-20T08:15:30.25+02:00"), parsed("2026:11:20 08:15:60")
    (datetime.datetime(2026, 11, 20, 8, 15, 30, 250000), datetime.datetime(2026, 11, 20, 8, 16))
    """
    # Cameras fill fields up with NULs or blanks.
    text = text[:_LONGEST].strip("\0 \t\r\n")
    together = _TOGETHER.match(text)
    numbers = [one for one in together.groups() if one] if together else _NUMBER.findall(text)
    # a zone behind a time without seconds would be these
    if not together and len(plain := _NUMBER.findall(_ZONE.sub("", text))) == 5:
        numbers = plain
    try:
        if not numbers or len(numbers[0]) != 4:
            # "Fri, 20 Nov 2026 08:15:30 +0200", which the standard of PNG asks for
            return parsedate_to_datetime(text).replace(tzinfo=None)
        year, month, day, hour, minute, second = (int(one) for one in (*numbers, 0, 0, 0)[:6])
        # of some phones: "10:11:12 PM"
        if (half := _HALF.search(text)) and hour <= 12:
            hour = hour % 12 + (12 if half[1] in "pP" else 0)
        # a leap second, and the end of a day, are the beginning of what follows
        if len(numbers) < 3 or hour > 24 or minute > 59 or second > 60:
            return None
        # what else stands behind the seconds is the zone
        fractions = [one for one in numbers[6:7] if one in _FRACTION.findall(text)]
        fraction = int("".join(fractions)[:6].ljust(6, "0"))
        return datetime(year, month, day) + timedelta(0, second, fraction, 0, minute, hour)
    except (ValueError, OverflowError, TypeError):
        return None


def _texts(image: Image.Image) -> Iterator[str]:
    """Texts that may be a date, the best first; a part of the file that is damaged is passed over."""
    exif, xmp, iptc = _part(_exif, image) or [], _part(_xmp, image) or {}, _part(_iptc, image) or {}
    for exif_tag, xmp_names, iptc_tags in (
        (_ORIGINAL, _XMP_ORIGINAL, _IPTC_ORIGINAL),
        (_DIGITISED, _XMP_DIGITISED, _IPTC_DIGITISED),
    ):
        yield from (str(folder[exif_tag]) for folder in exif if exif_tag in folder)
        yield from (xmp[name] for name in xmp_names if name in xmp)
        yield " ".join(_latin(iptc[tag]) for tag in iptc_tags if tag in iptc)
    yield str(image.info.get("Creation Time", ""))


def _part(read: Callable[[Image.Image], T], image: Image.Image) -> T | None:
    try:
        return read(image)
    except Exception:  # as above
        return None


def _exif(image: Image.Image) -> list[Any]:
    main = image.getexif()
    return [main.get_ifd(_EXIF_FOLDER), main]


def _xmp(image: Image.Image) -> dict[str, str]:
    """Properties by name, those of elements and of attributes alike."""
    content = image.info.get("xmp", b"")[:_MOST_XMP]
    root = ElementTree.fromstring(content.strip(b"\0 ") if isinstance(content, bytes) else content)
    found: dict[str, str] = {}
    for element in root.iter():
        for name, value in (*element.attrib.items(), (element.tag, element.text or "")):
            found.setdefault(name, value)
    return found


def _iptc(image: Image.Image) -> dict[tuple[int, int], Any]:
    assert isinstance(image, ImageFile.ImageFile)
    return IptcImagePlugin.getiptcinfo(image) or {}


def _latin(value: Any) -> str:
    # a property that stands there several times is a list
    first = value[0] if isinstance(value, list) else value
    return first.decode("latin-1") if isinstance(first, bytes) else str(first)


def _without_pixels(file: io.BytesIO | io.BufferedReader) -> io.BytesIO | io.BufferedReader:
    """A PNG without its pixels, any other file as it is.

    Its dates may stand behind them, and Pillow would decode them all to read on: of six megapixels in 80 ms, not 1.
    """
    start = file.read(len(_PNG))
    file.seek(0)
    if start != _PNG:
        return file
    file.seek(len(_PNG))
    kept = io.BytesIO()
    kept.write(_PNG)
    while len(head := file.read(8)) == 8 and kept.tell() < _MOST:
        size, kind = int.from_bytes(head[:4], "big"), head[4:]
        if kind in (b"IDAT", b"fdAT"):
            file.seek(size + 4, 1)
            continue
        kept.write(head + file.read(min(size, _MOST) + 4))
    kept.seek(0)
    return kept
