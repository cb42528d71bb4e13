"""One thread works with the model; queries that arrive while it is busy are answered together.

A query that finds the thread idle is answered at once and does not wait for others.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from limner.errors import SearchTimeoutError
from limner.search.query import Query
from limner.search.stage_times import Observe, observed
from limner.server.problems import STOPPING, RefusedError
from limner.wire import Answer

P = ParamSpec("P")
T = TypeVar("T")

# nginx's number for it; HTTP has none
GONE = 499
"""Status under which a request is counted if its client has gone; nobody receives it."""

_GRACE = 1.0
"""Seconds beyond its time that a query is waited for, so that whoever watches it can say itself that it is late."""

Answers = Callable[[Sequence[Query], Sequence[float]], list[Answer | Exception]]


@dataclass(frozen=True)
class _Asked:
    """One waiting job: a query or a call, its future, and the `time.monotonic()` at which it times out and came."""

    what: Query | Callable[[], Any]
    done: "Future[Any]"
    until: float
    since: float


class Worker:
    """The thread of the model, and the requests that wait for it.

    - `answers`: answers several queries, each until a time, with an answer or its error.
    - `seconds`: longest time from a request to its answer, `SearchTimeoutError` beyond. A query that is being answered
      stops at it; another call that has begun does not. Changes have no such limit.
    - `max_batch`: most queries at once; `max_waiting`: most requests that may wait, `RefusedError` (503) beyond.
    - `on_batch` is called with the number of queries of each batch, `on_wait` with the seconds that each request has
      waited, `observe` with the seconds of each stage.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        seconds: float = 30.0,
        max_batch: int = 64,
        max_waiting: int = 512,
        on_batch: Callable[[int], None] = lambda size: None,
        on_wait: Callable[[float], None] = lambda seconds: None,
        observe: Observe = lambda stage, seconds: None,
    ) -> None:
        self._answers, self._on_batch, self._on_wait, self._observe = answers, on_batch, on_wait, observe
        self._seconds, self._max_batch, self._max_waiting = seconds, max_batch, max_waiting
        self._changed = threading.Condition()
        self._queries: deque[_Asked] = deque()
        # a line of their own, so that neither a flood of queries nor of other work keeps the other one waiting
        self._calls: deque[_Asked] = deque()
        # before both, so that a probe waits for one batch at most, however many requests do
        self._probes: deque[_Asked] = deque()
        self._begun: list[_Asked] = []
        self._closed = False
        # no pool: Python waits at its end for the threads of a pool, however long they take
        self._thread = threading.Thread(target=self._work, name="limner-model", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of requests that the thread has not begun."""
        return len(self._queries) + len(self._calls)

    def ask(self, query: Query) -> "Future[Answer]":
        """Line up a query; the future gets its answer or its error."""
        return self._line_up(self._queries, query)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Call a function in the thread, between two batches."""
        return self._line_up(self._calls, partial(function, *args, **kwargs))

    def change(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Call a function that changes the store; it is not given up, however long it waits for its turn."""
        # each change is a commit of its own: of 24 adds at once, 17 were refused after a limit of 1 s
        return self._line_up(self._calls, partial(function, *args, **kwargs), math.inf)

    def probe(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Call a function in the thread before all that wait; it is never refused for their number."""
        return self._line_up(self._probes, partial(function, *args, **kwargs), math.inf)

    def close(self, seconds: float = 1.0) -> None:
        """Refuse all requests that wait, and after so many seconds those that have begun, too."""
        with self._changed:
            left = [*self._probes, *self._queries, *self._calls]
            begun, self._closed = self._begun, True
            self._probes.clear()
            self._queries.clear()
            self._calls.clear()
            self._changed.notify()
        stopping = RefusedError(503, STOPPING, reason="stopping")
        for request in left:
            # False for a future that its client has given up, which set_exception would raise for
            if request.done.set_running_or_notify_cancel():
                request.done.set_exception(stopping)
        # not for ever: one forward pass over a large re-ranking may take longer than a service manager waits
        wait([request.done for request in begun], seconds)
        for request in begun:
            _settle(request.done, stopping)

    def _line_up(
        self, line: deque[_Asked], what: Query | Callable[[], Any], seconds: float | None = None
    ) -> "Future[Any]":
        now = time.monotonic()
        request = _Asked(what, Future(), now + (seconds or self._seconds), now)
        with self._changed:
            if self._closed:
                raise RefusedError(503, STOPPING, reason="stopping")
            # turned away at once: an answer that comes after the client's timeout is work for nobody
            if self.waiting >= self._max_waiting and line is not self._probes:
                message = f"{self._max_waiting} requests are waiting already; try again soon"
                raise RefusedError(503, message, {"Retry-After": "1"}, reason="queue")
            # at the first request: an app that is only described or mounted starts no thread
            if not self._thread.ident:
                self._thread.start()
            line.append(request)
            self._changed.notify()
        return request.done

    def _work(self) -> None:
        """Answer batches of queries, and between any two make one other call."""
        other = False
        while True:
            with self._changed:
                self._begun = []
                self._changed.wait_for(lambda: self._closed or self._probes or self.waiting)
                if self._closed:
                    return
                if self._probes:
                    line, most = self._probes, 1
                else:
                    # in turns, one call between two batches, when both wait
                    other = bool(self._calls) and (not other or not self._queries)
                    # together, 64 clients get 65 queries a second at p50 0.67 s, one by one 36 at 1.65
                    # (benchmarks.server_load)
                    line, most = (self._calls, 1) if other else (self._queries, self._max_batch)
                taken = [line.popleft() for _ in range(min(len(line), most))]
                # a client that has gone has cancelled its future: it is not begun
                self._begun = [request for request in taken if request.done.set_running_or_notify_cancel()]
            now = time.monotonic()
            if line is not self._probes:
                for request in self._begun:
                    self._on_wait(now - request.since)
            # whoever has waited for the whole time is not answered: the time limit includes the waiting
            late = [request for request in self._begun if now > request.until]
            for request in late:
                message = f"nobody had time for this within {self._seconds:g} s; try again soon"
                _settle(request.done, SearchTimeoutError(message))
            if batch := [request for request in self._begun if request not in late]:
                self._do(batch)

    def _do(self, batch: list[_Asked]) -> None:
        found: Sequence[Any]
        try:
            with observed(self._observe):
                # calls are begun one at a time, queries are never mixed with them
                if callable(batch[0].what):
                    found = [batch[0].what()]
                else:
                    self._on_batch(len(batch))
                    queries = [request.what for request in batch if isinstance(request.what, Query)]
                    found = self._answers(queries, [request.until for request in batch])
        except Exception as error:
            # the thread must outlive any bug: without it no request would be answered any more
            found = [error] * len(batch)
        for request, result in zip(batch, found, strict=True):
            _settle(request.done, result)


def _settle(done: "Future[Any]", result: object) -> None:
    # the answer and the end of the server may both settle it; the first one counts
    with suppress(InvalidStateError):
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)


async def unless_disconnected(request: Request, done: "Future[T]", seconds: float | None = None) -> T:
    """Wait for a future, and give it up when the client disconnects. The body must have been read.

    `seconds`: the time of a query, which the thread of the model watches. If that hangs, with a disk, nobody waits for
    much longer: `SearchTimeoutError`. None = there is no limit.
    """
    result = asyncio.wrap_future(done)
    # the next message after the body is the disconnect; before it, this would swallow parts of the body
    gone = asyncio.ensure_future(_disconnect(request))
    either: list[asyncio.Future[Any]] = [result, gone]
    try:
        limit = None if seconds is None else seconds + _GRACE
        await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if not result.done() and not gone.done():
            raise SearchTimeoutError(f"no answer within {seconds:g} s: the store or the model hangs")
        if not result.done():
            raise RefusedError(GONE, "the client has gone")
        return result.result()
    finally:
        # cancels the thread's future as well, if it has not begun; one that has an answer ignores it
        result.cancel()
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
