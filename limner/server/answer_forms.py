"""The forms in which an answer leaves: without paths or with, cut to size, guarded in browsers, compressed, or 304."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limner.server.routes import rules_of
from limner.server.settings import ServerSettings
from limner.store.snapshot import Snapshot
from limner.store.uploads import shown_name
from limner.wire import FoundSentence, Hit, Item, MetadataField

T = TypeVar("T", Hit, Item)

_COMPRESSED = ("application/json", "text/css", "text/html", "text/javascript")
"""Types whose bodies are compressed; pictures and archives are compressed already."""
_LEAST = 1024
"""Bytes of a body below which it fits into one packet anyway."""
_SMALL = 2**16
"""Bytes up to which a body is compressed at once, in less than a millisecond; larger ones are in a thread."""
# 4 MiB of a list of pictures: 0.15 s to 23 % of its size; level 5 takes 0.27 s to 20 %, level 9 1.1 s to 19 %
_LEVEL = 1

_CODING = re.compile(r"(gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+))?", re.IGNORECASE)


class HeadRequests:
    """ASGI middleware: HEAD is answered as GET at the same address; the connection leaves the body out.

    Rights, limits and the audit log take HEAD for GET, too (`limner.server.routes.method_of`).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self.app(scope, receive, send)
        # a copy: the connection goes by the method in its own
        inner = {**scope, "method": "GET"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                # the route and the reason of a refusal, for counters and logs
                scope.update({**inner, "method": "HEAD"})
            await send(message)

        return await self.app(inner, receive, sent)


class Guarded:
    """ASGI middleware: adds headers that restrict what a browser does with an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and put the headers on its answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        policy = rules_of(scope).policy

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # set on every answer by one middleware, so that no route can forget it
                headers["X-Content-Type-Options"] = "nosniff"
                headers["X-Frame-Options"] = "DENY"
                # the address of the page holds the query
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                if policy is not None:
                    headers["Content-Security-Policy"] = policy
                # answers are about persons, pictures above all: a browser that kept them would show erased ones
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        return await self.app(scope, receive, guarded)


class Compressing:
    """ASGI middleware: compresses bodies of JSON, CSS, JavaScript and HTML from 1 KiB on for clients that take gzip.

    The length of a compressed body can tell a secret in it to somebody who chooses a text beside the secret and sees
    the length (BREACH). No answer holds a token. What a client sends comes back only in answers to JSON, which pages of
    other sites cannot send, and in problems, which are not compressed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and compress its answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        accepted = b", ".join(value for name, value in scope["headers"] if name == b"accept-encoding")
        start: Message | None = None

        async def compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_text(message):
                # kept back until the size of the body is known
                start = message
                return
            if start is not None:
                first, start = start, None
                body: bytes = message.get("body", b"")
                # one that comes in parts would need a state for each client
                if len(body) >= _LEAST and not message.get("more_body", False):
                    headers = MutableHeaders(scope=first)
                    headers.add_vary_header("Accept-Encoding")
                    if takes_gzip(accepted.decode("latin-1")):
                        body = await _gzip(body, is_open=rules_of(scope).is_open)
                        headers["Content-Encoding"], headers["Content-Length"] = "gzip", str(len(body))
                        message = {**message, "body": body}
                await send(first)
            await send(message)

        return await self.app(scope, receive, compressed)


def takes_gzip(accepted: str) -> bool:
    """True if the value of an Accept-Encoding header allows gzip.

    >>> takes_gzip("br, gzip;q=0.5"), takes_gzip("gzip;q=0, *"), takes_gzip("*"), takes_gzip("identity")
    (True, False, True, False)
    """
    found = [_CODING.fullmatch(one.strip()) for one in accepted.split(",")]
    # q=0 forbids; a missing q is 1
    allowed = {one[1].lower(): (one[2] or "1").strip("0.") != "" for one in found if one is not None}
    return allowed.get("gzip", allowed.get("*", False))


def _is_text(start: Message) -> bool:
    headers = MutableHeaders(scope=start)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in _COMPRESSED and "content-encoding" not in headers


async def _gzip(body: bytes, *, is_open: bool) -> bytes:
    if is_open:
        # the page's files and the description: strangers take neither threads nor time for the same bytes again
        return _kept(body)
    return _made(body) if len(body) <= _SMALL else await run_in_threadpool(_made, body)


def _made(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)


@lru_cache(maxsize=64)
def _kept(body: bytes) -> bytes:
    return _made(body)


def kept_for(content: bytes, media_type: str, seconds: int, asked: str | None) -> Response:
    """Make the answer with a body that the client itself may keep for so many seconds; 304 if it has it already.

    `asked`: the value of its If-None-Match header. To be called with the body as it is now, so that 304 says of nothing
    but that body that it has not changed.
    """
    # of the bytes that are sent, and so of picture and size; the digest of the file itself is nobody's concern
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {
        "ETag": tag,
        # no cache that several people share; and no answer of one token for another
        "Cache-Control": f"private, max-age={seconds}",
        "Vary": "Authorization, Cookie",
    }
    if asked is not None and _names(asked, tag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def _names(asked: str, tag: str) -> bool:
    # weak ones, too: a proxy may have made them so, and for 304 they are compared as strong ones are
    return asked.strip() == "*" or tag in [one.strip().removeprefix("W/") for one in asked.split(",")]


def for_clients(one: T, settings: ServerSettings) -> T:
    """Make a hit or an item ready for HTTP: under the name that clients know, and without paths unless shown."""
    # told for an upload by what its client called it: its file has the hash for a name
    name = shown_name(str(one.path), one.metadata)
    hidden = {} if settings.show_paths else {"path": None, "copies": ()}
    return one.model_copy(update={**hidden, "name": name})


_EACH = 512
"""Bytes that an answer has for each picture or sentence beside what is measured: key, scores, the names of fields."""


def rows_that_fit(
    snapshot: Snapshot, rows: Int[np.ndarray, " some"], most: int
) -> Int[np.ndarray, " fitting"]:
    """The first rows whose items have no more bytes than `most` together, and at least one; see `pictures_that_fit`."""
    own = snapshot.columns
    sizes = (len((own.metadata[row] + (own.identities[row] or "")).encode()) for row in rows.tolist())
    return rows[: _fitting(sizes, most)]


def pictures_that_fit(pictures: Sequence[T], most: int) -> tuple[T, ...]:
    """The first hits or items that have no more bytes than `most` together, and at least one."""
    # a name, too: for an upload it is what a client has called it. Without attention, which has a size of the model's
    sizes = (json_size([one.name, one.identity, one.metadata]) for one in pictures)
    return tuple(pictures[: _fitting(sizes, most)])


def sentences_that_fit(sentences: Sequence[FoundSentence], most: int) -> tuple[FoundSentence, ...]:
    """The first sentences that have no more bytes than `most` together, and at least one."""
    return tuple(sentences[: _fitting((json_size(one.text) for one in sentences), most)])


def fields_that_fit(fields: Sequence[MetadataField], most: int) -> tuple[MetadataField, ...]:
    """The first fields that have no more bytes than `most` together; one that has more by itself loses its values."""
    short = [
        field if json_size(field.values) <= most // 2 else field.model_copy(update={"values": ()})
        for field in fields
    ]
    return tuple(short[: _fitting((json_size(field.model_dump()) for field in short), most)])


def json_size(value: Any) -> int:
    """Bytes of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass"))


def _fitting(sizes: Iterable[int], most: int) -> int:
    """How many of the first fit; one in any case, or nobody could page on."""
    count = total = 0
    # what comes behind the end is not measured
    for size in sizes:
        total += size + _EACH
        if total > most:
            break
        count += 1
    return max(1, count)
