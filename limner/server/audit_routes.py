"""Lines of requests in the audit log, and the middleware that writes each before its answer leaves."""

import logging
import re
from collections.abc import Collection, MutableMapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limner.durable import from_json
from limner.errors import SettingsError, StoreError
from limner.server.access import token_name
from limner.server.audit import AuditLog
from limner.server.batching import GONE
from limner.server.limits import Buckets, address_of, client_of
from limner.server.problems import ENDED, RECORDED, REFUSED_FOR, UNREAD_TOKENS, RefusedError, refused
from limner.server.routes import OTHER, route_path, rules_of
from limner.store.erase import ERASURES
from limner.store.files import StoreFiles

_TOLD = ("found", "count", "unmet", "similar", "naming")
"""Facts that an answer tells."""

_NOT_LET_IN = (401, 403, 421, 429)
"""Refusals that are recorded whatever the address is."""

_BY_STRANGERS = (401, 421, 429)
"""Refusals that anybody can cause: so many a second leave a line, further ones are counted."""
_LINES, _BURST = 1.0, 60
_ALL_LINES, _ALL_BURST = 20.0, 1000

_RECORD = "limner.audit"
_KEY = re.compile(r"/([0-9a-f]{32})$")
_LONGEST = 500
"""Largest number of characters of a refusal's reason that a line repeats."""

_UNWRITTEN = "the record of requests cannot be written, and none is answered without"

log = logging.getLogger("limner.server")


def note(scope: Scope, **facts: Any) -> None:
    """Add facts to the line of a request; `found` is the list of the keys of images that it was told or has changed."""
    record: Record | None = scope.get(_RECORD)
    if record is not None:
        record.facts.update(facts)


async def begun(scope: Scope) -> None:
    """Record a request before it changes something. Raises `RefusedError` (503) if the line cannot be written."""
    record: Record | None = scope.get(_RECORD)
    if record is not None:
        # a change without a line would be worse than a line without a change
        await record.write(begun=True)


def settle(scope: Scope) -> None:
    """Let the line of a request name what it has erased itself; not so of what others have erased meanwhile."""
    record: Record | None = scope.get(_RECORD)
    if record is not None:
        record.settle()


def asked_of(body: BaseModel) -> dict[str, Any]:
    """The fields of a request without its image, which only `kind` mentions: "text", "image", "like", "text+image" …

    Of marks the keys alone, as `marked`.
    """
    parts = [name for name in ("text", "image", "like") if getattr(body, name, None) is not None]
    # a list, since what forgets keys looks for them in lists (`limner.server.audit_lines`)
    marked = {"marked": sorted(marks)} if (marks := getattr(body, "marks", None)) else {}
    return {
        "kind": "+".join(parts),
        **body.model_dump(exclude={"image", "marks"}, exclude_none=True),
        **marked,
    }


class Record:
    """The facts of one request."""

    def __init__(self, audit: AuditLog, files: StoreFiles, scope: Scope) -> None:
        self.audit, self.files, self.scope = audit, files, scope
        self.rules = rules_of(scope)
        self.name = self.rules.audit or OTHER
        self.is_of_persons = self.rules.audit is not None
        """True for an address of what the store holds of persons, also for a method that is not for it."""
        self.facts: MutableMapping[str, Any] = {}
        self._since: str | None = None
        self.removed = False
        """True if the request itself has erased what its line names."""
        # a key in the address also belongs to refused requests; other text there could be anything, a token too
        if self.is_of_persons and (key := _KEY.search(route_path(scope))):
            self.facts["id"] = key[1]

    async def write(self, **facts: Any) -> None:
        """Write a line. Raises `RefusedError` (503) if it cannot be written."""
        line = {
            "who": token_name(self.scope),
            "client": address_of(self.scope),
            "request": self.name,
            **self.facts,
            **facts,
        }
        try:
            # in a thread, as disks may be slow
            await run_in_threadpool(self.audit.append, line, self._erased)
        except (OSError, SettingsError) as error:
            log.error("%s: %s", self.audit.file, error)
            raise RefusedError(503, _UNWRITTEN, reason="audit") from None

    def settle(self) -> None:
        """Take what this request itself has erased for something that its line names."""
        self.removed = True

    async def leave_out_unknown(self) -> None:
        """Leave out keys that the store does not hold: whoever asks for an erased image would bring its key back."""
        named = {name: self.facts[name] for name in ("id", "like") if name in self.facts}
        marked = self.facts.get("marked", [])
        if named or marked:
            unknown = await run_in_threadpool(self._unknown, [*named.values(), *marked])
            if marked:
                self.facts["marked"] = [key for key in marked if key not in unknown]
            for name, key in named.items():
                if key in unknown:
                    del self.facts[name]

    def begin(self) -> None:
        """Note how often something was erased before; what that was is none of this request's concern."""
        with suppress(StoreError):
            self._since = self.files.rows.text(ERASURES)

    def _erased(self, keys: Collection[str]) -> set[str]:
        """Of the images that a line names, those that others have erased since the request began."""
        try:
            # one small text a line, and none of the rows
            if self.removed or self.files.rows.text(ERASURES) == self._since:
                return set()
        except StoreError:
            # a store that is gone or another one holds none of them
            return set(keys)
        return self._unknown(keys)

    def _unknown(self, keys: Collection[str]) -> set[str]:
        """Of keys, those that the store does not hold now."""
        try:
            held = self.files.read(lambda reading: [row.id for row in reading.pictures(list(keys))])
            return set(keys).difference(held)
        except StoreError:
            return set(keys)


