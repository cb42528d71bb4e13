"""A record of who searched for what, one line of JSON a search, for those who are responsible for person data."""

import json
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from limner.errors import LimnerError, SettingsError
from limner.server.limits import address_of
from limner.server.problems import RefusedError

AUDITED = frozenset({"POST /v1/search", "POST /v1/sentences", "POST /v1/explain", "GET /v1/items"})
"""Routes that ask about images: each request leaves a line, except a list without conditions, which asks for nobody."""

_PAGE = "the page itself, without anything of the store"
NOT_AUDITED = {
    "GET /v1/items/{id}": "by a key, which an answer that was recorded has told",
    "GET /v1/images/{id}": "by a key, which an answer that was recorded has told",
    "GET /v1/thumbnails/{id}": "by a key; a page of results asks for a hundred",
    "POST /v1/items": "tells nothing that its client has not sent; the picture itself is the record",
    "DELETE /v1/items/{id}": "tells nothing but whether the key was there",
    "GET /v1/info": "counts, and what conditions may speak of, not pictures",
    "GET /health": "says that the server is there",
    "GET /metrics": "counts of requests",
    "GET /openapi.json": "the description, the same for every store",
    "GET /docs": "the description as a page",
    "GET /": _PAGE,
    "HEAD /": _PAGE,
    "GET /page/{name}": _PAGE,
}
"""Every other route, with the reason why it leaves no line; a route that is in neither fails a test."""


class Audit:
    """A file that gets a line for each search; None = no record is kept.

    A line is written as a whole before the answer leaves; if it cannot be written, there is no answer (503). The file
    is opened for each line, so that it may be moved away at any time.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        # threads of the pool: between the size and the cutting off of one, another could add its line
        self._one = threading.Lock()
        if file is not None:
            try:
                # refused when the server starts, not at its first search
                self._append(b"")
            except OSError as error:
                raise SettingsError(
                    f"{file}: the audit log cannot be written ({error.strerror or error})"
                ) from None

    @asynccontextmanager
    async def noted(self, request: Request, what: str, asked: Mapping[str, Any]) -> AsyncIterator[list[str]]:
        """Record a search, with the keys that the block puts into its list or the reason of its refusal."""
        found: list[str] = []
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": address_of(request.scope),
            "request": what,
            **asked,
        }
        try:
            yield found
        except LimnerError as error:
            await self._write({**line, "refused": str(error)})
            raise
        # also a cancelled request: a client that has gone has asked all the same
        except BaseException as error:
            await self._write({**line, "refused": f"the server failed ({type(error).__name__})"})
            raise
        # before the answer leaves: with the answer sent, a full disk could no longer be an error
        await self._write({**line, "found": found})

    async def _write(self, line: Mapping[str, Any]) -> None:
        if self.file is None:
            return
        try:
            # ASCII by json.dumps, as UTF-8 cannot hold half of a surrogate pair; in a thread, as disks may be slow
            await run_in_threadpool(self._append, json.dumps(line).encode() + b"\n")
        except OSError:
            raise RefusedError(
                503, "the record of queries cannot be written, and none is answered without"
            ) from None

    def _append(self, line: bytes) -> None:
        assert self.file is not None
        with self._one:
            # O_APPEND: lines of two servers with one file do not write over each other. 0o600: these are person data
            handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                before = os.fstat(handle).st_size
                if os.write(handle, line) != len(line):
                    # half a line would spoil the next one, and a JSON reader with it
                    os.ftruncate(handle, before)
                    raise OSError("disk full")
            finally:
                os.close(handle)


def asked_of(body: BaseModel) -> dict[str, Any]:
    """The fields of a request without its image, which only `kind` mentions: "text", "image", "like", "text+image" …"""
    parts = [name for name in ("text", "image", "like") if getattr(body, name, None) is not None]
    return {"kind": "+".join(parts), **body.model_dump(exclude={"image"}, exclude_none=True)}
