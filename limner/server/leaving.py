"""Clients that do not wait for their answer."""

import asyncio
from concurrent.futures import Future
from typing import Any, TypeVar

from starlette.requests import Request

from limner.server.problems import RefusedError

T = TypeVar("T")

GONE = 499
"""Status under which a request is counted whose client has gone; nobody reads it."""


async def unless_gone(request: Request, done: "Future[T]") -> T:
    """The result of a future, which is given up when the client goes. The body must have been read."""
    result = asyncio.wrap_future(done)
    gone = asyncio.ensure_future(_disconnect(request))
    either: list[asyncio.Future[Any]] = [result, gone]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise RefusedError(GONE, "the client has gone")
        return result.result()
    finally:
        result.cancel()
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
