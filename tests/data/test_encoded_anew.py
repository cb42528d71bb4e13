"""Pictures of every form, with metadata planted wherever their formats let us: pixels alone leave."""

import io
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps

from limner.data.images import PictureBytes, decode, encoded_anew, open_rgb, thumbnail
from limner.data.transforms import ImageSettings, load
from limner.errors import ImageError

SECRET = b"Ann-lives-at-52.5200N-13.4050E"
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:x tiff:Orientation="%d"/>' + SECRET + b"</x:xmpmeta>"
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def exif_of(turn: int | None) -> bytes:
    """EXIF data with a place, a comment, an owner, a preview's worth of bytes and perhaps an orientation."""
    exif = Image.Exif()
    if turn is not None:
        exif[0x0112] = turn
    exif[0x8298] = SECRET.decode()
    exif[0x010E] = SECRET.decode()
    exif.get_ifd(0x8825)[1], exif.get_ifd(0x8825)[2] = "N", (52.0, 31.0, 12.0)
    exif.get_ifd(0x8769)[0x9286] = b"ASCII\0\0\0" + SECRET
    exif.get_ifd(0x8769)[0x9003] = "2026:11:20 08:15:00"
    return exif.tobytes()


def pixels_of(mode: str, seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    height, width = int(rng.integers(1, 24)), int(rng.integers(1, 24))
    if mode == "P":
        return pixels_of("RGB", seed).quantize(16)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, (height, width)).astype(np.uint16))
    if mode == "1":
        return pixels_of("L", seed).convert("1")
    channels = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4, "LA": 2}[mode]
    values = rng.integers(0, 256, (height, width, channels)).astype(np.uint8)
    return Image.fromarray(values[..., 0] if channels == 1 else values, mode)


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def riff(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def jpeg(draw: st.DrawFn, turn: int | None, in_xmp: int | None) -> bytes:
    image = pixels_of(draw(st.sampled_from(["L", "RGB", "CMYK"])), draw(st.integers(0, 99)))
    file = io.BytesIO()
    image.save(
        file, "JPEG", progressive=draw(st.booleans()), icc_profile=draw(st.sampled_from([None, PROFILE]))
    )
    content = file.getvalue()
    planted = [
        segment(0xE1, exif_of(turn)),
        segment(0xED, b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0" + SECRET),
        segment(0xFE, SECRET),
        segment(0xE2, b"FPXR\0" + SECRET),
        segment(0xE5, SECRET),
        segment(0xE0, b"JFXX\0\x10" + SECRET),
        segment(0xEF, b""),
        b"\xff\xff" + segment(0xFE, SECRET),
    ]
    if in_xmp is not None:
        planted.append(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP % in_xmp))
    planted = draw(st.permutations(planted))
    # one segment in front of the pixels' own tables, the others behind the first of them
    first = 4 + int.from_bytes(content[4:6], "big")
    content = content[:first] + b"".join(planted) + content[first:]
    return content + draw(st.sampled_from([b"", SECRET, content, b"\0" * 9 + SECRET]))


def png(draw: st.DrawFn, turn: int | None, in_xmp: int | None) -> bytes:
    image = pixels_of(
        draw(st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])), draw(st.integers(0, 99))
    )
    file = io.BytesIO()
    frames = [image.rotate(180)] if draw(st.booleans()) and image.mode == "RGB" else []
    image.save(
        file,
        "PNG",
        icc_profile=draw(st.sampled_from([None, PROFILE])),
        save_all=bool(frames),
        append_images=frames,
        **({"transparency": 3} if image.mode == "P" else {}),
    )
    content = file.getvalue()
    planted = [
        chunk(b"tEXt", b"Comment\0" + SECRET),
        chunk(b"zTXt", b"Comment\0\0" + zlib.compress(SECRET)),
        chunk(b"iTXt", b"Author\0\0\0\0\0" + SECRET),
        chunk(b"tIME", bytes([7, 234, 11, 20, 8, 15, 0])),
        chunk(b"prVt", SECRET),
        chunk(b"sPLT", SECRET + b"\0\x08"),
        chunk(b"gAMA", SECRET),
        chunk(b"bKGD", b"\0\x01" + SECRET),
    ]
    if turn is not None:
        planted.append(chunk(b"eXIf", exif_of(turn).removeprefix(b"Exif\0\0")))
    if in_xmp is not None:
        planted.append(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP % in_xmp))
    before, behind = draw(st.sampled_from([(planted, []), ([], planted[:6] + planted[8:])]))
    # behind the header (33 bytes with the signature), or before the end (12 bytes)
    content = content[:33] + b"".join(before) + content[33:-12] + b"".join(behind) + content[-12:]
    return content + draw(st.sampled_from([b"", SECRET, content]))


