"""The image files of a store, for clients that have their key, and the decoding of images that clients send."""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from PIL import Image
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from limner.data.image_metadata import encoded_anew, pieces_without_metadata
from limner.data.image_parts import Piece
from limner.data.images import as_shown, open_header, open_rgb, quiet, thumbnail
from limner.errors import ChangedPictureError, ImageError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.image_files import browser_type, open_unchanged
from limner.search.query_vectors import PreparedRequest
from limner.server.answer_forms import kept_for
from limner.server.problems import RefusedError
from limner.store.contents import thumbnails
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.uploads import ENDINGS

P = ParamSpec("P")
T = TypeVar("T")

_DEEP = 4
"""Factor by which an image of more than eight bits takes more memory while it is decoded."""

_CHUNK = 256 * 1024

_READERS = 16
"""Threads that read the files of pictures and their thumbnails.

Apart from those of asyncio, which write the audit log and list pictures: a disk of pictures that hangs took all 40 of
them, and with them every search.
"""


def readers() -> CapacityLimiter:
    """Make the limit of the threads that read pictures for one app."""
    return CapacityLimiter(_READERS)


class Decoding:
    """Two threads with a queue of at most `most` requests; more raise `RefusedError` (503).

    `on_seconds` is called with the seconds that each request has taken in its thread.
    """

    def __init__(self, most: int = 128, on_seconds: Callable[[float], None] = lambda seconds: None) -> None:
        # few, and apart from the threads that read the store: a large image takes seconds and much memory. One
        # image of 521 kB once held the model for 5.5 s and took 2.5 GB
        self._threads = ThreadPoolExecutor(2, "limner-pictures")
        self._most, self._on_seconds = most, on_seconds
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a thread, or have one."""
        return self._waiting

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in one of the threads, and return its result."""
        # counted in the event loop alone, so that no lock is needed; the pool's own queue has no end
        if self._waiting >= self._most:
            raise RefusedError(
                503, "too many pictures are waiting; try again soon", {"Retry-After": "1"}, reason="pictures"
            )
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._timed, partial(function, *args, **kwargs))
        finally:
            self._waiting -= 1

    def _timed(self, function: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return function()
        finally:
            self._on_seconds(time.perf_counter() - began)


def known_image(files: StoreFiles, key: str) -> StoredImage:
    """Return the stored image of a key. Raises `RefusedError` (404)."""
    stored = files.entry(key)
    if stored is None:
        raise RefusedError(404, "the store holds no picture of this id")
    return stored


async def send_picture(
    files: StoreFiles,
    key: str,
    decoding: Decoding,
    reading: CapacityLimiter,
    *,
    keep_metadata: bool = False,
) -> Response:
    """Send the file of an image without its metadata if browsers show it, else a JPEG of it.

    A picture with a side that is too long for a JPEG becomes a PNG.

    With `keep_metadata` a file that browsers show is sent unchanged.

    Raises `RefusedError`: 404 for a key that the store does not hold, 410 for a file that is gone or has changed since
    it was indexed, 503 if too many requests wait; `ImageError` for a file that cannot be decoded.
    """
    entry = await to_thread.run_sync(known_image, files, key, limiter=reading)
    # closes the file on every way out but the last one, where the answer takes it over
    with ExitStack() as ours:
        file = ours.enter_context(await to_thread.run_sync(_open, entry, limiter=reading))
        # by the bytes: a file that is called .jpg and holds HTML is not sent as what its name says
        kind, name = browser_type(file.read(16)), Path(entry.path).name
        file.seek(0)
        if kind is None:
            content, kind = await decoding.run(lambda: as_shown(open_rgb(file.read(), name=name)))
            return Response(content, media_type=kind)
        pieces: list[Piece] | None = [range(entry.size)]
        if not keep_metadata:
            # places in the file and not its bytes, which 1,000 slow clients would keep in memory
            pieces = await decoding.run(lambda: pieces_without_metadata(file.read(entry.size)))
        if pieces is None:
            file.seek(0)
            content, kind = await decoding.run(lambda: encoded_anew(file.read(entry.size), name))
            return Response(content, media_type=kind)
        ours.pop_all()
    # by the open file and not by its path, behind which another one could be put now
    return _FileResponse(file, pieces, kind, reading)


async def send_thumbnail(
    files: StoreFiles,
    key: str,
    decoding: Decoding,
    reading: CapacityLimiter,
    *,
    seconds: int = 0,
    asked: str | None = None,
) -> Response:
    """Send a small JPEG of an image: the store's, or one made from its file. Raises what `send_picture` raises.

    With `seconds` the client may keep it for so long; `asked`: its If-None-Match header.
    """
    small = (await to_thread.run_sync(thumbnails, files, [key], limiter=reading))[0]
    if small is None:
        entry = await to_thread.run_sync(known_image, files, key, limiter=reading)

        def made() -> bytes:
            with _open(entry) as file:
                return thumbnail(file.read())

        small = await decoding.run(made)
    # made first in any case: of a picture that is gone or another one 304 would say that it has not changed
    return (
        kept_for(small, "image/jpeg", seconds, asked) if seconds else Response(small, media_type="image/jpeg")
    )


def small_or_whole(
    files: StoreFiles, entry: StoredImage, *, keep_metadata: bool = False
) -> tuple[bytes, str]:
    """Read an image's file as `send_picture` sends it, with the ending of its kind.

    Where the file is gone, has changed or cannot be decoded it is the store's thumbnail, with an ending that says so,
    or empty if the store keeps no thumbnails. Raises `RefusedError` (503) if the system has no file handle left.
    """
    try:
        with _open(entry) as file:
            content = file.read(entry.size)
        kind, name = browser_type(content[:16]), Path(entry.path).name
        if kind is None:
            content, kind = as_shown(open_rgb(content, name=name))
        elif not keep_metadata:
            pieces = pieces_without_metadata(content)
            if pieces is None:
                content, kind = encoded_anew(content, name)
            else:
                content = b"".join(
                    piece if isinstance(piece, bytes) else content[piece.start : piece.stop]
                    for piece in pieces
                )
    except (RefusedError, ImageError) as error:
        if isinstance(error, RefusedError) and error.status != 410:
            raise
        return thumbnails(files, [entry.id])[0] or b"", "-thumbnail.jpg"
    return content, ENDINGS[kind]


def _open(image: StoredImage) -> BinaryIO:
    """Open the file of an image, if it is the one that was indexed."""
    try:
        return open_unchanged(image)
    except ChangedPictureError as error:
        raise RefusedError(410, str(error)) from None
    except OSError:
        # says nothing of the image, so it is no 410: the client may try again
        raise RefusedError(
            503, "too many files are open; try again soon", {"Retry-After": "1"}, reason="files"
        ) from None


class _FileResponse(StreamingResponse):
    """Pieces of an open file, which is closed however the sending ends."""

    def __init__(
        self, file: BinaryIO, pieces: list[Piece], media_type: str, reading: CapacityLimiter
    ) -> None:
        headers = {"Content-Length": str(sum(map(len, pieces)))}
        super().__init__(_read(_chunks(file, pieces), reading), media_type=media_type, headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # not in `_chunks`: of a generator whose first piece nobody asks for, because the client has left, no line runs
        with self._file:
            await super().__call__(scope, receive, send)


async def _read(chunks: Iterator[bytes], reading: CapacityLimiter) -> AsyncIterator[bytes]:
    while chunk := await to_thread.run_sync(next, chunks, b"", limiter=reading):
        yield chunk


def _chunks(file: BinaryIO, pieces: list[Piece]) -> Iterator[bytes]:
    """Yield the pieces, from the file no more than it had when it was opened."""
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            continue
        file.seek(piece.start)
        # no more than Content-Length says: a file that grows meanwhile would break the protocol
        left = len(piece)
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk


def check_pixels(content: bytes, most: int) -> None:
    """Raise `RefusedError` (413) for an image of more pixels than `most`, by its header; deep ones by a quarter.

    An image that cannot be read passes; it is refused when it is decoded.
    """
    try:
        with quiet(), open_header(io.BytesIO(content), most) as image:
            # I and F: modes of more than eight bits; decoding them takes copies in 32 bits
            pixels, deep = image.width * image.height, image.mode[0] in "IF"
    # Pillow itself refuses at twice its own limit, already when it reads the header, and HEIC is refused at `most`
    except Image.DecompressionBombError:
        pixels, deep = most + 1, False
    except Exception:  # damaged headers raise nearly anything
        return
    if pixels * (_DEEP if deep else 1) > most:
        bits = " of more than eight bits" if deep else ""
        raise RefusedError(
            413, f"pictures{bits} have at most {most // (_DEEP if deep else 1):,} pixels; scale it down first"
        )


def with_pixels(engine: Engine, query: SearchRequest, max_pixels: int) -> SearchRequest:
    """Decode the image of a query. Raises what `check_pixels` and `Encoder.prepare_image` raise."""
    assert isinstance(query.image, bytes)
    # before decoding: from the header it takes 0.02 s to refuse an image of 521 kB that decodes to 2.5 GB
    check_pixels(query.image, max_pixels)
    return PreparedRequest(**dict(query), pixels=engine.encoder.prepare_image(query.image))
