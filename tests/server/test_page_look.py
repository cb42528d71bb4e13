"""How the page looks and what it says: overlay, focus ring, placeholders, counts, dates, order of exports."""

import csv
import io
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.server.browsing import (
    CARDS,
    CHROMIUM,
    TEXT,
    a_picture,
    api,
    change,
    search,
    shown,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_overlay_of_a_drag_covers_the_window(page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    page.goto("/")
    page.wait_for_selector(".welcome")
    files = page.evaluate_handle(
        "() => { const all = new DataTransfer(); all.items.add(new File(['x'], 'a.png')); return all; }"
    )
    page.dispatch_event("main", "dragenter", {"dataTransfer": files})
    assert page.locator("#drop").bounding_box() == {"x": 0, "y": 0, "width": width, "height": 700}


@pytest.mark.parametrize("width", [390, 1280])
def test_the_ring_around_a_card_ends_above_its_buttons(page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    search(page)
    shown(page)
    page.press("#text", "ArrowDown")
    ring, buttons = page.evaluate(
        """() => {
            const card = document.activeElement, looks = getComputedStyle(card);
            const reaches = parseFloat(looks.outlineOffset) + parseFloat(looks.outlineWidth);
            const judge = card.parentElement.querySelector(".judge");
            return [card.getBoundingClientRect().bottom + reaches, judge.getBoundingClientRect().top];
        }"""
    )
    assert ring < buttons


def test_the_filters_are_named_only_where_there_are_some(page: "Page") -> None:
    # the own picture of a search like one is left out, which is no filter
    first = api(page, "/v1/items?limit=1")["items"][0]["id"]
    for query, said in (
        (f"like={first}", "The 7 best of 7 pictures"),
        (f"q={TEXT}&where=camera%3D1", "The 4 best of 4 that pass the filters (8 in all)"),
        (f"q={TEXT}&before=2026-11-10T09:00", "1 picture passes the filters (8 in all)"),
    ):
        page.goto("about:blank")
        page.goto(f"/#{query}")
        shown(page)
        assert page.inner_text("#status") == said


def test_a_store_of_one_picture(page: "Page") -> None:
    def alone(answer: dict[str, object]) -> None:
        answer.update(hits=answer["hits"][:1], matching=1, total=1)  # type: ignore[index]

    change(page, "search", alone)
    search(page)
    shown(page)
    assert (page.inner_text("#status"), page.inner_text("#stock")) == ("1 picture", "1 picture")


def test_a_placeholder_stands_until_the_thumbnail_comes(page: "Page") -> None:
    held, thumbnail = threading.Event(), a_picture()
    waiting: list[Route] = []

    def handle(route: "Route") -> None:
        if held.is_set():
            route.fulfill(body=thumbnail, content_type="image/png")
        else:
            waiting.append(route)

    page.route("**/v1/thumbnails/*", handle)
    search(page)
    shown(page)
    awaited = f"{CARDS} img[data-awaited]"
    page.wait_for_selector(awaited)
    looks = page.eval_on_selector(
        awaited, "(one) => [getComputedStyle(one).color, getComputedStyle(one).animationName]"
    )
    assert looks == ["rgba(0, 0, 0, 0)", "breathe"]
    held.set()
    for route in waiting:
        route.fulfill(body=thumbnail, content_type="image/png")
    page.wait_for_selector(awaited, state="detached")


def test_a_card_has_the_date_beside_other_facts(page: "Page") -> None:
    search(page)
    shown(page)
    known = page.locator(f"{CARDS} .known").all_inner_texts()
    assert len(known) == 8
    assert all("2026" in one and "camera" in one for one in known)


@pytest.mark.parametrize(
    ("number", "end"), [(1, "zxq0."), (10, "zxq9."), (11, "zxq9 and 1 more."), (200, "zxq9 and 190 more.")]
)
def test_unknown_words_are_summed_up(page: "Page", number: int, end: str) -> None:
    search(page, " ".join([TEXT, *(f"zxq{place}" for place in range(number))]))
    page.wait_for_selector("#notice p")
    assert page.inner_text("#notice p >> nth=0").endswith(end)


def test_exports_are_in_rank_order_whatever_was_judged_first(page: "Page") -> None:
    search(page)
    shown(page)
    for place, key in ((4, "y"), (0, "n"), (2, "y")):
        page.focus(f"{CARDS} >> nth={place} >> .open")
        page.keyboard.press(key)
    page.click("#export summary")
    with page.expect_download() as got:
        page.click("#forms [data-form=csv]")
    rows = csv.DictReader(io.StringIO(Path(got.value.path()).read_text(encoding="utf-8-sig")))
    assert [row["rank"] for row in rows] == ["1", "3", "5"]
