"""Searches that end when their time is over."""

import time

from limner.errors import SearchTimeoutError


def check_time(until: float | None) -> None:
    """Raise `SearchTimeoutError` after a time of `time.monotonic()`; None = it has all the time."""
    if until is not None and time.monotonic() > until:
        raise SearchTimeoutError(
            "the search took longer than it may; re-rank fewer, give fewer conditions, or try again"
        )
