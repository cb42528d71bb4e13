"""When a picture was taken, by the camera's own clock."""

from datetime import datetime
from pathlib import Path

from PIL import Image

from limner.data.images import formats, quiet

_EXIF = 0x8769
_ORIGINAL, _DIGITISED = 0x9003, 0x9004
_FORM = "%Y:%m:%d %H:%M:%S"


def capture_time(path: str | Path) -> datetime | None:
    """The time in a picture's EXIF data (DateTimeOriginal, else DateTimeDigitized), without a time zone.

    None where there is none or it cannot be read: damaged EXIF data are common and no reason to refuse a picture.
    """
    try:
        with quiet(), Image.open(path, formats=formats()) as image:
            facts = image.getexif().get_ifd(_EXIF)
    except Exception:  # whatever Pillow raises for what a file may hold
        return None
    for tag in (_ORIGINAL, _DIGITISED):
        try:
            return datetime.strptime(str(facts.get(tag)).strip("\0 "), _FORM)
        except ValueError:
            continue
    return None


def local_time(text: str) -> datetime:
    """A time in ISO 8601; of one with a zone the clock's own reading is kept. Raises `ValueError`.

    >>> local_time("2026-11-20T08:15+02:00")
    datetime.datetime(2026, 11, 20, 8, 15)
    """
    return datetime.fromisoformat(text.strip()).replace(tzinfo=None)
