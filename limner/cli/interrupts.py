"""Ctrl-C at any moment of a command, also while modules are imported.

An interrupt is a `KeyboardInterrupt` as ever, but it is noted as well, since among imports the exception alone does not
always arrive: raised in a weak reference's callback or a `__del__`, as importlib has them, Python drops it with a
message and goes on; raised in `exec`, it comes out as an ImportError of the library that it hit. So whoever has
imported something asks `check`.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_seen: list[int] = []


@contextmanager
def noted() -> Iterator[None]:
    """Note each Ctrl-C while this lasts; it may be nested, and does nothing outside of the main thread."""

    def note(number: int, frame: FrameType | None) -> None:
        _seen.append(number)
        raise KeyboardInterrupt

    try:
        handler = signal.signal(signal.SIGINT, note)
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    hook = sys.unraisablehook
    sys.unraisablehook = _without_interrupts
    try:
        yield
    finally:
        # for programs and tests that call the command line in their own process
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, handler)
        _seen.clear()


def seen() -> bool:
    """True if Ctrl-C was pressed since `noted` began."""
    return bool(_seen)


def check() -> None:
    """Raise the `KeyboardInterrupt` that was noted and may have been lost."""
    if _seen:
        raise KeyboardInterrupt


def _without_interrupts(dropped: Any) -> None:
    # `check` raises it again, so the message that it was ignored would be wrong
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
