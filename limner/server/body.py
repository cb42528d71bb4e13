"""How large a request's body may be, and how long it may take to arrive."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from limner.server.problems import RefusedError, refused

_WITH_PICTURES = ("/v1/search", "/v1/sentences", "/v1/items")
_PLAIN = 64 * 1024


class BodyLimit:
    """ASGI middleware: reads the body before the app does; 413 for one that is too large, 408 for one too slow.

    By the Content-Length where there is one, before anything is read, and by counting what arrives. `largest` is for
    bodies that carry a picture; others have at most 64 KiB.
    """

    def __init__(self, app: ASGIApp, largest: int, seconds: float) -> None:
        self.app = app
        self.largest = largest
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through with its body, or answer it."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return await self.app(scope, receive, send)
        try:
            largest = self.largest if scope["path"] in _WITH_PICTURES else min(self.largest, _PLAIN)
            body = await self._read(scope, receive, largest)
        except RefusedError as refusal:
            return await refused(refusal)(scope, receive, send)
        if body is None:
            return None
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return await self.app(scope, again, send)

    async def _read(self, scope: Scope, receive: Receive, largest: int) -> bytes | None:
        """The body; None where the client has gone."""
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if not said.isdigit() or len(said) > 18 or int(said) > largest:
            raise _too_large(largest)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > largest:
                        raise _too_large(largest)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedError(
                408, f"the body took more than {self.seconds:g} s", {"Connection": "close"}
            ) from None


def _too_large(largest: int) -> RefusedError:
    # the rest of the body is not read, so the connection cannot be used again
    return RefusedError(413, f"a body has at most {largest:,} bytes here", {"Connection": "close"})
