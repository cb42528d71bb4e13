"""Reads image files: upright eight-bit RGB pixels, thumbnails. Refuses others by name.

Everything a camera, a scanner or a phone may leave in a folder ends as one kind of array. Colour profiles are
ignored, as the networks' own training did, except for what is shown to people. Only formats of
pictures are tried: Pillow would also start Ghostscript for a PostScript file that calls itself a photo. HEIC needs an
extra (`limner.data.heif`).
"""

import io
import stat
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, JpegImagePlugin, UnidentifiedImageError

from limner.data import heif
from limner.data.decoding_cost import SCALED, max_pixels, scale, too_large
from limner.errors import ImageError
from limner.types import ImageSource, Pixels

_MISSING = 0.05
"""Largest share of a JPEG's rows, from its lower end, that may lack: of a file that was cut off."""

SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".mpo", ".png", ".gif", ".bmp", ".dib", ".tif", ".tiff"),
        *(".webp", ".avif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"),
    }
)
"""Lower-case endings by which a file counts as a picture when a folder is listed; see `is_picture_name`."""

# "MPO", as phones write it, is missing on purpose: Pillow's JPEG reader finds and opens it itself.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "AVIF", "JPEG2000", "PPM")

# 1 is upright, and a value that EXIF does not define turns nothing.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The turn that undoes each value of the EXIF orientation tag."""

_ORIENTATION = 0x0112

_FILTERS = threading.Lock()


class PictureBytes(bytes):
    """The content of a picture file, read once for its digest, its pixels, its times and its thumbnail.

    - `name`: the file's name, with which errors begin; `str` gives it, too.
    - `decoded`: the upright RGB picture that `limner.data.transforms` resized, kept for `thumbnail`.
    - `is_whole`: False if it was decoded at a fraction of its size; `is_cut`: True if its file lacks its end.
    """

    name: str
    decoded: Image.Image | None
    is_whole: bool
    is_cut: bool

    def __new__(cls, content: bytes, name: str) -> "PictureBytes":
        """Keep a file's bytes with its name."""
        picture = super().__new__(cls, content)
        picture.name, picture.decoded, picture.is_whole, picture.is_cut = name, None, True, False
        return picture

    def __str__(self) -> str:
        # encoders of other packages name their source in errors, and megabytes are no name
        return self.name

    def take_decoded(self, long_side: int) -> Image.Image | None:
        """The decoded picture, once, if it loses nothing in being made as small as `long_side` pixels."""
        image, self.decoded = self.decoded, None
        return image if image is not None and (self.is_whole or max(image.size) >= long_side) else None


def decode(source: ImageSource, *, short_side: int | None = None, name: str | None = None) -> Pixels:
    """Decode a picture file, or the bytes of one, to upright RGB.

    With `short_side` a JPEG may come out at 1/2, 1/4 or 1/8 of its size, several times faster, but never
    with a shorter side below `short_side` pixels (a smaller picture keeps its size). Transparent parts
    become white, 16 bits become 8 by scaling, of an animation the first frame counts. A JPEG that lacks its end
    marker, or at most a twentieth of its rows, is read, with grey for what is missing.

    Raises `ImageError`, which begins with the file's name (`name`, where bytes are given), for whatever
    cannot be read: missing, cut off, damaged, no picture, empty, or too large (`limner.data.decoding_cost`).
    """
    # A copy: `np.asarray` gives Pillow's own memory, read-only, of which torch warns.
    return np.array(open_rgb(source, short_side=short_side, name=name), dtype=np.uint8)


