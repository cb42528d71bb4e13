import struct
import time
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin, TiffImagePlugin

from limner.data.capture_time import capture_time, parsed

TAKEN = datetime(2026, 11, 20, 8, 15, 30)


def exif(original: str | None = None, digitised: str | None = None, main: bool = False) -> Image.Exif:
    made = Image.Exif()
    # of a main folder that is empty Pillow writes nothing into a PNG
    made[0x010F] = "camera"
    folder = made if main else made.get_ifd(0x8769)
    folder.update({tag: text for tag, text in ((0x9003, original), (0x9004, digitised)) if text is not None})
    return made


def picture(path: Path, original: str | None = None, digitised: str | None = None) -> Path:
    """A JPEG with times in its EXIF data."""
    Image.new("RGB", (4, 4)).save(path, exif=exif(original, digitised))
    return path


def xmp(name: str, text: str, *, element: bool = False) -> bytes:
    """A packet with one property, as an attribute or an element."""
    spaces = {
        "exif": "http://ns.adobe.com/exif/1.0/",
        "photoshop": "http://ns.adobe.com/photoshop/1.0/",
        "xmp": "http://ns.adobe.com/xap/1.0/",
    }
    own = " ".join(f'xmlns:{short}="{space}"' for short, space in spaces.items())
    inner = f"><{name}>{text}</{name}></rdf:Description>" if element else f' {name}="{text}"/>'
    rdf = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    return (
        f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF {rdf}><rdf:Description {own}{inner}</rdf:RDF></x:xmpmeta>'
    ).encode()


def test_the_time_of_the_camera(tmp_path: Path) -> None:
    taken = picture(tmp_path / "a.jpg", original="2026:11:20 08:15:30", digitised="2026:12:01 00:00:00")
    assert capture_time(taken) == TAKEN
    scanned = picture(tmp_path / "b.jpg", original="    :  :     :  :  ", digitised="2026:12:01 00:00:00\0")
    assert capture_time(scanned) == datetime(2026, 12, 1)


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif", "avif"])
def test_all_places_of_all_containers(tmp_path: Path, ending: str) -> None:
    image, path = Image.new("RGB", (16, 16)), tmp_path / f"a.{ending}"
    # Pillow writes no folder of EXIF's own into a TIFF
    for main in (True,) if ending == "tif" else (False, True):
        image.save(path, exif=exif("2026-11-20T08:15:30", main=main))
        assert capture_time(path) == TAKEN
    for name in (
        "exif:DateTimeOriginal",
        "photoshop:DateCreated",
        "exif:DateTimeDigitized",
        "xmp:CreateDate",
    ):
        for element in (False, True):
            packet = xmp(name, "2026-11-20T08:15:30+01:00", element=element)
            tags = TiffImagePlugin.ImageFileDirectory_v2()
            tags[700] = packet
            chunks = PngImagePlugin.PngInfo()
            chunks.add_itxt("XML:com.adobe.xmp", packet.decode())
            own: dict[str, dict[str, Any]] = {"tif": {"tiffinfo": tags}, "png": {"pnginfo": chunks}}
            image.save(path, **own.get(ending, {"xmp": packet}))
            assert capture_time(path) == TAKEN, name
    # EXIF's original stands before XMP's, and any original before a digital form
    if ending in ("jpg", "webp", "avif"):
        image.save(path, exif=exif("2026:11:20 08:15:30"), xmp=xmp("exif:DateTimeOriginal", "2020-01-01"))
        assert capture_time(path) == TAKEN
        image.save(
            path,
            exif=exif(digitised="2020:01:01 00:00:00"),
            xmp=xmp("photoshop:DateCreated", "2026-11-20T08:15:30"),
        )
        assert capture_time(path) == TAKEN


def test_iptc(tmp_path: Path) -> None:
    """As news agencies have it, in the ninth of Photoshop's segments."""
    Image.new("RGB", (4, 4)).save(tmp_path / "a.jpg")
    content = (tmp_path / "a.jpg").read_bytes()
    for first, second in ((55, 60), (62, 63)):
        facts = b"".join(
            struct.pack(">BBBH", 0x1C, 2, tag, len(text)) + text
            for tag, text in ((first, b"20261120"), (second, b"081530+0100"))
        )
        segment = (
            b"Photoshop 3.0\x008BIM\x04\x04\0\0"
            + struct.pack(">I", len(facts))
            + facts
            + b"\0" * (len(facts) % 2)
        )
        whole = content[:2] + b"\xff\xed" + struct.pack(">H", len(segment) + 2) + segment + content[2:]
        (tmp_path / "b.jpg").write_bytes(whole)
        assert capture_time(tmp_path / "b.jpg") == TAKEN


@pytest.mark.parametrize("text", ["Fri, 20 Nov 2026 08:15:30 +0200", "2026-11-20T08:15:30+00:00"])
@pytest.mark.parametrize("behind", [False, True])
def test_texts_of_a_png(tmp_path: Path, text: str, behind: bool) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (64, 64)).save(path)
    content = path.read_bytes()
    chunk = b"tEXt" + b"Creation Time\0" + text.encode()
    whole = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    # the header is 33 bytes, the end 12
    place = len(content) - 12 if behind else 33
    path.write_bytes(content[:place] + whole + content[place:])
    assert capture_time(path) == TAKEN