def webp(draw: st.DrawFn, turn: int | None, in_xmp: int | None) -> bytes:
    image = pixels_of(draw(st.sampled_from(["RGB", "RGBA"])), draw(st.integers(0, 99)))
    file = io.BytesIO()
    frames = [image.rotate(180)] if draw(st.booleans()) else []
    told = {} if turn is None else {"exif": exif_of(turn)}
    if in_xmp is not None:
        told["xmp"] = XMP % in_xmp
    if draw(st.booleans()):
        told["icc_profile"] = PROFILE
    image.save(
        file,
        "WEBP",
        lossless=draw(st.booleans()),
        quality=30,
        save_all=bool(frames),
        append_images=frames,
        **told,
    )
    content = file.getvalue()
    if told or frames:
        body = content[12:] + riff(b"JUNK", SECRET)
        content = b"RIFF" + (4 + len(body)).to_bytes(4, "little") + b"WEBP" + body
    return content + draw(st.sampled_from([b"", SECRET]))


def gif(draw: st.DrawFn, turn: int | None, in_xmp: int | None) -> bytes:
    image = pixels_of("P", draw(st.integers(0, 99)))
    file = io.BytesIO()
    frames = [image.rotate(180)] if draw(st.booleans()) else []
    image.save(
        file, "GIF", comment=SECRET, save_all=bool(frames), append_images=frames, loop=3, transparency=2
    )
    content = file.getvalue()
    planted = [
        b"!\xfe" + bytes([len(SECRET)]) + SECRET + b"\0",
        b"!\xff\x0bXMP DataXMP" + XMP % 1 + b"\x01" + bytes(range(255, -1, -1)) + b"\0",
        b"!\xff\x0bNETSCAPE2.0" + bytes([len(SECRET)]) + SECRET + b"\0",
    ]
    content = content[:-1] + b"".join(draw(st.permutations(planted))) + content[-1:]
    return content + draw(st.sampled_from([b"", SECRET]))


def other(draw: st.DrawFn, turn: int | None, in_xmp: int | None) -> bytes:
    """A TIFF, AVIF, MPO or BMP."""
    form = draw(st.sampled_from(["TIFF", "AVIF", "MPO", "BMP"]))
    image = pixels_of(draw(st.sampled_from(["L", "RGB"])), draw(st.integers(0, 99)))
    told: dict[str, object] = {}
    if form != "BMP":
        told = {"exif": exif_of(turn), "icc_profile": draw(st.sampled_from([None, PROFILE]))}
    if form == "AVIF":
        told["xmp"] = XMP % (in_xmp or 1)
    if form == "MPO":
        told |= {"save_all": True, "append_images": [pixels_of("RGB", 100)]}
    file = io.BytesIO()
    image.save(file, form, **told)
    return file.getvalue() + (b"" if form == "AVIF" else SECRET)


FORMS: dict[str, Callable[..., bytes]] = {"JPEG": jpeg, "PNG": png, "WEBP": webp, "GIF": gif, "other": other}


@st.composite
def pictures(draw: st.DrawFn) -> bytes:
    turns = st.sampled_from([None, *range(10)])
    in_xmp = draw(st.sampled_from([None, None, *range(10)]))
    return FORMS[draw(st.sampled_from(sorted(FORMS)))](draw, draw(turns), in_xmp)


JPEG_PARTS = {0xE0, 0xDB, 0xC0, 0xC4, 0xDA}
"""Markers: JFIF, quantisation and Huffman tables, frame, scan."""


