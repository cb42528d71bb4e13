"""A record of who searched for what: one line of JSON a query, for those who answer for person data."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from limner.errors import SettingsError
from limner.search.query import Query
from limner.server.problems import RefusedError


class Audit:
    """The file that lines are added to; None = no record is kept.

    A line is written whole before the answer leaves, and where it cannot be written there is no answer (503). The
    file is opened for each line, so that it may be moved away at any time.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        if file is not None:
            try:
                self._append(b"")
            except OSError as error:
                raise SettingsError(
                    f"{file}: the audit log cannot be written ({error.strerror or error})"
                ) from None

    def note(self, client: str, query: Query, found: Sequence[str] | str) -> None:
        """Record a query with the keys that were found, or with what it was refused for."""
        if self.file is None:
            return
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": client,
            "kind": kind(query),
            "text": query.text,
            "like": query.like,
            "k": query.k,
            "where": [
                f"{one.name}{one.operator}{'|'.join(json.dumps(value) for value in one.values)}"
                for one in query.where
            ],
            "after": None if query.after is None else query.after.isoformat(),
            "before": None if query.before is None else query.before.isoformat(),
            "group": query.group,
            **({"refused": found} if isinstance(found, str) else {"found": list(found)}),
        }
        try:
            self._append(json.dumps(line).encode() + b"\n")
        except OSError:
            raise RefusedError(
                503, "the record of queries cannot be written, and none is answered without"
            ) from None

    def _append(self, line: bytes) -> None:
        assert self.file is not None
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(handle, line) != len(line):
                raise OSError("disk full")
        finally:
            os.close(handle)


def kind(query: Query) -> str:
    """What a query searches by: "text", "image", "like", "text+image" or "text+like"."""
    parts = [name for name in ("text", "image", "like") if getattr(query, name) is not None]
    return "+".join(parts)
