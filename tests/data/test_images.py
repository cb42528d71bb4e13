import io
import os
import struct
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from limner.data import decoding_cost
from limner.data.images import PictureBytes, decode, open_rgb
from limner.errors import ImageError, SettingsError

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def saved(image: Image.Image, format_name: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format_name, **options)
    return file.getvalue()


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and has next to no pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


# EXIF tag 0x0112: which side of the scene the stored picture's first row and first column show.
STORED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda scene: scene,  # top, left
    2: lambda scene: scene[:, ::-1],  # top, right
    3: lambda scene: scene[::-1, ::-1],  # bottom, right
    4: lambda scene: scene[::-1],  # bottom, left
    5: lambda scene: scene.transpose(1, 0, 2),  # left, top
    6: lambda scene: scene[:, ::-1].transpose(1, 0, 2),  # right, top
    7: lambda scene: scene[::-1, ::-1].transpose(1, 0, 2),  # right, bottom
    8: lambda scene: scene[::-1].transpose(1, 0, 2),  # left, bottom
}


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", STORED)
def test_pictures_come_upright(orientation: int, format_name: str) -> None:
    scene = np.asarray(noise(5, 8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](scene)))
    options = {"lossless": True} if format_name == "WEBP" else {}
    np.testing.assert_array_equal(decode(saved(stored, format_name, exif=exif, **options)), scene)


def test_a_phones_jpeg_is_turned_and_scaled() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.new("RGB", (640, 320)), "JPEG", exif=exif)
    assert decode(data).shape == (640, 320, 3)
    assert decode(data, short_side=80).shape == (160, 80, 3)


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b"Exif\0\0"])
def test_damaged_exif_data_is_no_reason_to_refuse_a_picture(exif: bytes) -> None:
    assert decode(saved(Image.new("RGB", (4, 3)), "JPEG", exif=exif)).shape == (3, 4, 3)


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 400))
def test_scaled_decoding_never_goes_below_the_wanted_side(width: int, height: int, short_side: int) -> None:
    pixels = decode(saved(Image.new("RGB", (width, height)), "JPEG"), short_side=short_side)
    assert min(pixels.shape[:2]) >= min(short_side, width, height)
    assert pixels.shape[0] <= height
    assert pixels.shape[1] <= width


def test_scaled_decoding_takes_the_eighth_where_it_may() -> None:
    data = saved(Image.new("RGB", (1600, 800)), "JPEG")
    assert [decode(data, short_side=side).shape[0] for side in (100, 101, 200, 201, 400, 401)] == [
        *(100, 200, 200, 400, 400, 800)
    ]


def grey16(mode: str) -> Image.Image:
    return Image.frombytes(
        mode, (3, 1), np.array([0, 32768, 65535], "<u2" if mode != "I;16B" else ">u2").tobytes()
    )


