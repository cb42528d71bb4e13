"""One thread works with the model; queries that arrive while it is busy are embedded and searched for together.

A query that finds the thread idle is answered at once and does not wait for others. Each answer leaves when it is
ready. A second thread re-ranks, so that no other query waits for it.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from limner.errors import SearchTimeoutError
from limner.requests import SearchRequest
from limner.search.engine import Rest
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

Answers = Callable[[Sequence[SearchRequest], Sequence[float]], Iterable[Answer | Exception | Rest]]
"""Answers several queries, in order and each when it is ready (`limner.search.engine.Engine.begin`)."""


class _Done(Future[Any]):
    """A future that knows if its client has given it up, also after it has begun."""

    is_given_up = False

    def cancel(self) -> bool:
        self.is_given_up = True
        return super().cancel()


@dataclass(frozen=True)
class _Asked:
    """One waiting job: a query or a call, its future, its deadline and its arrival by `time.monotonic()`."""

    what: SearchRequest | Callable[[], Any]
    done: _Done
    until: float
    since: float


class Worker:
    """The thread of the model, that of the reranker, and the requests that wait for them.

    - `answers`: answers several queries, each until a time, with an answer, its error, or what is left to re-rank.
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
        lock = threading.Lock()
        self._changed, self._left = threading.Condition(lock), threading.Condition(lock)
        self._queries: deque[_Asked] = deque()
        # a line of their own, so that neither a flood of queries nor of other work keeps the other one waiting
        self._calls: deque[_Asked] = deque()
        # before both, so that a probe waits for one batch at most, however many requests do
        self._probes: deque[_Asked] = deque()
        # of queries that are embedded and searched for; their time does not begin anew
        self._rests: deque[tuple[_Asked, Rest]] = deque()
        self._begun: list[_Asked] = []
        self._reranked: list[_Asked] = []
        self._closed = False
        # no pool: Python waits at its end for the threads of a pool, however long they take
        self._thread = threading.Thread(target=self._work, name="limner-model", daemon=True)
        self._reranking = threading.Thread(target=self._rerank, name="limner-reranker", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for one of the threads."""
        return self._waiting + len(self._rests)

    @property
    def _waiting(self) -> int:
        return len(self._queries) + len(self._calls)

    def ask(self, query: SearchRequest) -> "Future[Answer]":
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
            halfway = [request for request, _ in self._rests]
            begun, self._closed = [*self._begun, *self._reranked], True
            for line in (self._probes, self._queries, self._calls, self._rests):
                line.clear()
            self._changed.notify()
            self._left.notify()
        stopping = RefusedError(503, STOPPING, reason="stopping")
        for request in left:
            # False for a future that its client has given up, which set_exception would raise for
            if request.done.set_running_or_notify_cancel():
                request.done.set_exception(stopping)
        for request in halfway:
            _settle(request.done, stopping)
        # not for ever: one forward pass over a large re-ranking may take longer than a service manager waits
        wait([request.done for request in begun], seconds)
        for request in begun:
            _settle(request.done, stopping)

    def _line_up(
        self, line: deque[_Asked], what: SearchRequest | Callable[[], Any], seconds: float | None = None
    ) -> "Future[Any]":
        now = time.monotonic()
        request = _Asked(what, _Done(), now + (seconds or self._seconds), now)
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
                self._changed.wait_for(lambda: self._closed or self._probes or self._waiting)
                if self._closed:
                    return
                if self._probes:
                    line, most = self._probes, 1
                else:
                    # in turns, one call between two batches, when both wait
                    other = bool(self._calls) and (not other or not self._queries)
                    # together 64 clients get about twice as many answers (benchmarks.server_load)
                    line, most = (self._calls, 1) if other else (self._queries, self._max_batch)
                taken = [line.popleft() for _ in range(min(len(line), most))]
                # a client that has gone has cancelled its future: it is not begun
                self._begun = [request for request in taken if request.done.set_running_or_notify_cancel()]
            now = time.monotonic()
            if line is not self._probes:
                for request in self._begun:
                    self._on_wait(now - request.since)
            if batch := [request for request in self._begun if not self._is_late(request)]:
                self._do(batch)

    def _is_late(self, request: _Asked) -> bool:
        """Refuse a request that has waited for the whole time: the time limit includes the waiting."""
        if time.monotonic() <= request.until:
            return False
        message = f"nobody had time for this within {self._seconds:g} s; try again soon"
        _settle(request.done, SearchTimeoutError(message))
        return True

    def _do(self, batch: list[_Asked]) -> None:
        left = deque(batch)
        try:
            with observed(self._observe):
                # calls are begun one at a time, queries are never mixed with them
                if callable(batch[0].what):
                    _settle(batch[0].done, batch[0].what())
                else:
                    self._on_batch(len(batch))
                    queries = [request.what for request in batch if isinstance(request.what, SearchRequest)]
                    for found in self._answers(queries, [request.until for request in batch]):
                        request = left.popleft()
                        if callable(found):
                            self._leave(request, found)
                        else:
                            _settle(request.done, found)
        except Exception as error:
            # the thread must outlive any bug: without it no request would be answered any more
            for request in left:
                _settle(request.done, error)

    def _leave(self, request: _Asked, rest: Rest) -> None:
        """Leave a query to the other thread, which re-ranks."""
        with self._changed:
            is_closed = self._closed
            if not is_closed:
                # at the first of them: most models have no reranker
                if not self._reranking.ident:
                    self._reranking.start()
                self._rests.append((request, rest))
                self._left.notify()
        if is_closed:
            _settle(request.done, RefusedError(503, STOPPING, reason="stopping"))

    def _rerank(self) -> None:
        """Re-rank for one query after the other."""
        while True:
            with self._left:
                self._reranked = []
                self._left.wait_for(lambda: self._closed or self._rests)
                if self._closed:
                    return
                request, rest = self._rests.popleft()
                self._reranked = [request]
            if request.done.is_given_up:
                _settle(request.done, RefusedError(GONE, "the client has gone"))
            elif not self._is_late(request):
                try:
                    with observed(self._observe):
                        _settle(request.done, rest())
                except Exception as error:
                    _settle(request.done, error)


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
        # itself, if it has not begun: as `result` would do, but not before the event loop's next turn, by when
        # the request is counted as gone and the thread may have begun it. One that has an answer ignores it
        done.cancel()
        result.cancel()
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
