"""Many descriptions on the page: a row each, waiting when the server asks to, exports."""

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.server.browsing import CHROMIUM, TEXT, api, change, shown

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route
else:
    pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

LINES = f"{TEXT}\n\nfirst\ta man in a red coat\n   \na dog\n"


def opened(page: "Page") -> None:
    page.goto("/")
    page.wait_for_selector(".welcome")
    page.click("#to-many")
    page.wait_for_selector("#many-text")


def answered(page: "Page", lines: str = LINES) -> None:
    page.fill("#many-text", lines)
    page.click("#many-form .go")
    page.wait_for_selector("#many-stop", state="hidden")
    page.wait_for_selector("#many-rows tr")


def rows(page: "Page") -> list[tuple[str, str, list[str]]]:
    found = page.eval_on_selector_all(
        "#many-rows tr",
        """all => all.map((row) => [
            row.querySelector("th").textContent,
            row.querySelector(".asked").textContent,
            [...row.querySelectorAll("[data-id]")].map((one) => one.dataset.id),
        ])""",
    )
    return [(name, text, ids) for name, text, ids in found]


def exported(page: "Page", form: str) -> bytes:
    page.click("#many-export summary")
    with page.expect_download() as download:
        page.click(f"#many-forms [data-form={form}]")
    return Path(download.value.path()).read_bytes()


def test_a_row_each_with_the_first_pictures_of_its_search(page: "Page") -> None:
    opened(page)
    assert "view=many" in page.url
    answered(page)
    page.wait_for_function("() => document.querySelector('#many-status').textContent.startsWith('3 of 3')")
    found = rows(page)
    assert [(name, text) for name, text, _ in found] == [
        ("1", TEXT),
        ("first", "a man in a red coat"),
        ("5", "a dog"),
    ]
    for _, text, ids in found:
        hits = api(page, "/v1/search", {"text": text, "k": 5})["hits"]
        assert ids == [hit["id"] for hit in hits]
    assert page.inner_text("#many-rows .sure >> nth=0").startswith("score 0.")
    # a description leads to its own results, and the way back to the rows
    page.click("#many-rows tr:nth-child(2) .asked")
    assert shown(page)
    assert page.input_value("#text") == "a man in a red coat"
    page.go_back()
    page.wait_for_selector("#many-rows tr")
    assert rows(page) == found
    page.click("#many-rows tr:nth-child(1) [data-id] >> nth=1")
    page.wait_for_selector("#viewer[open]")
    assert page.inner_text("#viewer-title").startswith("2 ·")


def test_a_calibrated_answer_says_how_sure_and_when_nothing_is_good(page: "Page") -> None:
    def handle(route: "Route") -> None:
        response = route.fetch()
        body = response.json()
        good = "red" in (route.request.post_data or "")
        body.update(threshold=0.5, good=good)
        for hit in body["hits"]:
            hit["probability"] = 0.75 if good else 0.25
        route.fulfill(response=response, json=body)

    page.route("**/v1/search", handle)
    for question, named in (("described", "match"), ("fits", "fits")):
        change(page, "info", partial(dict.update, question=question))
        opened(page)
        answered(page, "a red coat\na blue coat")
        sure = page.locator("#many-rows .sure").all_inner_texts()
        assert [" ".join(one.split()) for one in sure] == [f"75% {named}", f"25% {named} no good match"]


def test_what_cannot_be_answered_says_why_and_the_others_are(page: "Page") -> None:
    def handle(route: "Route") -> None:
        if "dog" in (route.request.post_data or ""):
            body = {
                "type": "limner:unanswerable",
                "title": "No",
                "status": 409,
                "detail": "the model knows no word",
            }
            route.fulfill(status=409, body=json.dumps(body))
        else:
            route.continue_()

    page.route("**/v1/search", handle)
    opened(page)
    answered(page)
    found = rows(page)
    assert [len(ids) for _, _, ids in found] == [5, 5, 0]
    assert page.inner_text("#many-rows tr:nth-child(3) .wrong") == "the model knows no word"
    assert page.inner_text("#many-status") == "2 of 3 answered, 1 not"
    # each is exported, as by `limner search --queries`
    table = list(csv.DictReader(io.StringIO(exported(page, "csv").decode("utf-8-sig"))))
    assert [(row["text"], row["error"], bool(row["id"])) for row in table[4:]] == [
        (TEXT, "", True),
        *5 * [("a man in a red coat", "", True)],
        ("a dog", "the model knows no word", False),
    ]
    (*_, last) = json.loads(exported(page, "json"))["searches"]
    assert (last["text"], last["error"], last["pictures"]) == ("a dog", "the model knows no word", [])
    page.select_option("#language", "de")
    page.wait_for_selector("#many-status:has-text('2 von 3 beantwortet, 1 nicht')")


def test_it_waits_as_long_as_the_server_asks(page: "Page") -> None:
    refused: list[str] = []

    def handle(route: "Route") -> None:
        if len(refused) < 2:
            refused.append(route.request.url)
            body = {"type": "limner:too-many", "title": "No", "status": 429, "detail": "too many"}
            route.fulfill(status=429, body=json.dumps(body), headers={"Retry-After": "1"})
        else:
            route.continue_()

    page.route("**/v1/search", handle)
    opened(page)
    answered(page)
    assert len(refused) == 2
    assert [len(ids) for _, _, ids in rows(page)] == [5, 5, 5]


def test_lines_that_are_none(page: "Page") -> None:
    opened(page)
    page.click("#many-form .go")
    assert "one description a line" in page.inner_text("#many-status")
    page.fill("#many-text", "a" * 2001)
    page.click("#many-form .go")
    assert "at most 2,000 characters" in page.inner_text("#many-status")
    page.fill("#many-text", "a\n" * 1001)
    page.click("#many-form .go")
    assert "At most 1,000 descriptions; these are 1,001." in page.inner_text("#many-status")
    assert page.is_hidden("#many-table")


def test_a_file_and_exports(page: "Page", tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text(LINES, encoding="utf-8")
    opened(page)
    page.set_input_files("#many-file", file)
    page.wait_for_selector("#many-export:visible")
    found = rows(page)
    assert len(found) == 3
    table = list(csv.DictReader(io.StringIO(exported(page, "csv").decode("utf-8-sig"))))
    assert [(row["text"], row["id"]) for row in table] == [
        (text, key) for _, text, ids in found for key in ids
    ]
    assert [row["rank"] for row in table[:5]] == ["1", "2", "3", "4", "5"]


def test_it_fits_a_phone(page: "Page") -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page)
    answered(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_a_reload_keeps_the_descriptions_and_the_file_they_are_from(page: "Page", tmp_path: Path) -> None:
    file = tmp_path / "people.tsv"
    file.write_text(LINES, encoding="utf-8")
    opened(page)
    page.set_input_files("#many-file", file)
    page.wait_for_function("() => document.querySelector('#many-status').textContent.startsWith('3 of 3')")
    assert page.inner_text("#many-of") == "From the file people.tsv"
    found = rows(page)
    page.reload()
    page.wait_for_function("() => document.querySelector('#many-status').textContent.startsWith('3 of 3')")
    assert (page.input_value("#many-text"), rows(page)) == (LINES, found)
    assert page.inner_text("#many-of") == "From the file people.tsv"
    # what was changed is no longer the file's, and is not asked before somebody says so
    page.fill("#many-text", "a dog")
    page.reload()
    page.wait_for_function("() => document.querySelector('#many-text').value === 'a dog'")
    assert (page.inner_text("#many-of"), rows(page)) == ("", [])
