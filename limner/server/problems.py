"""Errors as `application/problem+json` (RFC 9457), without stack traces and without paths of this machine."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Scope

from limner.errors import LimnerError, SearchTimeoutError, StoreError, UnknownPictureError
from limner.wire import ResponseModel

MEDIA_TYPE = "application/problem+json"

TITLES = {
    400: ("malformed", "The request cannot be read"),
    401: ("token", "A token is needed"),
    403: ("forbidden", "Not allowed on this server"),
    404: ("unknown", "There is no such thing here"),
    405: ("method", "This cannot be done here"),
    408: ("slow", "The request took too long to arrive"),
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

_ABSOLUTE = re.compile(r"(?<![\w./])/(?:[^\s/:;,'\"()]+/)+([^\s/:;,'\"()]*)")
_SHOWN = 5
"""Faults of a body that the detail names."""
_TOLD = 20
"""Faults of a body that are under `errors`."""

log = logging.getLogger("limner.server")


class RefusedError(LimnerError):
    """A request that is not done, with its HTTP status."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})


def problem(
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, Any]] | None = None,
) -> Response:
    """The answer that tells of a problem."""
    kind, title = TITLES.get(status, ("other", "The request was refused"))
    body: dict[str, Any] = {"type": f"limner:{kind}", "title": title, "status": status, "detail": detail}
    if errors is not None:
        body["errors"] = list(errors)
    # ASCII: a client's text may hold half of a surrogate pair, which UTF-8 cannot
    return Response(json.dumps(body), status, {**(headers or {})}, media_type=MEDIA_TYPE)


def refused(refusal: RefusedError) -> Response:
    """The answer that a refusal stands for."""
    return problem(refusal.status, str(refusal), headers=refusal.headers)


def install_handlers(app: FastAPI, folders: Sequence[str]) -> None:
    """Let every error of an app become a problem; `folders` are never named in one."""

    def of_limner(request: Request, error: Exception) -> Response:
        if isinstance(error, RefusedError):
            return refused(error)
        if isinstance(error, UnknownPictureError):
            return problem(404, "the store holds no picture of this id")
        if isinstance(error, SearchTimeoutError):
            return problem(503, str(error), headers={"Retry-After": "1"})
        if isinstance(error, StoreError):
            log.error("%s", error)
            return problem(503, "the store cannot be used at the moment; the server's log says why")
        return problem(409, without_paths(str(error), folders))

    def of_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = error.errors()
        if any(one["type"] == "json_invalid" for one in faults):
            place, why = faults[0]["loc"][-1], faults[0].get("ctx", {}).get("error", "")
            return problem(400, f"the body is no JSON ({why} at character {place})")
        errors = [{"loc": _place(one["loc"]), "msg": one["msg"]} for one in faults[:_TOLD]]
        shown = [f"{'.'.join(one['loc'][1:]) or one['loc'][0]}: {one['msg']}" for one in errors[:_SHOWN]]
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        said = "; ".join(shown) + more
        if request.method == "POST" and "json" not in request.headers.get("content-type", ""):
            said = "send the body with the header Content-Type: application/json"
        return problem(422, said, errors=errors)

    def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = {404: "there is nothing at this address", 405: f"{request.method} is not for this address"}
        said = detail.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if error.status_code == 405 and (methods := _methods(app, request.scope)):
            # the router names those of one route, where an address may have several
            headers = {"Allow": ", ".join(methods)}
        return problem(error.status_code, said, headers=headers)

    def of_bug(request: Request, error: Exception) -> Response:
        # the traceback is logged by uvicorn, to which the error is raised once more
        return problem(500, "the server's log has the details")

    app.add_exception_handler(LimnerError, of_limner)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_bug)


def _place(loc: Sequence[str | int]) -> list[str]:
    """The part of a request that is wrong: `body`, the field's name and, in a list, the place.

    >>> _place(("body", "rerank", "literal['all']"))
    ['body', 'rerank']
    """
    return [str(part) for part in (loc[:3] if len(loc) > 2 and isinstance(loc[2], int) else loc[:2])]


def _methods(app: FastAPI, scope: Scope) -> list[str]:
    """Every method that the description has for an address."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return [
        method.upper()
        for pattern, operations in app.openapi()["paths"].items()
        if compile_path(pattern)[0].match(path)
        for method in operations
    ]


def without_paths(message: str, folders: Sequence[str]) -> str:
    """A message in which no folder of this machine is named.

    >>> without_paths("/srv/our store: its model has no reranker", ["/srv/our store"])
    'its model has no reranker'
    >>> without_paths("built with run /home/ann/runs/a; use that", [])
    'built with run a; use that'
    """
    for folder in sorted(folders, key=len, reverse=True):
        message = message.replace(f"{folder}: ", "").replace(f"{folder}/", "")
    return _ABSOLUTE.sub(r"\1", message)


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problems of a route for its OpenAPI description."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": TITLES[status][1], "content": content} for status in sorted(statuses)}


class Fault(ResponseModel):
    """What is wrong with one part of a request."""

    loc: list[str]
    """Which part."""

    msg: str
    """What was expected."""


class Problem(BaseModel):
    """Why a request was not done (RFC 9457)."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """The kind of problem, `limner:KIND`."""

    title: str
    """The same in words."""

    status: int
    """The HTTP status."""

    detail: str
    """What was wrong with this request, and what to do."""

    errors: list[Fault] | None = None
    """With status 422: each fault."""


def problem_schema() -> dict[str, Any]:
    """JSON Schema of a problem, whole."""
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {name: value for name, value in schema.items() if name != "$defs"}
