"""Judging on the page: marks by keys and buttons, the search with them, undo, notes, exports."""

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.server.tokens import add_token
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
from tests.server.running import running
from tests.server.serving import toy_engine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def marks(page: "Page") -> dict[str, str]:
    """The marks that the results show, by their places."""
    told: list[str] = page.eval_on_selector_all(CARDS, "cards => cards.map(card => card.dataset.marked)")
    return {str(place): mark for place, mark in enumerate(told) if mark}


def exported(page: "Page", form: str, *, all_of_them: bool = False) -> bytes:
    page.click("#export summary")
    page.set_checked("#export-all", all_of_them)
    with page.expect_download() as download:
        page.click(f"#forms [data-form={form}]")
    assert download.value.suggested_filename.startswith("limner-")
    return Path(download.value.path()).read_bytes()


def test_marks_by_keys_and_buttons_and_the_search_with_them(page: "Page") -> None:
    search(page)
    ids = shown(page)
    assert page.is_hidden("#apply")
    page.focus("#text")
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    for key in "yn?":
        page.keyboard.press(key)
        page.keyboard.press("ArrowRight")
    assert marks(page) == {"0": "right", "1": "wrong", "2": "maybe"}
    page.hover(f"{CARDS} >> nth=3")
    page.click(f"{CARDS} >> nth=3 >> .mark.wrong")
    assert re.fullmatch(r"Marked wrong: \d\.png", page.inner_text("#told"))
    assert page.locator(".mark[aria-pressed=true]").count() == 4
    asked = searched(page, lambda: page.click("#apply"))
    assert asked["marks"] == {ids[0]: "right", ids[1]: "wrong", ids[3]: "wrong"}
    answer = api(page, "/v1/search", asked)
    wait_for_results(page, answer)
    left = shown(page)
    # what was judged is gone from the list, what may be right stays
    assert set(left) == set(ids) - {ids[0], ids[1], ids[3]}
    assert marks(page) == {str(left.index(ids[2])): "maybe"}
    assert "by 3 marks" in page.inner_text("#status")
    assert "marked=1" in page.url
    page.reload()
    wait_for_results(page, answer)
    asked = searched(page, lambda: page.click("#plain"))
    assert "marks" not in asked
    wait_for_results(page, api(page, "/v1/search", asked))
    assert marks(page) == {"0": "right", "1": "wrong", "2": "maybe", "3": "wrong"}


def test_a_mark_is_taken_back(page: "Page") -> None:
    search(page)
    shown(page)
    assert page.is_disabled("#undo")
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.keyboard.press("n")
    assert marks(page) == {"0": "wrong"}
    page.keyboard.press("u")
    assert marks(page) == {"0": "right"}
    page.click("#undo")
    assert marks(page) == {}
    assert page.is_disabled("#undo")
    # the same key again takes a mark away, too
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.keyboard.press("y")
    assert marks(page) == {}
    page.keyboard.press("y")
    page.click("#clear-marks")
    assert marks(page) == {}
    assert page.is_hidden("#clear-marks")


def test_a_result_is_judged_and_noted_where_it_is_large(page: "Page") -> None:
    search(page)
    ids = shown(page)
    open_first(page)
    page.keyboard.press("y")
    assert page.get_attribute("#viewer-marks .mark.right", "aria-pressed") == "true"
    page.fill("#viewer-text", "the bag is hers: yes?")
    page.press("#viewer-text", "Tab")
    page.keyboard.press("ArrowRight")
    page.click("#viewer-marks .mark.maybe")
    # a letter in a note is no mark
    page.type("#viewer-text", "no")
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    assert marks(page) == {"0": "right", "1": "maybe"}
    page.click("#shortlist-toggle")
    listed = page.locator("#shortlist li")
    assert [listed.nth(place).get_attribute("data-id") for place in range(2)] == ids[:2]
    assert listed.nth(0).locator("textarea").input_value() == "the bag is hers: yes?"
    listed.nth(1).locator(".mark.wrong").click()
    assert marks(page) == {"0": "right", "1": "wrong"}
    page.reload()
    assert shown(page)
    page.click("#shortlist-toggle")
    assert page.locator("#shortlist textarea").first.input_value() == "the bag is hers: yes?"


