"""The id and the trace of each request, and a line about it in the server's log.

A client, or the proxy before the server, may send its own id as `X-Request-ID` and a W3C `traceparent`. Both are
answered with, and stand in each line that is logged while the request is answered. A line tells the route, the status
and the time; never the address, the query or the client, which are for the audit log (`limner.server.audit`).
"""

import logging
import re
import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limner.server.counters import Counters
from limner.server.routes import method_name, route_name, rules_of

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
"""A request's id as it may come in: it stands in lines of the log and in a header."""

# https://www.w3.org/TR/trace-context/#traceparent-header: version, trace, parent, flags. Later versions may have more
_PARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_LONGEST_PARENT = 512

log = logging.getLogger("limner.requests")


@dataclass(frozen=True)
class Trace:
    """The names under which a request is known: its id, and its place in a trace if it came with one.

    `trace`: the trace; `span`: this request in it; `parent`: the caller; `flags`: the caller's, as two hex digits.
    """

    request: str
    trace: str | None = None
    span: str | None = None
    parent: str | None = None
    flags: str = "00"

    @classmethod
    def of(cls, scope: Scope) -> "Trace":
        """Read the headers of a request; a value that is too long, or has other characters, counts as not sent."""
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request = given.decode("ascii") if _ID.fullmatch(given) else secrets.token_hex(16)
        parent = headers.get(b"traceparent", b"").strip(b" \t")
        found = _PARENT.fullmatch(parent) if len(parent) <= _LONGEST_PARENT else None
        # version 00 ends behind the flags
        if found is None or (found[1] == b"00" and found[5]):
            return cls(request)
        trace, caller, flags = (found[number].decode("ascii") for number in (2, 3, 4))
        return cls(request, trace, secrets.token_hex(8), caller, flags)


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current_trace() -> Trace | None:
    """The request that is being answered in this context; None outside of one."""
    return _TRACE.get()


class RequestLog:
    """ASGI middleware: gives each request its id and trace, answers with them, logs a line and counts."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self.app, self.counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log how it was answered."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        trace = Trace.of(scope)
        token = _TRACE.set(trace)
        # 500 unless an answer begins: a bug leaves this middleware as an exception
        began, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = trace.request
                if trace.trace is not None:
                    # 00: the version that this is written in, whatever came
                    headers["traceparent"] = f"00-{trace.trace}-{trace.span}-{trace.flags}"
            await send(message)

        try:
            return await self.app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - began
            self.counters.answered(scope, status, seconds)
            facts = {"method": method_name(scope), "route": route_name(scope), "status": status}
            facts["ms"] = round(1000 * seconds, 2)
            # a load balancer asks all day long
            level = logging.DEBUG if status == 200 and rules_of(scope).is_probe else logging.INFO
            log.log(level, "%(method)s %(route)s %(status)d %(ms).2f ms", facts, extra={"facts": facts})
            _TRACE.reset(token)
