"""Pictures of every form, with metadata planted wherever their formats let us, against the bytes and against Pillow."""

import io
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageSequence

from limner.data.image_metadata import encoded_anew, joined, pieces_without_metadata
from limner.data.images import decode
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


FORMS: dict[str, Callable[..., bytes]] = {"JPEG": jpeg, "PNG": png, "WEBP": webp, "GIF": gif}


@st.composite
def pictures(draw: st.DrawFn) -> bytes:
    turns = st.sampled_from([None, *range(10)])
    in_xmp = draw(st.sampled_from([None, None, *range(10)]))
    return FORMS[draw(st.sampled_from(sorted(FORMS)))](draw, draw(turns), in_xmp)


def stripped(content: bytes) -> bytes:
    pieces = pieces_without_metadata(content)
    assert pieces is not None
    return joined(pieces, content)


def frames_of(content: bytes) -> list[tuple[str, bytes, object, object]]:
    with Image.open(io.BytesIO(content)) as image:
        return [
            (frame.mode, frame.tobytes(), frame.info.get("duration"), frame.info.get("transparency"))
            for frame in ImageSequence.Iterator(image)
        ]


def nothing_is_left(content: bytes) -> None:
    """By bytes, packed ones among them, and by Pillow."""
    for shape in (
        SECRET,
        b"xmpmeta",
        b"52.52",
        b"Photoshop",
        b"GPS",
        zlib.compress(SECRET)[2:-4],
        b"2026:11",
    ):
        assert shape not in content
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        exif = image.getexif()
        assert set(exif) <= {0x0112}
        assert not exif.get_ifd(0x8825)
        assert not exif.get_ifd(0x8769)
        assert not {"xmp", "XML:com.adobe.xmp", "comment", "photoshop", "mp", "Author"} & image.info.keys()
        assert not getattr(image, "text", {})


@settings(max_examples=300, deadline=None)
@given(pictures())
def test_pixels_and_orientation_stay_and_nothing_else(content: bytes) -> None:
    kept = stripped(content)
    nothing_is_left(kept)
    assert frames_of(kept) == frames_of(content)
    # upright, as the page shows it and the model saw it
    assert (decode(kept) == decode(content)).all()
    with Image.open(io.BytesIO(content)) as before, Image.open(io.BytesIO(kept)) as after:
        assert getattr(after, "n_frames", 1) == getattr(before, "n_frames", 1)
        assert after.info.get("icc_profile") == before.info.get("icc_profile")
        assert after.info.get("loop") == before.info.get("loop")
        before.load()
        turn = before.getexif().get(0x0112, 1)
        assert after.getexif().get(0x0112, 1) == (turn if 1 <= turn <= 8 else 1)
    # what is bare is left as it is
    assert stripped(kept) == kept


@settings(max_examples=300, deadline=None)
@given(pictures(), st.data())
def test_damaged_files_end_in_a_piece_or_in_none(content: bytes, data: st.DataObject) -> None:
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    pieces = pieces_without_metadata(cut)
    if pieces is not None:
        assert all(0 <= p.start < p.stop <= len(cut) for p in pieces if isinstance(p, range))
        assert SECRET not in joined(pieces, cut)


