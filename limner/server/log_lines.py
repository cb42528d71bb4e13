"""The lines of the server's log: as text, or as JSON for a program that collects them.

    2026-11-26T08:15:00.123+00:00 WARNING limner.server not ready: store: /srv/store: the folder of the store is gone …
    {"time": "2026-11-26T08:15:00.123+00:00", "level": "WARNING", "logger": "limner.server", "message": "not ready: …"}

No line has a query. So of an exception only its kind and the lines of code are told: its message may hold anything.
"""

import json
import logging
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from io import TextIOBase
from typing import Any, Literal

from limner.errors import LimnerError
from limner.one_line import one_line
from limner.server.request_log import current_trace

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_QUIET_SECONDS = 10.0
"""Seconds in which a warning that requests cause is written once."""
_KNOWN = 1000
"""Number of different warnings that are remembered."""

_OURS = ("limner", "uvicorn", "uvicorn.error", "uvicorn.access")


class Repeats(logging.Filter):
    """Leaves out warnings and errors that requests cause again and again, and lets the next one say how many they were.

    On a full disk each request has the same error: a line for each of them would fill the disk of the log, too. Those
    of a bug pass, as do those that no request causes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        # by logger and message: when it was last written, and how many were left out since
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a record pass, unless the same one did a moment ago."""
        if record.levelno < logging.WARNING or record.exc_info or current_trace() is None:
            return True
        now, key = time.monotonic(), (record.name, record.getMessage())
        with self._lock:
            last = self._written.get(key)
            if last is not None and now - last[0] < _QUIET_SECONDS:
                self._written[key] = last[0], last[1] + 1
                return False
            if last is None and len(self._written) >= _KNOWN:
                # the longest ago: a dict keeps the order in which its keys came
                del self._written[next(iter(self._written))]
            self._written.pop(key, None)
            self._written[key] = now, 0
        if last is not None and last[1]:
            record.__dict__["left_out"] = last[1]
        return True


class _Lines(logging.Formatter):
    """The fields of a line, which both forms write."""

    def facts(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields of a line, those that are not there left out."""
        trace = current_trace()
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "left_out": getattr(record, "left_out", None),
            "request_id": None if trace is None else trace.request,
            "trace_id": None if trace is None else trace.trace,
            "span_id": None if trace is None else trace.span,
            "parent_id": None if trace is None else trace.parent,
            **getattr(record, "facts", {}),
        }
        if record.exc_info and (error := record.exc_info[1]) is not None:
            found |= _of_error(error)
        return {name: value for name, value in found.items() if value is not None}


def _of_error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    told = {
        "exception": type(error).__name__,
        "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    # made for users, and without what they have asked for where it is logged
    return {**told, "reason": str(error)} if isinstance(error, LimnerError) else told


class JsonLines(_Lines):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line."""
        return json.dumps(self.facts(record))


class TextLines(_Lines):
    """Time, level, logger, the request's id and the message; below it the lines of code of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record, and the frames of an exception on lines of their own."""
        facts = self.facts(record)
        names = ("time", "level", "logger", "request_id", "message", "exception")
        if "left_out" in facts:
            facts["message"] += f" ({facts['left_out']} more like this were left out)"
        # a message of several lines must not look like several messages, nor one with a name give a terminal commands
        line = one_line(" ".join(str(facts[name]) for name in names if name in facts).strip())
        return "\n".join([line, *(f"    {frame}" for frame in facts.get("frames", []))])


def log_to(
    stream: TextIOBase | None = None, *, lines: LogFormat = "text", level: LogLevel = "warning"
) -> logging.Handler:
    """Send the log of this process to a stream (stderr), limner's own from a level on, and return the handler.

    For a process that is a server and nothing else: it replaces the handlers of the root logger and of uvicorn.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if lines == "json" else TextLines())
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers = [handler]
    # of libraries what matters; their information may tell addresses or texts
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("limner").setLevel(level.upper())
    logging.captureWarnings(True)
    return handler
