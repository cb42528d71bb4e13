"""Access: tokens in a header or a cookie, the rights that routes need, and the host names that the server answers to.

A cookie is sent by the browser itself, so that another site could try to use it. It is `SameSite=Strict`: no other site
makes the browser send it. Another port or name of the same site does; those requests say so (`Sec-Fetch-Site`), and
their cookie is not taken. What changes something is a DELETE or has a body of the type JSON, and neither leaves a
browser for another origin before the server has agreed, which it never does.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from limner.errors import SettingsError
from limner.server.limits import Buckets, client_of, too_many
from limner.server.problems import REFUSED_FOR, UNREAD_TOKENS, problem
from limner.server.routes import OTHER, rules_of
from limner.server.tokens import RIGHTS, Right, Token, Tokens

LOCAL = ("localhost", "127.0.0.1", "::1")
_SHORTEST = 16
"""Least number of characters of a token; 16 random ones are beyond guessing."""

_VERBS: Mapping[Right, str] = {
    "search": "search or see pictures",
    "add": "add pictures",
    "erase": "delete or erase pictures",
}
_TOKEN = "limner.token"
_SHOWN = "limner.shown"

COOKIE = "limner_token"
"""Name of the cookie that remembers a token; deploy/ names it, too."""
_REMEMBERED = 90 * 86_400
"""Seconds for which a browser remembers a token."""
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::[0-9]*)?", re.ASCII)
"""A name, an IPv4 address or an IPv6 address in brackets, and a port."""


class Access:
    """ASGI middleware: 421 for a host name that is not served, 401 without a token, 403 without the right that a route
    needs, 429 for too many requests with a wrong token or to a path that needs none.

    `tokens`: None = no token is needed. `guesses`: buckets from which each request with a wrong token takes; `opened`:
    those of requests that need none; None = no limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens | None,
        hosts: Sequence[str],
        guesses: Buckets | None = None,
        opened: Buckets | None = None,
    ) -> None:
        self.app = app
        self.tokens = tokens
        self.guesses = guesses
        self.opened = opened
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if self.hosts and _named(headers.get(b"host", b"")) not in self.hosts:
                # DNS rebinding: a page of elsewhere may let its own name lead to this machine, and read the answers
                answer = problem(421, "without a token this server answers to its own address only")
                return await answer(scope, receive, send)
            rules = rules_of(scope)
            if rules.is_open:
                # these tell nothing, but each costs time that those with a token wait for
                wait = 0.0 if self.opened is None else self.opened.take(client_of(scope), rules.cost)
                app = too_many("too many requests", wait) if wait else self.app
                return await app(scope, receive, send)
            if self.tokens is None:
                return await self.app(scope, receive, send)
            shown = _shown_token(headers)
            token = None if shown is None else self.tokens.find(shown)
            if token is None or token.has_expired:
                fault = "is missing" if shown is None else "is wrong" if token is None else "has expired"
                return await self._refusal(scope, fault)(scope, receive, send)
            scope[_TOKEN], scope[_SHOWN] = token, shown
            # here and not in the route: the body of a request that may not be made is not read
            if rules.right is not None and rules.right not in token.rights:
                verb = _VERBS[rules.right]
                answer = problem(403, f"this token may not {verb}; it lacks the right '{rules.right}'")
                return await answer(scope, receive, send)
        return await self.app(scope, receive, send)

    def _refusal(self, scope: Scope, fault: str) -> Response:
        # the right token is let in whatever others send from its address. Guesses are slowed down all the same; what
        # keeps a token of 16 random characters from being guessed is its length
        guesses = self.guesses if fault == "is wrong" else None
        if guesses is not None and (wait := guesses.take(client_of(scope))):
            return too_many("too many requests with a wrong token", wait)
        if fault == "is wrong" and self.tokens is not None and not self.tokens.is_whole:
            # nobody can say so; a browser would forget a token that is called wrong
            scope[REFUSED_FOR] = UNREAD_TOKENS
            return problem(
                503, "the tokens cannot be read; the server's log says more", headers={"Retry-After": "1"}
            )
        challenge = {"WWW-Authenticate": "Bearer"}
        # a proxy may serve it below a path that it does not know of
        lost = "; this address is none of the server's: behind a proxy look at its root_path"
        more = lost if rules_of(scope).path == OTHER else ""
        return problem(401, f"the token {fault}; send Authorization: Bearer TOKEN{more}", headers=challenge)


def _shown_token(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The token that a request shows, in its Authorization header or else in the cookie; None if it shows none."""
    if b"authorization" in headers:
        kind, _, given = headers[b"authorization"].partition(b" ")
        return given.strip() if kind.lower() == b"bearer" else b""
    # browsers say it, other clients do not
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        return None
    cookies = (part.strip().partition(b"=") for part in headers.get(b"cookie", b"").split(b";"))
    value = next((value for name, _, value in cookies if name == COOKIE.encode()), None)
    try:
        return value and base64.urlsafe_b64decode(value)
    except ValueError:
        return b""


def remember(scope: Scope, response: Response) -> None:
    """Let the browser keep the token of a request in a cookie, which no script reads and no other site sends."""
    shown: bytes | None = scope.get(_SHOWN)
    if shown is not None:
        # a token may have signs that a cookie may not
        response.set_cookie(
            COOKIE, base64.urlsafe_b64encode(shown).decode("ascii"), max_age=_REMEMBERED, **_of_cookie(scope)
        )


def forget(scope: Scope, response: Response) -> None:
    """Let the browser drop the cookie."""
    response.delete_cookie(COOKIE, **_of_cookie(scope))


def _of_cookie(scope: Scope) -> dict[str, Any]:
    return {
        # of this server alone, where several lie below one name
        "path": f"{scope.get('root_path', '')}/",
        "secure": scope["scheme"] == "https",
        "httponly": True,
        "samesite": "strict",
    }


def token_name(scope: Scope) -> str | None:
    """Return the name of the token that a request has sent; None if it sent none that is right, or needs none."""
    token: Token | None = scope.get(_TOKEN)
    return None if token is None else token.name


def rights_of(scope: Scope) -> frozenset[Right]:
    """Return what a request that was let in may do: all, if no token is needed."""
    token: Token | None = scope.get(_TOKEN)
    return frozenset(RIGHTS) if token is None else token.rights


def read_token(file: Path) -> SecretStr:
    """Read the token in a file. Raises `SettingsError` for one that cannot be read or is easily guessed."""
    try:
        # a header is ASCII, and browsers and proxies cut blanks off its ends
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        token = ""
    if len(token) < _SHORTEST or not all("!" <= letter <= "~" for letter in token):
        raise SettingsError(
            f"{file}: expected one token of at least {_SHORTEST} letters, digits and signs without blanks; "
            "`openssl rand -hex 24` makes one"
        )
    return SecretStr(token)


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server that listens there."""
    if host.lower() == "localhost":
        return True
    try:
        # names are not resolved: what they lead to can change after this
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _named(header: bytes) -> str:
    """Read the name in a Host header, without its port; "" if the header is not valid."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1].decode("ascii").strip("[]").lower()
