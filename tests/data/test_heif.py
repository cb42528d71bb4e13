"""HEIC files, written here by pillow-heif."""

import io
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.data.capture_time import capture_time
from limner.data.heif import is_heif
from limner.data.images import decode, is_picture_name, open_rgb, thumbnail
from limner.errors import ImageError

pillow_heif = pytest.importorskip("pillow_heif")

TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
    8: lambda pixels: np.rot90(pixels),
}


def drawn(width: int = 64, height: int = 48) -> Image.Image:
    """Four different quarters, so that each turn shows."""
    image = Image.new("RGB", (width, height), "red")
    image.paste("green", (width // 2, 0, width, height // 2))
    image.paste("blue", (0, height // 2, width // 2, height))
    image.paste("white", (width // 2, height // 2, width, height))
    return image


def heic(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, quality=90, **options)
    return file.getvalue()


def exif(orientation: int = 1) -> bytes:
    facts = Image.Exif()
    facts[0x0112] = orientation
    facts.get_ifd(0x8769)[0x9003] = "2026:11:20 08:15:00"
    return facts.tobytes()


@pytest.mark.parametrize("orientation", sorted(TURNS))
def test_pixels_are_upright(orientation: int) -> None:
    found = decode(heic(drawn(), exif=exif(orientation)))
    expected = TURNS[orientation](np.array(drawn()))
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 12


def test_time_and_thumbnail(tmp_path: Path) -> None:
    path = tmp_path / "a.heic"
    path.write_bytes(heic(drawn(640, 480), exif=exif(6)))
    assert capture_time(path) == datetime(2026, 11, 20, 8, 15)
    with Image.open(io.BytesIO(thumbnail(path))) as small:
        assert (small.format, small.size) == ("JPEG", (192, 256))
        assert not small.getexif()


def test_the_small_picture_in_the_file_is_not_taken(tmp_path: Path) -> None:
    content = heic(drawn(640, 480), thumbnails=[256])
    assert open_rgb(content, short_side=100).size == (640, 480)


def test_a_name_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(heic(drawn()))
    drawn().save(tmp_path / "b.heic", "PNG")
    assert decode(tmp_path / "a.jpg").shape == decode(tmp_path / "b.heic").shape == (48, 64, 3)


@pytest.mark.parametrize("cut", [70, 200, 400, -1])
def test_cut_off(cut: int) -> None:
    with pytest.raises(ImageError, match=r"^x\.heic: (damaged header|cut off or damaged)"):
        decode(heic(drawn())[:cut], name="x.heic")


def test_of_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limner.data.decoding_cost.MAX_PIXELS", 100 * 100)
    assert decode(heic(drawn(96, 96))).shape == (96, 96, 3)
    with pytest.raises(ImageError, match="more than 10,000 pixels"):
        decode(heic(drawn(128, 128)))
    # 602 × 402 as it is coded, of which one corner is shown
    content = heic(drawn(601, 401))
    at = content.index(b"clap")
    cropped = content[: at + 4] + (16).to_bytes(4) + content[at + 8 : at + 12]
    cropped += (16).to_bytes(4) + content[at + 16 :]
    assert pillow_heif.open_heif(io.BytesIO(cropped)).size == (16, 16)
    with pytest.raises(ImageError, match="more than 10,000 pixels"):
        decode(cropped)


def test_a_size_that_is_not_that_of_the_pixels() -> None:
    content = heic(drawn(640, 640))
    at = content.index(b"ispe") + 8
    for width, height in ((16, 16), (640, 320), (2000, 2000), (0, 0)):
        changed = content[:at] + width.to_bytes(4) + height.to_bytes(4) + content[at + 8 :]
        with pytest.raises(ImageError, match=r"damaged"):
            decode(changed)


def test_an_overlay_is_refused() -> None:
    content = heic(drawn())
    at = content.index(b"hvc1")
    with pytest.raises(ImageError, match="an overlay of several pictures"):
        decode(content[:at] + b"iovl" + content[at + 4 :])


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(drawn())
    assert is_picture_name("IMG_1.HEIC")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert not is_picture_name("IMG_1.HEIC")
    with pytest.raises(ImageError, match=r"^x\.heic: a HEIC picture, which needs more: .*\[heif\]") as told:
        decode(content, name="x.heic")
    assert "\n" not in str(told.value)


def test_avif_is_none() -> None:
    assert not is_heif(bytes([0, 0, 0, 24]) + b"ftypavif" + bytes(4) + b"mif1avif")
    assert not is_heif(b"\xff\xd8\xff\xe0" + b"heic" * 4)
    # Pillow keeps knowing nothing of HEIC: nobody else's files are opened otherwise
    assert "HEIF" not in Image.OPEN
