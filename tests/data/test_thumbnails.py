import io
from pathlib import Path

import pytest
from PIL import Image

from limner.data.images import LONG_SIDE, thumbnail
from limner.errors import ImageError


def test_a_small_upright_jpeg_without_metadata(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    exif[0x010F] = "maker"
    file = tmp_path / "large.jpg"
    Image.new("RGB", (1200, 600), (200, 30, 30)).save(file, exif=exif)
    with Image.open(io.BytesIO(thumbnail(file))) as small:
        assert (small.format, small.size) == ("JPEG", (LONG_SIDE // 2, LONG_SIDE))
        assert not small.getexif()
        assert small.getpixel((64, 128)) == pytest.approx((200, 30, 30), abs=6)


def test_small_pictures_keep_their_size_and_bytes_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "small.png"
    Image.new("RGBA", (30, 20)).save(file)
    with Image.open(io.BytesIO(thumbnail(file.read_bytes()))) as small:
        assert small.size == (30, 20)
    with pytest.raises(ImageError, match="missing"):
        thumbnail(tmp_path / "missing.png")


def test_the_comment_of_a_jpeg_does_not_come_along(tmp_path: Path) -> None:
    """Pillow copies it unasked."""
    Image.new("RGB", (40, 40)).save(tmp_path / "a.jpg", comment=b"secret place")
    assert b"secret" in (tmp_path / "a.jpg").read_bytes()
    assert b"secret" not in thumbnail(tmp_path / "a.jpg")
