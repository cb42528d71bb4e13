import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from limner.errors import DataError, SearchTimeoutError, StoreError
from limner.requests import SearchRequest
from limner.search.engine import Rest
from limner.server.batching import Worker
from limner.server.problems import RefusedError
from limner.wire import Answer
from tests.search.fake import answer_of

WAIT = 30.0

Begun = Iterator[Answer | Exception | Rest]


class Slow:
    """Answers that wait until they are let go; `batches` has the texts of each."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, queries: Sequence[SearchRequest], until: Sequence[float]) -> list[Answer | Exception]:
        assert len(until) == len(queries)
        self.batches.append([str(query.text) for query in queries])
        self.begun.set()
        assert self.go.wait(WAIT)
        if any(query.text == "broken" for query in queries):
            raise StoreError("all of it")
        return [self.answer(query) for query in queries]

    def answer(self, query: SearchRequest) -> Answer | Exception:
        if query.text == "bug":
            return ZeroDivisionError()
        return DataError("no word") if query.text == "bad" else answer_of((), query.k, 0)


def queries(*texts: str) -> list[SearchRequest]:
    return [SearchRequest(text=text, k=place) for place, text in enumerate(texts, start=1)]


def test_what_comes_while_the_thread_is_busy_is_answered_together() -> None:
    slow = Slow()
    sizes: list[int] = []
    worker = Worker(slow, max_batch=3, on_batch=sizes.append)
    first, *rest = queries(*"abcdef")
    futures = [worker.ask(first)]
    assert slow.begun.wait(WAIT)
    futures += [worker.ask(query) for query in rest]
    assert worker.waiting == 5
    slow.go.set()
    assert [future.result(WAIT).total for future in futures] == [1, 2, 3, 4, 5, 6]
    assert slow.batches == [["a"], ["b", "c", "d"], ["e", "f"]]
    assert sizes == [1, 3, 2]
    assert worker.waiting == 0
    worker.close()


def test_64_at_once_get_their_own_answers() -> None:
    slow = Slow()
    slow.go.set()
    worker = Worker(slow)
    asked = queries(*map(str, range(64)))
    together = threading.Barrier(64)

    def ask(query: SearchRequest) -> int:
        together.wait(WAIT)
        return worker.ask(query).result(WAIT).total

    with ThreadPoolExecutor(64) as clients:
        assert list(clients.map(ask, asked)) == [query.k for query in asked]
    assert sorted(int(text) for batch in slow.batches for text in batch) == list(range(64))
    worker.close()


def test_errors_and_bugs_stay_with_their_query() -> None:
    slow = Slow()
    worker = Worker(slow)
    first = worker.ask(SearchRequest(text="first"))
    assert slow.begun.wait(WAIT)
    good, bad, bug = (worker.ask(query) for query in queries("good", "bad", "bug"))
    slow.go.set()
    assert first.result(WAIT) is not None
    assert good.result(WAIT).total == 1
    with pytest.raises(DataError, match="no word"):
        bad.result(WAIT)
    with pytest.raises(ZeroDivisionError):
        bug.result(WAIT)
    with pytest.raises(StoreError):
        worker.ask(SearchRequest(text="broken")).result(WAIT)
    assert worker.ask(SearchRequest(text="after it")).result(WAIT) is not None
    worker.close()


def test_other_work_has_its_turn_between_batches() -> None:
    slow = Slow()
    worker = Worker(slow, max_batch=1)
    done: list[str] = []
    asked = [worker.ask(query) for query in queries("a", "b", "c")]
    assert slow.begun.wait(WAIT)
    called = worker.call(done.append, "called")
    assert worker.waiting == 3
    for future in asked:
        future.add_done_callback(lambda one: done.append(str(one.result().total)))
    slow.go.set()
    called.result(WAIT)
    for future in asked:
        future.result(WAIT)
    worker.close()
    assert done == ["1", "called", "2", "3"]


def test_a_full_queue_turns_away() -> None:
    slow = Slow()
    worker = Worker(slow, max_waiting=2)
    asked = [worker.ask(SearchRequest(text="a"))]
    assert slow.begun.wait(WAIT)
    asked += [worker.ask(SearchRequest(text="b"))]
    called: Future[int] = worker.call(int)
    with pytest.raises(RefusedError, match="2 requests are waiting") as refusal:
        worker.ask(SearchRequest(text="c"))
    assert refusal.value.status == 503
    assert refusal.value.headers["Retry-After"]
    with pytest.raises(RefusedError):
        worker.call(int)
    slow.go.set()
    assert [future.result(WAIT).total for future in asked] == [10, 10]
    assert called.result(WAIT) == 0
    worker.close()


def test_who_has_gone_is_passed_over() -> None:
    slow = Slow()
    worker = Worker(slow)
    first = worker.ask(SearchRequest(text="first"))
    assert slow.begun.wait(WAIT)
    gone, there = worker.ask(SearchRequest(text="gone")), worker.ask(SearchRequest(text="there"))
    called = worker.call(int)
    assert gone.cancel()
    assert called.cancel()
    slow.go.set()
    assert first.result(WAIT) is not None
    assert there.result(WAIT) is not None
    assert slow.batches == [["first"], ["there"]]
    assert worker.waiting == 0
    worker.close()


def test_closing_turns_away_what_has_not_begun() -> None:
    slow = Slow()
    worker = Worker(slow)
    first = worker.ask(SearchRequest(text="first"))
    assert slow.begun.wait(WAIT)
    late = worker.ask(SearchRequest(text="late"))
    threading.Timer(0.1, slow.go.set).start()
    worker.close(WAIT)
    assert first.result(WAIT) is not None
    with pytest.raises(RefusedError, match="stopping"):
        late.result(WAIT)
    with pytest.raises(RefusedError, match="stopping"):
        worker.ask(SearchRequest(text="later"))


def test_closing_does_not_wait_for_ever() -> None:
    slow = Slow()
    worker = Worker(slow)
    asked = worker.ask(SearchRequest(text="slow"))
    assert slow.begun.wait(WAIT)
    began = time.monotonic()
    worker.close(0.1)
    assert time.monotonic() - began < 5
    with pytest.raises(RefusedError, match="stopping"):
        asked.result(0)
    # the late answer is nobody's
    slow.go.set()
    worker._thread.join(WAIT)
    assert not worker._thread.is_alive()


def test_what_waits_too_long_is_dropped() -> None:
    slow = Slow()
    worker = Worker(slow, seconds=0.2)
    first = worker.ask(SearchRequest(text="first"))
    assert slow.begun.wait(WAIT)
    late, called = worker.ask(SearchRequest(text="late")), worker.call(int)
    time.sleep(0.3)
    slow.go.set()
    assert first.result(WAIT) is not None
    with pytest.raises(SearchTimeoutError, match=r"within 0\.2 s"):
        late.result(WAIT)
    with pytest.raises(SearchTimeoutError):
        called.result(WAIT)
    assert slow.batches == [["first"]]
    worker.close()


def test_changes_wait_for_their_turn() -> None:
    slow = Slow()
    worker = Worker(slow, seconds=0.1)
    first = worker.ask(SearchRequest(text="first"))
    assert slow.begun.wait(WAIT)
    changes = [worker.change(int, number) for number in range(5)]
    time.sleep(0.2)
    slow.go.set()
    assert first.result(WAIT) is not None
    assert [change.result(WAIT) for change in changes] == list(range(5))
    worker.close()


class Reranked:
    """Answers at once, but for texts that begin with "rerank": their rest waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.reranked: list[str] = []

    def __call__(self, queries: Sequence[SearchRequest], until: Sequence[float]) -> Begun:
        for query in queries:
            text = str(query.text)
            yield partial(self.rest, text) if text.startswith("rerank") else answer_of((), query.k, 0)

    def rest(self, text: str) -> Answer:
        self.reranked.append(text)
        self.begun.set()
        assert self.go.wait(WAIT)
        if "bug" in text:
            raise ZeroDivisionError
        return answer_of((), len(text), 0)


