"""Pictures are decoded in threads of their own, few at a time: a large one takes seconds and much memory."""

import asyncio
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import ParamSpec, TypeVar

from PIL import Image

from limner.data.images import formats, quiet
from limner.search.engine import Engine
from limner.search.query import Query
from limner.server.problems import RefusedError

P = ParamSpec("P")
T = TypeVar("T")

_DEEP = 4
"""Times the memory that a picture of more than eight bits takes while it is decoded."""


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
