"""The search page, and the path of a proxy below which the server lies."""

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from limner.server.problems import RefusedError
from limner.server.routes import Rules

FOLDER = Path(__file__).parent / "page"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    # a table of our own: mimetypes asks the system, which may say otherwise, and nosniff blocks the file
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}

# blob: and data: for the image that somebody drops onto the page, before it is sent
_OF_PAGE = (
    "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; script-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page_routes(folder: Path = FOLDER) -> APIRouter:
    """Make the routes `/` and `/page/NAME`, of the files that the folder holds when the server starts."""
    # read once: a name in an address is looked up and never joined to a path, and strangers take no thread to read them
    files = {
        path.name: (path.read_bytes(), _TYPES[path.suffix])
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.suffix in _TYPES and path.is_file()
    }
    routes = APIRouter(include_in_schema=False)

    def sent(name: str) -> Response:
        if name not in files:
            raise RefusedError(404, "the page has no file of this name")
        content, kind = files[name]
        # no-cache: the browser asks again each time, so that a new version has no parts of an old one
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    @Rules(is_open=True, policy=_OF_PAGE)
    @routes.api_route("/", methods=["GET", "HEAD"])
    async def index() -> Response:
        return sent("index.html")

    # a page asks for some thirty at once: whole, two people who came through one proxy, or one who loaded it three
    # times, got a page with parts missing, which is an empty one
    @Rules(is_open=True, policy=_OF_PAGE, cost=0.25)
    @routes.get("/page/{name}")
    async def part(name: str) -> Response:
        return sent(name)

    return routes


class RootPath:
    """ASGI middleware: the server lies below a path of a reverse proxy, which cuts it off or leaves it there.

    It leads from that path to the same with a slash: the addresses in the page are relative, so that without the slash
    the browser would ask beside the path.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app, self.root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or lead to the page."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["path"] == self.root_path and scope["method"] in ("GET", "HEAD"):
            # not kept: the same server may lie at another path tomorrow
            answer = RedirectResponse(f"{self.root_path}/", 307, {"Cache-Control": "no-cache"})
            await answer(scope, receive, send)
        else:
            # routes, limits and rights go by the path behind it. No copy of the scope: its connection looks into it
            scope["root_path"] = self.root_path
            await self.app(scope, receive, send)
