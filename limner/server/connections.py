"""The server's connections: their socket, how long a client may take, how many it may have, and how they end.

uvicorn waits for a slow client for ever. 999 connections that sent a byte a second, without a token, kept the right
token out in 30 of 30 tries (`python -m benchmarks.slow_clients`). This file is the one place that limits them:

- The server goes through all connections ten times a second (`Server`), so no timer has to be set and forgotten.
- A request, from the first wait for it to the last byte of its body, has one deadline that no byte moves. So has the
  reading of an answer.
- Of strangers' further requests few are taken in one turn of asyncio's loop (`_Turns`), so that turns stay short and
  nobody waits for a thousand others.
- When connections become many, those close first whose clients have been slowest and have not shown the token. A new
  one takes the place of the slowest, so that clients which come back at once keep nobody out.

The alternatives that lost: hypercorn limits one read and an idle connection, granian the time of a header; neither
limits a body, an answer that is not read, or the connections of a client. A reverse proxy does, but does not come with
pip, and would have to hold the same numbers.
"""

import asyncio
import logging
import math
import re
import selectors
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from limner.server.limits import client_of, head_fault, head_of
from limner.server.listening import BACKLOG, UNIX
from limner.server.problems import ENDED, RECORDED, STOPPING, problem, reason_of
from limner.server.reloading import App
from limner.server.settings import ServerSettings

_AT_ONCE = 16
"""Number of connections that are accepted, and of strangers' further requests that are taken, in one turn of asyncio's
loop.

Few, so that what was accepted is answered before more is: with 64 strangers who come back at once filled all places of
their address with connections that nobody had read yet, which then had to make place for each other.
"""

_CLOSE = (b"connection", b"close")
GRACE = 10.0
"""Seconds that requests have to end when the server stops; then they are refused."""
_LAST = 2
"""Further seconds for the refusals to be sent."""
_QUIET = 1.0
"""Seconds that a connection without a request stays open when the server stops: a request may be on its way."""
_TURNS = 3
"""Turns of its loop that asyncio takes from a client that waits to a connection that is open, and one more."""
_AUTHORIZATION = re.compile(rb"\nauthorization:([^\r\n]*)", re.IGNORECASE)
# a pass of the network takes the interpreter's lock hundreds of times, and each time waits for the thread that answers
# HTTP: beside a busy one 32 texts took 1.2 s at Python's 5 ms, 0.6 s at 1 ms or less, 0.15 s alone
_SWITCHING = 0.001
"""Seconds after which a thread that computes in Python lets another one go on."""
_PROMPT = 0.25
"""Seconds that a client may take without being counted as slow."""
_UNREAD_FOR = 5
"""Times that the server has gone through all connections before one of which nothing has been read is slow. From its
acceptance to its first bytes asyncio takes three turns, each of which may take longer than `_PROMPT` while hundreds of
clients ask without end; after one the right token was closed as slow."""

_LOG = logging.getLogger("uvicorn.error.connections")


