"""The page in a browser: two or three results side by side."""

import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.server.browsing import CARDS, CHROMIUM, api, change, search, searched, shown

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

SECTION = "#columns section"


def choose(page: "Page", *places: int) -> None:
    for place in places:
        page.focus(f"{CARDS} >> nth={place} >> .open")
        page.keyboard.press("c")


def compare(page: "Page", *places: int) -> None:
    choose(page, *places)
    page.keyboard.press("Shift+C")
    page.wait_for_selector("#compare-view[open]")
    page.wait_for_function(
        f"n => document.querySelectorAll('{SECTION} .why h3').length === n", arg=len(places)
    )


def test_results_side_by_side_by_keys(page: "Page") -> None:
    asked = search(page)
    hits = api(page, "/v1/search", asked)["hits"]
    shown(page)
    compare(page, 2, 0)
    titles = page.locator(f"{SECTION} > h3").all_inner_texts()
    assert [title.split(" ")[0] for title in titles] == ["1", "3"], "by rank, not by the order of choosing"
    for place, hit in ((0, hits[0]), (1, hits[2])):
        told = page.inner_text(f"{SECTION} >> nth={place}")
        assert hit["name"] in told
        assert f"{hit['score']:.4f}" in told
        assert "What each phrase does" in told
    # a mark here is one of the list, too
    page.click(f"{SECTION} .mark.right >> nth=0")
    assert page.get_attribute(f"{SECTION} .mark.right >> nth=0", "aria-pressed") == "true"
    assert page.get_attribute(f"{CARDS} >> nth=0", "data-marked") == "right"
    page.keyboard.press("Escape")
    page.wait_for_selector("#compare-view", state="hidden")
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == hits[0]["id"]


def test_results_side_by_side_by_buttons(page: "Page") -> None:
    search(page)
    ids = shown(page)
    assert page.is_hidden("#compare")
    page.click(f"{CARDS} >> nth=0 >> .compare")
    assert page.is_disabled("#compare"), "one alone is not compared"
    for place in (1, 2, 3):
        page.click(f"{CARDS} >> nth={place} >> .compare")
    assert "Three are side by side at most" in page.inner_text("#told")
    pressed = (
        "all => all.filter((one) => one.ariaPressed === 'true').map((one) => one.closest('li').dataset.id)"
    )
    assert page.eval_on_selector_all("#grid .compare", pressed) == ids[:3]
    page.click("#compare")
    page.wait_for_selector("#compare-view[open]")
    assert page.locator(SECTION).count() == 3
    page.click("#compare-close")
    page.wait_for_selector("#compare-view", state="hidden")
    assert page.evaluate("document.activeElement.id") == "compare"
    # another search begins without
    page.fill("#text", "a yellow hat")
    searched(page, lambda: page.press("#text", "Enter"))
    page.wait_for_selector("#compare", state="hidden")


def test_pictures_are_whole_and_not_dimmed(page: "Page") -> None:
    search(page)
    shown(page)
    compare(page, 0, 1)
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{SECTION} img')].every(one => one.naturalWidth)"
    )
    veiled = """all => all.filter((one) => {
        for (let at = one; at.id !== "compare-view"; at = at.parentElement) {
            const { opacity, filter } = getComputedStyle(at);
            if (opacity !== "1" || filter !== "none") return true;
        }
        return getComputedStyle(one).objectFit !== "contain";
    }).length"""
    assert page.eval_on_selector_all(f"{SECTION} img", veiled) == 0
    boxes = [page.locator(f"{SECTION} .compared").nth(place).bounding_box() for place in range(2)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert boxes[0]["height"] > 400


def test_attention_lies_over_the_part_that_the_model_saw(page: "Page") -> None:
    wide = io.BytesIO()
    Image.new("RGB", (300, 60), (30, 60, 160)).save(wide, "PNG")
    page.route("**/v1/images/*", lambda route: route.fulfill(body=wide.getvalue(), content_type="image/png"))
    maps = [[[0.0, 1.0], [0.0, 0.0]]]
    attention = {
        "words": ["blue"],
        "of_regions": maps,
        "of_words": None,
        "reader": "step",
        "crop": [0, 0, 0.5, 1],
    }
    change(page, "explain", lambda found: found.update(words=["blue"], phrases=[], attention=attention))
    search(page)
    shown(page)
    compare(page, 0, 1)
    page.wait_for_function(f"() => document.querySelectorAll('{SECTION} .overlay > *').length === 2")
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{SECTION} img')].every(one => one.naturalWidth)"
    )
    assert page.locator(f"{SECTION} canvas.shown").count() == 0, (
        "nothing covers a picture unless it is asked for"
    )
    page.hover(f"{SECTION} .word >> nth=0")
    image = page.locator(f"{SECTION} img").first.bounding_box()
    cover = page.locator(f"{SECTION} .overlay > *").first.bounding_box()
    assert image
    assert cover
    assert image["width"] == pytest.approx(5 * image["height"], rel=0.02)
    assert (cover["x"], cover["y"]) == pytest.approx((image["x"], image["y"]), abs=1)
    assert cover["width"] == pytest.approx(image["width"] / 2, abs=1)
    assert cover["height"] == pytest.approx(image["height"], abs=1)


def test_sentences_are_told_where_the_store_has_them(page: "Page") -> None:
    asked: list[str] = []

    def answer(route: "Route") -> None:
        like = (route.request.post_data_json or {})["like"]
        asked.append(like)
        text = f"a <b>coat</b> {len(asked)}"
        route.fulfill(json={"sentences": [{"rank": 1, "score": 0.5, "text": text, "id": like}], "total": 1})

    change(page, "info", lambda info: info.update(sentences=9))
    page.route("**/v1/sentences", answer)
    search(page)
    ids = shown(page)
    compare(page, 0, 1)
    assert asked == ids[:2]
    assert page.locator(".sentences li").all_inner_texts() == ["a <b>coat</b> 1", "a <b>coat</b> 2"]


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_on_a_phone_they_are_below_each_other(page: "Page", direction: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    search(page)
    shown(page)
    page.evaluate(f"document.documentElement.dir = '{direction}'")
    compare(page, 0, 1, 2)
    boxes = [page.locator(SECTION).nth(place).bounding_box() for place in range(3)]
    assert all(box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes)
    assert len({box["x"] for box in boxes if box}) == 1
    assert page.evaluate("document.querySelector('#columns').scrollWidth") <= 360
