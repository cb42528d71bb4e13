"""The seconds that a query spends in each stage, for whoever asks for them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Stage = Literal["encode", "search", "rerank", "decode"]
"""Parts of a query: the network, the comparison with all rows, the reranker, and the decoding of an image."""

Observe = Callable[[Stage, float], None]
"""Is called with a stage and its seconds."""

# of the context and not of the engine: two servers may share an engine, and each counts its own queries
_OBSERVE: ContextVar[Observe | None] = ContextVar("observe", default=None)


@contextmanager
def observed(observe: Observe) -> Iterator[None]:
    """Call a function with the seconds of each stage that ends within the block, in this thread."""
    token = _OBSERVE.set(observe)
    try:
        yield
    finally:
        _OBSERVE.reset(token)


@contextmanager
def timed(stage: Stage) -> Iterator[None]:
    """Time a block as a stage; without an observer this does nothing."""
    observe = _OBSERVE.get()
    if observe is None:
        yield
        return
    began = time.perf_counter()
    try:
        yield
    finally:
        observe(stage, time.perf_counter() - began)
