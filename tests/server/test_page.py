"""The page in a browser: queries, filters, pictures, explanations, keys, and what it says when something is wrong.

Where a state of the server is hard to bring about, its answer is changed on the way to the page.
"""

import base64
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.server.browsing import (
    CHROMIUM,
    JSON,
    TEXT,
    a_picture,
    api,
    change,
    drop,
    open_first,
    refuse,
    search,
    searched,
    shown,
    wait_for_results,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def test_first_visit_offers_examples(page: "Page") -> None:
    page.goto("/")
    text = page.inner_text(".example >> nth=0")
    asked = searched(page, lambda: page.click(".example >> nth=0"))
    assert asked["text"] == text == page.input_value("#text")
    assert shown(page)


def test_results_are_those_of_the_server_in_rank_order(page: "Page") -> None:
    asked = search(page)
    assert asked["text"] == TEXT
    answer = api(page, "/v1/search", asked)
    wait_for_results(page, answer)
    assert page.inner_text(".rank >> nth=0") == "1"
    assert str(len(answer["hits"])) in page.inner_text("#status")
    page.wait_for_function("() => document.querySelector('#grid img').naturalWidth > 0")


def test_the_address_restores_the_query(page: "Page", page_url: str) -> None:
    search(page)
    ids, address = shown(page), page.url
    assert "q=a+woman" in address
    page.reload()
    assert shown(page) == ids
    page.go_back()
    page.wait_for_selector(".example")
    assert page.input_value("#text") == ""
    page.go_forward()
    assert shown(page) == ids
    assert page.input_value("#text") == TEXT


def test_filters_of_the_stores_fields(page: "Page") -> None:
    field = next(field for field in api(page, "/v1/info")["fields"] if field["values"])
    search(page)
    page.click("#filters-toggle")
    value = field["values"][0]
    choose = page.locator(f".chip:has(input[name='{field['name']}'][value='{value}'])")
    asked = searched(page, choose.click)
    assert asked["where"] == [f"{field['name']}={value}"]
    assert page.inner_text("#filters-count") == "1"
    wait_for_results(page, api(page, "/v1/search", asked))
    asked = searched(page, lambda: page.click("#active button"))
    assert asked["where"] == []


def test_a_typed_condition(page: "Page") -> None:
    search(page)
    page.click("#filters-toggle")
    page.fill("#where", "identity!=nobody")
    asked = searched(page, lambda: page.press("#where", "Enter"))
    assert asked["where"] == ["identity!=nobody"]
    page.fill("#where", "no condition")
    page.press("#where", "Enter")
    assert "height>=170" in page.inner_text("#where-wrong")
    assert page.locator("#active li").count() == 1


def test_a_picture_of_each_identity(page: "Page") -> None:
    search(page)
    asked = searched(page, lambda: page.select_option("#group", "identity"))
    assert asked["group"] == "identity"
    answer = api(page, "/v1/search", asked)
    wait_for_results(page, answer)
    found = [hit["identity"] for hit in answer["hits"] if hit["identity"] is not None]
    assert len(set(found)) == len(found)


def test_a_dropped_picture_alone_and_beside_words(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".example")
    asked = searched(page, lambda: drop(page, a_picture()))
    assert asked["text"] is None
    assert base64.b64decode(asked["image"]) == a_picture()
    assert page.inner_text("#basis span") == "given.png"
    assert page.is_hidden("#balance")
    page.fill("#text", TEXT)
    asked = searched(page, lambda: page.press("#text", "Enter"))
    assert (asked["text"], asked["text_weight"]) == (TEXT, 0.5)
    page.focus("#weight")
    asked = searched(page, lambda: page.press("#weight", "End"))
    assert asked["text_weight"] == 1
    asked = searched(page, lambda: page.click("#basis button"))
    assert asked["image"] is None
    page.go_back()  # this page still has the picture
    page.wait_for_selector("#basis:visible")


def test_a_file_that_is_no_picture(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".example")
    drop(page, b"words", "words.txt", "text/plain")
    assert "words.txt is not a picture" in page.inner_text("#notice")


def test_a_result_with_its_facts_and_explanation(page: "Page") -> None:
    asked = search(page)
    first, second = api(page, "/v1/search", asked)["hits"][:2]
    open_first(page)
    assert first["name"] in page.inner_text("#facts")
    assert page.locator(".word, .weights li").count() >= 4
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "title => document.querySelector('#viewer-title').innerText.startsWith(title)", arg="2 ·"
    )
    assert f"open={second['id']}" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    focused = page.evaluate("document.activeElement.closest('li').dataset.id")
    assert focused == second["id"]
    assert "open=" not in page.url


