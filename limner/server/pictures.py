"""The picture files of a store, for those who have their key."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from limner.data.images import open_rgb
from limner.data.thumbnails import as_jpeg, thumbnail
from limner.search.entry import Entry
from limner.search.store import Store
from limner.server.decoding import Decoding
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

_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_HEADERS = {"Cache-Control": "private, max-age=300", "Vary": "Authorization"}


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


async def send_picture(store: Store, key: str, decoding: Decoding) -> Response:
    """The file of a picture, as it is where browsers show it, else as JPEG.

    Raises `RefusedError`: 404 for a key that the store does not hold, 410 for a file that is gone or has changed since
    it was indexed, 503 where too many wait; `ImageError` for a file that cannot be decoded.
    """
    entry = await run_in_threadpool(known_entry, store, key)
    with ExitStack() as ours:
        file = ours.enter_context(await run_in_threadpool(_open_unchanged, entry))
        kind = browser_type(file.read(16))
        file.seek(0)
        if kind is None:
            name = Path(entry.path).name
            content = await decoding.run(lambda: as_jpeg(open_rgb(file.read(), name=name)))
            return Response(content, media_type="image/jpeg", headers=_HEADERS)
        ours.pop_all()
    return _FileResponse(file, entry.size, kind)


async def send_thumbnail(store: Store, key: str, decoding: Decoding) -> Response:
    """A small JPEG of a picture: the store's, or made from its file. Raises what `send_picture` raises."""
    small = (await run_in_threadpool(store.thumbnails, [key]))[0]
    if small is None:
        entry = await run_in_threadpool(known_entry, store, key)

        def made() -> bytes:
            with _open_unchanged(entry) as file:
                return thumbnail(file.read())

        small = await decoding.run(made)
    return Response(small, media_type="image/jpeg", headers=_HEADERS)


def _open_unchanged(entry: Entry) -> BinaryIO:
    """The open file of a picture, which is that of the entry: nobody can put another in between."""
    gone = RefusedError(410, "the picture's file is gone or has changed since it was indexed")
    try:
        # a named pipe in its place would block for ever
        handle = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _TOO_MANY_OPEN:
            raise RefusedError(503, "too many files are open; try again soon", {"Retry-After": "1"}) from None
        raise gone from None
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or (state.st_size, state.st_mtime_ns) != (entry.size, entry.mtime):
        os.close(handle)
        raise gone
    return os.fdopen(handle, "rb")


class _FileResponse(StreamingResponse):
    """An open file of a known size in bytes, closed however the sending ends.

    Its pieces cannot close it: where a client has left, nobody asks for the first one.
    """

    def __init__(self, file: BinaryIO, size: int, media_type: str) -> None:
        headers = {**_HEADERS, "Content-Length": str(size)}
        super().__init__(_chunks(file, size), media_type=media_type, headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The file in pieces, no more than it had when it was opened."""
    while size > 0 and (chunk := file.read(min(_CHUNK, size))):
        size -= len(chunk)
        yield chunk
