"""The page in Firefox: what a day with it needs works there as in Chromium, where the other tests of the page are."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.server.browsing import CARDS, TEXT

if TYPE_CHECKING:
    from tests.server.firefox import Firefox
else:
    pytest.importorskip("websockets.sync.client")

from tests.server.firefox import FIREFOX, firefox

pytestmark = pytest.mark.skipif(FIREFOX is None, reason="no firefox is installed")

IDS = f"[...document.querySelectorAll({CARDS!r})].map(card => card.dataset.id)"
FIRST = f"document.querySelector({CARDS!r})"


@pytest.fixture(scope="module")
def browser_of_mozilla(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Firefox]":
    with firefox(tmp_path_factory.mktemp("firefox") / "profile") as found:
        yield found


@pytest.fixture
def tab(browser_of_mozilla: "Firefox", page_url: str) -> "Iterator[Firefox]":
    """The start page in a wide window; at the end nothing may stand on the console."""
    browser_of_mozilla.complaints.clear()
    browser_of_mozilla.window(1200, 900)
    browser_of_mozilla.open(page_url)
    yield browser_of_mozilla
    assert browser_of_mozilla.complaints == []


def search(tab: "Firefox", page_url: str) -> list[str]:
    """Type the query and press Enter; the ids that the server has for it."""
    tab.click("#text")
    tab.write(TEXT)
    tab.press("Enter")
    hits = httpx.post(f"{page_url}v1/search", json={"text": TEXT, "k": 20}).json()["hits"]
    ids = [hit["id"] for hit in hits]
    tab.until(f"String({IDS}) === {','.join(ids)!r}")
    return ids


def test_a_typed_search_shows_the_servers_ranking(tab: "Firefox", page_url: str) -> None:
    ids = search(tab, page_url)
    ranks = f"[...document.querySelectorAll({f'{CARDS} .rank'!r})].map(rank => rank.textContent)"
    assert tab.value(ranks) == [str(rank) for rank in range(1, len(ids) + 1)]
    tab.until("[...document.images].filter(one => one.complete && one.naturalWidth).length >= 5")
    # the address is the search: a reload comes back to it
    tab.reload()
    tab.until(f"String({IDS}) === {','.join(ids)!r}")


def test_a_result_opens_by_a_click_and_closes_by_a_key(tab: "Firefox", page_url: str) -> None:
    search(tab, page_url)
    # not by Enter: without a window the document has no focus, and no key presses a button
    tab.click(f"{CARDS} .open")
    tab.until("document.querySelector('#viewer[open] #why h3')")
    tab.press("Escape")
    tab.until("!document.querySelector('#viewer[open]')")
    assert tab.value(f"document.activeElement.closest('li') === {FIRST}")


def test_a_key_marks_a_result(tab: "Firefox", page_url: str) -> None:
    ids = search(tab, page_url)
    tab.value(f"({FIRST}.querySelector('.open').focus(), true)")
    tab.press("y")
    tab.until(f"{FIRST}.dataset.id === {ids[0]!r} && {FIRST}.querySelector('[aria-pressed=true]')")


def test_two_results_side_by_side(tab: "Firefox", page_url: str) -> None:
    search(tab, page_url)
    tab.value(f"({FIRST}.querySelector('.open').focus(), true)")
    tab.press("c", "ArrowRight", "c", "Shift+C")
    tab.until("document.querySelectorAll('dialog[open] img').length >= 2")
    tab.press("Escape")
    tab.until("!document.querySelector('dialog[open]')")


@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_leaves_the_window(tab: "Firefox", page_url: str, width: int) -> None:
    tab.window(width, 860)
    search(tab, page_url)
    assert tab.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_language_changes_and_stays(tab: "Firefox", page_url: str) -> None:
    assert tab.value("document.documentElement.lang") == "en"
    choose = "(box => (box.value = 'de', box.dispatchEvent(new Event('change', {bubbles: true})), true))"
    tab.value(f"{choose}(document.querySelector('#language'))")
    tab.until("document.documentElement.lang === 'de'")
    tab.reload()
    tab.until("document.documentElement.lang === 'de'")
    tab.value(f"{choose.replace(repr('de'), repr('en'))}(document.querySelector('#language'))")
    tab.until("document.documentElement.lang === 'en'")
