"""Takes metadata out of image files without decoding them: EXIF, place, XMP, IPTC, comments, previews, appended bytes.

What a viewer needs stays: the pixels as they are coded, the colour profile, transparency, animation, and the EXIF
orientation alone if the picture is turned. Parts are kept by name, so that an unknown part is removed.
"""

from limner.data.gif_metadata import gif_pieces
from limner.data.image_parts import MalformedError, Piece, profile_in
from limner.data.images import as_shown, open_rgb
from limner.data.jpeg_metadata import jpeg_pieces
from limner.data.png_metadata import PNG, png_pieces
from limner.data.webp_metadata import webp_pieces


def pieces_without_metadata(content: bytes) -> list[Piece] | None:
    """Find the pieces of a JPEG, PNG, WebP or GIF file that remain without metadata.

    None means another format, or a file that is not built as its format demands; `encoded_anew` can strip it.
    """
    for sign, at, pieces in _FORMATS:
        if content.startswith(sign, at):
            try:
                return _merged(pieces(content))
            # an index beyond the end, or a part that is longer or shorter than its format allows
            except (IndexError, MalformedError):
                return None
    return None


def encoded_anew(content: bytes, name: str) -> tuple[bytes, str]:
    """Decode a picture and encode it upright without metadata; returns the file and its media type.

    PNG, GIF and BMP become PNG, others JPEG, or PNG if a side is too long for a JPEG; of an animation the first frame
    remains. Raises `ImageError`.
    """
    image = open_rgb(content, name=name)
    # None for a chunk that Pillow cannot unpack
    profile = profile_in(image.info.get("icc_profile") or b"")
    # a profile of grey or CMYK would be wrong for the RGB that it was converted to
    if profile is not None and profile[16:20] != b"RGB ":
        profile = None
    return as_shown(image, profile, lossless=content.startswith((PNG, b"GIF8", b"BM")))


def joined(pieces: list[Piece], content: bytes) -> bytes:
    """Put the pieces of a file together."""
    return b"".join(
        content[piece.start : piece.stop] if isinstance(piece, range) else piece for piece in pieces
    )


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Join what lies side by side in the file: a large PNG has thousands of chunks, each of which would be a read."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else b""
        if isinstance(piece, range) and isinstance(last, range) and last.stop == piece.start:
            merged[-1] = range(last.start, piece.stop)
        else:
            merged.append(piece)
    return merged


_FORMATS = (
    (b"\xff\xd8\xff", 0, jpeg_pieces),
    (PNG, 0, png_pieces),
    (b"WEBP", 8, webp_pieces),
    (b"GIF8", 0, gif_pieces),
)
