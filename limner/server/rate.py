"""How fast one client may send requests: a token bucket each."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from limner.server.problems import problem

_CLIENTS = 10_000
"""Clients that are remembered; the one that was quiet longest is forgotten first."""

_FREE = ("/v1/thumbnails/", "/v1/images/")
"""A page of results asks for a hundred of these at once, and no model works for them."""


class Buckets:
    """A bucket of `burst` tokens for each client, filled at `rate` a second."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take a token: 0.0, or the seconds until there is one."""
        now, level = self.clock(), self._level(client)
        self._levels.pop(client, None)
        self._levels[client] = (level - 1 if level >= 1 else level, now)
        if len(self._levels) > _CLIENTS:
            self._levels.popitem(last=False)
        return self._wait(level)

    def wait(self, client: str) -> float:
        """The seconds until there is a token; 0.0 = there is one."""
        return self._wait(self._level(client))

    def _level(self, client: str) -> float:
        now = self.clock()
        level, since = self._levels.get(client, (float(self.burst), now))
        return min(float(self.burst), level + (now - since) * self.rate)

    def _wait(self, level: float) -> float:
        return 0.0 if level >= 1 else (1 - level) / self.rate


class RateLimit:
    """ASGI middleware: 429 for a client whose bucket is empty."""

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        self.app = app
        self.buckets = buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "http" and scope["path"].startswith("/v1/") and not _is_free(scope):
            wait = self.buckets.take(client_of(scope))
            if wait:
                answer = too_many(f"at most {self.buckets.rate:g} requests a second", wait)
                return await answer(scope, receive, send)
        return await self.app(scope, receive, send)


def too_many(said: str, wait: float) -> Response:
    """The answer to a client that has to wait, seconds."""
    seconds = math.ceil(wait)
    return problem(429, f"{said}; try again in {seconds} s", headers={"Retry-After": str(seconds)})


def address_of(scope: Scope) -> str:
    """Who sent a request: the address, as IPv4 where it is one."""
    host = scope["client"][0] if scope.get("client") else "unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    return str(getattr(address, "ipv4_mapped", None) or address)


def client_of(scope: Scope) -> str:
    """Whom to count a request for: the address, of IPv6 the network, of which one customer has all addresses."""
    address = address_of(scope)
    if ":" not in address:
        return address
    return str(ipaddress.ip_network((address, 64), strict=False).network_address)


def _is_free(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["method"] == "GET" and path.startswith(_FREE)
