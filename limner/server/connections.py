"""The server's connections: how many there may be, how long a client may take, and how they end.

uvicorn waits for a slow client for ever. Here a request has one deadline, from the first wait for it to the last byte
of its body, and so has the reading of an answer; no byte moves them. That is all: a server that strangers can reach
stands behind a proxy (`deploy/nginx.conf`, `deploy/Caddyfile`), which takes slow clients from it.
`tests/cli/test_serve_proxies.py` attacks both.
"""

import asyncio
import logging
import selectors
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from limner.server.listening import UNIX
from limner.server.problems import ENDED, RECORDED, STOPPING, problem, reason_of
from limner.server.reloading import App
from limner.server.settings import ServerSettings

_CLOSE = (b"connection", b"close")
_HEAD = 2**14
"""Bytes of a request's head that may wait for the rest of it."""
GRACE = 10.0
"""Seconds that requests have to end when the server stops; then they are refused."""
_LAST = 2
"""Further seconds for the refusals to be sent."""
_QUIET = 1.0
"""Seconds that a connection without a request stays open when the server stops: a request may be on its way."""
_TURNS = 3
"""Turns of its loop that asyncio takes from a client that waits to a connection that is open, and one more."""
# a pass of the network takes the interpreter's lock hundreds of times, and each time waits for the thread that answers
# HTTP: beside a busy one 32 texts took 1.2 s at Python's 5 ms, 0.6 s at 1 ms or less, 0.15 s alone
_SWITCHING = 0.001
"""Seconds after which a thread that computes in Python lets another one go on."""

_LOG = logging.getLogger("uvicorn.error.connections")


