"""The page in a browser: one result, its facts and why it was found."""

import base64
import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.server.browsing import CHROMIUM, JSON, api, change, open_first, refuse, search, searched, shown

if TYPE_CHECKING:
    from playwright.sync_api import Page
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def test_a_result_with_its_facts_and_explanation(page: "Page") -> None:
    asked = search(page)
    first, second = api(page, "/v1/search", asked)["hits"][:2]
    open_first(page)
    assert first["name"] in page.inner_text("#facts")
    assert page.inner_text("#why h3") == "What each phrase does"
    assert "blue" in page.inner_text("#why")
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


SWIPE = """async ([from, to]) => {
    const stage = document.querySelector("#viewer .stage");
    for (const [kind, clientX] of [["pointerdown", from], ["pointerup", to]])
        stage.dispatchEvent(new PointerEvent(kind, { pointerType: "touch", clientX, clientY: 200, bubbles: true }));
}"""


def test_the_picture_alone_by_key_click_and_finger(page: "Page") -> None:
    """Over the whole window, whether the browser gives the screen or not; Escape leads back to the result."""

    def width() -> float:
        box = page.locator("#viewer .stage").bounding_box()
        assert box is not None
        return box["width"]

    def title(starts: str) -> None:
        page.wait_for_function(
            "title => document.querySelector('#viewer-title').textContent.startsWith(title)", arg=starts
        )

    search(page)
    open_first(page)
    beside = width()
    for enters, leaves in (("f", "f"), ("click", "click"), ("button", "Escape")):
        for act, alone in ((enters, True), (leaves, False)):
            if act == "click":
                page.click("#viewer .picture")
            elif act == "button":
                page.click("#whole")
            else:
                page.keyboard.press(act)
            if alone:
                page.wait_for_function("() => document.querySelector('#viewer.whole')")
                page.wait_for_function(
                    "() => document.querySelector('#viewer .stage').clientWidth >= innerWidth"
                )
                assert not page.is_visible("#facts")
        page.wait_for_selector("#viewer:not(.whole)")
        page.wait_for_function("() => !document.fullscreenElement")
        assert width() == beside
    page.keyboard.press("f")
    page.evaluate(SWIPE, [300, 200])
    title("2 ·")
    page.evaluate(SWIPE, [300, 280])
    page.evaluate(SWIPE, [200, 300])
    title("1 ·")
    assert page.locator("#viewer.whole").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")


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


def open_with(page: "Page", attention: JSON) -> None:
    """The first result, whose explanation is this attention."""
    change(
        page,
        "explain",
        lambda found: found.update(words=WORDS, weights=None, phrases=[], attention=attention),
    )
    search(page)
    open_first(page)


