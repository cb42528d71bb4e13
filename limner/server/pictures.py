"""The image files of a store, for clients that have their key, and the decoding of images that clients send."""

import asyncio
import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from PIL import Image
from starlette.responses import Response

from limner.data.decoding_cost import max_pixels, too_large
from limner.data.images import browser_type, encoded_anew, open_header, quiet, thumbnail
from limner.errors import ChangedPictureError, ImageError
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.image_files import open_unchanged
from limner.search.query_vectors import PreparedRequest
from limner.server.answer_forms import kept_for
from limner.server.problems import RefusedError
from limner.store.contents import thumbnails
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.uploads import ENDINGS

P = ParamSpec("P")
T = TypeVar("T")


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
    if stored is None or stored.gone is not None:
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
    """Send an image encoded anew, or with `keep_metadata` its file, if browsers show that.

    Raises `RefusedError`: 404 for a key that the store does not hold, 410 for a file that is gone or has changed since
    it was indexed, 503 if too many requests wait; `ImageError` for a file that cannot be decoded.
    """
    entry = await to_thread.run_sync(known_image, files, key, limiter=reading)
    content, kind = await decoding.run(_leaving, entry, keep_metadata=keep_metadata)
    return Response(content, media_type=kind)


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
        content, kind = _leaving(entry, keep_metadata=keep_metadata)
    except (RefusedError, ImageError) as error:
        if isinstance(error, RefusedError) and error.status != 410:
            raise
        return thumbnails(files, [entry.id])[0] or b"", "-thumbnail.jpg"
    return content, ENDINGS[kind]


def _leaving(image: StoredImage, *, keep_metadata: bool) -> tuple[bytes, str]:
    """Return the file that leaves for an image, and its media type."""
    with _open(image) as file:
        # no more than was indexed, though the file may grow meanwhile
        content = file.read(image.size)
    # by the bytes: a file that is called .jpg and holds HTML is not sent as what its name says
    kind = browser_type(content[:16]) if keep_metadata else None
    return encoded_anew(content, Path(image.path).name) if kind is None else (content, kind)


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


def check_pixels(content: bytes, most: int | None) -> None:
    """Raise `RefusedError` (413) for an image that is too large, by its header (`limner.data.images.too_large`).

    An image that cannot be read passes; it is refused when it is decoded.
    """
    limit = most or max_pixels()
    try:
        with quiet(), open_header(io.BytesIO(content), limit) as image:
            reason = too_large(image, most)
    except Image.DecompressionBombError:
        reason = f"more than {limit:,} pixels; scale it down first"
    except Exception:  # damaged headers raise nearly anything
        return
    if reason:
        raise RefusedError(413, reason)


def with_pixels(engine: Engine, query: SearchRequest, most: int | None) -> SearchRequest:
    """Decode the image of a query. Raises what `check_pixels` and `Encoder.prepare_image` raise."""
    assert isinstance(query.image, bytes)
    # before decoding: from the header it takes 0.02 s to refuse an image of 521 kB that decodes to 2.5 GB
    check_pixels(query.image, most)
    return PreparedRequest(**dict(query), pixels=engine.encoder.prepare_image(query.image))