@settings(max_examples=60, deadline=None)
@given(pictures(), st.binary(max_size=40))
@example(b"", b"GIF89a")
def test_any_bytes(content: bytes, other: bytes) -> None:
    pieces_without_metadata(other)
    pieces_without_metadata(content[: len(content) // 2] + other)


@settings(max_examples=60, deadline=None)
@given(pictures())
def test_encoding_anew_leaves_nothing_either(content: bytes) -> None:
    kept, kind = encoded_anew(content, "a.jpg")
    nothing_is_left(kept)
    before, after = decode(content), decode(kept)
    assert before.shape == after.shape
    if content.startswith((b"\x89PNG", b"GIF")):
        assert kind == "image/png"
        assert (before == after).all()
    else:
        assert kind == "image/jpeg"


def test_what_is_not_built_as_its_format_demands_is_encoded_anew() -> None:
    file = io.BytesIO()
    image = pixels_of("RGB", 3)
    image.save(file, "BMP")
    # a BMP may have bytes between its header and its pixels, and behind them
    content = file.getvalue() + SECRET
    assert pieces_without_metadata(content) is None
    kept, kind = encoded_anew(content, "a.bmp")
    assert kind == "image/png"
    assert SECRET not in kept
    assert (decode(kept) == decode(content)).all()
    file = io.BytesIO()
    image.save(file, "AVIF", exif=exif_of(6), xmp=XMP % 6, icc_profile=PROFILE)
    assert SECRET in file.getvalue()
    assert pieces_without_metadata(file.getvalue()) is None
    kept, kind = encoded_anew(file.getvalue(), "a.avif")
    nothing_is_left(kept)
    assert kind == "image/jpeg"
    assert decode(kept).shape == decode(file.getvalue()).shape
    with Image.open(io.BytesIO(kept)) as after:
        assert after.info["icc_profile"] == PROFILE
    with pytest.raises(ImageError, match=r"a\.gif"):
        encoded_anew(b"GIF89a", "a.gif")


def test_a_gif_that_pillow_turns_is_encoded_anew() -> None:
    file = io.BytesIO()
    pixels_of("P", 5).save(file, "GIF")
    xmp = b"!\xff\x0bXMP DataXMP" + XMP % 6 + b"\x01" + bytes(range(255, -1, -1)) + b"\0"
    content = file.getvalue()[:-1] + xmp + b";"
    with Image.open(io.BytesIO(content)) as image:
        turned = image.getexif().get(0x0112, 1) == 6
    assert (pieces_without_metadata(content) is None) == turned


def test_of_two_pictures_in_one_file_the_first_stays() -> None:
    file = io.BytesIO()
    first, second = pixels_of("RGB", 1), pixels_of("RGB", 2)
    first.save(file, "MPO", save_all=True, append_images=[second], exif=exif_of(3))
    content = file.getvalue()
    kept = stripped(content)
    nothing_is_left(kept)
    assert b"MPF" not in kept
    assert kept.count(b"\xff\xd8\xff") == 1
    assert (decode(kept) == decode(content)).all()


def test_a_profile_that_is_none_goes() -> None:
    file = io.BytesIO()
    pixels_of("RGB", 3).save(file, "JPEG", icc_profile=SECRET * 9)
    assert SECRET not in stripped(file.getvalue())
    # a long one, in several segments, and with bytes behind its end
    large = (200_000).to_bytes(4, "big") + PROFILE[4:] + bytes(200_000 - len(PROFILE))
    for form in ("JPEG", "PNG", "WEBP"):
        file = io.BytesIO()
        pixels_of("RGB", 3).save(file, form, icc_profile=large + SECRET)
        kept = stripped(file.getvalue())
        assert SECRET not in kept
        with Image.open(io.BytesIO(kept)) as after:
            assert after.info["icc_profile"] == large
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", b"\0\0\0\x01\0\0\0\x01\x08\0\0\0\0")
    content += chunk(b"iCCP", SECRET + b"\0\0" + zlib.compress(PROFILE))
    content += (
        chunk(b"iCCP", b"a\0\0" + SECRET) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    )
    assert SECRET not in stripped(content)


def test_many_chunks_are_one_piece() -> None:
    rows = zlib.compress(bytes(2 * 500))
    parts = b"".join(chunk(b"IDAT", rows[at : at + 1]) for at in range(len(rows)))
    content = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", b"\0\0\0\x01\0\0\x01\xf4\x08\0\0\0\0")
        + chunk(b"tEXt", b"Comment\0a")
        + parts
        + chunk(b"IEND", b"")
    )
    assert len(pieces_without_metadata(content) or []) == 2
    assert (decode(stripped(content)) == decode(content)).all()