def test_notes_are_written_one_after_the_other_in_a_shortlist_that_stays(page: "Page") -> None:
    """Rows keep their places, what has focus stays, and each letter is kept: also in front of a click or a reload."""
    search(page)
    shown(page)
    for place in range(4):
        page.focus(f"{CARDS} >> nth={place} >> .open")
        page.keyboard.press("y")
    page.click("#shortlist-toggle")
    rows = page.locator("#shortlist li")
    fields = page.locator("#shortlist textarea")
    ids = rows.evaluate_all("all => all.map((one) => one.dataset.id)")
    fields.nth(0).click()
    page.keyboard.type("one, you")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("us")
    fields.nth(1).click()
    page.keyboard.type("tuba")
    # as a mouse does it: what is drawn anew between down and up is not clicked
    rows.nth(2).locator(".mark.wrong").click()
    assert page.evaluate("document.activeElement.matches('#shortlist .mark.wrong')")
    fields.nth(3).click()
    page.keyboard.type("u")
    page.keyboard.press("Backspace")
    page.keyboard.type("u2")
    fields.nth(0).press_sequentially("!")
    assert rows.evaluate_all("all => all.map((one) => one.dataset.id)") == ids
    written = [fields.nth(place).input_value() for place in range(4)]
    assert written[1:] == ["tuba", "", "u2"]
    assert sorted(written[0]) == sorted("one, youus!")
    assert marks(page) == {"0": "right", "1": "right", "2": "wrong", "3": "right"}
    page.reload()
    shown(page)
    page.click("#shortlist-toggle")
    assert [one.input_value() for one in fields.all()] == [*written[:2], "u2", ""]


def test_what_is_noted_stays_where_a_mark_is_taken_back(page: "Page") -> None:
    search(page)
    ids = shown(page)
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.click("#shortlist-toggle")
    field = page.locator("#shortlist textarea")
    field.fill("hers")
    page.click("#undo")
    assert marks(page) == {}
    assert field.input_value() == "hers"
    # the last note is emptied to be written anew: its field stays
    field.press("Control+A")
    field.press("Backspace")
    page.keyboard.type("uy")
    assert field.input_value() == "uy"
    page.click("#clear-marks")
    assert page.is_hidden("#shortlist")
    open_first(page)
    page.locator("#viewer-text").press_sequentially("kept")
    page.reload()
    page.wait_for_selector("#viewer[open]")
    assert page.input_value("#viewer-text") == "kept"
    assert f"open={ids[0]}" in page.url


def test_marks_are_of_one_search_and_stay_in_this_browser(page: "Page", page_url: str) -> None:
    search(page)
    shown(page)
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    searched(page, lambda: page.click("#apply"))
    page.fill("#text", "another person")
    asked = searched(page, lambda: page.press("#text", "Enter"))
    assert "marks" not in asked
    page.wait_for_function("() => document.querySelectorAll('#grid li').length === 8")
    assert marks(page) == {}
    # blanks between words make no other search
    page.fill("#text", f" {TEXT.replace(' ', '  ')}")
    searched(page, lambda: page.press("#text", "Enter"))
    page.wait_for_selector("#grid [data-marked=right]")
    assert page.evaluate("Object.keys(sessionStorage).length") == 0
    page.evaluate("localStorage.removeItem('limner.judging')")
    assert page.evaluate("Object.keys(localStorage)") == [f"limner.marks.{api(page, '/v1/info')['id']}"]


def test_searches_by_ones_own_picture_are_judged_but_not_kept(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".welcome")
    searched(page, lambda: drop(page, a_picture()))
    shown(page)
    page.focus(f"{CARDS} >> nth=1 >> .open")
    page.keyboard.press("n")
    asked = searched(page, lambda: page.click("#apply"))
    assert list(asked["marks"].values()) == ["wrong"]
    assert page.evaluate("localStorage.length") == 0 or 'picture":true' not in page.evaluate(
        "JSON.stringify(localStorage)"
    )