def test_slow_re_ranking_holds_up_no_other_query() -> None:
    slow = Reranked()
    worker = Worker(slow)
    reranked = [worker.ask(query) for query in queries("rerank", "rerank bug", "rerank it")]
    assert slow.begun.wait(WAIT)
    plain = [worker.ask(query) for query in queries("a", "b", "rerank last", "c")]
    called = worker.call(int)
    assert [plain[place].result(WAIT).total for place in (0, 1, 3)] == [1, 2, 4]
    assert called.result(WAIT) == 0
    assert not any(future.done() for future in (*reranked, plain[2]))
    # one is being re-ranked, three wait for it
    assert worker.waiting == 3
    slow.go.set()
    assert reranked[0].result(WAIT).total == 6
    with pytest.raises(ZeroDivisionError):
        reranked[1].result(WAIT)
    assert [reranked[2].result(WAIT).total, plain[2].result(WAIT).total] == [9, 11]
    worker.close()


def test_an_answer_leaves_when_it_is_ready() -> None:
    go = threading.Event()

    def one_by_one(asked: Sequence[SearchRequest], until: Sequence[float]) -> Begun:
        for query in asked:
            if query.text == "late":
                assert go.wait(WAIT)
            if query.text == "broken":
                raise StoreError("from here on")
            yield answer_of((), query.k, 0)

    worker = Worker(one_by_one)
    busy = threading.Event()
    first = worker.call(busy.wait, WAIT)
    early, late, broken, behind = (worker.ask(query) for query in queries("early", "late", "broken", "c"))
    busy.set()
    assert first.result(WAIT)
    assert early.result(WAIT).total == 1
    assert not late.done()
    go.set()
    assert late.result(WAIT).total == 2
    for future in (broken, behind):
        with pytest.raises(StoreError, match="from here on"):
            future.result(WAIT)
    assert worker.ask(SearchRequest(text="after it")).result(WAIT) is not None
    worker.close()


