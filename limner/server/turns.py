"""Changes of the store, one after the other: those of one server never meet, and other processes are waited for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from limner.errors import StoreError, UnfinishedErasureError
from limner.server.problems import RefusedError

T = TypeVar("T")

WAIT = 30.0
"""Seconds that a change waits for another process that writes."""
MOST = 512
"""Changes that may wait for their turn."""
_AGAIN = 0.2
"""Seconds between two looks whether another process has done."""

_RETRY = {"Retry-After": "10"}


class Turns:
    """The line of the changes of one server, in one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._is_taken = False
        self._waiting = self._first = 0

    async def take(self, change: Callable[[], Awaitable[T]], *, first: bool = False) -> T:
        """Make a change when it is its turn; a person's erasure goes `first`.

        Raises `RefusedError` (503) if too many wait, and where another process has written for as long as it waits.
        """
        if self._waiting >= MOST and not first:
            raise RefusedError(
                503, f"{self._waiting} changes are waiting already; try again soon", _RETRY, reason="queue"
            )
        await self._begin(first)
        try:
            until = time.monotonic() + WAIT
            while True:
                try:
                    return await change()
                except StoreError as error:
                    # an erasure that has deleted what it had to says so itself
                    if error.trouble != "busy" or isinstance(error, UnfinishedErasureError):
                        raise
                if time.monotonic() >= until:
                    message = (
                        f"the store: another process has been changing it for {WAIT:g} s; try again later"
                    )
                    raise RefusedError(503, message, _RETRY, reason="store")
                await asyncio.sleep(_AGAIN)
        finally:
            async with self._changed:
                self._is_taken = False
                self._changed.notify_all()

    async def _begin(self, first: bool) -> None:
        async with self._changed:
            self._waiting += 1
            self._first += first
            try:
                await self._changed.wait_for(lambda: not self._is_taken and (first or not self._first))
                self._is_taken = True
            finally:
                self._waiting -= 1
                self._first -= first
                # one that was given up may have kept others waiting
                self._changed.notify_all()