def with_alpha(mode: str) -> Image.Image:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(0, 0, 0, 255), (0, 0, 0, 127), (9, 9, 9, 0)])
    return image.convert(mode)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (saved(Image.new("RGB", (1, 1), (1, 2, 3)), "BMP"), [(1, 2, 3)]),
        (saved(Image.new("L", (1, 1), 77), "PNG"), [(77, 77, 77)]),
        (saved(Image.new("1", (1, 1), 1), "PNG"), [WHITE]),
        (saved(Image.new("RGB", (1, 1), RED).quantize(2), "PNG"), [RED]),
        (saved(with_alpha("RGBA"), "PNG"), [BLACK, (128, 128, 128), WHITE]),
        (saved(with_alpha("LA"), "PNG"), [BLACK, (128, 128, 128), WHITE]),
        (saved(with_alpha("RGBA"), "WEBP", lossless=True, exact=True), [BLACK, (128, 128, 128), WHITE]),
        (saved(Image.new("L", (1, 1), 7), "PNG", transparency=7), [WHITE]),
        (saved(Image.new("RGB", (1, 1), RED), "PNG", transparency=RED), [WHITE]),
        (saved(Image.new("P", (1, 1), 0), "PNG", transparency=b"\x00"), [WHITE]),
        (saved(Image.new("P", (1, 1), 0), "GIF", transparency=0), [WHITE]),
        (saved(grey16("I;16"), "PNG"), [BLACK, (128, 128, 128), WHITE]),
        (saved(grey16("I;16"), "PNG", transparency=0), [WHITE, (128, 128, 128), WHITE]),
        (saved(grey16("I;16"), "TIFF"), [BLACK, (128, 128, 128), WHITE]),
        (saved(grey16("I;16B"), "TIFF"), [BLACK, (128, 128, 128), WHITE]),
        (b"P5 3 1 65535\n" + np.array([0, 32768, 65535], ">u2").tobytes(), [BLACK, (128, 128, 128), WHITE]),
        (b"P6 1 1 65535\n" + np.array([0, 32768, 65535], ">u2").tobytes(), [(0, 128, 255)]),
        (
            saved(Image.fromarray(np.array([[-100, 0, 100]], np.int32)), "TIFF"),
            [BLACK, (128, 128, 128), WHITE],
        ),
        (
            saved(Image.fromarray(np.array([[0, 0.5, 1]], np.float32)), "TIFF"),
            [BLACK, (128, 128, 128), WHITE],
        ),
        (
            saved(Image.fromarray(np.array([[-2, 0, np.nan, 2]], np.float32)), "TIFF"),
            [BLACK, (128, 128, 128), (128, 128, 128), WHITE],
        ),
        (saved(Image.new("I", (2, 1), 0), "TIFF"), [BLACK, BLACK]),
        (saved(Image.new("CMYK", (1, 1), (0, 0, 0, 0)), "TIFF"), [WHITE]),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(data: bytes, expected: list[tuple[int, int, int]]) -> None:
    np.testing.assert_array_equal(decode(data), [expected])


@pytest.mark.parametrize(
    ("ink", "colour"),
    [((0, 0, 0, 0), WHITE), ((0, 0, 0, 255), BLACK), ((255, 255, 0, 0), BLUE), ((0, 255, 255, 0), RED)],
)
def test_inverted_cmyk_of_adobe_is_turned_round(ink: tuple[int, ...], colour: tuple[int, ...]) -> None:
    data = saved(Image.new("CMYK", (16, 16), ink), "JPEG", quality=95)
    assert b"Adobe" in data
    assert np.abs(decode(data).astype(int) - colour).max() <= 3
    assert decode(data, short_side=4).shape == (4, 4, 3)


@pytest.mark.parametrize("format_name", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_counts(format_name: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN, BLUE)]
    data = saved(frames[0], format_name, save_all=True, append_images=frames[1:])
    assert np.abs(decode(data).astype(int) - RED).max() <= 3