def test_a_marked_picture_that_is_gone_is_taken_off_the_marks(page: "Page") -> None:
    search(page)
    ids = shown(page)
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")
    gone = "f" * 32
    page.evaluate(
        """([from, to]) => {
            const [name] = Object.keys(localStorage).filter((one) => one.startsWith("limner.marks."));
            localStorage.setItem(name, localStorage.getItem(name).replaceAll(from, to));
        }""",
        [ids[0], gone],
    )
    page.reload()
    shown(page)
    page.click("#apply")
    page.wait_for_function("() => document.querySelectorAll('#grid li').length === 7")
    assert "1 of the marked pictures is no longer in the store" in page.inner_text("#told")
    assert ids[0] in shown(page)
    page.click("#shortlist-toggle")
    assert page.locator("#shortlist li").count() == 1


def test_exports(page: "Page") -> None:
    search(page)
    ids = shown(page)
    # without a mark, what is shown
    rows = list(csv.DictReader(io.StringIO(exported(page, "csv").decode("utf-8-sig"))))
    assert [(row["id"], row["rank"], row["mark"]) for row in rows] == [
        (key, str(rank), "") for rank, key in enumerate(ids, start=1)
    ]
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")
    found = json.loads(exported(page, "json"))
    (one,) = found["searches"]
    assert one["text"] == TEXT
    assert [(hit["id"], hit["mark"], hit["rank"]) for hit in one["pictures"]] == [
        (ids[0], "right", 1),
        (ids[1], "wrong", 2),
    ]
    assert found["provenance"]["model"]["fingerprint"] == api(page, "/v1/info")["model"]["fingerprint"]
    assert exported(page, "sheet").startswith(b"\xff\xd8\xff")
    page.fill("#text", "another person")
    searched(page, lambda: page.press("#text", "Enter"))
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    lines = exported(page, "qrels", all_of_them=True).decode().splitlines()
    assert len({line.split()[0] for line in lines}) == 2
    assert len(exported(page, "queries", all_of_them=True).splitlines()) == 2
    with zipfile.ZipFile(io.BytesIO(exported(page, "zip"))) as packed:
        assert {"judgements.csv", "qrels.txt", "sheet-001.jpg"} <= set(packed.namelist())
    page.click("#clear-marks")
    page.click("#export summary")
    page.click("#forms [data-form=qrels]")
    page.wait_for_function("() => document.querySelector('#told').textContent.includes('not exported')")
    assert "marked right" in page.inner_text("#told")


