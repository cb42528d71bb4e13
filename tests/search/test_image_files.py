import errno
import os
from pathlib import Path

import pytest

from limner.data.images import browser_type
from limner.errors import ChangedPictureError
from limner.search.image_files import open_unchanged, shown_bytes, small_bytes
from limner.store.entry import StoredImage
from tests.search.fake import draw


def stored(path: Path) -> StoredImage:
    status = path.stat()
    return StoredImage(str(path), "", status.st_size, status.st_mtime_ns)


def test_only_the_file_that_was_indexed_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = draw(tmp_path / "a.png", 1)
    image = stored(path)
    assert shown_bytes(image) == path.read_bytes()
    assert small_bytes(image).startswith(b"\xff\xd8")
    os.utime(path, ns=(0, 0))
    with pytest.raises(ChangedPictureError, match="gone or has changed"):
        open_unchanged(image)
    path.unlink()
    os.mkfifo(path)  # would block for ever
    with pytest.raises(ChangedPictureError):
        open_unchanged(image)

    def full(*given: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    # no file handle left says nothing of the picture
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="Too many open files"):
        open_unchanged(image)


def test_types_by_the_first_bytes() -> None:
    assert browser_type(b"RIFF....WEBPVP8 ") == "image/webp"
    assert browser_type(b"\0\0\0\x20ftypavif\0\0\0\0") == "image/avif"
    for other in (b"II*\0", b"<svg xmlns=", b"<html>", b""):
        assert browser_type(other) is None