def test_the_array_is_the_callers_own(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    noise(3, 4).save(file)
    pixels = decode(file)
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    np.testing.assert_array_equal(pixels, np.asarray(noise(3, 4)))
    np.testing.assert_array_equal(decode(str(file)), pixels)


def refuse(source: str | Path | bytes, begins: str, says: str, **options: str) -> None:
    with pytest.raises(ImageError) as error:
        decode(source, **options)  # type: ignore[arg-type]
    message = str(error.value)
    assert message.startswith(f"{begins}: ")
    assert says in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a picture in a known format (JPEG, PNG"),
        (b"a text file", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (saved(noise(40, 40), "JPEG")[:400], "damaged header"),
        (saved(noise(40, 40), "JPEG")[:-400], "cut off or damaged"),
        (saved(noise(40, 40), "PNG")[:400], "cut off or damaged"),
        (saved(noise(40, 40), "WEBP")[:400], "damaged"),
        (png_header(65535, 65535), "more than 134,217,728"),
        (png_header(12_000, 12_000), "12000×12000 pixels are more than 134,217,728"),
        (b"P6 0 5 255\n", "or an empty one"),
        (
            b"BM" + struct.pack("<IIIIiiHHIIIIII", 54, 0, 54, 40, 0, 0, 1, 24, 0, 0, 0, 0, 0, 0),
            "or an empty one",
        ),
    ],
)
def test_what_is_no_sound_picture_is_refused_by_name(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(content)
    refuse(file, str(file), says)
    refuse(content, f"picture of {len(content):,} bytes", says)
    refuse(content, "upload.jpg", says, name="upload.jpg")


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    refuse(tmp_path / "none.jpg", str(tmp_path / "none.jpg"), "there is no such file")
    refuse(tmp_path, str(tmp_path), "a picture file was expected")
    refuse("a\0b", "a\0b", "cannot be opened")
    refuse("x" * 5000, "x" * 5000, "cannot be opened")
    os.mkfifo(tmp_path / "pipe")
    refuse(tmp_path / "pipe", str(tmp_path / "pipe"), "a picture file was expected")


def test_the_limit_is_on_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_cost, "MAX_PIXELS", 100)
    assert decode(saved(noise(10, 10), "PNG")).shape == (10, 10, 3)
    refuse(saved(noise(10, 11), "PNG"), "a", "11×10 pixels are more than 100", name="a")
    refuse(
        saved(noise(10, 11), "JPEG", progressive=True),
        "a",
        "11×10 pixels of a progressive JPEG are more",
        name="a",
    )
    refuse(
        saved(noise(5, 6).convert("I"), "TIFF"), "a", "6×5 pixels of more than eight bits, which", name="a"
    )
    # a JPEG costs what it is decoded at, whether a fraction was asked for or not; four times as much takes too long
    for short_side in (None, 1, 8, 10, 99):
        assert decode(saved(noise(20, 20), "JPEG"), short_side=short_side).size <= 3 * 100
    refuse(saved(noise(20, 21), "JPEG"), "a", "21×20 pixels are more than 100", name="a")
    monkeypatch.setenv("LIMNER_MAX_PIXELS", "300")
    assert decode(saved(noise(10, 11), "PNG")).shape == (10, 11, 3)
    for wrong in ("0", "many"):
        monkeypatch.setenv("LIMNER_MAX_PIXELS", wrong)
        with pytest.raises(SettingsError, match="LIMNER_MAX_PIXELS: expected"):
            decode(saved(noise(1, 1), "PNG"))


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_that_lacks_little_is_read(mode: str, progressive: bool) -> None:
    # 40 rows of blocks, of smooth colours, which no grey of a missing row is
    smooth = noise(10, 10).resize((320, 320), Image.Resampling.BICUBIC).convert(mode)
    file = io.BytesIO()
    smooth.save(file, "JPEG", quality=90, progressive=progressive)
    whole = file.getvalue()
    pixels = decode(whole)
    for end in (1, 2):
        cut = PictureBytes(whole[:-end], "a")
        np.testing.assert_array_equal(decode(cut), pixels)
        assert cut.is_cut
    read = PictureBytes(whole, "a")
    assert decode(read).shape == pixels.shape
    assert not read.is_cut
    for share in (0.01, 0.02, 0.03, 0.1, 0.2, 0.5, 0.9):
        cut = PictureBytes(whole[: int((1 - share) * len(whole))], "a")
        if progressive and share < 0.5:
            # fine detail is missing, and no row
            assert np.abs(decode(cut).astype(int) - pixels).mean() < 10
        elif share <= 0.03:
            np.testing.assert_array_equal(decode(cut)[:280], pixels[:280])
            assert decode(cut, short_side=40).shape == (40, 40, 3)
        elif not progressive:
            refuse(bytes(cut), "a", "rows are missing", name="a")


def test_what_lacks_more_than_its_end_is_refused() -> None:
    whole = saved(noise(64, 64), "JPEG")
    start = whole.index(b"\xff\xda")
    for end in (start - 5, start, start + 3, start + 40):
        refuse(whole[:end], "a", "a: ", name="a")


def test_an_image_in_memory_meets_the_same_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = saved(noise(40, 40), "PNG")
    assert open_rgb(Image.open(io.BytesIO(whole))).size == (40, 40)
    # Pillow reads the pixels late: a cut-off file opens without a complaint
    with pytest.raises(ImageError, match=r"^image: cut off or damaged \("):
        open_rgb(Image.open(io.BytesIO(whole[:400])))
    with pytest.raises(ImageError, match=r"^mine: it has no pixels"):
        open_rgb(Image.new("RGB", (0, 5)), name="mine")
    monkeypatch.setattr(decoding_cost, "MAX_PIXELS", 100)
    with pytest.raises(ImageError, match=r"^image: 11×10 pixels are more than 100; scale it down first"):
        open_rgb(noise(10, 11))
    with pytest.raises(ImageError, match=r"^array: 11×10 pixels are more than 100"):
        open_rgb(np.zeros((10, 11, 3), np.uint8))


def test_pillows_own_warnings_stay_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    data = saved(noise(10, 15), "PNG")
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(data))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert decode(data).shape == (10, 15, 3)
    assert not caught


