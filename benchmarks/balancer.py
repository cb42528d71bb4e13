"""A load balancer as a program would put it before several servers, and what its clients saw of them."""

import asyncio
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

PROBED = 0.5
"""Seconds between two looks of the balancer at `/readyz`."""


@dataclass
class Seen:
    """What the clients saw."""

    answers: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost_to_kill: int = 0
    lost_to_dying: int = 0
    passed_on: int = 0
    milliseconds: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    stale: int = 0
    commits: int = 0


@dataclass
class Place:
    """One of the two places for a server: its port, its process, and what the balancer knows of it."""

    port: int
    process: subprocess.Popen[bytes] | None = None
    model: str = ""
    ready: bool = False
    begun: int = 0
    killed_at: float = 0.0
    gone_at: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Balancer:
    """Hands requests to servers that are ready, in turn."""

    def __init__(self, places: list[Place], client: httpx.AsyncClient, seen: Seen) -> None:
        self.places, self._client, self._seen, self._next = places, client, seen, 0

    async def watch(self) -> None:
        """Ask each server whether it is ready, for ever."""
        while True:
            await asyncio.gather(*(self._look(place) for place in self.places))
            await asyncio.sleep(PROBED)

    async def _look(self, place: Place) -> None:
        try:
            place.ready = (await self._client.get(f"{place.url}/readyz", timeout=5)).status_code == 200
        except httpx.HTTPError:
            place.ready = False

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[Place, httpx.Response] | None:
        """The answer and whose it is; None for a request that was lost, which is counted."""
        for _ in range(2 * len(self.places)):
            ready = [place for place in self.places if place.ready]
            if not ready:
                break
            self._next += 1
            place = ready[self._next % len(ready)]
            began = time.monotonic()
            place.begun += 1
            try:
                return place, await self._client.request(method, f"{place.url}{path}", json=body, timeout=40)
            except httpx.ConnectError:
                # nobody has begun it
                place.ready = False
                self._seen.passed_on += 1
            except httpx.HTTPError as error:
                if began <= place.killed_at:
                    self._seen.lost_to_kill += 1
                elif began <= place.gone_at:
                    # the system had not closed its port yet
                    self._seen.lost_to_dying += 1
                else:
                    self._seen.failed.append(f"{type(error).__name__} {path} at {place.model}")
                return None
            finally:
                place.begun -= 1
        self._seen.failed.append(f"no server for {path}")
        return None
