"""The page in a browser: queries, filters, pictures, keys."""

import base64
import re
from typing import TYPE_CHECKING

import pytest

from tests.server.browsing import (
    CARDS,
    CHROMIUM,
    JSON,
    TEXT,
    a_picture,
    api,
    change,
    drop,
    open_first,
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


def test_first_visit_offers_sentences_of_the_store(page: "Page") -> None:
    change(page, "info", lambda info: info.update(sentences=9, examples=[TEXT, "a red coat"]))
    page.goto("/")
    page.wait_for_selector(".example")
    assert page.locator(".example").all_inner_texts() == [TEXT, "a red coat"]
    asked = searched(page, lambda: page.click(".example >> nth=0"))
    assert asked["text"] == TEXT == page.input_value("#text")
    assert shown(page)


def test_a_store_without_sentences_has_no_examples(page: "Page") -> None:
    assert api(page, "/v1/info")["examples"] == []
    page.goto("/")
    page.wait_for_selector(".starts img")
    assert page.locator(".example").count() == 0
    assert page.locator(".welcome h2").all_inner_texts() == ["Start from a picture of the store"]


def test_results_are_those_of_the_server_in_rank_order(page: "Page") -> None:
    asked = search(page)
    assert asked["text"] == TEXT
    answer = api(page, "/v1/search", asked)
    wait_for_results(page, answer)
    assert page.inner_text(".rank >> nth=0") == "1"
    assert str(len(answer["hits"])) in page.inner_text("#status")
    page.wait_for_function("() => document.querySelector('#grid img').naturalWidth > 0")


def test_words_that_the_model_does_not_know_are_said(page: "Page") -> None:
    search(page, f"{TEXT} zxqv zxqvier")
    assert page.inner_text("#notice p").endswith("left out: zxqv, zxqvier.")
    search(page)
    assert "left out" not in page.inner_text("#notice")


def test_the_address_restores_the_query(page: "Page", page_url: str) -> None:
    search(page)
    ids, address = shown(page), page.url
    assert "q=a+woman" in address
    page.reload()
    assert shown(page) == ids
    page.go_back()
    page.wait_for_selector(".welcome")
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


def test_filters_alone_list_what_passes_the_newest_first(page: "Page") -> None:
    def passing(condition: str) -> JSON:
        return {"hits": api(page, f"/v1/items?newest=true&where={condition}")["items"]}

    of_camera = passing("camera%3D1")
    page.goto("/")
    page.wait_for_selector(".welcome")
    page.click("#filters-toggle")
    page.click(".chip:has(input[name=camera][value='1'])")
    wait_for_results(page, of_camera)
    assert page.inner_text("#status") == "The 4 newest of 4 that pass the filters (8 in all)"
    assert page.locator(".welcome").count() == page.locator(".rank").count() == 0
    page.reload()
    wait_for_results(page, of_camera)
    # marks and groups are of a search
    assert not page.is_visible(".judge >> nth=0")
    assert not page.is_visible("#group")
    page.press(f"{CARDS} .open >> nth=0", "y")
    page.press(f"{CARDS} .open >> nth=0", "c")
    assert page.locator(".mark[aria-pressed=true], [data-marked=right]").count() == 0
    open_first(page)
    assert page.inner_text("#viewer-title") == of_camera["hits"][0]["name"]
    assert "Score" not in page.inner_text("#facts")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => location.hash.includes('{of_camera['hits'][1]['id']}')")
    page.keyboard.press("Escape")
    page.fill("#text", TEXT)
    asked = searched(page, lambda: page.press("#text", "Enter"))
    wait_for_results(page, api(page, "/v1/search", asked))
    assert page.is_visible("#group")
    page.fill("#text", "")
    page.press("#text", "Enter")
    wait_for_results(page, of_camera)
    page.go_back()
    wait_for_results(page, api(page, "/v1/search", asked))
    page.go_back()
    wait_for_results(page, of_camera)
    page.goto("about:blank")
    page.goto("/#before=2026-11-12T08:00")
    wait_for_results(page, passing("taken<2026-11-12T08:00"))
    assert page.locator(CARDS).count() == 2
    page.click("#active button")
    page.wait_for_selector(".welcome")
    assert page.locator(CARDS).count() == 0


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
    page.wait_for_selector(".welcome")
    asked = searched(page, lambda: drop(page, a_picture()))
    assert asked["text"] is None
    assert base64.b64decode(asked["image"]) == a_picture()
    assert page.inner_text("#basis span") == "given.png"
    assert page.is_hidden("#balance")
    page.fill("#text", TEXT)
    asked = searched(page, lambda: page.press("#text", "Enter"))
    # the slider was not touched: the server knows how to read both together
    assert (asked["text"], asked["text_weight"]) == (TEXT, None)
    page.focus("#weight")
    asked = searched(page, lambda: page.press("#weight", "End"))
    assert asked["text_weight"] == 1
    asked = searched(page, lambda: page.click("#basis button"))
    assert asked["image"] is None
    page.go_back()  # this page still has the picture
    page.wait_for_selector("#basis:visible")


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


def test_more_results(page: "Page") -> None:
    page.goto(f"/#q={TEXT}&k=2")
    assert len(shown(page)) == 2
    asked = searched(page, lambda: page.click("#more"))
    assert (asked["k"], asked["offset"]) == (20, 2)
    wait_for_results(page, api(page, "/v1/search", {"text": TEXT, "k": 8}))


def test_results_say_which_rank_they_had_before_re_ranking(page: "Page") -> None:
    search(page)
    shown(page)
    assert page.is_hidden("#ranks"), "this model has no reranker"

    def edit(answer: JSON) -> None:
        # the first was 57th, far below what is shown; two that tie share a rank; the rest was not re-ranked
        for hit, before in zip(answer["hits"], (57, 1, 1, 4), strict=False):
            hit["rank_before"] = before

    change(page, "search", edit)
    search(page)
    shown(page)
    was = page.locator(".was")
    assert not was.first.is_visible()
    page.click("#ranks")
    texts = ["↑ was 57", "↓ was 1", "↓ was 1", "= was 4", *["not re-ranked"] * 4]
    assert was.all_inner_texts() == texts
    assert page.get_attribute("#ranks", "aria-pressed") == "true"
    page.reload()
    shown(page)
    page.wait_for_selector(".was:visible")
    assert was.all_inner_texts() == texts
    open_first(page)
    assert "Rank before re-ranking\n57" in page.inner_text("#facts")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    page.click("#ranks")
    page.wait_for_selector(".was", state="hidden")
    page.unroute("**/v1/search")
    searched(page, lambda: page.select_option("#group", "identity"))
    page.wait_for_selector("#ranks", state="hidden")


def test_nothing_is_wider_than_a_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    wide = "document.documentElement.scrollWidth"
    change(page, "info", lambda info: info.update(pictures=123_456))
    page.goto("/")
    page.wait_for_selector(".welcome")
    for language in ("vi", "zh", "de", "en"):
        page.select_option("#language", language)
        page.wait_for_selector(f"html[lang^={language}]")
        # "1,000 …" would say little of a number
        assert page.evaluate("(one => one.scrollWidth <= one.clientWidth)(document.querySelector('#stock'))")
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
    # its scripts listen by then
    page.wait_for_selector("body[data-state=idle]")
    page.click("#theme")
    page.reload()
    assert page.get_attribute("html", "data-theme") == "dark"
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert all(int(part) < 60 for part in re.findall(r"\d+", paper)[:3])


def test_more_than_fit_into_a_condition(page: "Page") -> None:
    values = [f"{letter * 150}" for letter in "abcdefghijklmnop"]
    field = {"name": "place", "values": values, "kind": "text"}
    change(page, "info", lambda info: info.update(fields=[field]))
    search(page)
    page.click("#filters-toggle")
    for number in range(3):
        asked = searched(page, page.locator(f".chip >> nth={number}").click)
        assert asked["where"] == ["place=" + "|".join(values[: number + 1])]
    page.wait_for_selector("text=No picture passes these filters")
    for number in range(3, 13):
        searched(page, page.locator(f".chip >> nth={number}").click)
    page.click(".chip >> nth=13")
    assert page.locator("#filters input:checked").count() == 13


def test_more_results_take_the_focus_along(page: "Page") -> None:
    page.goto(f"/#q={TEXT}&k=2")
    shown(page)
    page.focus("#more")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('#grid li[data-id]').length > 2")
    page.wait_for_function("() => document.activeElement.closest('li')")
    third = shown(page)[2]
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == third


def test_sentences_of_the_store(page: "Page") -> None:
    own = ["a red coat", "a <b>blue</b> coat"]
    change(page, "info", lambda info: info.update(sentences=9, examples=own))
    found = {"sentences": [{"rank": 1, "score": 0.5, "text": text, "id": None} for text in own], "total": 9}
    asked: list[JSON] = []

    def answer(route: "Route") -> None:
        asked.append(route.request.post_data_json or {})
        route.fulfill(json=found)

    page.route("**/v1/sentences", answer)
    page.goto("/")
    page.wait_for_selector(".example")
    assert page.locator(".example").all_inner_texts() == own
    searched(page, lambda: drop(page, a_picture()))
    page.wait_for_selector(".described .example")
    assert page.locator(".described .example").all_inner_texts() == own
    assert base64.b64decode(asked[0]["image"]) == a_picture()
    assert shown(page)
    body = searched(page, lambda: page.click(".described .example >> nth=1"))
    assert (body["text"], body["image"]) == (own[1], None)
    page.wait_for_selector(".described", state="detached")


def test_pictures_behind_a_token_are_held_near_the_window_only(page: "Page") -> None:
    found = api(page, "/v1/search", {"text": TEXT})
    first = found["hits"][0]
    found["hits"] = [{**first, "id": f"{number:032x}", "rank": number} for number in range(1, 101)]
    thumbnail = a_picture()
    page.route("**/v1/search", lambda route: route.fulfill(json=found))
    page.route("**/v1/thumbnails/*", lambda route: route.fulfill(body=thumbnail, content_type="image/png"))
    page.add_init_script("sessionStorage.setItem('limner.token', 'any')")
    page.goto(f"/#q={TEXT}&k=100")
    assert len(shown(page)) == 100
    seen = "() => document.querySelector('#grid li:nth-child(PLACE) img').naturalWidth > 0"
    gone = "() => !document.querySelector('#grid li:nth-child(PLACE) img').hasAttribute('src')"
    for place, far in ((1, 100), (100, 1), (1, 100)):
        page.evaluate(f"document.querySelector('#grid li:nth-child({place})').scrollIntoView()")
        page.wait_for_function(seen.replace("PLACE", str(place)))
        page.wait_for_function(gone.replace("PLACE", str(far)))
