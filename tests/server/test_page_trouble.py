"""The page in a browser: tokens, refusals, and what else goes wrong.

Where a state of the server is hard to bring about, its answer is changed on the way to the page.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.server.browsing import (
    CHROMIUM,
    JSON,
    TEXT,
    change,
    drop,
    refuse,
    search,
    searched,
    shown,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def test_a_file_that_is_no_picture(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".welcome")
    drop(page, b"words", "words.txt", "text/plain")
    assert "words.txt is not a picture" in page.inner_text("#notice [role=alert]")


@pytest.mark.parametrize("by", ["Enter", "button", "nothing"])
def test_what_is_typed_before_the_page_has_its_strings_is_kept(page: "Page", by: str) -> None:
    held: list[Route] = []
    page.route("**/page/strings-en.js", lambda route: held.append(route))
    page.goto("/", wait_until="commit")
    page.wait_for_selector("#text")
    while not held:
        page.wait_for_timeout(20)
    page.fill("#text", TEXT)
    if by == "Enter":
        page.press("#text", "Enter")
    elif by == "button":
        page.click("#search .go")
    if by == "nothing":
        held[0].continue_()
        page.wait_for_selector(".welcome")
        assert page.input_value("#text") == TEXT
    else:
        asked = searched(page, held[0].continue_)
        assert asked["text"] == TEXT == page.input_value("#text")
        assert shown(page)
        page.go_back()
        page.wait_for_selector(".welcome")


def test_a_token_is_asked_for_and_kept_for_the_tab(page: "Page") -> None:
    def guard(route: "Route") -> None:
        if route.request.headers.get("authorization") == "Bearer open-sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json={"title": "Token needed", "detail": "Send one"})

    page.route("**/v1/**", guard)
    page.goto(f"/#q={TEXT}")
    page.fill("#token", "wrong")
    page.press("#token", "Enter")
    page.wait_for_selector("text=does not take this token")
    page.fill("#token", "open-sesame")
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
    page.wait_for_selector(".welcome")
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


def test_a_late_answer_does_not_replace_a_newer_one(page: "Page") -> None:
    held: list[Route] = []

    def handle(route: "Route") -> None:
        if (route.request.post_data_json or {}).get("text") == "first":
            held.append(route)
        else:
            route.continue_()

    page.goto("/")
    page.wait_for_selector(".welcome")
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


def test_a_token_that_cannot_be_one_is_not_sent(page: "Page") -> None:
    refuse(page, "**", 401, "Send one")
    page.goto("/")
    page.fill("#token", "schlüssel–token")
    page.press("#token", "Enter")
    page.wait_for_selector("#token-wrong:has-text('letters, digits and signs')")
    page.fill("#token", "wrong")
    page.press("#token", "Enter")
    page.wait_for_selector("text=does not take this token")
    assert page.evaluate("sessionStorage.length") == 0
    # one that an earlier page kept
    page.evaluate("sessionStorage.setItem('limner.token', 'schlüssel–token')")
    page.unroute_all()
    page.goto(f"/?again#q={TEXT}")
    assert shown(page)


def test_nothing_stays_when_the_token_is_forgotten(page: "Page") -> None:
    page.add_init_script("sessionStorage.setItem('limner.token', 'any')")
    page.goto(f"/#q={TEXT}&where=camera%3D1")
    assert shown(page)
    refuse(page, "**", 401, "Send one")
    page.click("#forget")
    page.wait_for_selector("#token")
    assert page.input_value("#text") == ""
    assert page.is_hidden("#refine")
    said = page.evaluate(
        "document.querySelector('header').innerText + document.querySelector('main').innerHTML"
    )
    for word in ("8 pictures", "camera", "blue jacket", "blob:"):
        assert word not in said, word
    assert "q=" not in page.url
    assert page.evaluate("sessionStorage.length") == 0
