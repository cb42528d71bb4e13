"""A JPEG that is decoded without a copy, once for network and thumbnail, has the pixels of Pillow's plain way."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from limner.data.images import LONG_SIDE, PictureBytes, decode, open_rgb, thumbnail
from limner.data.transforms import ImageSettings, load
from limner.errors import ImageError
from limner.types import Pixels


def photo(width: int, height: int, seed: int, mode: str = "RGB") -> Image.Image:
    """Coarse noise: edges that a filter with other weights would draw otherwise."""
    cells = np.random.default_rng(seed).integers(
        0, 256, (max(1, height // 3), max(1, width // 3), 3), np.uint8
    )
    return Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


@st.composite
def jpegs(draw: st.DrawFn) -> bytes:
    """JPEG files of all subsamplings, baseline and progressive, grey and CMYK, turned, with restart markers."""
    mode = draw(st.sampled_from(["RGB", "RGB", "L", "CMYK"]))
    image = photo(draw(st.integers(1, 330)), draw(st.integers(1, 330)), draw(st.integers(0, 9)), mode)
    exif = Image.Exif()
    exif[0x0112] = draw(st.integers(1, 8))
    options = {"subsampling": draw(st.sampled_from([0, 1, 2]))} if mode == "RGB" else {}
    file = io.BytesIO()
    settled = {
        "quality": draw(st.sampled_from([40, 90])),
        "restart_marker_blocks": draw(st.sampled_from([0, 3])),
    }
    try:
        image.save(file, "JPEG", progressive=draw(st.booleans()), exif=exif, **settled, **options)
    except OSError:
        # Pillow's buffer for a small progressive picture can be too small for it.
        assume(False)
    return file.getvalue()


@st.composite
def chosen(draw: st.DrawFn) -> ImageSettings:
    return ImageSettings(
        resize=draw(st.sampled_from([16, 40, 64, 128, (32, 64)])),
        crop=(8, 8),
        interpolation=draw(st.sampled_from(["bilinear", "bicubic", "lanczos", "nearest"])),
        scaled_decoding=draw(st.booleans()),
    )


def plain(data: bytes, asked: ImageSettings) -> Pixels:
    """`load` as Pillow alone does it, with all of its copies."""
    with Image.open(io.BytesIO(data)) as image:
        if asked.scaled_decoding:
            short_side = asked.resize if isinstance(asked.resize, int) else max(asked.resize)
            image.draft(None, (short_side, short_side))
        turn = {
            2: Image.Transpose.FLIP_LEFT_RIGHT,
            3: Image.Transpose.ROTATE_180,
            4: Image.Transpose.FLIP_TOP_BOTTOM,
            5: Image.Transpose.TRANSPOSE,
            6: Image.Transpose.ROTATE_270,
            7: Image.Transpose.TRANSVERSE,
            8: Image.Transpose.ROTATE_90,
        }.get(image.getexif().get(0x0112, 1))
        upright = image.convert("RGB") if turn is None else image.convert("RGB").transpose(turn)
    kept, size = asked.resized(*upright.size)
    left, top = ((length - part) // 2 for length, part in zip(upright.size, kept, strict=True))
    box = (left, top, left + kept[0], top + kept[1])
    resized = upright.resize(size, getattr(Image.Resampling, asked.interpolation.upper()), box=box)
    return np.array(resized)


@settings(max_examples=150)
@given(jpegs(), chosen())
def test_the_pixels_are_those_of_pillow_alone(data: bytes, asked: ImageSettings) -> None:
    expected = plain(data, asked)
    np.testing.assert_array_equal(load(data, asked), expected)
    np.testing.assert_array_equal(load(PictureBytes(data, "photo"), asked), expected)


@settings(max_examples=100)
@given(jpegs(), st.data())
def test_a_file_that_is_cut_off_is_read_or_refused_alike(data: bytes, draw: st.DataObject) -> None:
    part = data[: draw.draw(st.integers(0, len(data) - 1))]
    whole = load(data, ImageSettings()).tobytes()
    said: set[str | bytes] = set()
    for source, name in ((part, "photo"), (PictureBytes(part, "photo"), None)):
        try:
            said.add(load(source, ImageSettings(), name=name).tobytes())
        except ImageError as error:
            said.add(str(error))
    assert len(said) == 1
    try:
        expected: bytes | None = plain(part, ImageSettings()).tobytes()
    except Exception:
        expected = None
    # of what Pillow refuses the end alone may lack
    (outcome,) = said
    assert (
        outcome == expected
        if expected is not None
        else isinstance(outcome, str) or len(outcome) == len(whole)
    )


@settings(max_examples=100)
@given(jpegs(), st.integers(16, 300))
def test_a_decoded_picture_serves_the_thumbnail(data: bytes, side: int) -> None:
    content = PictureBytes(data, "photo")
    asked = ImageSettings(resize=side, crop=(1, 1))
    load(content, asked)
    shown = decode(thumbnail(content))
    expected = decode(thumbnail(data))
    assert shown.shape == expected.shape or abs(shown.shape[0] - expected.shape[0]) <= 1
    assert max(shown.shape) == max(expected.shape)
    # taken once: the second thumbnail is of a picture that is decoded anew
    assert thumbnail(content) == thumbnail(data)


def test_a_thumbnail_decodes_anew_what_was_decoded_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    photo(480, 480, 1).save(file, "JPEG")
    content = PictureBytes(file.getvalue(), "photo")
    load(content, ImageSettings(resize=120, crop=(100, 100)))
    assert content.decoded is not None
    assert content.decoded.size == (120, 120)
    assert thumbnail(content) == thumbnail(file.getvalue())
    assert decode(thumbnail(content)).shape == (LONG_SIDE, LONG_SIDE, 3)


def test_a_jpeg_has_let_go_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    photo(64, 48, 2).save(path)
    expected = decode(path.read_bytes())
    image = open_rgb(path)
    path.write_bytes(b"")
    path.unlink()
    np.testing.assert_array_equal(np.asarray(image.crop((0, 0, 64, 48))), expected)
    np.testing.assert_array_equal(np.asarray(image.copy()), expected)


def test_the_callers_image_is_not_handed_back() -> None:
    file = io.BytesIO()
    photo(20, 10, 3).save(file, "JPEG")
    given_image = Image.open(file)
    opened = open_rgb(given_image)
    opened.paste((0, 0, 0), (0, 0, 20, 10))
    assert np.asarray(given_image).any()


def test_bytes_of_a_file_are_named_like_it() -> None:
    content = PictureBytes(b"no picture", "folder/a.jpg")
    assert (content, str(content)) == (b"no picture", "folder/a.jpg")
    with pytest.raises(ImageError, match=r"^folder/a\.jpg: not a picture"):
        load(content, ImageSettings())
