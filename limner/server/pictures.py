"""The picture files of a store, for those who have their key."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from starlette.responses import Response, StreamingResponse

from limner.data.images import open_rgb
from limner.data.thumbnails import as_jpeg, thumbnail
from limner.search.entry import Entry
from limner.search.store import Store
from limner.server.problems import RefusedError

_CHUNK = 256 * 1024

_SIGNS = (
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"ftypavif", 4, "image/avif"),
    (b"BM", 0, "image/bmp"),
)
"""What files that browsers show begin with: bytes, where, and the type."""

_DECODING = threading.BoundedSemaphore(2)
"""A large picture takes hundreds of megabytes while it is decoded."""


def browser_type(beginning: bytes) -> str | None:
    """The media type of a file by its first bytes; None for what no browser shows.

    >>> browser_type(bytes([0xFF, 0xD8, 0xFF, 0xE0]))
    'image/jpeg'
    """
    return next((kind for sign, at, kind in _SIGNS if beginning.startswith(sign, at)), None)


def known_entry(store: Store, key: str) -> Entry:
    """What the store has of a picture. Raises `RefusedError` (404)."""
    entry = store.entry(key)
    if entry is None:
        raise RefusedError(404, "the store holds no picture of this id")
    return entry


def send_picture(store: Store, key: str) -> Response:
    """The file of a picture, as it is where browsers show it, else as JPEG.

    Raises `RefusedError`: 404 for a key that the store does not hold, 410 for a file that is gone or has changed since
    it was indexed.
    """
    entry = known_entry(store, key)
    file = _open_unchanged(entry)
    kind = browser_type(file.read(16))
    file.seek(0)
    headers = {"Cache-Control": "private, max-age=300", "Vary": "Authorization"}
    if kind is None:
        with file, _DECODING:
            content = as_jpeg(open_rgb(file.read(), name=Path(entry.path).name))
        return Response(content, media_type="image/jpeg", headers=headers)
    return StreamingResponse(
        _chunks(file, entry.size), media_type=kind, headers={**headers, "Content-Length": str(entry.size)}
    )


def send_thumbnail(store: Store, key: str) -> Response:
    """A small JPEG of a picture: the store's, or made from its file. Raises `RefusedError` as `send_picture`."""
    small = store.thumbnails([key])[0]
    if small is None:
        entry = known_entry(store, key)
        with _open_unchanged(entry) as file, _DECODING:
            small = thumbnail(file.read())
    headers = {"Cache-Control": "private, max-age=300", "Vary": "Authorization"}
    return Response(small, media_type="image/jpeg", headers=headers)


def _open_unchanged(entry: Entry) -> BinaryIO:
    """The open file of a picture, which is that of the entry: nobody can put another in between."""
    gone = RefusedError(410, "the picture's file is gone or has changed since it was indexed")
    try:
        # a named pipe in its place would block for ever
        handle = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        raise gone from None
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or (state.st_size, state.st_mtime_ns) != (entry.size, entry.mtime):
        os.close(handle)
        raise gone
    return os.fdopen(handle, "rb")


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The file in pieces, no more than it had when it was opened."""
    with file:
        while size > 0 and (chunk := file.read(min(_CHUNK, size))):
            size -= len(chunk)
            yield chunk