def test_who_has_gone_is_not_re_ranked() -> None:
    slow = Reranked()
    worker = Worker(slow)
    first, gone, there = (worker.ask(query) for query in queries("rerank", "rerank gone", "rerank there"))
    assert slow.begun.wait(WAIT)
    # embedded and searched for, so it has begun
    assert worker.ask(SearchRequest(text="plain")).result(WAIT) is not None
    assert not gone.cancel()
    slow.go.set()
    assert [first.result(WAIT).total, there.result(WAIT).total] == [6, 12]
    assert slow.reranked == ["rerank", "rerank there"]
    worker.close()


def test_what_waits_too_long_is_not_re_ranked() -> None:
    slow = Reranked()
    worker = Worker(slow, seconds=0.5)
    first, late = (worker.ask(query) for query in queries("rerank", "rerank late"))
    assert slow.begun.wait(WAIT)
    time.sleep(0.6)
    slow.go.set()
    assert first.result(WAIT).total == 6
    with pytest.raises(SearchTimeoutError, match=r"within 0\.5 s"):
        late.result(WAIT)
    assert slow.reranked == ["rerank"]
    worker.close()


def test_closing_turns_away_what_waits_to_be_re_ranked() -> None:
    slow = Reranked()
    worker = Worker(slow)
    begun, waiting = (worker.ask(query) for query in queries("rerank", "rerank it"))
    assert slow.begun.wait(WAIT)
    assert worker.ask(SearchRequest(text="plain")).result(WAIT) is not None
    closing = threading.Thread(target=worker.close, args=(0.3,))
    closing.start()
    with pytest.raises(RefusedError, match="stopping"):
        waiting.result(WAIT)
    assert slow.reranked == ["rerank"]
    closing.join(WAIT)
    with pytest.raises(RefusedError, match="stopping"):
        begun.result(0)
    # the late answer is nobody's
    slow.go.set()
    worker._reranking.join(WAIT)
    assert not worker._reranking.is_alive()
