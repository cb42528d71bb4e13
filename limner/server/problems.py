"""Errors as `application/problem+json` (RFC 9457), without stack traces and without paths of this machine."""

import difflib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Scope

from limner.documented import Documented
from limner.errors import (
    LimnerError,
    SearchTimeoutError,
    StoreError,
    StoreTrouble,
    UnfinishedErasureError,
    UnknownPictureError,
)
from limner.server.routes import route_name
from limner.wire import ResponseModel

MEDIA_TYPE = "application/problem+json"

TITLES = {
    400: ("malformed", "The request cannot be read"),
    401: ("token", "A token is needed"),
    403: ("forbidden", "Not allowed on this server"),
    404: ("unknown", "There is no such thing here"),
    405: ("method", "This cannot be done here"),
    408: ("slow", "The request took too long to arrive"),
    # 409 for what is well-formed and cannot be answered: 422 stays for what the description forbids
    409: ("unanswerable", "This cannot be answered"),
    410: ("changed", "The picture is no longer as it was"),
    413: ("too-large", "The request is too large"),
    421: ("misdirected", "This server does not go by that name"),
    422: ("invalid", "The request is not of the right form"),
    429: ("too-many", "Too many requests"),
    500: ("bug", "The server made a mistake"),
    503: ("unavailable", "The server cannot do this now"),
}
"""The type, without `limner:`, and the title of a problem by its status."""

# absolute paths of two parts and more: their last part stays, since it is what a client knows them by
_ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/:;,'\"()]+/)+([^\s/:;,'\"()]*)")
_SHOWN = 5
"""Number of faults of a body that the detail names."""
# a body of 600,000 unknown fields was answered in 8.5 s with 40 MB, now in 0.5 s with 200 bytes
_TOLD = 20
"""Number of faults of a body that are listed under `errors`."""

ENDED = "limner.ended"
"""Key of a request's scope for the status and the reason that its connection has answered in place of the app."""
REFUSED_FOR = "limner.refused_for"
"""Key of a request's scope for the reason under which its refusal is counted."""
UNREAD_TOKENS = "tokens"
"""Reason of the refusals of a server that cannot read its file of tokens."""
RECORDED = "limner.recorded"
"""Key of a request's scope that says that its line in the audit log has the status of the app's answer."""

STOPPING = "the server is stopping"
"""Detail of the refusals of a server that stops."""

STORE_TROUBLES: Mapping[StoreTrouble, str] = {
    "missing": "the folder is not there; its disk may not be mounted",
    "forbidden": "the server has no right to it",
    "disk": "the disk, or the connection to it, fails",
    "full": "the disk is full",
    "damaged": "it is damaged",
    "model": "it was replaced by a store of another model",
    "busy": "another process is changing it",
    "other": "it cannot be used at the moment",
}
"""The causes of a `StoreError` for a client; the error's own message names folders of this machine."""

_UNFINISHED = "what was to be erased is deleted, but its bytes may still be on the disk"
_LONG = "another process has been reading or changing the store for long, as an export may"
_HELD_UP: Mapping[StoreTrouble, str] = {**STORE_TROUBLES, "busy": _LONG, "other": _LONG}

log = logging.getLogger("limner.server")


