import os
from pathlib import Path
from typing import Any

import pytest

from limner.errors import StoreError
from limner.search.segments import Extent, MissingSegmentError, Segments, SegmentWriter


@pytest.fixture(params=["folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A folder, and an object storage in memory."""
    if request.param == "folder":
        return tmp_path
    upath = pytest.importorskip("upath")
    return upath.UPath(f"memory://{tmp_path.name}/store")


def written(store: Any, *parts: bytes) -> SegmentWriter:
    writer = SegmentWriter(store)
    for part in parts:
        writer.write(part)
    writer.finish()
    return writer


def test_bytes_come_back_by_their_extents(store: Any) -> None:
    segments = Segments(store)
    assert segments.sizes() == {}
    first, second = written(store, b"abc", b"", b"defgh"), written(store, b"xyz")
    assert segments.sizes() == {first.name: 8, second.name: 3}
    extents = [
        Extent(second.name, 1, 2),
        Extent(first.name, 3, 5),
        Extent(first.name, 0, 3),
        Extent(second.name, 0, 0),
        Extent(first.name, 2, 2),
    ]
    assert [bytes(one) for one in segments.read(extents)] == [b"yz", b"defgh", b"abc", b"", b"cd"]
    assert segments.read([]) == []
    segments.remove_others([second.name])
    segments.remove([first.name])
    assert segments.sizes() == {second.name: 3}


def test_what_is_lost_or_cut_off_is_said_in_a_line(store: Any) -> None:
    segments = Segments(store)
    one = written(store, b"abc")
    with pytest.raises(StoreError, match=r"cut off"):
        segments.read([Extent(one.name, 1, 3)])
    with pytest.raises(StoreError, match=r"cut off"):
        segments.read([Extent(one.name, 7, 3)])
    segments.remove([one.name])
    with pytest.raises(MissingSegmentError, match=f"{one.name} is gone") as caught:
        segments.read([Extent(one.name, 0, 3)])
    assert "\n" not in str(caught.value)


def test_a_segment_without_bytes_is_no_file(store: Any) -> None:
    written(store)
    SegmentWriter(store).abandon()
    assert Segments(store).sizes() == {}


def test_what_was_begun_can_be_taken_back(store: Any) -> None:
    writer = SegmentWriter(store)
    writer.write(b"abc")
    writer.abandon()
    assert Segments(store).sizes() == {}


@pytest.mark.parametrize("place", ["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, place: str) -> None:
    name = written(tmp_path, b"abc").name
    segments = Segments(tmp_path)
    file = next(tmp_path.rglob(name))
    file.unlink()
    if place == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(StoreError):
        segments.read([Extent(name, 0, 3)])