def test_regions_and_words_light_each_other(page: "Page") -> None:
    regions = [[0.0, 0.9, 0.1], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    attention = {"words": WORDS, "of_regions": MAPS, "of_words": regions, "reader": "region"}
    open_with(page, attention)
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
    open_with(page, attention)
    assert page.locator(".step").count() == 5
    page.click(".step >> nth=1")
    assert "Step 2 reads: “blue” 90%" in page.inner_text("#why .caption")
    assert page.locator("#overlay canvas.shown").count() == 1


def cut_out(asked: JSON) -> tuple[tuple[int, int], set[object]]:
    """Size and colours of the picture that a search was sent with."""
    image = Image.open(io.BytesIO(base64.b64decode(asked["image"]))).convert("RGB")
    return image.size, {colour for _, colour in image.getcolors(1 << 20) or []}


def test_a_box_on_a_picture_searches_by_that_part(page: "Page") -> None:
    halves = Image.new("RGB", (200, 100), (200, 0, 0))
    halves.paste((0, 0, 200), (100, 0, 200, 100))
    file = io.BytesIO()
    halves.save(file, "PNG")
    page.route("**/v1/images/*", lambda route: route.fulfill(body=file.getvalue(), content_type="image/png"))
    search(page)
    open_first(page)
    page.wait_for_function("() => document.querySelector('#viewer .picture > img').naturalWidth === 200")
    page.click("#part-toggle")
    drawn = page.locator("#viewer .picture > img").bounding_box()
    assert drawn is not None
    # the right half but for a border of a tenth: nothing of the left one's colour may be sent
    page.mouse.move(drawn["x"] + 0.6 * drawn["width"], drawn["y"] + 0.1 * drawn["height"])
    page.mouse.down()
    page.mouse.move(drawn["x"] + 0.9 * drawn["width"], drawn["y"] + 0.9 * drawn["height"], steps=4)
    page.mouse.up()
    asked = searched(page, lambda: page.click("#part .go"))
    (width, height), colours = cut_out(asked)
    assert (asked["text"], asked["like"]) == (None, None)
    assert abs(width - 60) <= 2
    assert abs(height - 80) <= 2
    assert colours == {(0, 0, 200)}
    assert page.is_hidden("#viewer")
    page.go_back()
    page.wait_for_selector("#viewer[open] #why h3")
    page.wait_for_function("() => document.querySelector('#viewer .picture > img').naturalWidth === 200")
    page.click("#part-toggle")
    # keys: a box in the middle has both halves; to the left until the edge it has one
    at = page.url
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    assert page.url == at
    for _ in range(2):
        page.keyboard.press("Shift+ArrowLeft")
    (width, _), colours = cut_out(searched(page, lambda: page.keyboard.press("Enter")))
    assert abs(width - 84) <= 2
    assert colours == {(200, 0, 0)}


def test_words_that_mattered(page: "Page") -> None:
    change(
        page,
        "explain",
        lambda found: found.update(
            phrases=[
                {"text": "a", "weight": 0.01, "noise": 0.02},
                {"text": "blue jacket", "weight": -0.05, "noise": 0.02},
                {"text": "woman", "weight": 0.1, "noise": None},
                {"text": "a", "weight": -0.02, "noise": 0.02},
            ],
            attention=None,
        ),
    )
    search(page)
    open_first(page)
    assert page.locator(".weights li.falls").inner_text().split("\n") == [
        "Without “woman”",
        "the score falls by 0.100",
    ]
    assert page.locator(".weights li.rises").inner_text().split("\n") == [
        "Without “blue jacket”",
        "the score rises by 0.050",
    ]
    assert page.inner_text("#why .noise") == "No more than chance: a."


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


def test_steps_that_read_words_without_places(page: "Page") -> None:
    attention = {"words": WORDS, "of_regions": None, "of_words": [[0.1, 0.9, 0.0]] * 2, "reader": "step"}
    open_with(page, attention)
    page.click(".step >> nth=0")
    assert "Step 1 reads: “blue” 90%" in page.inner_text("#why .caption")
    assert page.locator("#overlay > *").count() == 0


def test_a_picture_whose_file_is_away_or_has_changed(page: "Page") -> None:
    refuse(page, "images/*", 410, "Gone.")
    search(page)
    open_first(page)
    page.wait_for_selector("#viewer-note:visible")
    said = page.inner_text("#viewer-note")
    assert "its disk may be away" in said
    assert "this is its thumbnail" in said
    assert page.locator("#actions a").count() == 0
    page.wait_for_function("() => document.querySelector('.picture img').naturalWidth > 0")


def test_a_second_escape_goes_back_once(page: "Page") -> None:
    search(page)
    open_first(page)
    page.evaluate("document.querySelector('#close').click(), document.querySelector('#close').click()")
    page.wait_for_selector("#viewer", state="hidden")
    page.wait_for_timeout(200)
    assert "q=a+woman" in page.url


def test_data_never_become_markup(page: "Page") -> None:
    mark = "<img src=x onerror=alert(1)>"

    def edit(answer: JSON) -> None:
        answer["hits"][0].update(name=mark, identity=mark, metadata={mark: mark})

    change(page, "search", edit)
    search(page)
    open_first(page)
    assert mark in page.inner_text("#facts")
    assert page.locator("img[src=x]").count() == 0


CROP = [0.25, 0.1, 0.75, 0.9]


@pytest.mark.parametrize("reader", ["region", "step"])
def test_attention_lies_over_the_part_that_the_model_saw(page: "Page", reader: str) -> None:
    attention = {"words": WORDS, "of_regions": MAPS, "of_words": None, "reader": reader, "crop": CROP}
    open_with(page, attention)
    page.hover(".word >> nth=0")
    page.wait_for_function("() => document.querySelector('.picture img').naturalWidth > 0")
    image = page.locator(".picture img").bounding_box()
    cover = page.locator("#overlay > *").bounding_box()
    assert image
    assert cover
    left, top, right, bottom = CROP
    assert cover["x"] == pytest.approx(image["x"] + left * image["width"], abs=1)
    assert cover["y"] == pytest.approx(image["y"] + top * image["height"], abs=1)
    assert cover["width"] == pytest.approx((right - left) * image["width"], abs=1)
    assert cover["height"] == pytest.approx((bottom - top) * image["height"], abs=1)


def test_no_filter_for_a_value_that_does_not_fit(page: "Page") -> None:
    def edit(answer: JSON) -> None:
        answer["hits"][0].update(identity="i" * 2001, metadata={"camera": 1, "note": "n" * 2001})

    field = {"name": "note", "values": [], "kind": "text"}
    change(page, "info", lambda info: info["fields"].append(field))
    change(page, "search", edit)
    search(page)
    open_first(page)
    assert page.locator("#facts button").count() == 1