# as exiftool 12.57 reads each by `-d "%Y-%m-%d %H:%M:%S"`, but for those without marks, which it prints as they stand
@pytest.mark.parametrize(
    "text",
    [
        *("2026:11:20 08:15:30", "2026-11-20 08:15:30", "2026/11/20 08:15:30", "2026.11.20 08.15.30"),
        *("2026-11-20T08:15:30Z", "2026:11:20 08:15:30+02:00", "2026:11:20 08:15:30-0700"),
        *("2026-11-20T08:15:30+01", "2026:11:20 8:15:30", "2026:11:20-08:15:30", "2026年11月20日 08:15:30"),
        *("20261120 081530+0100", "20261120T081530", "20261120081530", " 2026:11:20 08:15:30\0\0"),
    ],
)
def test_forms_of_devices(text: str) -> None:
    assert parsed(text) == TAKEN


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        *(("2026:11:20 08:15:30 PM", 20), ("2026:11:20 8:15:30pm", 20), ("2026:11:20 08:15:30 AM", 8)),
        *(("2026:11:20 12:15:30 a.m.", 0), ("2026:11:20 12:15:30 PM", 12), ("2026:11:20 20:15:30 PM", 20)),
    ],
)
def test_a_clock_of_twelve_hours(text: str, hour: int) -> None:
    assert parsed(text) == TAKEN.replace(hour=hour)


def test_parts_of_a_time() -> None:
    day = datetime(2026, 11, 20)
    assert parsed("2026:11:20") == parsed("20261120") == parsed("2026:11:20   :  :  ") == day
    assert parsed("2026-11-20T08:15+01:00") == parsed("2026:11:20 08:15") == TAKEN.replace(second=0)
    assert parsed("2026:11:20 08:15:30.25+02:00") == TAKEN.replace(microsecond=250_000)
    assert parsed("2026:11:20 08:15:60") == datetime(2026, 11, 20, 8, 16)
    assert parsed("2026:11:20 24:00:00") == datetime(2026, 11, 21)
    for none in (
        *("", "yesterday", "2026", "2026-11", "0000:00:00 00:00:00"),
        *("2026:02:30 08:00:00", "2026:11:20 25:00:00"),
    ):
        assert parsed(none) is None, none


@given(
    taken=st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 30)),
    marks=st.tuples(*3 * [st.sampled_from(":-/. ")]),
)
def test_any_time_in_any_form(taken: datetime, marks: tuple[str, str, str]) -> None:
    date, between, clock = marks
    taken = taken.replace(microsecond=0)
    assert parsed(taken.strftime(f"%Y{date}%m{date}%d{between}%H{clock}%M{clock}%S")) == taken
    assert parsed(taken.isoformat()) == taken


@given(text=st.text(max_size=40))
def test_any_text_has_a_time_or_none(text: str) -> None:
    assert parsed(text) is None or isinstance(parsed(text), datetime)


def test_no_time(tmp_path: Path) -> None:
    assert capture_time(picture(tmp_path / "none.jpg")) is None
    assert capture_time(picture(tmp_path / "wrong.jpg", original="yesterday")) is None
    assert capture_time(tmp_path / "missing.jpg") is None
    (tmp_path / "text.jpg").write_text("no picture")
    assert capture_time(tmp_path / "text.jpg") is None
    # the time of the last change says nothing of the shot
    changed = Image.Exif()
    changed[0x0132] = "2026:11:20 08:15:30"
    Image.new("RGB", (4, 4)).save(tmp_path / "changed.jpg", exif=changed)
    assert capture_time(tmp_path / "changed.jpg") is None
    # one part that is damaged hides no other
    path = tmp_path / "half.jpg"
    for damaged in (b"<x", b'<?xml version="1.0" encoding="another"?><x/>'):
        Image.new("RGB", (4, 4)).save(path, exif=exif(digitised="2026:11:20 08:15:30"), xmp=damaged)
        assert capture_time(path) == TAKEN


def test_what_is_chosen_to_be_dear_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (4, 4)).save(path)
    content, chunk = path.read_bytes(), b"\0\0\0\0prVt" + struct.pack(">I", zlib.crc32(b"prVt"))
    path.write_bytes(content[:-12] + 40_000 * chunk + content[-12:])
    start = time.process_time()
    assert capture_time(path) is None
    # 14 s where each chunk was held against all before it
    assert time.process_time() - start < 4
    packet, path = xmp("exif:DateTimeOriginal", "2026-11-20T08:15:30"), tmp_path / "a.webp"
    Image.new("RGB", (4, 4)).save(path, xmp=packet + b" " * 2**20)
    assert capture_time(path) == TAKEN
    # of so many elements a megabyte takes fifty of memory
    Image.new("RGB", (4, 4)).save(path, xmp=packet.replace(b"</x:", b"<a/>" * 2**18 + b"</x:"))
    assert capture_time(path) is None