def test_a_link_to_the_search_is_copied(page: "Page") -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    search(page)
    shown(page)
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    searched(page, lambda: page.click("#apply"))
    page.click("#copy")
    page.wait_for_function("() => document.querySelector('#told').textContent.includes('copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    # the marks are in this browser: who follows the link begins without them
    assert "q=a+woman" in copied
    assert "marked" not in copied


def test_with_a_token_marks_go_with_it_and_exports_say_who(browser: "Browser", tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens.json", "ann", {"search"})
    audit = tmp_path / "audit.jsonl"
    settings = ServerSettings(tokens=tmp_path / "tokens.json", audit=audit)
    with running(create_app(Store(toy_engine(tmp_path)), settings), settings) as url:
        context = browser.new_context(base_url=url)
        page = context.new_page()
        page.goto("/")
        page.fill("#token", token)
        page.click(".token .go")
        page.wait_for_selector(".welcome")
        page.fill("#text", TEXT)
        searched(page, lambda: page.press("#text", "Enter"))
        shown(page)
        page.focus(f"{CARDS} >> nth=0 >> .open")
        page.keyboard.press("y")
        assert json.loads(exported(page, "json"))["provenance"]["who"] == "ann"
        assert page.evaluate("Object.keys(localStorage)") == []
        kept = "Object.keys(sessionStorage).filter((name) => name.startsWith('limner.marks.')).length"
        assert page.evaluate(kept) == 1
        page.click("#forget")
        page.wait_for_selector("#token")
        assert page.evaluate(kept) == 0
        assert page.is_hidden("#bench")
        context.close()
    lines = [json.loads(line) for line in audit.read_text(encoding="ascii").splitlines()]
    (line,) = [line for line in lines if line["request"] == "export"]
    assert (line["who"], line["text"], line["count"]) == ("ann", TEXT, 1)


def test_a_line_and_no_veil_where_the_model_is_not_sure(page: "Page") -> None:
    def calibrate(sure: list[float]) -> Any:
        def edit(answer: JSON) -> None:
            answer["threshold"], answer["good"] = 0.5, sure[0] >= 0.5
            for hit, probability in zip(answer["hits"], sure, strict=True):
                hit["probability"] = probability

        return edit

    change(page, "search", calibrate([0.9, 0.6, 0.5, 0.49, 0.3, 0.2, 0.1, 0.1]))
    search(page)
    shown(page)
    places = page.eval_on_selector_all("#grid > li", "all => all.map((one) => one.className)")
    assert places.index("border") == 3
    assert page.inner_text("#grid .border") == "Below this line: less than 50% match"
    assert page.inner_text("#status").endswith(", each with the probability that it is the one described")
    page.unroute("**/v1/search")
    change(page, "search", calibrate([0.49] * 8))
    search(page)
    page.wait_for_selector("text=No good match")
    assert page.inner_text("#grid .border") == "All of these: less than 50% match"
    for property in ("opacity", "filter"):
        told = page.eval_on_selector_all(
            "#grid img",
            f"""all => [...new Set(all.flatMap((one) => {{
                const found = [];
                for (let up = one; up; up = up.parentElement) found.push(getComputedStyle(up).{property});
                return found;
            }}))]""",
        )
        assert told == [{"opacity": "1", "filter": "none"}[property]]


def test_nothing_of_the_judging_is_wider_than_a_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    search(page)
    shown(page)
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.click("#shortlist-toggle")
    page.click("#export summary")
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 360
    page.keyboard.press("Escape")
    assert page.is_hidden("#forms")
    open_first(page)
    assert page.evaluate("document.querySelector('#viewer .body').scrollWidth") <= 360


@pytest.mark.parametrize("width", [800, 1280])
def test_the_menu_of_exports_opens_where_there_is_room(page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    search(page)
    shown(page)
    for key in "yn":
        page.focus(f"{CARDS} >> nth=0 >> .open")
        page.keyboard.press(key)
        page.click("#export summary")
        box = page.locator("#export .sheet").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        page.keyboard.press("Escape")


def test_an_export_that_fails_is_told(page: "Page") -> None:
    def handle(route: "Route") -> None:
        route.abort()

    page.route("**/v1/export", handle)
    search(page)
    shown(page)
    page.click("#export summary")
    page.click("#forms [data-form=csv]")
    page.wait_for_function("() => document.querySelector('#told').textContent.includes('not exported')")


def test_buttons_of_marks_appear_where_somebody_judges(page: "Page") -> None:
    """By choice, which is remembered, or with the first mark."""
    page.goto("/")
    page.evaluate("localStorage.setItem('limner.judging', '0')")
    search(page)
    buttons, first = page.locator("#grid .judge"), page.locator("#grid li .open").first
    assert not buttons.first.is_visible()
    assert page.locator("#copy").is_visible()
    first.press("y")
    assert buttons.first.is_visible()
    assert not page.locator("#judging").is_visible()
    first.press("y")
    page.locator("#clear-marks").wait_for(state="hidden")
    assert not buttons.first.is_visible()
    page.locator("#judging").click()
    assert buttons.first.is_visible()
    page.reload()
    page.wait_for_selector(CARDS)
    assert buttons.first.is_visible()
    assert page.locator("#judging").get_attribute("aria-pressed") == "true"
