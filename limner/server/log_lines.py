"""The lines of the server's log: as text, or as JSON for a program that collects them.

    2026-11-26T08:15:00.123+00:00 WARNING limner.server not ready: store: /srv/store: the folder of the store is gone …
    {"time": "2026-11-26T08:15:00.123+00:00", "level": "WARNING", "logger": "limner.server", "message": "not ready: …"}

No line has a query. So of an exception only its kind and the lines of code are told: its message may hold anything.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from io import TextIOBase
from typing import Any, Literal

from limner.errors import LimnerError
from limner.server.request_log import current_trace

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_OURS = ("limner", "uvicorn", "uvicorn.error", "uvicorn.access")


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
        # a message of several lines must not look like several messages
        line = " ".join(str(facts[name]) for name in names if name in facts).replace("\n", " ").strip()
        return "\n".join([line, *(f"    {frame}" for frame in facts.get("frames", []))])


def log_to(
    stream: TextIOBase | None = None, *, lines: LogFormat = "text", level: LogLevel = "warning"
) -> logging.Handler:
    """Send the log of this process to a stream (stderr), limner's own from a level on, and return the handler.

    For a process that is a server and nothing else: it replaces the handlers of the root logger and of uvicorn.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if lines == "json" else TextLines())
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