class Auditing:
    """ASGI middleware: no answer of an audited route leaves before its line is written; 503 if that fails."""

    def __init__(self, app: ASGIApp, audit: AuditLog, files: StoreFiles) -> None:
        self.app = app
        self.audit, self.files = audit, files
        # a stranger must not fill the disk with lines, and one stranger not all the room of the others
        self._each = Buckets(_LINES, _BURST)
        self._all = Buckets(_ALL_LINES, _ALL_BURST)
        self._uncounted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record it with its answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        record = Record(self.audit, self.files, scope)
        if record.is_of_persons:
            # in a thread, as disks may be slow
            await run_in_threadpool(record.begin)
        scope[_RECORD] = record
        answer = _Answer(self, record, scope, receive, send)
        try:
            await self.app(scope, receive, answer.send)
        except BaseException as error:
            # a bug, whose answer is made outside of this, or a client that has gone
            await answer.ended(500, f"the server failed ({type(error).__name__})")
            raise
        return await answer.ended(GONE, "the client has gone")

    async def recorded(self, record: Record, status: int, reason: str | None = None) -> None:
        """Write the line of an answer, if it leaves one. Raises `RefusedError`."""
        # what its connection has sent meanwhile is what the client got, whatever the app would have said
        made = status < 400
        status, reason = record.scope.get(ENDED, (status, reason))
        # set without a pause behind the reading of ENDED: from here on the connection sends nothing else
        record.scope[RECORDED] = True
        if record.name == OTHER and status not in _NOT_LET_IN and not record.is_of_persons:
            return
        # also what its connection has sent in place of an answer: strangers cause it by opening others
        unread = record.scope.get(REFUSED_FOR) == UNREAD_TOKENS
        by_stranger = status in _BY_STRANGERS or (
            (unread or ENDED in record.scope) and not made and token_name(record.scope) is None
        )
        if by_stranger and (self._each.take(client_of(record.scope)) or self._all.take("")):
            self._uncounted += 1
            return
        facts: dict[str, Any] = {"status": status}
        if status < 400 or (made and record.rules.changes) or record.removed:
            # a change that was made has changed these, also if its client was told that the server is stopping, or that
            # its bytes are still on the disk
            key = record.facts.get("id")
            found = record.facts.get("found", [key] if key else [])
            facts |= {"found": found, "count": record.facts.get("count", len(found))}
        else:
            # only whoever got an answer was told something
            for told in _TOLD:
                record.facts.pop(told, None)
        if status >= 400:
            await record.leave_out_unknown()
            facts["refused"] = (reason or "")[:_LONGEST]
        if self._uncounted:
            facts["unrecorded"], self._uncounted = self._uncounted, 0
        await record.write(**facts)


class _Answer:
    """The answer of one request on its way out."""

    def __init__(
        self, auditing: Auditing, record: Record, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.auditing, self.record = auditing, record
        self.scope, self.receive, self.outside = scope, receive, send
        self.recorded, self.replaced = False, False
        self.start: Message | None = None

    async def send(self, message: Message) -> None:
        """Record the answer at its beginning, then send it on."""
        if self.replaced:
            return None
        if self.recorded or message["type"] not in ("http.response.start", "http.response.body"):
            return await self.outside(message)
        if message["type"] == "http.response.start" and message["status"] >= 400:
            # kept back until the reason comes, which is in the body
            self.start = message
            return None
        status = message["status"] if self.start is None else self.start["status"]
        try:
            await self.auditing.recorded(self.record, status, _detail(message))
        except RefusedError as refusal:
            # the rest of the app's answer, of which nothing has left, is dropped
            self.recorded = self.replaced = True
            self.scope[REFUSED_FOR] = refusal.reason
            answer = refused(refusal)
            # a body that the app has not read is still to come
            answer.headers["Connection"] = "close"
            return await answer(self.scope, self.receive, self.outside)
        self.recorded = True
        if self.start is not None:
            await self.outside(self.start)
        return await self.outside(message)

    async def ended(self, status: int, reason: str) -> None:
        """Record a request that was not answered."""
        if not self.recorded:
            self.recorded = True
            try:
                await self.auditing.recorded(self.record, status, reason)
            except RefusedError:
                # logged already, and there is no answer that could say so
                return


def _detail(message: Message) -> str | None:
    """Read the reason in a problem's body."""
    try:
        body = from_json(message.get("body", b""))
    except ValueError:
        return None
    return str(body["detail"]) if isinstance(body, dict) and "detail" in body else None
