"""A server below a path of a reverse proxy, which cuts the path off or leaves it there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from limner.client import Client
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from tests.server.running import running
from tests.server.serving import COUNT, toy_engine

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = "/photos"


@contextmanager
def proxy(behind: str, cut: bool) -> Iterator[str]:
    """A reverse proxy that has the server at /photos/ and nothing anywhere else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            path = self.path
            if path != ROOT and not path.startswith((f"{ROOT}/", f"{ROOT}?")):
                return self.send_error(404)
            # nginx with a slash behind its proxy_pass leads to the slash itself, by a rule of its own
            path = path.removeprefix(ROOT) or ROOT if cut else path
            # httpx unpacks what it gets: asked for by a client, a packed body would leave as what it no longer is
            own = ("connection", "accept-encoding")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in own}
            headers["Accept-Encoding"] = "identity"
            answer = httpx.request(
                self.command, behind + path, headers=headers, content=self.rfile.read(length)
            )
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)
            return None

        do_POST = do_GET  # noqa: N815 - as http.server has it

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module", params=[True, False], ids=["cut", "left"])
def outside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the proxy."""
    settings = ServerSettings(root_path=ROOT)
    store = Store(toy_engine(tmp_path_factory.mktemp("store")))
    with running(create_app(store, settings), settings) as url, proxy(url, request.param) as outside:
        yield outside


def test_the_page_has_its_files(outside: str, browser: "Browser") -> None:
    page = browser.new_page()
    failed: list[str] = []
    page.on("response", lambda got: failed.append(got.url) if got.status >= 400 else None)
    # without the slash, as people type it
    page.goto(f"{outside}{ROOT}")
    assert page.url == f"{outside}{ROOT}/"
    # the page listens once its strings are there, which is after "load"
    page.wait_for_function("() => document.querySelector('#stock').textContent !== ''")
    page.fill("#text", "a square")
    page.press("#text", "Enter")
    page.wait_for_function("() => document.querySelector('#grid img')?.naturalWidth > 0")
    # the style sheet is there: without it the body has the margin of the browser
    assert page.evaluate("document.styleSheets[0].cssRules.length") > 10
    assert not failed
    page.close()


def test_the_client_and_the_description(outside: str) -> None:
    with Client(f"{outside}{ROOT}/") as client:
        assert client.search("a square", k=2).total == COUNT
        assert client.thumbnail(client.items().items[0].id)[:2] == b"\xff\xd8"
    described = httpx.get(f"{outside}{ROOT}/openapi.json").json()
    assert described["servers"] == [{"url": ROOT}]


def test_a_token_is_needed_below_the_path(tmp_path: Path) -> None:
    """Whatever the proxy does with the path, what needs a token needs it."""
    settings = ServerSettings(root_path=ROOT, token="0123456789abcdef")
    with running(create_app(Store(toy_engine(tmp_path)), settings), settings) as url:
        for path in (
            "/v1/items",
            f"{ROOT}/v1/items",
            f"{ROOT}/metrics",
            f"{ROOT}{ROOT}/v1/items",
            "/photosx",
        ):
            assert httpx.get(url + path).status_code == 401, path
        for path in ("/", f"{ROOT}/", f"{ROOT}/page/style.css", f"{ROOT}/livez"):
            assert httpx.get(url + path).status_code == 200, path
        redirect = httpx.get(url + ROOT)
        assert (redirect.status_code, redirect.headers["location"]) == (307, f"{ROOT}/")