def open_rgb(
    source: ImageSource, *, short_side: int | None = None, name: str | None = None, shown: bool = False
) -> Image.Image:
    """Decode as `decode` does, to a loaded Pillow image of mode RGB, for a caller that resizes it next.

    `shown`: in sRGB by the colour profile of a file, for people; networks read the numbers as they stand in it.
    """
    if isinstance(source, np.ndarray):
        return _of_pixels(source, name or "array")
    if isinstance(source, Image.Image):
        return _of_pillow(source, name or "image")
    if isinstance(source, PictureBytes):
        return _read(io.BytesIO(source), name or source.name, short_side, source, srgb=shown)
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), name or _called(source), short_side, srgb=shown)
    path, named = Path(source), name or str(source)
    try:
        # A named pipe would block for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ImageError(f"{named}: a picture file was expected, this is a folder or a device")
        with path.open("rb") as file:
            return _read(file, named, short_side, srgb=shown)
    except FileNotFoundError:
        raise ImageError(f"{named}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ImageError(f"{named}: cannot be opened ({_reason(error)})") from None


def is_picture_name(name: str) -> bool:
    """True for a file that counts as a picture when a folder is listed, by its ending; HEIC counts with the extra."""
    ending = Path(name).suffix.lower()
    return ending in SUFFIXES or (ending in heif.SUFFIXES and heif.has_heif())


_JPEG = b"\xff\xd8\xff"

# by the bytes and not by the name, which may say anything. TIFF is missing: of the browsers only Safari shows it
_SIGNS = (
    (_JPEG, 0, "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"ftypavif", 4, "image/avif"),
    (b"BM", 0, "image/bmp"),
)
"""First bytes of the files that browsers show: the bytes, their offset, and the media type."""


def browser_type(beginning: bytes) -> str | None:
    """Tell the media type of a file by its first bytes; None if no browser shows it.

    >>> browser_type(bytes([0xFF, 0xD8, 0xFF, 0xE0]))
    'image/jpeg'
    """
    return next((kind for sign, at, kind in _SIGNS if beginning.startswith(sign, at)), None)


def open_header(file: io.BytesIO | io.BufferedReader, most: int) -> Image.Image:
    """Read the header of a picture file: its pixels are decoded when they are asked for.

    Raises `limner.data.heif.MissingHeifError` for HEIC without the extra, Pillow's `DecompressionBombError` for HEIC of
    more than `most` pixels and others of more than twice Pillow's own limit, and nearly anything for damaged headers.
    """
    if heif.begins_heif(file):
        return heif.open_heif(file, most)
    start = file.tell()
    if file.read(3) == _JPEG:
        file.seek(start)
        # `Image.open` refuses by the size in the header alone, whatever decoding costs
        with suppress(SyntaxError, IndexError, TypeError, struct.error):
            return JpegImagePlugin.jpeg_factory(file)
    file.seek(start)
    return Image.open(file, formats=formats())


def _of_pixels(pixels: np.ndarray, named: str) -> Image.Image:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise ImageError(
            f"{named}: RGB pixels, uint8 (height, width, 3), were expected, got {pixels.dtype} {pixels.shape}"
        )
    return _of_pillow(Image.fromarray(pixels), named)


def _of_pillow(image: Image.Image, named: str) -> Image.Image:
    """An upright RGB copy; the caller's image stays open."""
    width, height = image.size
    # Pillow can make a picture of no pixels, and fails much later, in resizing.
    if not width or not height:
        raise ImageError(f"{named}: it has no pixels")
    if reason := too_large(image):
        raise ImageError(f"{named}: {reason}")
    try:
        upright = _upright_rgb(image)
        return image.copy() if upright is image else upright
    except Exception as error:  # A lazily opened file fails here, in as many ways as `_read` knows.
        raise ImageError(f"{named}: cut off or damaged ({_reason(error)})") from None


def _read(
    file: io.BytesIO | io.BufferedReader,
    named: str,
    short_side: int | None,
    content: PictureBytes | None = None,
    *,
    srgb: bool = False,
) -> Image.Image:
    most = max_pixels()
    try:
        # Pillow's own limit raises from 178,956,970 pixels on only, twice its MAX_IMAGE_PIXELS.
        with quiet():
            # Opening reads the header alone, so the size is known before memory is taken.
            image = open_header(file, most)
            # `draft` changes `image.size`
            size, reason = image.size, too_large(image)
            if not reason:
                scale(image, short_side)
    except heif.MissingHeifError as error:
        raise ImageError(f"{named}: {error}") from None
    except Image.DecompressionBombError:
        raise ImageError(f"{named}: more than {most:,} pixels; scale it down first") from None
    except UnidentifiedImageError:
        known = ", ".join(formats())
        raise ImageError(f"{named}: not a picture in a known format ({known}), or an empty one") from None
    except (
        Exception
    ) as error:  # Damaged headers raise nearly anything, AttributeError and struct.error included.
        raise ImageError(f"{named}: damaged header ({_reason(error)})") from None
    # Raised here, since the clause above would call our own ImageError a damaged header.
    if reason:
        raise ImageError(f"{named}: {reason}")
    if content is not None:
        content.is_whole = image.size == size
    try:
        try:
            upright = _upright_rgb(image, srgb=srgb)
        except OSError:
            if image.format not in SCALED:
                raise
            whole = _without_end(file, short_side)
            image.close()
            image = whole
            upright = _upright_rgb(image, srgb=srgb)
            if content is not None:
                content.is_cut = True
        # Not the opened image itself, which is about to be closed. That of a JPEG has let go of its file and is a
        # picture as any other: the copy would take a twentieth of the time that a photograph takes.
        if upright is image and image.format != "JPEG":
            upright = image.copy()
    except Exception as error:  # As above; MemoryError among them.
        image.close()
        raise ImageError(f"{named}: cut off or damaged ({_reason(error)})") from None
    if upright is not image:
        image.close()
    return upright


def _without_end(file: io.BytesIO | io.BufferedReader, short_side: int | None) -> Image.Image:
    """Load a JPEG that is cut off. Raises `OSError` if too much is missing."""
    file.seek(0)
    content = file.read()
    try:
        image = _ended(content, short_side)
    except OSError:
        # within the head of a further scan of a progressive one, which would take the marker for its own
        image = _ended(content[: max(content.rfind(b"\xff\xc4"), content.rfind(b"\xff\xda"))], short_side)
    column = np.asarray(image.crop((image.width - 1, 0, image.width, image.height)))
    rows = np.flip(np.all(np.abs(column.reshape(image.height, -1) - 127.5) <= 0.5, axis=1))
    missing = image.height if rows.all() else int(rows.argmin())
    if missing > _MISSING * image.height:
        raise OSError(f"{missing} of {image.height} rows are missing")
    return image


def _ended(content: bytes, short_side: int | None) -> Image.Image:
    # the decoder takes what lacks in front of an end marker for grey
    image = open_header(io.BytesIO(content + b"\xff\xd9"), max_pixels())
    scale(image, short_side)
    image.load()
    return image


def _called(content: bytes) -> str:
    return f"picture of {len(content):,} bytes"


def _upright_rgb(image: Image.Image, *, srgb: bool = False) -> Image.Image:
    """Load a picture; upright RGB, the opened picture itself if it is that already."""
    if image.format == "TIFF":  # Reads its tags, and may warn of them, while it loads.
        with quiet():
            image.load()
    else:
        image.load()
    with quiet():
        # After loading: a PNG may hold the tag behind its pixels, a TIFF turns itself and drops the tag.
        turn = _UPRIGHT.get(orientation(image))
    plain = _rgb(_in_srgb(image) if srgb else image)
    return plain if turn is None else plain.transpose(turn)


def orientation(image: Image.Image) -> int:
    """The EXIF orientation of an opened picture; 1, which is upright, if it has none."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # Damaged EXIF data is common and says nothing about the pixels.
        return 1
    return value if isinstance(value, int) else 1


def _space(image: Image.Image) -> str | None:
    """The colours that a picture's profile is of; None without one that can be read."""
    try:
        data = image.info.get("icc_profile")
        return ImageCms.ImageCmsProfile(io.BytesIO(data)).profile.xcolor_space.strip() if data else None
    except (OSError, ImageCms.PyCMSError):
        return None


def _in_srgb(image: Image.Image) -> Image.Image:
    """Apply the colour profile that a picture brings; one that is damaged or of another kind is ignored."""
    data = image.info.get("icc_profile")
    # Pillow converts no greys of more than eight bits
    if not data or image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return image
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
        if profile.profile.xcolor_space.strip() == "RGB":
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        elif image.has_transparency_data:
            # grey: its transparency would be lost
            return image
        mode = "RGBA" if image.mode == "RGBA" else "RGB"
        return (
            ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode=mode)
            or image
        )
    except (OSError, ImageCms.PyCMSError):
        return image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    # Before transparency: Pillow makes white of every 16-bit grey above 255.
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        # Dropping the alpha alone would show the colours that lie hidden behind it, often black.
        with_alpha = image.convert("RGBA")
        canvas = Image.new("RGB", image.size, "white")
        canvas.paste(with_alpha, mask=with_alpha.getchannel("A"))
        canvas.info = {name: value for name, value in image.info.items() if name == "icc_profile"}
        return canvas
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey values of 16 or 32 bits or floats, scaled to 0 … 255 where Pillow's own conversion clips.

    Integers within 16 bits are read as 16-bit grey, floats within [0, 1] as shares of white. Wider values
    have no agreed white: the smallest becomes black, the largest white.
    """
    values = np.asarray(image).astype(np.float32)
    # One infinite value would stretch the scale until all others were one grey.
    finite = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    low, high = float(finite.min()), float(finite.max())
    white = 1.0 if image.mode == "F" else 65535.0
    if low >= 0 and high <= white:
        low, high = 0.0, white
    grey = np.round((finite - low) * (255.0 / (high - low))) if high > low else np.zeros_like(finite)
    transparent = image.info.get("transparency")
    # The one transparent grey of a PNG, in the file's own 16 bits: compared before scaling.
    if isinstance(transparent, int):
        grey[values == transparent] = 255
    return Image.fromarray(grey.astype(np.uint8))


@cache
def formats() -> tuple[str, ...]:
    """The formats of pictures that this Pillow reads."""
    # Asked for a format it was built without, Pillow ends in a KeyError.
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Pillow's remarks on odd metadata, and on large pictures before we refuse them, to ourselves.

    The filters belong to the whole process: without the lock, two threads that leave in another order than
    they came would keep them changed. The costly part, loading the pixels, is left outside of it.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:120] if lines and lines[0] else type(error).__name__


LONG_SIDE = 256
"""Longer side of a thumbnail in pixels; smaller pictures keep their size."""

_QUALITY = 80  # about 10 kB for a photograph

LONGEST_JPEG = 65500
"""Longest side of a JPEG, in pixels, that its library writes and reads."""
_LOSSLESS = (b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM")
"""First bytes of PNG, GIF and BMP: what is often drawn, and would show the marks of a JPEG, stays without loss."""


def thumbnail(source: str | Path | bytes) -> bytes:
    """Upright, in sRGB, without any metadata. Raises `ImageError` as `limner.data.images.decode`."""
    image = source.take_decoded(LONG_SIDE) if isinstance(source, PictureBytes) else None
    # colours of print or of grey are not in the RGB that was decoded for the network
    if image is None or _space(image) not in (None, "RGB"):
        # The shorter side keeps at least 256, so decoding at a fraction never makes the thumbnail smaller.
        image = open_rgb(source, short_side=LONG_SIDE, shown=True)
        image.info = {}
    # `thumbnail` keeps the ratio and enlarges nothing; `resize` does neither.
    image.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.BILINEAR)
    # of the small one: a large one takes a third of a second
    image = _in_srgb(image)
    return _encoded(image, quality=_QUALITY, subsampling="4:2:0")[0]


def encoded_anew(content: bytes, name: str | None = None) -> tuple[bytes, str]:
    """Decode a picture file and encode it as browsers show it; returns the new file and its media type.

    It is a function of the pixels alone, upright, in sRGB and on white: nothing else of the file comes along. PNG, GIF
    and BMP become PNG, others JPEG, or PNG if a side is too long for a JPEG; of an animation the first frame remains.
    0.1 s for a JPEG of 12 million pixels, 0.34 s with a colour profile, 1.2 s for a PNG. Raises `ImageError`.
    """
    image = _read(io.BytesIO(content), name or _called(content), None, srgb=True)
    # colours in full: at half the resolution, red on black loses its edges. A tenth more bytes
    lossless = content.startswith(_LOSSLESS)
    return _encoded(image, lossless=lossless, quality=92, subsampling="4:4:4")


def _encoded(
    image: Image.Image, *, lossless: bool = False, quality: int, subsampling: str
) -> tuple[bytes, str]:
    file = io.BytesIO()
    # Pillow copies some of this into the new file, and which of it differs between formats and versions.
    image.info = {}
    if lossless or max(image.size) > LONGEST_JPEG:
        # Level 1: level 6 takes five times as long for a tenth fewer bytes, while somebody waits.
        image.save(file, "PNG", compress_level=1)
        return file.getvalue(), "image/png"
    image.save(file, "JPEG", quality=quality, subsampling=subsampling)
    return file.getvalue(), "image/jpeg"
