"""Scans and tables of a JPEG that no viewer shows: such a picture is encoded anew, a lawful one is not."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from limner.data.image_metadata import encoded_anew, joined, pieces_without_metadata
from limner.data.images import decode
from tests.data.test_image_metadata import PROFILE, SECRET, segment
from tests.data.test_image_order import icc, parts_of, smooth

DONE = b"\xff\xd9"


def jpeg_of(parts: list[bytes]) -> bytes:
    return b"\xff\xd8" + b"".join(parts) + DONE


def scan(components: bytes, first: int, last: int, before: int, now: int, data: bytes) -> bytes:
    head = bytes([len(components)]) + b"".join(bytes([name, 0]) for name in components)
    return segment(0xDA, head + bytes([first, last, before << 4 | now])) + data


def grey(frame: int, *scans: bytes) -> bytes:
    """A grey JPEG of 8 by 8 pixels, whose tables have one code each, and so take any bytes as their data."""
    tables = [
        segment(0xDB, b"\0" + bytes([1]) * 64),
        segment(frame, b"\x08\0\x08\0\x08\x01\x01\x11\0"),
        segment(0xC4, b"\0\x01" + bytes(15) + b"\0" + b"\x10\x01" + bytes(15) + b"\0"),
    ]
    if frame == 0xC2:
        tables[-1:] = [segment(0xC4, b"\0\x01" + bytes(15) + b"\0"), segment(0xC4, b"\x10\x01" + bytes(16))]
    return jpeg_of([*tables, *scans])


MEANS = scan(b"\1", 0, 0, 0, 1, b"\x7f")
REST = scan(b"\1", 1, 63, 0, 1, b"\x7f")
MEANS_AGAIN = scan(b"\1", 0, 0, 1, 0, b"\x7f")
REST_AGAIN = scan(b"\1", 1, 63, 1, 0, b"\x7f")
LAWFUL = {
    "means": (MEANS,),
    "means and rest": (MEANS, REST),
    "one bit after another": (MEANS, REST, REST_AGAIN, MEANS_AGAIN),
    "in bands": (MEANS, scan(b"\1", 1, 5, 0, 0, b"\x7f"), scan(b"\1", 6, 63, 0, 2, b"\x7f")),
}
HIDDEN = {
    "the same means": (scan(b"\1", 0, 0, 0, 1, SECRET), MEANS, REST),
    "the same rest": (MEANS, scan(b"\1", 1, 63, 0, 1, SECRET), REST),
    "a part of the rest": (MEANS, scan(b"\1", 5, 9, 0, 1, SECRET), REST),
    "a bit twice": (MEANS, REST, scan(b"\1", 1, 63, 1, 0, SECRET), REST_AGAIN),
    "means in another depth": (scan(b"\1", 0, 0, 0, 3, SECRET), MEANS, REST),
    "a bit left out": (scan(b"\1", 0, 0, 0, 3, b"\x7f"), scan(b"\1", 0, 0, 1, 0, SECRET), REST),
    "two bits at once": (scan(b"\1", 0, 0, 0, 2, b"\x7f"), scan(b"\1", 0, 0, 2, 0, SECRET), REST),
    "a bit before its scan": (MEANS, scan(b"\1", 1, 63, 1, 0, SECRET), REST),
    "rest before means": (scan(b"\1", 1, 63, 0, 1, SECRET), MEANS),
    "means and rest in one": (scan(b"\1", 0, 63, 0, 0, SECRET),),
    "beyond the block": (MEANS, REST, scan(b"\1", 1, 64, 1, 0, SECRET)),
    "backwards": (MEANS, REST, scan(b"\1", 6, 5, 0, 0, SECRET)),
    "too deep": (scan(b"\1", 0, 0, 0, 14, SECRET), REST),
    "a component that is not there": (MEANS, REST, scan(b"\2", 0, 0, 0, 0, SECRET)),
    "a component twice": (scan(b"\1\1", 0, 0, 0, 1, SECRET), REST),
    "a scan of nothing": (MEANS, REST, scan(b"", 0, 0, 0, 0, SECRET)),
    "a number that is not read": (MEANS, REST.replace(b"\1\1\0", b"\1\1\x30", 1)),
    "another": (MEANS.replace(b"\1\1\0", b"\1\1\x03", 1), REST),
    "a restart that is not announced": (MEANS, REST + b"\xff\xd0" + SECRET),
}


def progressive(scans: tuple[bytes, ...]) -> bytes:
    whole = grey(0xC2, *scans)
    if any(one[5:7] == b"\1\0" and one[7] > 0 for one in scans):
        return whole
    # without a scan of the rest its table would not be used
    return whole.replace(segment(0xC4, b"\x10\x01" + bytes(16)), b"")


@pytest.mark.parametrize("name", LAWFUL)
def test_a_lawful_progression_is_not_encoded_anew(name: str) -> None:
    content = progressive(LAWFUL[name])
    assert decode(content).shape == (8, 8, 3)
    pieces = pieces_without_metadata(content)
    assert pieces is not None
    assert joined(pieces, content) == content


@pytest.mark.parametrize("name", HIDDEN)
def test_no_scan_of_a_progressive_picture_hides_another(name: str) -> None:
    assert pieces_without_metadata(progressive(HIDDEN[name])) is None


def test_decoders_accept_a_scan_that_another_overwrites() -> None:
    """Why order matters: the text leaves no trace in the pixels."""
    content = progressive(HIDDEN["the same rest"])
    assert SECRET in content
    assert (decode(content) == decode(progressive(LAWFUL["means and rest"]))).all()
    assert SECRET not in encoded_anew(content, "a.jpg")[0]


def test_each_component_of_a_sequential_picture_is_in_one_scan() -> None:
    whole = scan(b"\1", 0, 63, 0, 0, b"\x3f")
    for frame in (0xC0, 0xC1):
        assert pieces_without_metadata(grey(frame, whole)) is not None
        assert pieces_without_metadata(grey(frame, scan(b"\1", 0, 63, 0, 0, SECRET), whole)) is None
    for head in (scan(b"\1", 0, 65, 0, 0, b"\x3f"), scan(b"\1", 0, 63, 4, 1, b"\x3f")):
        assert pieces_without_metadata(grey(0xC0, head)) is None
    # a component of the frame that no scan tells
    parts = parts_of(smooth("JPEG"))
    assert pieces_without_metadata(jpeg_of([part for part in parts if part[1] != 0xDA])) is None


def test_frames_of_other_kinds() -> None:
    whole = grey(0xC0, scan(b"\1", 0, 63, 0, 0, b"\x3f"))
    frame = b"\x08\0\x08\0\x08\x01\x01\x11\0"
    for other in (
        b"\x0c\0\x08\0\x08\x01\x01\x11\0",
        b"\x08\0\0\0\x08\x01\x01\x11\0",
        b"\x08\0\x08\0\0\x01\x01\x11\0",
        b"\x08\0\x08\0\x08\x01\x01\x10\0",
        b"\x08\0\x08\0\x08\x01\x01\x51\0",
        b"\x08\0\x08\0\x08\x01\x01\x11\4",
    ):
        assert whole.count(frame) == 1
        assert pieces_without_metadata(whole.replace(frame, other)) is None
    # the number of lines, which decoders skip
    assert pieces_without_metadata(whole[:-2] + segment(0xDC, b"\0\x08") + DONE) is None
    assert pieces_without_metadata(whole) is not None


def test_a_huffman_table_holds_no_text() -> None:
    table = segment(0xC4, b"\0\x01" + bytes(15) + b"\0" + b"\x10\x01" + bytes(15) + b"\0")
    whole = grey(0xC0, scan(b"\1", 0, 63, 0, 0, b"\x3f"))
    assert whole.count(table) == 1

    def rest(counts: bytes, values: bytes) -> bytes:
        new = b"\0\x01" + bytes(15) + b"\0" + b"\x10" + counts + bytes(16 - len(counts)) + values
        return whole.replace(table, segment(0xC4, new))

    assert pieces_without_metadata(rest(b"\1\1", b"\0\1")) is not None
    # a value twice, values that no picture has, more codes than there are, and none at all
    for counts, values in ((b"\1\1", b"\0\0"), (b"\1\1", b"\0o"), (b"\1\3", b"\0\1\2\3"), (b"\3", b"\0\1\2")):
        assert pieces_without_metadata(rest(counts, values)) is None
    means = table.replace(b"\0\x01" + bytes(15) + b"\0", b"\0\x01" + bytes(15) + b"A")
    assert pieces_without_metadata(whole.replace(table, means)) is None


def test_restart_markers_are_as_many_as_announced() -> None:
    rng = np.random.default_rng(4)
    for size, sampling, each, step in itertools.product(
        ((8, 8), (17, 33), (90, 31)), (0, 1, 2), (1, 3, 50), (False, True)
    ):
        file = io.BytesIO()
        image = Image.fromarray(rng.integers(0, 256, (*size, 3)).astype(np.uint8))
        image.save(file, "JPEG", subsampling=sampling, restart_marker_blocks=each, progressive=step)
        content = file.getvalue()
        pieces = pieces_without_metadata(content)
        assert pieces is not None
        assert (decode(joined(pieces, content)) == decode(content)).all()
        last = 0xD7 if content.count(b"\xff\xd7") and each == 1 else 0xD0
        hidden = content[:-2] + bytes([0xFF, last]) + SECRET + DONE
        assert pieces_without_metadata(hidden) is None


def test_an_interval_that_is_replaced() -> None:
    whole = smooth("JPEG", restart_marker_blocks=1)
    at = whole.index(b"\xff\xdd")
    assert pieces_without_metadata(whole) is not None
    assert pieces_without_metadata(whole[:at] + segment(0xDD, b"An") + whole[at:]) is None
    assert pieces_without_metadata(whole[:-2] + segment(0xDD, b"An") + DONE) is None


def parts_of_profile(count: int, size: int) -> list[bytes]:
    """A profile of so many parts of a size, which says that it is as long as they are."""
    whole = (count * size).to_bytes(4, "big") + PROFILE[4:] + bytes(count * size - len(PROFILE))
    return [whole[at : at + size] for at in range(0, len(whole), size)]


@pytest.mark.parametrize("size", [20, 65519])
@pytest.mark.parametrize(
    ("numbers", "told", "kept"),
    [
        (range(1, 256), 255, True),
        (range(255, 0, -1), 255, True),
        (range(256), 255, False),
        (range(256), 0, False),
        (range(255), 255, False),
        (range(1, 255), 255, False),
        ([*range(1, 255), 254], 255, False),
        ([*range(1, 256), 1], 255, False),
        (range(1, 256), 254, False),
        (range(1, 256), 0, False),
    ],
)
def test_the_number_of_parts_of_a_profile(size: int, numbers: list[int], told: int, kept: bool) -> None:
    size = max(size, -(-len(PROFILE) // 254))
    parts = parts_of_profile(256, size) if max(len(numbers), 255) > 255 else parts_of_profile(255, size)
    plain = smooth("JPEG")
    segments = [icc(number, told, parts[(number - 1) % len(parts)]) for number in numbers]
    content = plain[:20] + b"".join(segments) + plain[20:]
    pieces = pieces_without_metadata(content)
    assert (pieces is not None) == kept
    got = encoded_anew(content, "a.jpg")[0] if pieces is None else joined(pieces, content)
    assert decode(got).shape == decode(content).shape
    if kept:
        assert Image.open(io.BytesIO(got)).info["icc_profile"] == b"".join(parts)


def test_a_profile_that_no_jpeg_can_hold_is_dropped() -> None:
    large = 255 * 65519 + 1
    for size in (large - 1, large, large + 65519):
        profile = size.to_bytes(4, "big") + PROFILE[4:] + bytes(size - len(PROFILE))
        file = io.BytesIO()
        Image.new("RGB", (9, 9), (9, 99, 9)).save(file, "AVIF", icc_profile=profile)
        got, kind = encoded_anew(file.getvalue(), "a.avif")
        assert kind == "image/jpeg"
        assert (len(got) > 2**24 - 2**16) == (size < large)
        assert decode(got).shape == (9, 9, 3)
