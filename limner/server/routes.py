"""The rules that each route declares beside its function; middleware reads them before a request is routed."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from starlette.routing import BaseRoute, Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from limner.server.tokens import Right

F = TypeVar("F", bound=Callable[..., object])

# sandbox: an image file that is opened by itself, such as one that is also HTML, runs no script on this origin
_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"

OTHER = "other"
"""Name of an address that no route has; in the audit log, of a refused request for such an address or method."""

_RULES = "limner.rules"
_DECLARED = "limner_rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a route; those of an unknown address are the defaults.

        @Rules(right="search", audit="search", large=True)
        @routes.post("/v1/search")
        async def search(body: SearchBody, request: Request) -> Answer: ...

    - `right`: the right that a token must have; None = any token will do.
    - `audit`: name of its requests in the audit log, where each leaves a line, refused ones too. None = no line, for
      routes that neither tell nor change anything of persons.
    - `changes`: it changes the store: a line is written before it begins, too, and it waits until an app that was
      replaced by a reload has ended its own changes.
    - `large`: its bodies hold a picture, or the judgements of thousands; others have at most 64 KiB.
    - `cost`: how many requests one counts for in its client's rate; 0 = it has no limit.
    - `is_open`: it tells nothing of the store and needs no token. Its function is `async`: strangers take no thread.
    - `policy`: the Content-Security-Policy of its answers; None = without one.
    - `path`: the pattern of its address; `Routes` knows it.
    """

    right: Right | None = None
    audit: str | None = None
    changes: bool = False
    large: bool = False
    cost: float = 1.0
    is_open: bool = False
    policy: str | None = _POLICY
    path: str = OTHER

    def __call__(self, function: F) -> F:
        """Declare the rules of a route, as a decorator above the one with its path and method."""
        setattr(function, _DECLARED, self)
        return function

    @property
    def is_probe(self) -> bool:
        """True for what a load balancer asks all day long, without a token."""
        return self.is_open and not self.cost


class Routes:
    """The routes of an app with their rules: `declared` has them by method and path, e.g. `GET /v1/items/{id}`."""

    def __init__(self) -> None:
        self.declared: dict[str, Rules] = {}
        self._patterns: list[tuple[str, re.Pattern[str], Rules]] = []

    def add(self, routes: Iterable[BaseRoute], rules: Rules | None = None) -> None:
        """Add routes, which declare their rules unless `rules` are those of all. Raises `TypeError` if one does not."""
        for route in routes:
            assert isinstance(route, Route)
            own = rules or getattr(route.endpoint, _DECLARED, None)
            if own is None:
                raise TypeError(f"{route.path}: declares no rules; put @Rules(…) above its function")
            own = replace(own, path=route.path)
            # HEAD is taken for GET
            for method in sorted((route.methods or set()) - {"HEAD"}):
                self.declared[f"{method} {route.path}"] = own
                self._patterns.append((method, compile_path(route.path)[0], own))

    def find(self, scope: Scope) -> Rules:
        """Find the rules of a request; of an address with another method only those that go by the address."""
        path, method = route_path(scope), method_of(scope)
        there = {one: rules for one, pattern, rules in self._patterns if pattern.match(path)}
        if method in there or not there:
            return there.get(method, Rules())
        some = next(iter(there.values()))
        audit = None if some.audit is None else OTHER
        return replace(some, right=None, audit=audit, changes=False, large=False)


class Ruled:
    """ASGI middleware: finds the rules of each request, for the others (`rules_of`)."""

    def __init__(self, app: ASGIApp, routes: Routes) -> None:
        self.app, self.routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            scope[_RULES] = self.routes.find(scope)
        await self.app(scope, receive, send)


def rules_of(scope: Scope) -> Rules:
    """Return the rules of the route that a request means, before it is routed."""
    rules: Rules = scope[_RULES]
    return rules


def route_path(scope: Scope) -> str:
    """The path of a request below the place where the app is mounted, as routes and limits use it."""
    # a mounted app sees the whole path, and its place under `root_path`: by the whole path no limit and no token check
    # would apply there
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    # with the slash: an app at /pic is not meant by /pictures
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def method_of(scope: Scope) -> str:
    """The method by which rights, limits and the audit log take a request: HEAD asks for what GET asks for."""
    return "GET" if scope["method"] == "HEAD" else str(scope["method"])


def route_name(scope: Scope) -> str:
    """Name the route of a request by its pattern, e.g. `/v1/items/{id}`; "other" for an address that has none."""
    # for counters and logs: one name for all images, none for what clients make up. Not what FastAPI has found: of a
    # request that is refused for its token it has looked for nothing
    return rules_of(scope).path


def method_name(scope: Scope) -> str:
    """Name the method of a request for counters and logs; "other" for one that no route has."""
    # HTTP allows any word as a method
    return str(scope["method"]) if scope["method"] in ("GET", "HEAD", "POST", "DELETE") else "other"
