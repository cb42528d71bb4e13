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
    open_first,
    refuse,
    search,
    searched,
    shown,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def test_a_file_that_is_no_picture(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".welcome")
    drop(page, b"words", "words.txt", "text/plain")
    assert "words.txt is not a picture" in page.inner_text("#notice [role=alert]")


def test_a_cleared_box_shows_the_start_again(page: "Page") -> None:
    search(page)
    shown(page)
    page.fill("#text", "")
    page.press("#text", "Enter")
    page.wait_for_selector(".welcome")
    assert page.locator("#grid li").count() == 0
    assert "#" not in page.url
    drop(page, b"words", "words.txt", "text/plain")
    page.wait_for_selector("#notice [role=alert]")
    page.press("#text", "Enter")
    page.wait_for_selector(".welcome")
    assert page.locator("#notice [role=alert]").count() == 0


def test_an_old_notice_ends_where_many_descriptions_are_searched_for(page: "Page") -> None:
    page.goto("/#view=many")
    page.fill("#many-text", TEXT)
    drop(page, b"words", "words.txt", "text/plain")
    page.wait_for_selector("#notice [role=alert]")
    page.click("#many-form .go")
    page.wait_for_selector("#many-rows img")
    assert page.locator("#notice [role=alert]").count() == 0


@pytest.mark.parametrize("by", ["Enter", "button", "nothing"])
def test_what_is_typed_before_the_page_has_its_strings_is_kept(page: "Page", by: str) -> None:
    strings = before_its_strings(page)
    page.fill("#text", TEXT)
    if by == "Enter":
        page.press("#text", "Enter")
    elif by == "button":
        page.click("#search .go")
    if by == "nothing":
        strings.continue_()
        page.wait_for_selector(".welcome")
        assert page.input_value("#text") == TEXT
    else:
        asked = searched(page, strings.continue_)
        assert asked["text"] == TEXT == page.input_value("#text")
        assert shown(page)
        page.go_back()
        page.wait_for_selector(".welcome")


def before_its_strings(page: "Page") -> "Route":
    """Opens the page, and holds its strings back."""
    held: list[Route] = []
    page.route("**/page/strings-en.js", lambda route: held.append(route))
    page.goto("/", wait_until="commit")
    page.wait_for_selector("#text")
    while not held:
        page.wait_for_timeout(20)
    return held[0]


def test_letters_typed_while_the_page_starts_are_all_there(page: "Page") -> None:
    strings = before_its_strings(page)
    page.click("#text")
    page.keyboard.type("a blue ")
    strings.continue_()
    page.wait_for_selector(".welcome")
    # the space and the place between the letters, too
    assert page.input_value("#text") == "a blue "
    page.keyboard.press("Home")
    page.keyboard.type("in ")
    page.keyboard.press("End")
    page.keyboard.type("jacket")
    asked = searched(page, lambda: page.keyboard.press("Enter"))
    assert asked["text"] == "in a blue jacket"


@pytest.mark.parametrize("width", [1280, 760, 390])
def test_the_box_stays_where_it_is_when_the_words_around_it_come(page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    strings = before_its_strings(page)
    box = "document.querySelector('.box').getBoundingClientRect().y"
    before = page.evaluate(box)
    strings.continue_()
    page.wait_for_selector(".welcome")
    assert abs(page.evaluate(box) - before) < 2


def test_words_that_were_not_sent_stay_while_one_looks_around(page: "Page") -> None:
    search(page)
    shown(page)
    page.fill("#text", f"{TEXT} and ")
    open_first(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    page.select_option("#language", "de")
    page.wait_for_selector("html[lang=de]")
    page.wait_for_selector("[data-state=results]:not([data-busy])")
    assert page.input_value("#text") == f"{TEXT} and "
    # another search is another text
    page.go_back()
    page.wait_for_selector(".welcome")
    assert page.input_value("#text") == ""
    page.fill("#text", "a red")
    page.click(".brand")
    assert page.input_value("#text") == ""


@pytest.mark.parametrize("part", ["app.js", "viewer.js", "strings-en.js"])
def test_a_page_that_comes_in_part_says_so(browser: "Browser", page_url: str, part: str) -> None:
    # not the page of the other tests: here it may complain
    context = browser.new_context(base_url=page_url)
    page = context.new_page()
    page.route(
        f"**/page/{part}", lambda route: route.fulfill(status=429, json={"title": "Too many requests"})
    )
    page.goto("/")
    page.wait_for_selector("#broken:visible")
    page.unroute(f"**/page/{part}")
    search(page)
    assert shown(page)
    assert page.is_hidden("#broken")
    context.close()


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


def test_an_empty_file_is_no_query(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".welcome")
    page.set_input_files("#file", {"name": "zero.jpg", "mimeType": "image/jpeg", "buffer": b""})
    page.wait_for_selector("[role=alert]:has-text('The file is empty.')")
    assert "picture=" not in page.url
    answer = page.request.post("/v1/search", data={"image": ""})
    assert answer.json()["detail"] == "image: the file is empty"


def test_a_page_left_open_asks_on_when_the_server_was_away(page: "Page") -> None:
    now = {"follows": True, "pictures": 9, "done": 9, "total": 9, "away": 0, "away_folders": [], "found": 0}
    answers = [now, None, 503, {**now, "pictures": 12}, {**now, "pictures": 13}]

    def answer(route: "Route") -> None:
        told = answers.pop(0)
        if told is None:
            route.abort()
        elif isinstance(told, int):
            route.fulfill(status=told, body="a proxy's page")
        else:
            route.fulfill(json=told)

    page.clock.install()
    page.route("**/v1/following", answer)
    page.goto("/")
    page.wait_for_selector("#stock:has-text('9 pictures')")
    while answers:
        left = len(answers)
        with page.expect_event("requestfinished" if answers[0] else "requestfailed"):
            page.clock.run_for(15_000)
        assert len(answers) == left - 1
        # the answer has come to the page
        page.wait_for_timeout(100)
    assert page.inner_text("#stock") == "13 pictures"
