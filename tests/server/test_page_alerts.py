"""Alerts on the page: a search is saved beside its results, and what it has found stands above."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.store.alerts import alerts_of
from limner.store.folders import Folder, follow_folders
from tests.search.fake import draw
from tests.server.browsing import CHROMIUM, TEXT, search, shown
from tests.server.running import running
from tests.server.serving import HOME, toy_engine
from tests.server.test_following import until
from tests.server.test_page_axe import violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
else:
    pytest.importorskip("playwright.sync_api")

pytest.importorskip("watchfiles")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


@contextmanager
def served(browser: "Browser", folder: Path, **more: Any) -> "Iterator[tuple[Page, Any]]":
    engine = toy_engine(folder)
    follow_folders(engine.files, [Folder(str(folder / HOME))])
    settings = ServerSettings(**{"watch": True, "alerts": True, "rate": 0.0, **more})
    with running(create_app(Store(engine), settings), settings) as url:
        context = browser.new_context(base_url=url, reduced_motion="reduce")
        context.set_default_timeout(30_000)
        page = context.new_page()
        yield page, engine.files
        context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_search_is_saved_and_what_it_finds_is_shown(browser: "Browser", tmp_path: Path, width: int) -> None:
    with served(browser, tmp_path) as (page, files):
        page.set_viewport_size({"width": width, "height": 860})
        search(page, f"{TEXT}: a/b")
        shown(page)
        assert page.is_hidden("#alerts")
        page.click("#alert-offer button")
        assert page.input_value("#alert-offer [name=name]") == f"{TEXT} a b"
        page.fill("#alert-offer [name=least]", "0")
        assert violations(page) == []
        # a list that grows, or is marked, leaves the form as it is
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.closest('#alert-offer') !== null")
        page.keyboard.press("Enter")
        page.fill("#alert-offer [name=name]", "a/b")
        page.click("#alert-offer [type=submit]")
        page.wait_for_selector("#alert-offer .wrong")
        page.fill("#alert-offer [name=name]", "jackets")
        page.fill("#alert-offer [name=least]", "0")
        page.click("#alert-offer [type=submit]")
        page.wait_for_selector("#alert-offer .wrong", state="detached")
        page.locator("#alert-offer", has_text="Saved. New pictures stand above; 8 pictures").wait_for()
        page.locator("#alerts summary", has_text="1 alert").wait_for()
        (alert,) = alerts_of(files).values()
        assert (alert.name, alert.text, alert.at_least) == ("jackets", f"{TEXT}: a/b", 0)
        for number in range(3):
            draw(tmp_path / HOME / f"new-{number}.png", 50 + number)
        # the page asks every 15 seconds how far the folders are
        page.locator("#alerts summary", has_text="1 alert, 3 new pictures").wait_for(timeout=60_000)
        page.click("#alerts summary")
        page.wait_for_function(
            "() => [...document.querySelectorAll('#alerts img')].every((one) => one.naturalWidth)"
        )
        assert page.locator("#alerts img").count() == 3
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # a picture opens in its search, wherever one is
        page.goto("/")
        page.wait_for_selector(".welcome img")
        page.click("#alerts summary")
        page.click("#alerts .first a >> nth=0")
        page.wait_for_selector("#viewer[open]")
        assert page.input_value("#text") == f"{TEXT}: a/b"
        page.click("#close")
        page.click("#alerts li > button")
        page.wait_for_selector("#alerts", state="hidden")
        until(lambda: not alerts_of(files))


@pytest.mark.parametrize("more", [{"alerts": False}, {"watch": False}])
def test_nothing_is_offered_where_nothing_may_be_saved(
    browser: "Browser", tmp_path: Path, more: dict[str, Any]
) -> None:
    with served(browser, tmp_path, **more) as (page, _):
        search(page)
        shown(page)
        page.wait_for_timeout(1000)
        assert page.is_hidden("#alert-offer")
        assert page.is_hidden("#alerts")


def test_what_an_alert_would_not_know_is_not_offered(browser: "Browser", tmp_path: Path) -> None:
    with served(browser, tmp_path) as (page, _):
        search(page)
        page.wait_for_selector("#alert-offer button")
        for more in ("&after=2026-11-11", "&literal=1"):
            page.goto("/")
            page.goto(f"/#q=a%20coat{more}")
            shown(page)
            page.wait_for_timeout(300)
            assert page.is_hidden("#alert-offer"), more
        page.goto("/#q=a%20coat&where=camera=1")
        page.wait_for_selector("#alert-offer button")
