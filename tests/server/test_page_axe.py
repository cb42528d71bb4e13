"""The page by axe, which finds what hinders people who use a screen reader, a keyboard or strong contrast."""

from typing import TYPE_CHECKING

import pytest

from tests.server.browsing import CHROMIUM, a_picture, drop, open_first, search_and_open_all, searched

if TYPE_CHECKING:
    from playwright.sync_api import Page
else:
    pytest.importorskip("playwright.sync_api")

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe is installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def violations(page: "Page") -> list[str]:
    """Rules of WCAG 2.2 AA and of good practice that the page breaks, each with an element that does."""
    # what moves in has its last colours only after a while
    page.wait_for_function("() => document.getAnimations().every((one) => one.playState !== 'running')")
    found = axe.Axe().run(page).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:120]}" for rule in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_hinders(page: "Page", scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    page.goto("/")
    page.wait_for_selector(".welcome img")
    assert violations(page) == []
    search_and_open_all(page)
    assert violations(page) == []
    page.keyboard.press("Escape")
    for place in range(2):
        page.click(f"#grid .compare >> nth={place}")
    page.click("#compare")
    page.wait_for_function("() => document.querySelectorAll('#columns .why h3').length === 2")
    assert violations(page) == []
    page.keyboard.press("Escape")
    open_first(page)
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    searched(page, lambda: drop(page, a_picture()))
    assert violations(page) == []
    page.click("#to-many")
    page.fill("#many-text", "a coat")
    page.click("#many-form .go")
    page.wait_for_selector("#many-rows .first img")
    assert violations(page) == []


def test_axe_sees_what_is_planted(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".welcome img")
    page.evaluate("document.querySelector('.starts img').removeAttribute('alt')")
    page.evaluate("document.querySelector('h1').style.color = '#ddd'")
    found = violations(page)
    assert {rule.split(":")[0] for rule in found} >= {"image-alt", "color-contrast"}
