"""Ctrl-C at any moment of a command, also while modules are imported.

An exception that comes out of nowhere is not what an import is written for. Raised under the C++ of a library that is
being loaded, it ends the process with an abort; raised in a weak reference's callback or a `__del__`, as importlib has
them, Python drops it and goes on; raised in `exec`, it comes out as an ImportError of the library that it hit. So among
imports an interrupt waits for their end, seconds at most, and everywhere else it is a `KeyboardInterrupt` at once.

Libraries drop it elsewhere, too: pydantic takes it for a no in some of its `isinstance` checks. So it is raised again
until it is on its way out: limner catches it nowhere but at the boundary of the command line.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_RETRY_S = 0.02
# longer than an exception needs from where it is raised to the next `except` or `finally`, where `_arrives` sees it
_DROPPED_S = 0.2

_waiting: list[threading.Timer] = []
# the one whose time has come: its interrupt is told from a person's by it
_due: list[threading.Timer] = []
# a timer whose time has come either interrupts before `_forget` or not at all; the handler may run inside of `_forget`
_lock = threading.RLock()


@contextmanager
def held_back() -> Iterator[None]:
    """Hold each Ctrl-C back while modules are imported, and raise it again where a library drops it.

    It may be nested, and works in the main thread alone. What is within must not catch `KeyboardInterrupt` and go on.
    """
    # of a program that is itself being imported, which this must not wait for
    around = _imports(sys._getframe())

    def handle(number: int, frame: FrameType | None) -> None:
        again = _forget()
        if _imports(frame) > around:
            _raise_later(_RETRY_S)
            return
        _raise_later(_DROPPED_S)
        # a second Ctrl-C of a person ends a clean-up that takes too long; one of ours does not
        if not (again and _arrives()):
            raise KeyboardInterrupt

    try:
        handler = signal.signal(signal.SIGINT, handle)
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    try:
        yield
    finally:
        # for programs and tests that call the command line in their own process
        _forget()
        signal.signal(signal.SIGINT, handler)


def taken() -> bool:
    """True if Ctrl-C was pressed; it will not be raised any more."""
    with _lock:
        pressed = bool(_waiting)
        _forget()
    return pressed


def dropped(error: BaseException) -> bool:
    """True if Ctrl-C was pressed and `error` has nothing to do with it, so that something has dropped it."""
    return taken() and not _has_interrupt(error)


def check() -> None:
    """Raise a `KeyboardInterrupt` that waits for the end of an import, which is now."""
    if taken():
        raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename in _IMPORTS
        frame = frame.f_back
    return count


def _arrives() -> bool:
    """True while a `KeyboardInterrupt` is on its way out: in an `except`, a `finally` or the end of a `with`."""
    return _has_interrupt(sys.exc_info()[1])


def _has_interrupt(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _raise_later(seconds: float) -> None:
    main = threading.get_ident()  # where handlers run

    def again() -> None:
        with _lock:
            if timer in _waiting:
                _due.append(timer)
                # not interrupt_main, which would not wake a thread that sleeps or waits
                signal.pthread_kill(main, signal.SIGINT)

    timer = threading.Timer(seconds, again)
    timer.daemon = True
    _waiting.append(timer)
    timer.start()


def _forget() -> bool:
    """Cancel what waits; true if its time had come, so that this interrupt is its and no person's."""
    with _lock:
        due = bool(_due)
        _due.clear()
        while _waiting:
            _waiting.pop().cancel()
    return due
