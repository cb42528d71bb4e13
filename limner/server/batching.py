"""One thread works with the model; queries that come while it is busy are answered together.

Nothing waits for company: a query that finds the thread idle is answered alone, at once.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from limner.errors import LimnerError
from limner.search.query import Answer, Query
from limner.server.problems import RefusedError

P = ParamSpec("P")
T = TypeVar("T")

Answers = Callable[[Sequence[Query]], list[Answer | LimnerError]]


class Worker:
    """The thread, and what waits for it.

    - `answers`: answers some queries, each by an answer or its error.
    - `max_batch`: most queries at once; `max_waiting`: most requests that may wait, `RefusedError` (503) beyond.
    - `on_batch` is told how many queries each batch has.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        max_batch: int = 64,
        max_waiting: int = 512,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answers, self._on_batch = answers, on_batch
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._thread = ThreadPoolExecutor(1, "limner-model")
        self._lock = threading.Lock()
        self._queries: deque[tuple[Query, Future[Answer]]] = deque()
        self._calls = 0
        self._gathering = self._closed = False

    @property
    def waiting(self) -> int:
        """Requests that the thread has not begun with."""
        return len(self._queries) + self._calls

    def ask(self, query: Query) -> "Future[Answer]":
        """The answer to a query, or the error that it ends in, when it is there."""
        answer: Future[Answer] = Future()
        with self._lock:
            self._check_room()
            self._queries.append((query, answer))
            if not self._gathering:
                self._gathering = True
                self._thread.submit(self._answer_next)
        return answer

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Do something else in the thread, between two batches."""

        def begin() -> T:
            self._count(-1)
            return function(*args, **kwargs)

        with self._lock:
            self._check_room()
            done = self._thread.submit(begin)
        self._count(1)
        done.add_done_callback(lambda one: self._count(-1) if one.cancelled() else None)
        return done

    def close(self) -> None:
        """Finish what has begun, and turn away the rest."""
        with self._lock:
            left, self._queries, self._closed = list(self._queries), deque(), True
        for _, answer in left:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(RefusedError(503, "the server is stopping"))
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _count(self, more: int) -> None:
        with self._lock:
            self._calls += more

    def _check_room(self) -> None:
        if self._closed:
            raise RefusedError(503, "the server is stopping")
        if self.waiting >= self._max_waiting:
            said = f"{self._max_waiting} requests are waiting already; try again soon"
            raise RefusedError(503, said, {"Retry-After": "1"})

    def _answer_next(self) -> None:
        """Answer one batch, and line up for the next one behind what else waits."""
        with self._lock:
            taken = [self._queries.popleft() for _ in range(min(len(self._queries), self._max_batch))]
        batch = [(query, answer) for query, answer in taken if answer.set_running_or_notify_cancel()]
        if batch:
            self._on_batch(len(batch))
            self._settle(batch)
        with self._lock:
            self._gathering = bool(self._queries)
            if self._gathering:
                self._thread.submit(self._answer_next)

    def _settle(self, batch: list[tuple[Query, "Future[Answer]"]]) -> None:
        try:
            found = self._answers([query for query, _ in batch])
            assert len(found) == len(batch)
        except Exception as error:
            if len(batch) > 1:
                # one query's bug is not to fail the others
                for pair in batch:
                    self._settle([pair])
            else:
                batch[0][1].set_exception(error)
            return
        for (_, answer), one in zip(batch, found, strict=True):
            if isinstance(one, LimnerError):
                answer.set_exception(one)
            else:
                answer.set_result(one)
