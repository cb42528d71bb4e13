"""The picture files of a store, for those who have their key, and the decoding of those that clients send.

Pictures are decoded in threads of their own, few at a time: a large one takes seconds and much memory.
"""

import asyncio
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from limner.data.images import as_jpeg, formats, open_rgb, quiet, thumbnail
from limner.errors import ChangedPictureError
from limner.search.engine import Engine
from limner.search.entry import StoredImage
from limner.search.image_files import browser_type, open_unchanged
from limner.search.query import Query
from limner.search.store_files import StoreFiles
from limner.server.problems import RefusedError

P = ParamSpec("P")
T = TypeVar("T")

_DEEP = 4
"""Times the memory that a picture of more than eight bits takes while it is decoded."""

_CHUNK = 256 * 1024

_HEADERS = {"Cache-Control": "private, max-age=300", "Vary": "Authorization"}


class Decoding:
    """Two threads, for which at most `most` requests wait: `RefusedError` (503) beyond."""

    def __init__(self, most: int = 128) -> None:
        self._threads = ThreadPoolExecutor(2, "limner-pictures")
        self._most = most
        self._waiting = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function, called in one of the threads."""
        if self._waiting >= self._most:
            raise RefusedError(503, "too many pictures are waiting; try again soon", {"Retry-After": "1"})
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))
        finally:
            self._waiting -= 1


def known_image(files: StoreFiles, key: str) -> StoredImage:
    """The stored image of a key. Raises `RefusedError` (404)."""
    stored = files.entry(key)
    if stored is None:
        raise RefusedError(404, "the store holds no picture of this id")
    return stored


async def send_picture(files: StoreFiles, key: str, decoding: Decoding) -> Response:
    """The file of a picture, as it is where browsers show it, else as JPEG.

    Raises `RefusedError`: 404 for a key that the store does not hold, 410 for a file that is gone or has changed since
    it was indexed, 503 where too many wait; `ImageError` for a file that cannot be decoded.
    """
    entry = await run_in_threadpool(known_image, files, key)
    with ExitStack() as ours:
        file = ours.enter_context(await run_in_threadpool(_open, entry))
        kind = browser_type(file.read(16))
        file.seek(0)
        if kind is None:
            name = Path(entry.path).name
            content = await decoding.run(lambda: as_jpeg(open_rgb(file.read(), name=name)))
            return Response(content, media_type="image/jpeg", headers=_HEADERS)
        ours.pop_all()
    return _FileResponse(file, entry.size, kind)


async def send_thumbnail(files: StoreFiles, key: str, decoding: Decoding) -> Response:
    """A small JPEG of a picture: the store's, or made from its file. Raises what `send_picture` raises."""
    small = (await run_in_threadpool(files.thumbnails, [key]))[0]
    if small is None:
        entry = await run_in_threadpool(known_image, files, key)

        def made() -> bytes:
            with _open(entry) as file:
                return thumbnail(file.read())

        small = await decoding.run(made)
    return Response(small, media_type="image/jpeg", headers=_HEADERS)


def _open(image: StoredImage) -> BinaryIO:
    """The open file of a picture, which is the one that was indexed."""
    try:
        return open_unchanged(image)
    except ChangedPictureError as error:
        raise RefusedError(410, str(error)) from None
    except OSError:
        raise RefusedError(503, "too many files are open; try again soon", {"Retry-After": "1"}) from None


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


def check_pixels(content: bytes, most: int) -> None:
    """Raise `RefusedError` (413) for a picture of more pixels than `most`, by its header; deep ones by a quarter.

    What cannot be read passes, and is refused when it is decoded.
    """
    try:
        with quiet(), Image.open(io.BytesIO(content), formats=formats()) as image:
            pixels, deep = image.width * image.height, image.mode[0] in "IF"
    except Image.DecompressionBombError:
        pixels, deep = most + 1, False
    except Exception:  # damaged headers raise nearly anything
        return
    if pixels * (_DEEP if deep else 1) > most:
        bits = " of more than eight bits" if deep else ""
        raise RefusedError(
            413, f"pictures{bits} have at most {most // (_DEEP if deep else 1):,} pixels; scale it down first"
        )


def with_pixels(engine: Engine, query: Query, max_pixels: int) -> Query:
    """The query with its picture decoded. Raises what `check_pixels` and `Encoder.prepare_image` raise."""
    assert isinstance(query.image, bytes)
    check_pixels(query.image, max_pixels)
    return replace(query, pixels=engine.encoder.prepare_image(query.image))
