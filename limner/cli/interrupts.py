"""Ctrl-C in the first seconds of a command, which are imports.

An exception that comes out of nowhere is not what an import is written for. Raised under the C++ of a library that is
being loaded, it ends the process with an abort; raised in a weak reference's callback or a `__del__`, as importlib has
them, Python drops it and goes on; raised in `exec`, it comes out as an ImportError of the library that it hit. So among
imports an interrupt waits for their end, and everywhere else it is a `KeyboardInterrupt` at once.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_RETRY_S = 0.02


@contextmanager
def held_back() -> Iterator[None]:
    """Hold each Ctrl-C back while modules are imported. It may be nested, and works in the main thread alone."""
    # of a program that is itself being imported, which this must not wait for
    around = _imports(sys._getframe())

    def handle(number: int, frame: FrameType | None) -> None:
        if _imports(frame) > around:
            # a signal and no thread: it wakes what sleeps or waits
            signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
        else:
            taken()
            raise KeyboardInterrupt

    try:
        handlers = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGALRM)}
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    try:
        yield
    finally:
        # for programs and tests that call the command line in their own process
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def check() -> None:
    """Raise a `KeyboardInterrupt` that waits for the end of an import, which is now."""
    if taken():
        raise KeyboardInterrupt


def taken() -> bool:
    """True if Ctrl-C waits for the end of an import; it will not be raised any more."""
    return signal.setitimer(signal.ITIMER_REAL, 0)[0] > 0


def _imports(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename in _IMPORTS
        frame = frame.f_back
    return count
