"""The page in a browser over a store whose model re-ranks: both orders, and the way between them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import limner
from limner.data.records import Dataset
from limner.search.index import index_pictures
from limner.search.store import open_store
from limner.server.app import create_app
from limner.store.files import store_for
from tests.server.browsing import CARDS, CHROMIUM, api, searched, shown, wait_for_results
from tests.server.running import running
from tests.server.test_page_axe import violations

if TYPE_CHECKING:
    from playwright.sync_api import Page
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

QUERY = "a red bar on white"


@pytest.fixture(scope="module")
def page_url(reranking_run: Path, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of the toys with a reranker, which orders the first five again."""
    run = limner.load(reranking_run, stage="stage-2", device="cpu", precision="fp32")
    folder = tmp_path_factory.mktemp("reranked") / "store"
    index_pictures(run, store_for(run, run.path, folder), [record.image for record in toys.records[:12]])
    with running(create_app(open_store(folder, run=run))) as url:
        yield f"{url}/"


def search(page: "Page") -> list[str]:
    page.goto("/")
    page.wait_for_selector(".welcome")
    page.fill("#text", QUERY)
    searched(page, lambda: page.press("#text", "Enter"))
    return shown(page)


def test_the_two_orders_are_those_of_the_server(page: "Page") -> None:
    again = api(page, "/v1/search", {"text": QUERY, "k": 20})
    plain = api(page, "/v1/search", {"text": QUERY, "k": 20, "rerank": 0})
    orders = [[hit["id"] for hit in answer["hits"]] for answer in (again, plain)]
    assert orders[0] != orders[1], "toys that the reranker moves"
    assert search(page) == orders[0]
    assert page.get_attribute("#embedding-order", "aria-pressed") == "false"
    assert "not re-ranked" not in page.inner_text("#status")
    # by key, and the key stays where it was
    page.focus("#embedding-order")
    asked = searched(page, lambda: page.keyboard.press("Enter"))
    assert asked["rerank"] == 0
    wait_for_results(page, plain)
    assert page.inner_text("#status").endswith("not re-ranked")
    assert page.get_attribute("#embedding-order", "aria-pressed") == "true"
    assert page.evaluate("document.activeElement.id") == "embedding-order"
    assert page.is_hidden("#ranks"), "these are the ranks of before"
    # the address keeps it: for a reload, and for the way back
    page.reload()
    wait_for_results(page, plain)
    asked = searched(page, lambda: page.click("#embedding-order"))
    assert "rerank" not in asked
    wait_for_results(page, again)
    assert "rerank" not in page.url
    page.go_back()
    wait_for_results(page, plain)


def test_marks_and_what_is_chosen_stay_over_both_orders(page: "Page") -> None:
    first = search(page)[0]
    page.focus(f"{CARDS} .open")
    page.keyboard.press("y")
    page.keyboard.press("c")
    searched(page, lambda: page.click("#embedding-order"))
    page.wait_for_selector("#embedding-order[aria-pressed=true]")
    page.wait_for_selector(f"#grid [data-id='{first}'] .compare[aria-pressed=true]")
    assert page.get_attribute(f"#grid [data-id='{first}']", "data-marked") == "right"
    # no reranker orders an answer with marks, so that there is nothing to switch
    searched(page, lambda: page.click("#apply"))
    page.wait_for_selector("#embedding-order", state="hidden")
    searched(page, lambda: page.click("#plain"))
    page.wait_for_selector("#embedding-order:visible")


def test_groups_have_both_orders_and_pictures_one(page: "Page") -> None:
    search(page)
    searched(page, lambda: page.select_option("#group", "identity"))
    page.wait_for_selector("#embedding-order:visible")
    assert searched(page, lambda: page.click("#embedding-order"))["group"] == "identity"
    page.focus(f"{CARDS} .open")
    searched(page, lambda: page.keyboard.press("m"))
    page.wait_for_selector("#embedding-order", state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_hinders_either_order(page: "Page", scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    search(page)
    page.click("#ranks")
    assert violations(page) == []
    searched(page, lambda: page.click("#embedding-order"))
    page.wait_for_selector("#embedding-order[aria-pressed=true]")
    assert violations(page) == []
    for language in ("de", "zh", "vi"):
        page.select_option("#language", language)
        page.wait_for_selector(f"html[lang^={language}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