def test_the_back_button_closes_a_result_and_its_link_opens_it(page: "Page") -> None:
    search(page)
    open_first(page)
    link = page.url
    page.go_back()
    page.wait_for_selector("#viewer", state="hidden")
    assert shown(page)
    page.goto("/")
    page.goto(link)
    page.wait_for_selector("#viewer[open]")


WORDS = ["a", "blue", "jacket"]
MAPS = [[[0.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]], [[0.25, 0.75], [0.0, 0.0]]]


def test_regions_and_words_light_each_other(page: "Page") -> None:
    regions = [[0.0, 0.9, 0.1], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    attention = {"words": WORDS, "of_regions": MAPS, "of_words": regions, "reader": "region"}
    change(page, "explain", lambda found: found.update(words=WORDS, weights=None, attention=attention))
    search(page)
    open_first(page)
    page.hover(".word:text-is('jacket')")
    assert page.locator(".cell.lit").all_inner_texts() == ["25%", "75%"]
    assert "top right" in page.inner_text("#why .caption") or "upper right" in page.inner_text(
        "#why .caption"
    )
    page.click(".cell >> nth=0")
    page.mouse.move(5, 5)  # a click holds it
    assert "“blue” 90%" in page.inner_text("#why .caption")
    shares = page.eval_on_selector_all(
        ".word", "words => words.map(word => word.style.getPropertyValue('--share'))"
    )
    assert float(shares[1]) == 1
    assert float(shares[0]) == 0


def test_steps_have_words_and_words_have_places(page: "Page") -> None:
    attention = {"words": WORDS, "of_regions": MAPS, "of_words": [[0.1, 0.9, 0.0]] * 5, "reader": "step"}
    change(page, "explain", lambda found: found.update(words=WORDS, weights=None, attention=attention))
    search(page)
    open_first(page)
    assert page.locator(".step").count() == 5
    page.click(".step >> nth=1")
    assert "Step 2 reads: “blue” 90%" in page.inner_text("#why .caption")
    assert page.locator("#overlay canvas.shown").count() == 1


def test_words_that_mattered(page: "Page") -> None:
    change(
        page, "explain", lambda found: found.update(words=WORDS, weights=[0.1, -0.05, 0.2], attention=None)
    )
    search(page)
    open_first(page)
    assert page.locator(".weights li.for").count() == 2
    assert page.locator(".weights li.against").inner_text().split() == ["blue", "−0.050"]


def test_more_like_this(page: "Page") -> None:
    search(page)
    first = shown(page)[0]
    open_first(page)
    asked = searched(page, lambda: page.click("#actions button"))
    assert (asked["like"], asked["text"]) == (first, None)
    page.wait_for_selector("#viewer", state="hidden")
    assert page.is_visible("#basis")
    page.reload()
    assert shown(page)


def test_keys(page: "Page") -> None:
    search(page)
    ids = shown(page)
    page.focus("#theme")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    focused = "document.activeElement.closest('li').dataset.id"
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == ids[0]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == ids[1]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_selector("#viewer[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    asked = searched(page, lambda: page.keyboard.press("m"))
    assert asked["like"] == ids[0]


def test_a_token_is_asked_for_and_kept_for_the_tab(page: "Page") -> None:
    def guard(route: "Route") -> None:
        if route.request.headers.get("authorization") == "Bearer open sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json={"title": "Token needed", "detail": "Send one"})

    page.route("**/v1/**", guard)
    page.goto(f"/#q={TEXT}")
    page.fill("#token", "wrong")
    page.press("#token", "Enter")
    page.wait_for_selector("text=does not take this token")
    page.fill("#token", "open sesame")
    page.press("#token", "Enter")
    assert shown(page)
    page.wait_for_function("() => document.querySelector('#grid img').src.startsWith('blob:')")
    page.wait_for_function("() => document.querySelector('#grid img').naturalWidth > 0")
    page.reload()
    assert shown(page)
    page.click("#forget")
    page.wait_for_selector("#token")


@pytest.mark.parametrize("status", [413, 422, 500])
def test_a_refusal_is_shown_in_the_servers_words(page: "Page", status: int) -> None:
    refuse(page, "search", status, "What was <b>wrong</b> with it.")
    search(page)
    assert "What was <b>wrong</b> with it." in page.inner_text(".trouble")
    assert page.locator(".trouble button").count() == (status >= 500)


def test_too_many_searches_may_be_tried_again_later(page: "Page") -> None:
    refuse(page, "search", 429, "A little slower.", **{"Retry-After": "1"})
    search(page)
    page.wait_for_selector(".trouble button:disabled")
    page.unroute_all()
    searched(page, lambda: page.click(".trouble button:enabled"))
    assert shown(page)


def test_a_server_that_cannot_be_reached(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".example")
    page.route("**/v1/**", lambda route: route.abort())
    page.fill("#text", TEXT)
    page.press("#text", "Enter")
    page.wait_for_selector("text=cannot be reached")
    page.unroute_all()
    page.click(".trouble button")
    assert shown(page)


def test_an_empty_store(page: "Page") -> None:
    change(page, "info", lambda info: info.update(pictures=0, fields=[], times=None))
    page.goto("/")
    page.wait_for_selector("text=There are no pictures here yet")
    assert page.is_hidden("#refine")


def test_no_picture_passes_the_filters(page: "Page") -> None:
    page.goto(f"/#q={TEXT}&where=identity%3Dnobody")
    page.wait_for_selector("text=No picture passes these filters")
    asked = searched(page, lambda: page.click("#notice button"))
    assert asked["where"] == []
    assert shown(page)


def test_no_good_match_shows_the_nearest_all_the_same(page: "Page") -> None:
    def edit(answer: JSON) -> None:
        for hit in answer["hits"]:
            hit["probability"] = 0.21
        answer.update(good=False, threshold=0.5)

    change(page, "search", edit)
    search(page)
    assert shown(page)
    assert "21%" in page.inner_text(".notice")
    assert "No good match" in page.inner_text(".notice")


def test_steps_that_read_words_without_places(page: "Page") -> None:
    attention = {"words": WORDS, "of_regions": None, "of_words": [[0.1, 0.9, 0.0]] * 2, "reader": "step"}
    change(page, "explain", lambda found: found.update(words=WORDS, weights=None, attention=attention))
    search(page)
    open_first(page)
    page.click(".step >> nth=0")
    assert "Step 1 reads: “blue” 90%" in page.inner_text("#why .caption")
    assert page.locator("#overlay > *").count() == 0


def test_a_picture_that_changed_since_it_was_indexed(page: "Page") -> None:
    refuse(page, "images/*", 409, "Changed.")
    search(page)
    open_first(page)
    assert "this is its thumbnail" in page.inner_text("#viewer-note")
    page.wait_for_function("() => document.querySelector('.picture img').naturalWidth > 0")


def test_a_second_escape_goes_back_once(page: "Page") -> None:
    search(page)
    open_first(page)
    page.evaluate("document.querySelector('#close').click(), document.querySelector('#close').click()")
    page.wait_for_selector("#viewer", state="hidden")
    page.wait_for_timeout(200)
    assert "q=a+woman" in page.url


def test_more_results(page: "Page") -> None:
    page.goto(f"/#q={TEXT}&k=2")
    assert len(shown(page)) == 2
    asked = searched(page, lambda: page.click("#more"))
    assert asked["k"] == 10
    wait_for_results(page, api(page, "/v1/search", asked))


def test_data_never_become_markup(page: "Page") -> None:
    mark = "<img src=x onerror=alert(1)>"

    def edit(answer: JSON) -> None:
        answer["hits"][0].update(name=mark, identity=mark, metadata={mark: mark})

    change(page, "search", edit)
    search(page)
    open_first(page)
    assert mark in page.inner_text("#facts")
    assert page.locator("img[src=x]").count() == 0


def test_a_late_answer_does_not_replace_a_newer_one(page: "Page") -> None:
    held: list[Route] = []

    def handle(route: "Route") -> None:
        if (route.request.post_data_json or {}).get("text") == "first":
            held.append(route)
        else:
            route.continue_()

    page.goto("/")
    page.wait_for_selector(".example")
    page.route("**/v1/search", handle)
    page.fill("#text", "first")
    page.press("#text", "Enter")
    page.wait_for_selector("body[data-busy]")
    page.fill("#text", TEXT)
    searched(page, lambda: page.press("#text", "Enter"))
    ids = shown(page)
    for route in held:
        with suppress(Exception):  # the page gave this request up
            route.fulfill(
                json={"hits": [], "total": 1, "matching": 1, "good": None, "threshold": None, "took_ms": 1}
            )
    page.wait_for_timeout(200)
    assert held
    assert shown(page) == ids


def test_nothing_is_wider_than_a_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    wide = "document.documentElement.scrollWidth"
    search(page)
    shown(page)
    page.click("#filters-toggle")
    assert page.evaluate(wide) == 360
    page.click("#filters-toggle")
    open_first(page)
    assert page.evaluate(wide) == 360
    assert page.evaluate("document.querySelector('#viewer .body').scrollWidth") <= 360


def test_the_chosen_theme_is_kept(page: "Page") -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/")
    page.click("#theme")
    page.reload()
    assert page.get_attribute("html", "data-theme") == "dark"
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert all(int(part) < 60 for part in re.findall(r"\d+", paper)[:3])