def test_no_state_of_the_process_is_changed() -> None:
    def state() -> tuple[object, ...]:
        return (
            list(warnings.filters),
            Image.MAX_IMAGE_PIXELS,
            ImageFile.LOAD_TRUNCATED_IMAGES,
            Image.WARN_POSSIBLE_FORMATS,
        )

    before = state()
    data = [saved(noise(20, 30), name) for name in ("JPEG", "PNG", "TIFF", "GIF")] + [b"none"]

    def work() -> None:
        for _ in range(25):
            for item in data:
                try:
                    decode(item, short_side=4)
                except ImageError:
                    assert item == b"none"

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state() == before


SOUND = {
    "jpeg": saved(
        noise(16, 16), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    ),
    "progressive": saved(noise(16, 16), "JPEG", progressive=True),
    "cmyk": saved(noise(16, 16).convert("CMYK"), "JPEG"),
    "png": saved(noise(9, 8), "PNG"),
    "palette": saved(noise(9, 8).quantize(16), "PNG", transparency=3),
    "grey16": saved(grey16("I;16"), "PNG"),
    "gif": saved(noise(9, 8), "GIF", save_all=True, append_images=[noise(9, 8, 1)]),
    "tiff": saved(noise(9, 8), "TIFF"),
    "lzw": saved(noise(9, 8), "TIFF", compression="tiff_lzw"),
    "webp": saved(noise(9, 8), "WEBP"),
    "bmp": saved(noise(9, 8), "BMP"),
    "ppm": saved(noise(9, 8), "PPM"),
}


@pytest.mark.parametrize("kind", SOUND)
def test_damaged_bytes_give_a_picture_or_one_line(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A damaged header may claim any size; the true limit would let each example take seconds.
    monkeypatch.setattr(decoding_cost, "MAX_PIXELS", 2**18)
    sound = SOUND[kind]
    edits = st.lists(st.tuples(st.integers(0, len(sound) - 1), st.integers(0, 255)), max_size=6)
    # Most of the trouble is in the header.
    early = st.lists(st.tuples(st.integers(0, min(80, len(sound) - 1)), st.integers(0, 255)), max_size=6)

    messages: list[str] = []

    @settings(max_examples=120)
    @given(edits | early, st.integers(0, len(sound)) | st.just(len(sound)), st.binary(max_size=8))
    def check(changes: list[tuple[int, int]], end: int, tail: bytes) -> None:
        data = bytearray(sound)
        for at, value in changes:
            data[at] = value
        try:
            pixels = decode(bytes(data[:end]) + tail, short_side=4, name="photo")
        except ImageError as error:
            messages.append(str(error))
        else:
            assert pixels.dtype == np.uint8
            assert pixels.ndim == 3
            assert pixels.shape[2] == 3
            assert 0 < pixels.size <= 3 * 2**18

    check()
    assert messages
    for message in messages:
        assert message.startswith("photo: ")
        assert len(message.splitlines()) == 1


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_picture_or_an_image_error(data: bytes) -> None:
    try:
        decode(data)
    except ImageError:
        return
