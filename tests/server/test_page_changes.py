"""What the page may change: a token that is remembered, adding and deleting pictures."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import Right, add_token
from limner.store.folders import Folder, follow_folders
from tests.server.browsing import CARDS, CHROMIUM, TEXT, a_picture, open_first, refuse, searched, shown
from tests.server.running import running
from tests.server.serving import COUNT, HOME, added_to, toy_engine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


@contextmanager
def served(browser: "Browser", folder: Path, *rights: Right) -> "Iterator[tuple[BrowserContext, str]]":
    """A browser at a server, and a token with some rights; none is needed without rights."""
    tokens = folder / "tokens.json" if rights else None
    token = "" if tokens is None else add_token(tokens, "ann", rights)
    settings = ServerSettings(changes=True, uploads=folder / "uploads", tokens=tokens)
    with running(create_app(Store(toy_engine(folder)), settings), settings) as url:
        context = browser.new_context(base_url=url)
        context.set_default_timeout(30_000)
        yield context, token
        context.close()


def entered(page: "Page", token: str, *, remember: bool = False) -> None:
    page.goto("/")
    page.fill("#token", token)
    page.set_checked("#remember", remember)
    page.click(".token .go")
    page.wait_for_selector(".welcome")


def found(page: "Page") -> None:
    page.fill("#text", TEXT)
    page.press("#text", "Enter")
    shown(page)


def test_a_remembered_token_outlives_the_tab_until_it_is_forgotten(
    browser: "Browser", tmp_path: Path
) -> None:
    with served(browser, tmp_path, "search") as (context, token):
        page = context.new_page()
        entered(page, token, remember=True)
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        # no script holds it
        kept = "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        assert token not in page.evaluate(kept)
        page.close()
        page = context.new_page()
        page.goto("/")
        page.wait_for_selector(".welcome")
        found(page)
        page.wait_for_function("() => document.querySelector('#grid img').naturalWidth > 0")
        page.click("#forget")
        page.wait_for_selector("#token")
        assert context.cookies() == []
        page.reload()
        page.wait_for_selector("#token")
        # by default it goes with the tab
        entered(page, token)
        assert context.cookies() == []
        page.close()
        page = context.new_page()
        page.goto("/")
        page.wait_for_selector("#token")


@pytest.mark.parametrize(
    ("rights", "adds", "deletes"),
    [
        (("search",), False, False),
        (("search", "add"), True, False),
        (("search", "erase"), False, True),
        ((), True, True),
    ],
)
def test_buttons_are_there_where_the_token_may(
    browser: "Browser", tmp_path: Path, rights: tuple[Right, ...], adds: bool, deletes: bool
) -> None:
    with served(browser, tmp_path, *rights) as (context, token):
        page = context.new_page()
        if rights:
            entered(page, token)
        else:
            page.goto("/")
            page.wait_for_selector(".welcome")
        assert page.is_visible("#add") == adds
        page.set_viewport_size({"width": 360, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.locator(".brand").bounding_box()["height"] < 40  # type: ignore[index]
        page.set_viewport_size({"width": 1280, "height": 700})
        found(page)
        open_first(page)
        assert (page.locator("#actions .deletion button").count() == 1) == deletes


def test_pictures_are_added_and_what_is_refused_is_named(browser: "Browser", tmp_path: Path) -> None:
    with served(browser, tmp_path) as (context, _):
        page = context.new_page()
        page.goto("/")
        page.wait_for_selector(".welcome")
        found(page)
        files = [tmp_path / name for name in ("one.png", "none.png", "empty.png", "two.png")]
        sent = (a_picture(), b"no picture at all", b"", coloured("red"))
        for file, content in zip(files, sent, strict=True):
            file.write_bytes(content)
        page.set_input_files("#add-file", files)
        page.wait_for_function("() => document.querySelector('#changed').textContent.startsWith('Added:')")
        first, refused, empty = page.locator("#changed span").all_inner_texts()
        assert first == "Added: 2 pictures."
        assert refused.startswith("Not added: none.png: ")
        assert refused.count("none.png") == 1
        assert empty == "Not added: empty.png: The file is empty."
        assert len(added_to(tmp_path / "uploads")) == 2
        # the search is asked again
        page.wait_for_function(
            "n => document.querySelectorAll('#grid li[data-id]').length === n", arg=COUNT + 2
        )
        assert page.inner_text("#stock") == f"{COUNT + 2} pictures"
        assert page.input_value("#text") == TEXT
        # until the next search
        searched(page, lambda: page.press("#text", "Enter"))
        assert page.inner_text("#changed") == ""


def test_a_picture_is_deleted_after_one_question(browser: "Browser", tmp_path: Path) -> None:
    with served(browser, tmp_path) as (context, _):
        page = context.new_page()
        page.goto("/")
        page.wait_for_selector(".welcome")
        found(page)
        first, second = shown(page)[:2]
        open_first(page)
        page.click("#actions .deletion button")
        assert page.evaluate("document.activeElement.textContent") == "Keep"
        page.keyboard.press("Enter")
        assert page.locator("#actions .deletion button").all_inner_texts() == ["Delete"]
        page.click("#actions .deletion button")
        refuse(page, f"items/{first}", 503, "the store is being written")
        page.click("#actions .deletion .danger")
        page.wait_for_function(
            "() => document.querySelector('.deletion').textContent.includes('being written')"
        )
        page.unroute(f"**/v1/items/{first}")
        page.click("#actions .deletion button")
        page.click("#actions .deletion .danger")
        page.wait_for_selector(f"{CARDS}[data-id='{first}']", state="detached")
        assert shown(page)[0] == second
        assert page.is_hidden("#viewer")
        assert page.inner_text("#changed").startswith("Deleted: ")
        assert page.inner_text("#stock") == f"{COUNT - 1} pictures"


def test_the_page_says_that_a_file_in_a_followed_folder_comes_back(
    browser: "Browser", tmp_path: Path
) -> None:
    pytest.importorskip("watchfiles")
    settings = ServerSettings(changes=True, uploads=tmp_path / "uploads", watch=True)
    engine = toy_engine(tmp_path)
    follow_folders(engine.files, [Folder(str(tmp_path / HOME))])
    with running(create_app(Store(engine), settings), settings) as url:
        page = browser.new_page()
        page.goto(url)
        page.wait_for_selector(".welcome")
        found(page)
        open_first(page)
        page.click("#actions .deletion button")
        assert "indexed again at the next look" in page.inner_text("#actions .deletion .hint")
        page.click("#actions .deletion .danger")
        page.wait_for_function("() => document.querySelector('#changed').textContent.startsWith('Deleted:')")
        assert "indexed again at the next look" in page.inner_text("#changed")
        page.close()


def coloured(name: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 40), name).save(file, "PNG")
    return file.getvalue()
