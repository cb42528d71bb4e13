"""The page in a browser: a list without end, and the way back to where one was in it."""

from typing import TYPE_CHECKING, Any

import pytest

from limner.search.engine import Engine
from limner.search.index import index_pictures
from limner.search.store import Store
from limner.server.app import create_app
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, draw
from tests.server.browsing import CARDS, CHROMIUM, JSON, TEXT, api, change, refuse, search, searched, shown
from tests.server.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

COUNT = 150
END = "window.scrollTo(0, document.body.scrollHeight)"
TOP = "document.querySelector(`#grid li[data-id='${ID}']`).getBoundingClientRect().top"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A store of 150 pictures, every second one of camera 2."""
    folder = tmp_path_factory.mktemp("list")
    encoder = FakeEncoder()
    pictures = [draw(folder / f"{number:03}.png", number) for number in range(COUNT)]
    files = StoreFiles.create(folder / "store", fingerprint=encoder.fingerprint, dim=DIM, run="run")
    facts = {str(path): {"camera": 1 + number % 2} for number, path in enumerate(pictures)}
    index_pictures(encoder, files, pictures, metadata=facts)
    return Engine(files, encoder)


@pytest.fixture(scope="module")
def page_url(engine: Engine) -> "Iterator[str]":
    with running(create_app(Store(engine))) as url:
        yield f"{url}/"


def scroll_on(page: "Page", number: int) -> None:
    """To the end of the list, again and again, until it has so many results."""
    for _ in range(40):
        if page.locator(CARDS).count() >= number:
            return
        page.evaluate(END)
        page.wait_for_timeout(100)
    raise AssertionError(f"no {number} results: {page.locator(CARDS).count()}")


def whole(page: "Page", **body: Any) -> list[str]:
    return [hit["id"] for hit in api(page, "/v1/search", {"text": TEXT, "k": 100, **body})["hits"]]


def test_scrolling_brings_the_next_results_until_the_button_is_asked_for(page: "Page") -> None:
    search(page)
    assert len(shown(page)) == 20
    page.wait_for_timeout(400)
    assert page.locator(CARDS).count() == 20, "nobody has scrolled"
    scroll_on(page, 100)
    assert shown(page) == whole(page)
    assert page.locator(f"{CARDS} .rank").all_inner_texts() == [str(rank) for rank in range(1, 101)]
    # what reads the page aloud says it: the region is a status
    assert page.inner_text("#status").startswith("The 100 best of 150")
    assert page.get_attribute("#status", "role") == "status"
    # scrolling alone brings no more, so that the end of the page can be reached
    for _ in range(3):
        page.evaluate(END)
        page.wait_for_timeout(150)
    assert page.locator(CARDS).count() == 100
    foot = page.locator("#language").bounding_box()
    assert foot is not None
    assert foot["y"] < 860
    page.focus("#more")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.closest('#grid li')")
    ids = shown(page)
    assert len(ids) == 120
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == ids[100]
    scroll_on(page, COUNT)
    assert len(set(shown(page))) == COUNT
    assert page.is_hidden("#more")
    assert page.inner_text("#list-end") == "That is all: 150 results."


def test_marks_and_filters_hold_for_every_part(page: "Page") -> None:
    search(page)
    ids = shown(page)
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    asked = searched(page, lambda: page.click("#apply"))
    assert asked["marks"] == {ids[0]: "right"}
    page.click("#filters-toggle")
    asked = searched(page, lambda: page.click(".chip:has(input[value='2'])"))
    page.wait_for_function("id => !document.querySelector(`#grid li[data-id='${id}']`)", arg=ids[0])
    # a mark that is set while one looks belongs to the next search, not to the next part
    page.focus(f"{CARDS} >> nth=1 >> .open")
    page.keyboard.press("n")
    scroll_on(page, 60)
    body = {"marks": {ids[0]: "right"}, "where": ["camera=2"]}
    assert shown(page) == whole(page, **body)[: len(shown(page))]


def test_back_reload_and_a_link_come_to_the_same_place(page: "Page") -> None:
    search(page)
    scroll_on(page, 60)
    goal = shown(page)[25]
    top = TOP.replace("${ID}", goal)
    page.evaluate(f"window.scrollBy(0, {top} - 150)")
    page.wait_for_function("() => location.hash.includes('at=')")
    page.wait_for_timeout(400)
    before = page.evaluate(top)
    link = page.url
    number = page.locator(CARDS).count()
    assert f"k={number}" in link
    all_there = f"() => document.querySelectorAll('{CARDS}').length === {number}"
    page.click(f"#grid li[data-id='{goal}'] .open")
    page.wait_for_selector("#viewer[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    assert page.evaluate(top) == before
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == goal
    page.reload()
    page.wait_for_function(all_there)
    page.wait_for_function("goal => document.activeElement.closest('li')?.dataset.id === goal", arg=goal)
    page.wait_for_timeout(300)  # frames take the shape of the pictures, without moving what is seen
    assert abs(page.evaluate(top) - before) <= 2
    searched(page, lambda: page.keyboard.press("m"))
    page.wait_for_selector("#basis:visible")
    page.wait_for_function(f"() => document.querySelectorAll('{CARDS}').length === 20")
    assert page.evaluate("scrollY") == 0
    page.go_back()
    page.wait_for_function(all_there)
    page.wait_for_timeout(300)
    assert abs(page.evaluate(top) - before) <= 2
    other = page.context.new_page()
    other.goto(link)
    other.wait_for_function(all_there)
    other.wait_for_timeout(300)
    assert 0 <= other.evaluate(top) < 860
    other.close()


def test_a_search_cancels_the_part_that_is_awaited(page: "Page") -> None:
    held: list[Route] = []

    def hold(route: "Route") -> None:
        if (route.request.post_data_json or {}).get("offset"):
            held.append(route)
        else:
            route.continue_()

    search(page)
    first = shown(page)
    page.route("**/v1/search", hold)
    page.evaluate(END)
    page.wait_for_function("() => document.querySelector('#results').ariaBusy === 'true'")
    page.evaluate("window.scrollTo(0, 0)")
    page.fill("#text", "a yellow hat")
    searched(page, lambda: page.press("#text", "Enter"))
    page.wait_for_function("id => document.querySelector('#grid li').dataset.id !== id", arg=first[0])
    late = api(page, "/v1/search", {"text": TEXT, "k": 20, "offset": 20})
    for route in held:
        route.fulfill(json=late)
    page.wait_for_timeout(300)
    assert shown(page) == whole(page, text="a yellow hat", k=20)


def test_filters_alone_list_all_that_passes(page: "Page") -> None:
    passing = [one["id"] for one in api(page, "/v1/items?newest=true&limit=500&where=camera%3D2")["items"]]
    page.goto("/#where=camera%3D2")
    assert shown(page) == passing[:20]
    assert page.inner_text("#status") == "The 20 newest of 75 that pass the filters (150 in all)"
    scroll_on(page, len(passing))
    assert shown(page) == passing
    assert page.inner_text("#list-end") == "That is all: 75 results."
    assert page.is_hidden("#more")


def test_a_list_that_ends_with_a_part_has_no_more(page: "Page") -> None:
    def edit(answer: JSON) -> None:
        answer["total"] = answer.get("matching", 20)
        answer["matching"] = 20

    for path, start in (("search", f"/#q={TEXT}"), ("items?*", "/#where=camera%3D2")):
        change(page, path, edit)
        page.goto(start)
        assert len(shown(page)) == 20
        assert page.is_hidden("#more")


def test_a_list_is_read_anew_where_the_store_has_changed(page: "Page") -> None:
    search(page)
    ids = shown(page)
    changed = {"now": False}

    def edit(route: "Route") -> None:
        response = route.fetch()
        body = response.json()
        offset = (route.request.post_data_json or {}).get("offset")
        if offset is not None:
            # as if the third picture had been deleted: each later one stands a place further up
            every = api(page, "/v1/search", {"text": TEXT, "k": 41})["hits"]
            left = [hit for hit in every if hit["id"] != ids[2]]
            size = (route.request.post_data_json or {})["k"]
            body["hits"] = [{**hit, "rank": 1 + rank} for rank, hit in enumerate(left)][
                offset : offset + size
            ]
            body["snapshot"] = "another"
            changed["now"] = True
        route.fulfill(response=response, json=body)

    page.route("**/v1/search", edit)
    # once: a further part would take the message away again
    page.evaluate(END)
    page.wait_for_selector("#more-told:has-text('The store has changed')")
    assert changed["now"]
    assert shown(page)[:40] == [one for one in whole(page, k=41) if one != ids[2]]


def test_a_part_that_does_not_come_is_said_and_can_be_asked_for_again(page: "Page") -> None:
    search(page)
    refuse(page, "search", 503, "Busy for a test.")
    page.focus("#more")
    page.keyboard.press("Enter")
    page.wait_for_selector("#more-told:has-text('Busy for a test.')")
    assert page.locator(CARDS).count() == 20
    page.unroute("**/v1/search")
    page.click("#more")
    # the click has scrolled to the end of the list, where the next part comes by itself
    page.wait_for_function(f"() => document.querySelectorAll('{CARDS}').length >= 40")
    assert page.inner_text("#more-told") == ""


def test_the_next_result_in_the_dialog_is_fetched(page: "Page") -> None:
    search(page)
    page.click(f"{CARDS} .open >> nth=19")
    page.wait_for_selector("#viewer[open]")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#viewer-title').innerText.startsWith('21 ')")


def test_pictures_far_from_the_window_are_let_go(page: "Page") -> None:
    search(page)
    scroll_on(page, 100)
    page.wait_for_function("() => !document.querySelector('#grid li img').hasAttribute('src')")
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_function("() => document.querySelector('#grid li img').naturalWidth > 0")
    page.wait_for_function("() => !document.querySelector('#grid li:last-child img').hasAttribute('src')")


def test_what_a_text_takes_away_can_be_taken_out(page: "Page") -> None:
    search(page, "a man 2*red -bag without a hat")
    terms = page.locator("#terms li")
    assert terms.all_inner_texts() == ["red ×2", "without bag", "without a hat", "Read it as one sentence"]
    asked = searched(page, page.locator("#terms button").nth(1).click)
    assert asked["text"] == page.locator("#text").input_value() == "a man 2*red without a hat"
    asked = searched(page, page.get_by_text("Read it as one sentence").click)
    page.wait_for_selector("#terms li:only-child")
    assert asked["literal"] is True
    assert terms.all_inner_texts() == ["read as one sentence"]
    assert "literal=1" in page.url
    searched(page, page.locator("#terms button").click)
    page.wait_for_selector("#terms li:nth-child(3)")
    assert terms.all_inner_texts() == ["red ×2", "without a hat", "Read it as one sentence"]


def test_why_a_picture_stands_in_front_is_said(page: "Page") -> None:
    """The store's model is none of pretrained towers, so words answer where they are asked for, as by `search`."""
    change = {"words": True}
    page.route(
        "**/v1/search", lambda route: route.continue_(post_data={**route.request.post_data_json, **change})
    )
    search(page, "007")
    assert page.locator("#grid li").first.locator(".why").inner_text() == "words in: file name"
    assert page.locator(".why").count() == 1