class Connection(H11Protocol):
    """One connection, which knows since when its client keeps the server waiting.

    `most`: number of connections that may be open; `refused` is called with the reason of each answer that a
    connection gives in place of the app.
    """

    def __init__(
        self, *args: Any, most: int, refused: Callable[[str], None] = lambda reason: None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._most, self._refused = most, refused
        # uvicorn warns of every request that is none, or asks for WebSocket: a stranger could fill a disk with that
        self.logger = _LOG
        self._asking = self.loop.time()
        self._reading_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or refuse it if there are too many connections."""
        super().connection_made(transport)
        if transport.get_extra_info("socket").family == socket.AF_UNIX:
            # a name in place of an address: proxies are believed by it, and limits and the audit log go by it
            self.client = (UNIX, 0)
        # 0: `pause_writing` as soon as the system takes no more bytes, `resume_writing` when it has taken them all
        transport.set_write_buffer_limits(0)
        # not uvicorn's `limit_concurrency`, which refuses whole requests alone: clients that say nothing would take all
        # files that the process may open
        if len(self.connections) > self._most:
            self.end(503, "too many connections are open; try again soon")

    def pause_writing(self) -> None:
        """Note since when the client has not read its answer."""
        self._reading_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has read all."""
        self._reading_since = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        # before uvicorn looks at requests that have arrived meanwhile
        self._asking = self.loop.time()
        super().on_response_complete()

    @property
    def answered(self) -> bool:
        """False while a request waits for its answer; an answer that is in the audit log already is about to leave."""
        return self.cycle is None or self.cycle.response_started or RECORDED in self.cycle.scope

    def end_if_late(self, request_seconds: float, answer_seconds: float) -> None:
        """Close the connection if its client has kept the server waiting for too long."""
        now = self.loop.time()
        if self._reading_since is not None:
            if now - self._reading_since > answer_seconds:
                self.transport.abort()
        elif self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and now - self._asking > request_seconds:
            if self.conn.their_state is h11.SEND_BODY:
                self.end(408, f"the request took more than {request_seconds:g} s to arrive")
            else:
                self.transport.abort()

    def end(self, status: int, detail: str) -> None:
        """Close the connection, with this answer if its client can still get one."""
        unasked = self.conn.our_state is h11.IDLE
        # an answer other than the one that its line has would make the line a lie
        recorded = not unasked and self.answered
        if (
            self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
            or self._reading_since is not None
            or recorded
        ):
            return self.transport.abort()
        if self.cycle is not None:
            if not unasked:
                # before the app wakes up: it would record that the client has gone
                # of the app's own: uvicorn's type names the keys of the protocol only
                self.cycle.scope[ENDED] = (status, detail)  # type: ignore[literal-required]
            # what the app still says is for nobody
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._refused("stopping" if detail == STOPPING else reason_of({}, status))
        answer = problem(status, detail, headers={"Connection": "close"})
        body = b"" if not unasked and self.scope["method"] == "HEAD" else bytes(answer.body)
        head = h11.Response(status_code=status, headers=answer.raw_headers)
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        return self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self.end(400, "this is no HTTP request")

    def shutdown(self) -> None:
        """Close after the answer that is due, or soon if none is."""
        if self.cycle is not None:
            # or the client sends its next request to a connection that closes
            self.cycle.default_headers = [*self.cycle.default_headers, _CLOSE]
        # at once, uvicorn would drop requests that have arrived and were not read yet
        self.loop.call_later(_QUIET, self._close)

    def _close(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()


class Server(uvicorn.Server):
    """uvicorn with a deadline for slow clients, which loses no request when it stops.

    `app` is from `limner.server.app.create_app`, or a `Reloading`. `proxy`: address of a reverse proxy, or
    "unix" for whoever connects to a socket file, whose X-Forwarded-For is believed.
    """

    def __init__(self, app: App, settings: ServerSettings, proxy: str | None = None) -> None:
        self._settings, self._turn_away, self._stopping = settings, app.state.turn_away, app.state.stopping
        app.state.unread = self._unread
        super().__init__(
            uvicorn.Config(
                app,
                # uvicorn calls it as it would the class
                http=partial(  # type: ignore[arg-type]
                    Connection, most=settings.max_connections, refused=app.state.refused
                ),
                h11_max_incomplete_event_size=_HEAD,
                log_level="warning",
                access_log=False,
                # clients need not know what serves them
                server_header=False,
                # nothing here speaks WebSocket, and uvicorn would look for a library
                ws="none",
                # from anybody else the header would let a client choose its address, and so escape the rate limit
                proxy_headers=proxy is not None,
                forwarded_allow_ips=proxy,
                # later than `turn_away`, whose 503 must have time to be sent
                timeout_graceful_shutdown=round(GRACE + _LAST),
            )
        )
        # behind `Config`, which sets up the loggers of uvicorn and forgets the levels of those below them
        _LOG.setLevel(logging.ERROR)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Run until it is told to stop."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCHING)
        try:
            await super().serve(sockets)
        finally:
            sys.setswitchinterval(before)

    async def on_tick(self, counter: int) -> bool:
        """Close what is late; uvicorn calls this ten times a second, so no timer has to be set and forgotten."""
        for one in self._connections():
            one.end_if_late(self._settings.request_seconds, self._settings.answer_seconds)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: every request that has arrived is answered, after `GRACE` seconds with 503."""
        loop = asyncio.get_running_loop()
        self._stopping()
        # a load balancer sends its next requests elsewhere; a second signal ends this
        until = loop.time() + self._settings.drain_seconds
        while loop.time() < until and not self.force_exit:
            await self.on_tick(1)
            await asyncio.sleep(0.1)
        await self._accept_all(sockets or [], loop.time() + _LAST)
        # of every answer that begins from now on, so that a busy client does not send its next request to nobody
        self.server_state.default_headers.append(_CLOSE)
        # before uvicorn cuts off what still waits, without a word
        late = [
            loop.call_later(GRACE, self._turn_away, 0.0),
            loop.call_later(GRACE + _LAST / 2, self._refuse_rest),
        ]
        await super().shutdown(sockets)
        # every request was answered in time, so none needs to be turned away
        for timer in late:
            timer.cancel()

    async def _accept_all(self, sockets: list[socket.socket], until: float) -> None:
        """Accept the clients that the system has let in already; the closing socket would cut them off."""
        with selectors.DefaultSelector() as waiting:
            for one in sockets:
                waiting.register(one, selectors.EVENT_READ)
            quiet = 0
            while quiet < _TURNS and asyncio.get_running_loop().time() < until:
                quiet = 0 if waiting.select(0) else quiet + 1
                await asyncio.sleep(0)

    def _refuse_rest(self) -> None:
        for one in self._connections():
            if not one.answered:
                one.end(503, STOPPING)

    def _unread(self) -> int:
        """Bytes of answers that wait for their clients."""
        return sum(one.transport.get_write_buffer_size() for one in self._connections())

    def _connections(self) -> list[Connection]:
        return [one for one in self.server_state.connections if isinstance(one, Connection)]