class RefusedError(LimnerError):
    """A request that is refused, with its HTTP status.

    `reason`: the name under which it is counted; None = that of the status. It never comes from a client.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})
        self.reason = reason


def reason_of(scope: Scope, status: int) -> str:
    """Name the reason of a refusal, as it is counted: that of its scope, or the kind of its status."""
    # 499 has no title: its client has gone
    return str(scope.get(REFUSED_FOR) or (TITLES[status][0] if status in TITLES else f"status-{status}"))


def problem(
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, Any]] | None = None,
) -> Response:
    """Make the answer that describes a problem."""
    kind, title = TITLES.get(status, ("other", "The request was refused"))
    body: dict[str, Any] = {"type": f"limner:{kind}", "title": title, "status": status, "detail": detail}
    if errors is not None:
        body["errors"] = list(errors)
    # ASCII by json.dumps: a client's text may hold half of a surrogate pair, which UTF-8 cannot encode
    return Response(json.dumps(body), status, {**(headers or {})}, media_type=MEDIA_TYPE)


def refused(refusal: RefusedError) -> Response:
    """Make the answer for a refusal."""
    return problem(refusal.status, str(refusal), headers=refusal.headers)


async def expect_known(request: Request) -> None:
    """Refuse a parameter in the address that the route has not: a misspelt `limit` would go unheard."""
    known = [one.alias for one in request.scope["route"].dependant.query_params]
    faults = []
    for name in request.query_params.keys() - {*known}:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known here: {', '.join(known) or 'none'}"
        faults.append(
            {"type": "extra_forbidden", "loc": ("query", name), "msg": f"unknown parameter; {hint}"}
        )
    if faults:
        raise RequestValidationError(sorted(faults, key=lambda fault: str(fault["loc"])))


def install_handlers(app: FastAPI, folders: Sequence[str]) -> None:
    """Turn every error of an app into a problem; `folders` are never named in one."""

    # async, as are the routes that need no token: asyncio's threads are for those who have one. Work that waits for a
    # thread outlives its connection, so strangers could let it grow without end
    async def of_limner(request: Request, error: Exception) -> Response:
        # the most special first: UnknownPictureError is a StoreError, and both are LimnerErrors
        if isinstance(error, RefusedError):
            request.scope[REFUSED_FOR] = error.reason
            if error.status == 503:
                _log_unavailable(request, error)
            return refused(error)
        if isinstance(error, UnknownPictureError):
            return problem(404, "the store holds no picture of this id")
        if isinstance(error, SearchTimeoutError):
            request.scope[REFUSED_FOR] = "timeout"
            _log_unavailable(request, error)
            return problem(503, str(error), headers={"Retry-After": "1"})
        if isinstance(error, StoreError):
            request.scope[REFUSED_FOR] = "store"
            # the message names folders of this machine, so it goes to the log and not to the client
            log.error("%s", error)
            if isinstance(error, UnfinishedErasureError):
                return problem(503, f"{_UNFINISHED}: {_HELD_UP[error.trouble]}; call it again")
            return problem(503, f"{error.part}: {STORE_TROUBLES[error.trouble]}; the server's log says more")
        return problem(409, without_paths(str(error), folders))

    async def of_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = error.errors()
        if any(fault["type"] == "json_invalid" for fault in faults):
            # pydantic counts a broken body as a fault of form (422); to HTTP it is a malformed request
            place, why = faults[0]["loc"][-1], faults[0].get("ctx", {}).get("error", "")
            return problem(400, f"the body is no JSON ({why} at character {place})")
        # each once: of a field that may be of several forms pydantic tells of every one
        told = list(dict.fromkeys((*_place(fault["loc"]), fault["msg"]) for fault in faults))
        errors = [{"loc": [*place], "msg": said} for *place, said in told[:_TOLD]]
        lines = [f"{'.'.join(place[1:]) or place[0]}: {said}" for *place, said in told[:_SHOWN]]
        more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        detail = "; ".join(lines) + more
        # FastAPI reads no JSON without this header, and would say that every field is missing. Requiring it also
        # keeps pages of other sites out, which may send other types without asking
        if request.method == "POST" and "json" not in request.headers.get("content-type", ""):
            detail = "send the body with the header Content-Type: application/json"
        return problem(422, detail, errors=errors)

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        details = {404: "there is nothing at this address", 405: "this address is for other methods"}
        detail = details.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if error.status_code == 405 and (methods := _methods(app, request.scope)):
            # Starlette names the methods of one route, but an address may have several routes
            headers = {"Allow": ", ".join(methods)}
        return problem(error.status_code, detail, headers=headers)

    async def of_bug(request: Request, error: Exception) -> Response:
        # Starlette raises the error once more after this answer, and uvicorn logs its traceback
        return problem(500, "the server's log has the details")

    app.add_exception_handler(LimnerError, of_limner)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_bug)


def _log_unavailable(request: Request, error: LimnerError) -> None:
    # the route and not the path, which may hold whatever a client writes there
    log.warning("503 for %s %s: %s", request.method, route_name(request.scope), error)


def _place(loc: Sequence[str | int]) -> list[str]:
    """Name the part of a request that is wrong: `body`, the field's name and, in a list, the place.

    >>> _place(("body", "rerank", "literal['all']"))
    ['body', 'rerank']
    """
    return [str(part) for part in (loc[:3] if len(loc) > 2 and isinstance(loc[2], int) else loc[:2])]


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return compile_path(path)[0]


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """List every method that the description has for an address."""
    # the description has the paths below the place where the app is mounted
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return [
        method.upper()
        for pattern, operations in app.openapi()["paths"].items()
        if _pattern(pattern).match(path)
        for method in (*operations, *(["head"] if "get" in operations else []))
    ]


def without_paths(message: str, folders: Sequence[str]) -> str:
    """Take the folders of this machine out of a message.

    >>> without_paths("/srv/our store: its model has no reranker", ["/srv/our store"])
    'its model has no reranker'
    >>> without_paths("built with run /home/ann/runs/a; use that", [])
    'built with run a; use that'
    """
    # the longest first: a folder that contains another would leave half of its name
    for folder in sorted(folders, key=len, reverse=True):
        message = message.replace(f"{folder}: ", "").replace(f"{folder}/", "")
    return _ABSOLUTE.sub(r"\1", message)


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems of a route for its OpenAPI description."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": TITLES[status][1], "content": content} for status in sorted(statuses)}


class Fault(ResponseModel):
    """A fault in one part of a request."""

    loc: list[str]
    """The part of the request."""

    msg: str
    """The expected form."""


class Problem(Documented):
    """The reason why a request was refused (RFC 9457)."""

    type: str
    """The kind of problem, `limner:KIND`."""

    title: str
    """The kind in words."""

    status: int
    """The HTTP status."""

    detail: str
    """The fault of this request, and what to do about it."""

    errors: list[Fault] | None = None
    """Each fault, with status 422; with that of `/readyz`, each part that is not ready."""


def problem_schema() -> dict[str, Any]:
    """Return the JSON Schema of a problem."""
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    # without $defs: Fault stands among the components by itself
    return {name: value for name, value in schema.items() if name != "$defs"}