class _Turns:
    """Strangers' further requests, first come, first served.

    asyncio reads in one turn of its loop whatever has come, and a request takes several turns: with 999 strangers who
    ask again as soon as they have their answer, the right token waited 2 to 5 s on an idle machine.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, take: Callable[[], None]) -> None:
        """Call `take` in a later turn of the loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(take)

    def _next(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


class _Places:
    """The places of open connections, of which a new one may take that of another.

    `most`: number of all places; `each`: half the number of those for one client; `guarded`: True if a token is needed,
    without which there are only the page's files and refusals.
    """

    def __init__(self, *, most: int, each: int, guarded: bool) -> None:
        self.most, self.each, self.guarded = most, each, guarded
        self._order: list[Connection] | None = None
        self._of_client: Counter[str] = Counter()
        self.are_scarce = False
        """True if more than half of all were taken when the last one was."""

    def take(self, new: "Connection") -> bool:
        """Take a place, if need be that of another; False if all are taken by those who keep theirs."""
        if self._order is None:
            # once a turn of the loop: for each connection anew it took a millisecond with 800 open ones, and above 999
            # strangers the right token waited for seconds
            now = asyncio.get_running_loop().time()
            others = [one for one in new.connections if isinstance(one, Connection) and one is not new]
            self._order = [one for one in others if one.stays]
            self._order.sort(key=lambda one: _order(one.is_unread, one.waits_since, one.opened, now))
            self._of_client = Counter(one.address for one in self._order)
            asyncio.get_running_loop().call_soon(self._forget)
        if self._of_client[new.address] >= 2 * self.each and not self._displace(self._order, new.address):
            return False
        if len(self._order) >= self.most and not self._displace(self._order, None):
            return False
        # nobody has read it, so it is among the last to go
        self._order.append(new)
        self._of_client[new.address] += 1
        self.are_scarce = len(self._order) > self.most // 2
        return True

    def _forget(self) -> None:
        self._order = None

    def _displace(self, order: "list[Connection]", address: str | None) -> bool:
        """Close one that has not shown the token, for a new one; False if none may be closed.

        Those go first whose clients keep the server waiting, the slowest of them first of all. If the server is
        guarded, those for which it works follow.
        """
        # not the new one: whoever opens all places anew all the time would keep everybody else out
        for place, one in enumerate(order):
            may = one.stays and not one.trusted and (self.guarded or one.waits_since is not None)
            if may and address in (None, one.address):
                del order[place]
                self._of_client[one.address] -= 1
                one.end(503, "too many connections are open; try again soon")
                return True
        return False


class Connection(H11Protocol):
    """One connection, which knows since when its client keeps the server waiting.

    `places`: those of all connections; `knows`: says whether the value of an Authorization header has the right token,
    None if the server has none; `turns`: the queue of strangers; `refused` is called with the reason of each
    answer that a connection gives in place of the app.
    """

    def __init__(
        self,
        *args: Any,
        places: _Places,
        knows: Callable[[bytes], bool] | None,
        turns: _Turns,
        refused: Callable[[str], None] = lambda reason: None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._refused = refused
        # uvicorn warns of every request that is none, or asks for WebSocket: a stranger could fill a disk with that
        self.logger = _LOG
        self._places, self._knows, self._turns = places, knows, turns
        self.opened = self._asking = self.loop.time()
        self.is_unread = True
        """True until the first bytes of the client have been read."""
        self.reading_since: float | None = None
        """The time since when the client has been reading an answer, of which there is more."""
        self._pipelined = self._queues = self._shown = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or refuse it if there are too many connections."""
        super().connection_made(transport)
        if transport.get_extra_info("socket").family == socket.AF_UNIX:
            # a name in place of an address: proxies are believed by it, and limits and the audit log go by it
            self.client = (UNIX, 0)
        # 0: `pause_writing` as soon as the system takes no more bytes, `resume_writing` when it has taken them all
        transport.set_write_buffer_limits(0)
        self.address = client_of({"client": self.client})
        if not self._places.take(self):
            self.end(503, "too many connections are open; try again soon")

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self.is_unread = False
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            # some clients send an empty line behind a body (RFC 9112, section 2.2)
            data = data.lstrip(b"\r\n")
            if not data:
                return
        if self.conn.their_state is h11.IDLE and (fault := head_fault(self.conn.trailing_data[0] + data)):
            self.end(400, fault, asked=True)
            return
        super().data_received(data)

    def handle_events(self) -> None:
        """Begin to work on what has arrived, a stranger's further requests when it is their turn."""
        begun = self.conn.trailing_data[0] if self.conn.their_state is h11.IDLE else b""
        if begun and self._knows is not None:
            # the page has its files without the token, and then asks with it on the same connection
            found = _AUTHORIZATION.search(head_of(begun))
            self._shown = found is not None and self._knows(found[1].strip())
        if begun and self._knows is not None and self.scope is not None and not self.trusted:
            self._queues = True
            # no more is read until this has been taken
            self.flow.pause_reading()
            self._turns.wait(partial(self._take_queued, self.loop.time()))
        else:
            self._handle_now()

    def _take_queued(self, since: float) -> None:
        # the time in the queue is not the client's
        self._asking += self.loop.time() - since
        self._queues = False
        if self.stays:
            self.flow.resume_reading()
            self._handle_now()

    def _handle_now(self) -> None:
        before = self.cycle
        super().handle_events()
        if (
            self.cycle is not before
            and self._knows is not None
            and self._places.are_scarce
            and not self.trusted
        ):
            # its next request would be among those that wait for a turn, and its place among the first to go; on a new
            # connection, as a browser opens it for the page's next file, it is taken at once
            self.cycle.default_headers = [*self.cycle.default_headers, _CLOSE]
        # not once the answer has begun: its last bytes may be with the client before the app says that it has ended,
        # and whoever has them rightly sends the next request
        # not DONE alone: a request with Upgrade, or CONNECT, has a state of its own behind it
        whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        waits = whole and not self.answered
        self._pipelined = self._pipelined or (waits and bool(self.conn.trailing_data[0].strip()))

    def pause_writing(self) -> None:
        """Note since when the client has not read its answer."""
        self.reading_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has read all."""
        self.reading_since = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        # before uvicorn looks at requests that have arrived meanwhile
        self._asking = self.loop.time()
        following = self.conn.trailing_data[0]
        if (self._pipelined and not self.trusted) or head_fault(following):
            # no browser sends the next request before it has the answer; 999 clients that did took all of the time
            self.transport.close()
        self._pipelined = False
        super().on_response_complete()

    @property
    def asking_since(self) -> float | None:
        """The time since when the server has been waiting for a request, which is not whole yet."""
        busy = self._queues or self.reading_since is not None
        return None if busy or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) else self._asking

    @property
    def stays(self) -> bool:
        """False once the connection closes."""
        return not self.transport.is_closing()

    @property
    def waits_since(self) -> float | None:
        """The time since when the client has kept the server waiting, with its request or with its reading."""
        return self.asking_since if self.reading_since is None else self.reading_since

    @property
    def trusted(self) -> bool:
        """True if the last request on this connection came with the right token, or one that comes has it."""
        # `limner.server.access.Access` says so, a little later
        return self._shown or (self.scope is not None and "limner.token" in self.scope)

    @property
    def answered(self) -> bool:
        """False while a request waits for its answer; an answer that is in the audit log already is about to leave."""
        return self.cycle is None or self.cycle.response_started or RECORDED in self.cycle.scope

    def end(self, status: int, detail: str, *, asked: bool = False) -> None:
        """Close the connection, with this answer if its client can still get one; `asked`: it waits for one."""
        unasked = self.conn.our_state is h11.IDLE
        if unasked and not asked and self.cycle is not None and not self.conn.trailing_data[0]:
            # behind an answer, and no request has come: a client opens another connection for the next one, where it
            # would take an answer that comes by itself for that of the next
            return self.transport.close()
        # an answer other than the one that its line has would make the line a lie
        recorded = not unasked and self.answered
        if (
            self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
            or self.reading_since is not None
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
        self.end(400, "this is no HTTP request", asked=True)

    def shutdown(self) -> None:
        """Close after the answer that is due, or soon if none is."""
        if self.cycle is not None:
            # or the client sends its next request to a connection that closes
            self.cycle.default_headers = [*self.cycle.default_headers, _CLOSE]
        # at once, uvicorn would drop requests that have arrived and were not read yet
        self.loop.call_later(_QUIET, self._close)

    def _close(self) -> None:
        if self._queues:
            # a request has arrived
            self.loop.call_later(_QUIET, self._close)
        elif not self.transport.is_closing():
            super().shutdown()


def _order(is_unread: bool, since: float | None, opened: float, now: float) -> tuple[bool, bool, float]:
    """The order in which places are lost: the slowest first, then the oldest, and last of all what nobody has read."""
    # not by `since` of those that are prompt: under a flood hardly anybody's next request is waited for longer than
    # that of the page, which has just had its files
    is_slow = since is not None and now - since > _PROMPT
    return is_unread, not is_slow, opened if since is None or not is_slow else since


class Server(uvicorn.Server):
    """uvicorn with limits for slow clients, which loses no request when it stops.

    `app` is from `limner.server.app.create_app`, or a `Reloading`. `proxy`: address of a reverse proxy, or
    "unix" for whoever connects to a socket file, whose X-Forwarded-For is believed; all clients come from its address,
    so it has to limit their connections itself.
    """

    def __init__(self, app: App, settings: ServerSettings, proxy: str | None = None) -> None:
        self._settings, self._turn_away, self._stopping = settings, app.state.turn_away, app.state.stopping
        self._swept = deque([-math.inf] * _UNREAD_FOR, maxlen=_UNREAD_FOR)
        self._each = settings.max_connections if proxy else settings.client_connections
        app.state.unread = self._unread
        super().__init__(
            uvicorn.Config(
                app,
                # uvicorn calls it as it would the class
                http=partial(  # type: ignore[arg-type]
                    Connection,
                    places=_Places(
                        most=settings.max_connections, each=self._each, guarded=app.state.knows is not None
                    ),
                    knows=app.state.knows,
                    turns=_Turns(),
                    refused=app.state.refused,
                ),
                log_level="warning",
                access_log=False,
                # clients need not know what serves them
                server_header=False,
                # nothing here speaks WebSocket, and uvicorn would look for a library
                ws="none",
                # from anybody else the header would let a client choose its address, and so escape the rate limit
                proxy_headers=proxy is not None,
                forwarded_allow_ips=proxy,
                # for asyncio also the number that it accepts before it looks at those that it has
                backlog=_AT_ONCE,
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        for one in sockets or []:
            # asyncio has set it to the number that it accepts at once
            one.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Close what is late or too much; uvicorn calls this ten times a second."""
        self._sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def _sweep(self, now: float) -> None:
        limits, connections = self._settings, self._connections()
        # apart: strangers who ask without end would cost a client's slow uploads their places
        of_client = Counter((one.address, False) for one in connections)
        of_client += Counter((one.address, True) for one in connections if one.trusted)
        slow = [
            (one.trusted, since, one)
            for one in connections
            # one that was opened since may have sent all, and a busy server has not read it
            if (since := one.waits_since) is not None
            and now - since > _PROMPT
            and one.opened < self._swept[0 if one.is_unread else -1]
        ]
        self._swept.append(now)
        left = len(connections)
        # the slowest first, and last of all those that have shown the token
        for trusted, since, one in sorted(slow, key=lambda entry: entry[:2]):
            late = now - since > (limits.answer_seconds if one.reading_since else limits.request_seconds)
            # half of all is kept for those who are quick or trusted
            crowded = left > limits.max_connections // 2 and not trusted
            if late and one.conn.their_state is h11.SEND_BODY:
                one.end(408, f"the request took more than {limits.request_seconds:g} s to arrive")
            elif late:
                one.transport.abort()
            elif crowded or of_client[one.address, trusted] > self._each:
                one.end(503, "too many connections are open, and this one was slow; try again soon")
            else:
                continue
            left -= 1
            of_client[one.address, False] -= 1
            of_client[one.address, True] -= trusted

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: every request that has arrived is answered, after `GRACE` seconds with 503."""
        loop = asyncio.get_running_loop()
        self._stopping()
        # a load balancer sends its next requests elsewhere; a second signal ends this
        until = loop.time() + self._settings.drain_seconds
        while loop.time() < until and not self.force_exit:
            self._sweep(loop.time())
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
