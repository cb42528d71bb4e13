"""Limits for one client: the size of a body, and requests a second; and for all, answers that nobody reads.

`limner.server.connections` limits times and connections.
"""

import asyncio
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limner.server.batching import GONE
from limner.server.problems import REFUSED_FOR, problem
from limner.server.routes import rules_of

# /v1/explain sends a text of at most 2,000 characters, each of which takes up to 12 bytes in JSON's escapes
_PLAIN = 64 * 1024
_LINGERING = 2.0
"""Seconds in which the rest of a body that was not read is thrown away."""


class Bodies:
    """ASGI middleware: 413 for a body that is too large, and the end of the connection after an answer to a body that
    was not read.

    The size is that of the Content-Length, before anything is read, and also counted while the body arrives. `largest`
    is for bodies that carry an image or an export; others have at most 64 KiB.
    """

    def __init__(self, app: ASGIApp, largest: int) -> None:
        self.app = app
        self.largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        largest = self.largest if rules_of(scope).large else min(self.largest, _PLAIN)
        headers = dict(scope["headers"])
        length, chunked = headers.get(b"content-length"), b"transfer-encoding" in headers
        if chunked and length is not None:
            # a proxy could read another request out of it than this server does
            two = "a body has a Content-Length or a Transfer-Encoding, not both"
            return await problem(400, two, headers={"Connection": "close"})(scope, receive, send)
        unread, size = chunked or length not in (None, b"0"), 0
        too_large = length is not None and not _is_at_most(length, largest)

        async def counted() -> Message:
            nonlocal unread, size
            # only where the app wants the body: a client without the right gets 403, not 413
            if too_large:
                raise HTTPException(413, _too_large(largest))
            message = await receive()
            if unread and message["type"] == "http.disconnect":
                raise HTTPException(GONE, "the client has gone")
            unread = unread and message.get("more_body", False)
            size += len(message.get("body", b""))
            # counted as well: a chunked body has no Content-Length
            if size > largest:
                # this kind, because FastAPI makes a 400 of any other error while it reads
                raise HTTPException(413, _too_large(largest))
            return message

        async def closing(message: Message) -> None:
            if unread and message["type"] == "http.response.start":
                # the rest of the body would be taken for the next request
                MutableHeaders(scope=message)["Connection"] = "close"
            elif unread and not message.get("more_body", False):
                # closed at once, a connection with unread bytes is reset, and the reset may overtake the answer
                await send({**message, "more_body": True})
                message = {"type": "http.response.body"}
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LINGERING):
                        while (await receive()).get("more_body", False):
                            pass
            await send(message)

        return await self.app(scope, counted, closing)


def _is_at_most(length: bytes, largest: int) -> bool:
    # isdigit alone would let a number through that int() takes seconds for, or refuses (4,300 digits)
    return not length or (length.isdigit() and len(length) <= 18 and int(length) <= largest)


def _too_large(largest: int) -> str:
    return f"a body has at most {largest:,} bytes here"


_UNREAD = 2**28
"""Bytes of answers that may wait for clients that do not read them, in all."""
_LARGE = 2**16
"""Bytes up to which an answer leaves all the same: those of all connections together are fewer than these."""


class Unread:
    """ASGI middleware: 503 in place of a large answer while too much of others waits for clients that do not read.

    190 clients with a token that did not read 4 MB each took a gigabyte. `unread`: counts the bytes that wait now.
    """

    def __init__(self, app: ASGIApp, unread: Callable[[], int]) -> None:
        self.app = app
        self.unread = unread
        # of answers on their way out, which `unread` does not count yet
        self._leaving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and look at its answer before it leaves."""
        start: Message | None = None
        refused = False

        async def counted(message: Message) -> None:
            nonlocal start, refused
            if message["type"] == "http.response.start":
                # kept back until the size of the body is known
                start = message
                return
            if start is not None:
                first, start = start, None
                size = len(message.get("body", b""))
                waiting = self._leaving + self.unread() if size > _LARGE else 0
                # one by itself is sent however large it is, or nobody could have it
                refused = waiting > 0 and waiting + size > _UNREAD
                if refused:
                    scope[REFUSED_FOR] = "unread"
                    said = "too many answers wait for clients that do not read them; try again soon"
                    await problem(503, said, headers={"Retry-After": "1"})(scope, receive, send)
                    return
                self._leaving += size
                try:
                    await send(first)
                    await send(message)
                finally:
                    self._leaving -= size
            elif not refused:
                await send(message)

        return await self.app(scope, receive, counted if scope["type"] == "http" else send)


# bounded: an attacker with many addresses would fill the memory otherwise
_CLIENTS = 10_000
"""Number of clients that are remembered; the one that was quiet longest is forgotten first."""


class Buckets:
    """A bucket of `burst` tokens for each client, filled at `rate` a second."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, cost: float = 1.0) -> float:
        """Take a token, or `cost` of one, and return 0.0, or the seconds until there is so much."""
        now, level = self.clock(), self._level(client)
        # out and in again, so that the order is that of the last requests and the first one is the quietest
        self._levels.pop(client, None)
        self._levels[client] = (level - cost if level >= cost else level, now)
        if len(self._levels) > _CLIENTS:
            self._levels.popitem(last=False)
        return self._wait(level, cost)

    def _level(self, client: str) -> float:
        now = self.clock()
        # filled when it is looked at, so that no timer has to visit 10,000 buckets
        level, since = self._levels.get(client, (float(self.burst), now))
        return min(float(self.burst), level + (now - since) * self.rate)

    def _wait(self, level: float, cost: float) -> float:
        return 0.0 if level >= cost else (cost - level) / self.rate


class RateLimit:
    """ASGI middleware: 429 for a client whose bucket is empty."""

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        self.app = app
        self.buckets = buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        # of those without a token `limner.server.access` takes it
        if scope["type"] == "http" and not (rules := rules_of(scope)).is_open and rules.cost:
            wait = self.buckets.take(client_of(scope), rules.cost)
            if wait:
                answer = too_many(f"at most {self.buckets.rate:g} requests a second", wait)
                return await answer(scope, receive, send)
        return await self.app(scope, receive, send)


def too_many(said: str, wait: float) -> Response:
    """Make the answer to a client that has to wait, in seconds."""
    # Retry-After has whole seconds; rounded down, a client would come too early
    seconds = math.ceil(wait)
    return problem(429, f"{said}; try again in {seconds} s", headers={"Retry-After": str(seconds)})


_LONGEST_ADDRESS = 45
"""Letters of the longest IPv6 address."""


def address_of(scope: Scope) -> str:
    """Return the address that a request came from; a mapped IPv4 address is written as IPv4."""
    host = scope["client"][0] if scope.get("client") else "unknown"
    # a socket that takes both kinds shows IPv4 clients as ::ffff:1.2.3.4, which would all be in one /64; what a proxy
    # hands on may be no address at all
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        host = str(getattr(address, "ipv4_mapped", None) or address)
    # cut, because a proxy may send a value of any length
    return str(host)[:_LONGEST_ADDRESS]


def client_of(scope: Scope) -> str:
    """Return the client that a request counts for: its address, or for IPv6 its /64 network, which one customer has."""
    address = address_of(scope)
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    # a customer has 2^64 addresses of IPv6, and could take a new one for each request
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64)) if parsed.version == 6 else address