def only_pixels_are_left(content: bytes) -> None:
    """The file has the parts without which pixels cannot be decoded, and ends with them."""
    if content.startswith(b"\x89PNG"):
        at, kinds = 8, set()
        while at < len(content):
            kinds.add(content[at + 4 : at + 8])
            at += 12 + int.from_bytes(content[at : at + 4], "big")
        assert kinds == {b"IHDR", b"IDAT", b"IEND"}
        assert content.endswith(b"IEND\xaeB`\x82")
    else:
        at, markers = 2, set()
        assert content.startswith(b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0")
        while content[at + 1] != 0xDA:
            markers.add(content[at + 1])
            at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
        assert markers | {0xDA} == JPEG_PARTS
        coded = content[at + 2 :]
        # another marker behind the scan, or bytes behind its end
        assert re.search(rb"\xff[^\0]", coded) is not None
        assert re.split(rb"\xff[^\0]", coded, maxsplit=1)[1] == b""
    for shape in (SECRET, b"xmpmeta", b"52.52", zlib.compress(SECRET)[2:-4], b"2026:11", b"acsp"):
        assert shape not in content
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        assert not image.getexif()
        assert image.info.keys() <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
        assert getattr(image, "n_frames", 1) == 1


def encoded(pixels: np.ndarray, *, lossless: bool) -> bytes:
    file = io.BytesIO()
    if lossless:
        Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    else:
        Image.fromarray(pixels).save(file, "JPEG", quality=92, subsampling=0)
    return file.getvalue()


@settings(max_examples=400, deadline=None)
@given(pictures())
def test_upright_pixels_leave_and_nothing_else(content: bytes) -> None:
    """What leaves is a function of the pixels as the model sees them."""
    kept, kind = encoded_anew(content, "a.jpg")
    only_pixels_are_left(kept)
    lossless = content.startswith((b"\x89PNG", b"GIF", b"BM"))
    assert kind == ("image/png" if lossless else "image/jpeg")
    before, after = decode(content), decode(kept)
    assert before.shape == after.shape
    with Image.open(io.BytesIO(content)) as image:
        profiled = "icc_profile" in image.info
    if not profiled:
        assert kept == encoded(before, lossless=lossless)
    elif lossless:
        # from sRGB to sRGB, rounded
        assert np.abs(before.astype(int) - after).max() <= 1


@settings(max_examples=300, deadline=None)
@given(pictures(), st.data())
def test_damaged_files_leave_as_pixels_or_not_at_all(content: bytes, data: st.DataObject) -> None:
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    with suppress(ImageError):
        only_pixels_are_left(encoded_anew(cut)[0])


@settings(max_examples=60, deadline=None)
@given(pictures(), st.binary(max_size=40))
@example(b"", b"GIF89a")
def test_any_bytes(content: bytes, other: bytes) -> None:
    for damaged in (other, content[: len(content) // 2] + other):
        with suppress(ImageError):
            only_pixels_are_left(encoded_anew(damaged)[0])


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_a_turned_picture_leaves_upright(form: str, turn: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:24, :32], pixels[24:, :32], pixels[:24, 32:] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    file, plain = io.BytesIO(), io.BytesIO()
    # first: an AVIF takes the turn out of the EXIF data that it is given
    Image.fromarray(pixels).save(plain, "PNG", exif=exif)
    Image.fromarray(pixels).save(file, form, exif=exif)
    with Image.open(plain) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    after = decode(encoded_anew(file.getvalue())[0])
    assert after.shape == expected.shape
    assert np.abs(after.astype(int) - expected).mean() < 8


def test_of_an_animation_and_of_several_pictures_the_first_leaves() -> None:
    for form in ("PNG", "WEBP", "GIF", "MPO", "TIFF"):
        # made anew for each: a picture that was saved as an MPO cannot be saved as a TIFF
        first, second = (Image.new("RGB", (32, 24), colour) for colour in ((200, 90, 40), (40, 90, 200)))
        file = io.BytesIO()
        first.save(file, form, save_all=True, append_images=[second])
        kept, _ = encoded_anew(file.getvalue())
        only_pixels_are_left(kept)
        assert np.abs(decode(kept).astype(int) - (200, 90, 40)).max() < 8


def profile_of(space: bytes, connection: bytes, tags: dict[bytes, bytes]) -> bytes:
    """A colour profile of version 2 for a screen or a printer."""
    at, table, data = 128 + 4 + 12 * len(tags), b"", b""
    for name, value in tags.items():
        table += name + struct.pack(">II", at + len(data), len(value))
        data += value + bytes(-len(value) % 4)
    device = b"prtr" if space == b"CMYK" else b"mntr"
    header = struct.pack(">I4sI4s4s4s", at + len(data), bytes(4), 0x02400000, device, space, connection)
    header += bytes(12) + b"acsp" + bytes(28) + struct.pack(">iii", 63190, 65536, 54061)
    return header.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + data


def xyz(*values: float) -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(65536 * value)) for value in values)


def gamma(value: float) -> bytes:
    return b"curv\0\0\0\0\0\0\0\1" + struct.pack(">H", round(256 * value)) + b"\0\0"


TEXT = b"desc\0\0\0\0" + struct.pack(">I", len(SECRET) + 1) + SECRET + bytes(79)
RED, GREEN, BLUE = (0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)
WHITE = xyz(0.9642, 1.0, 0.8249)
SWAPPED = profile_of(
    b"RGB ",
    b"XYZ ",
    {
        b"desc": TEXT,
        b"wtpt": WHITE,
        b"rXYZ": xyz(*GREEN),
        b"gXYZ": xyz(*RED),
        b"bXYZ": xyz(*BLUE),
        **dict.fromkeys([b"rTRC", b"gTRC", b"bTRC"], gamma(2.2)),
    },
)
"""sRGB's primaries, and red stands for green."""
LINEAR = profile_of(b"GRAY", b"XYZ ", {b"desc": TEXT, b"wtpt": WHITE, b"kTRC": gamma(1.0)})
RAMP = bytes(range(256))
INKS = profile_of(
    b"CMYK",
    b"Lab ",
    {
        b"desc": TEXT,
        b"wtpt": WHITE,
        # no ink at all is black, each other corner of the cube is white
        b"A2B0": b"mft1\0\0\0\0"
        + bytes([4, 3, 2, 0])
        + struct.pack(">9i", *(65536 * (at % 4 == 0) for at in range(9)))
        + RAMP * 4
        + b"\x00\x80\x80"
        + b"\xff\x80\x80" * 15
        + RAMP * 3,
    },
)


def check_thumbnails(content: bytes, kept: np.ndarray) -> None:
    """Thumbnails have the mean colour, by themselves and after the network's pixels; so has a sheet."""
    read = PictureBytes(content, "a")
    load(read, ImageSettings())
    every = [decode(shown) for shown in (thumbnail(content), thumbnail(read))]
    every.append(np.asarray(open_rgb(content, short_side=8, shown=True)))
    for pixels in every:
        assert np.abs(pixels.mean((0, 1)) - kept.mean((0, 1))).max() <= 6


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L"])
def test_colours_are_those_of_the_profile(form: str, mode: str) -> None:
    if (form, mode) in {("JPEG", "RGBA"), ("JPEG", "P"), ("WEBP", "P"), ("AVIF", "P")}:
        return
    image = Image.new("RGB", (32, 24), (200, 90, 120)).convert(mode)
    file = io.BytesIO()
    image.save(
        file, form, icc_profile=SWAPPED, **({"quality": 95} if form in ("JPEG", "WEBP", "AVIF") else {})
    )
    assert SECRET in file.getvalue() or form == "PNG"
    kept, _ = encoded_anew(file.getvalue())
    only_pixels_are_left(kept)
    after, before = decode(kept)[12, 16].astype(int), decode(file.getvalue())[12, 16].astype(int)
    check_thumbnails(file.getvalue(), decode(kept))
    # a network sees it as it was trained, without the profile
    assert np.abs(after - before[[1, 0, 2]]).max() <= 6
    if mode in ("RGB", "RGBA"):
        assert np.abs(before - (200, 90, 120)).max() <= 4


def test_profiles_of_grey_and_of_inks() -> None:
    for mode, colour, profile, expected in (
        # half of the light is 188 in sRGB
        ("L", 128, LINEAR, 188),
        ("CMYK", (0, 0, 0, 0), INKS, 0),
        ("CMYK", (255, 255, 255, 255), INKS, 255),
    ):
        file = io.BytesIO()
        Image.new(mode, (16, 16), colour).save(file, "TIFF", icc_profile=profile)
        kept = decode(encoded_anew(file.getvalue())[0])
        assert np.abs(kept.astype(int) - expected).max() <= 3
        check_thumbnails(file.getvalue(), kept)


@pytest.mark.parametrize(
    ("mode", "profile"),
    [
        ("RGB", SECRET * 9),
        ("RGB", SWAPPED[:300]),
        ("RGB", SWAPPED[:132]),
        ("RGB", LINEAR),
        ("RGB", INKS),
        ("L", INKS),
        ("LA", LINEAR),
        ("1", LINEAR),
        ("I;16", SWAPPED),
        ("CMYK", LINEAR),
    ],
)
def test_a_profile_that_does_not_fit_is_ignored(mode: str, profile: bytes) -> None:
    file = io.BytesIO()
    image = Image.new("L", (16, 16), 99).convert(mode) if mode != "I;16" else pixels_of("I;16", 1)
    image.save(file, "TIFF", icc_profile=profile)
    kept, _ = encoded_anew(file.getvalue())
    only_pixels_are_left(kept)
    assert kept == encoded(decode(file.getvalue()), lossless=False)
    check_thumbnails(file.getvalue(), decode(kept))


def test_transparent_parts_are_white_with_a_profile_too() -> None:
    pixels = np.zeros((16, 16, 4), np.uint8)
    pixels[:8] = 200, 90, 120, 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", icc_profile=SWAPPED)
    after = decode(encoded_anew(file.getvalue())[0]).astype(int)
    assert (after[8:] == 255).all()
    assert np.abs(after[:8] - (90, 200, 120)).max() <= 2
