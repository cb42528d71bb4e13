"""The page for everybody: catalogues of strings, numbers and times of the browser, both directions of writing."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from limner.server.page import FOLDER
from limner.server.problems import TITLES
from tests.server.browsing import (
    CARDS,
    CHROMIUM,
    JSON,
    TEXT,
    a_picture,
    change,
    drop,
    open_first,
    refuse,
    search,
    search_and_open_all,
    searched,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page
else:
    pytest.importorskip("playwright.sync_api")

LANGUAGES = ("en", "de", "zh", "vi")
SCRIPTS = sorted(path for path in FOLDER.glob("*.js") if not path.name.startswith("strings-"))
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


def catalogue(language: str) -> dict[str, Any]:
    text = (FOLDER / f"strings-{language}.js").read_text(encoding="utf-8")
    _, _, found = text.partition("export default ")
    strings: dict[str, Any] = json.loads(found.strip().removesuffix(";"))
    return strings


def forms(value: str | dict[str, str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value.values())


def placeholders(value: str | dict[str, str]) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", " ".join(forms(value))))


def disagreements(strings: dict[str, Any], english: dict[str, Any]) -> list[str]:
    """Keys that a catalogue lacks or has too many, and those whose values do not fit the English ones."""
    wrong = sorted(strings.keys() ^ english.keys())
    for key in strings.keys() & english.keys():
        if placeholders(strings[key]) != placeholders(english[key]) or not all(forms(strings[key])):
            wrong.append(key)
    return wrong


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_key_with_the_same_placeholders(language: str) -> None:
    english, strings = catalogue("en"), catalogue(language)
    assert list(strings) == list(english)
    assert disagreements(strings, english) == []
    plurals = {"one", "other"}
    assert all(value.keys() == plurals for value in strings.values() if isinstance(value, dict))


def test_the_pages_titles_of_problems_are_the_servers() -> None:
    named = re.findall(r'(\d{3}): "(\w+)"', (FOLDER / "api.js").read_text(encoding="utf-8"))
    assert len(named) == 5
    assert {key: catalogue("en")[key] for _, key in named} == {
        key: TITLES[int(status)][1] for status, key in named
    }


def test_a_lost_key_and_a_lost_placeholder_are_found() -> None:
    english = catalogue("en")
    planted = {**english, "match": "match"}
    del planted["undo"]
    assert disagreements(planted, english) == ["undo", "match"]


def test_every_key_is_used_and_every_used_key_is_there() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    named = set(re.findall(r'data-t(?:-[a-z-]+)?="(\w+)"', page))
    called = set(re.findall(r'\bt\("(\w+)"', code))
    assert named | called <= catalogue("en").keys()
    # a key may also stand in a table or a condition
    quoted = set(re.findall(r'"(\w+)"', code)) | set(re.findall(r"(\w+): \{ text", code))
    assert catalogue("en").keys() - named - called - quoted == set()


class _Texts(HTMLParser):
    """Visible texts of a page, and texts in attributes, that no key names."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, str | None]] = []
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            value
            for name, value in attrs
            if name in {"title", "placeholder", "aria-label", "alt"} and value and tag != "html"
        ]
        if tag not in {"meta", "link", "input", "img", "path", "use"}:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag: str) -> None:
        if any(tag == one for one, _ in self.open):
            while self.open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        # the keys of a keyboard and the name are the same everywhere; without scripts there is no catalogue
        known = {"kbd", "title", "noscript", "script", "broken"}
        if re.search(r"[^\W\d_]", data) and not any(known & set(one) for one in self.open):
            self.found.append(data.strip())


def texts_of_html(html: str) -> list[str]:
    parser = _Texts()
    parser.feed(html)
    return [text for text in parser.found if text != "limner"]


def texts_of_script(script: str) -> list[str]:
    """Literals that read like words for people: a capital and small letters, or several words."""
    script = re.sub(r"/\*.*?\*/|(?<![:\w\"'/])//[^\n]*", "", script, flags=re.DOTALL)
    for unseen in (
        r"(?:\bclass|describedby\"): (?:\"[^\"]*\"|`[^`]*`)",
        r"console\.\w+\([^)]*\)|new Error\([\"`][^\"`]*[\"`]\)",
    ):
        script = re.sub(unseen, "", script)
    literals = re.findall(r"\"((?:[^\"\\\n]|\\.)*)\"", script) + re.findall(r"`([^`]*)`", script)
    found = []
    for literal in literals:
        text = re.sub(r"\$\{[^{}]*\}", "", literal)
        if text in NOT_SHOWN or re.search(r"[#.\[\]]|^\w+\(|: ", text) or text.startswith(" ("):
            continue
        if re.search(r"[^\W\d_]{2,} +[^\W\d_]{2,}", text) or re.match(r"[A-Z][a-z]{2,}", text.strip()):
            found.append(text)
    return found


NOT_SHOWN = {
    *("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "Enter", "Escape"),
    *("AbortError", "Files", "Bearer ", "Retry-After", "Content-Disposition", "Content-Type"),
    *("English", "Deutsch", "Tiếng Việt"),  # a language is named in itself
    *("noopener", "limner index RUN STORE PICTURES"),
}


def test_no_visible_string_stands_outside_of_the_catalogue() -> None:
    html = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert texts_of_html(html) == []
    assert {path.name: found for path in SCRIPTS if (found := texts_of_script(path.read_text("utf-8")))} == {}
    # planted: each of the forms in which a string was written here before
    assert texts_of_html('<p><button title="Go back">Back</button></p>') == ["Go back", "Back"]
    planted = 'h("p", {}, "Nothing found"); say(`The ${n} best of all`); h("b", {title: "Note"})'
    assert texts_of_script(planted) == ["Nothing found", "Note", "The  best of all"]


WRAPPED = """
import english from "./strings-en.js";
const wrapped = (text) => (typeof text === "string" ? `⟦${text}⟧` : Object.fromEntries(
  Object.entries(text).map(([form, one]) => [form, wrapped(one)])));
export default Object.fromEntries(Object.entries(english).map(([key, text]) => [key, wrapped(text)]));
"""
"""A catalogue in which each string shows that it comes from one."""

UNWRAPPED = r"""(known) => {
    const bare = (text) => /\p{L}{2}/u.test(text) && !text.includes("⟦") && !known.some((one) => text.includes(one));
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode()); ) {
        const parent = node.parentElement;
        if (parent.closest("noscript, kbd, .brand, #model, #language, textarea, dt, dd, .term, .word"))
            continue;
        if (parent.checkVisibility() && bare(node.data)) found.push(node.data);
    }
    for (const element of document.body.querySelectorAll("*"))
        for (const name of ["title", "placeholder", "aria-label", "alt"]) {
            const value = element.getAttribute(name);
            if (value && bare(value)) found.push(`${name}: ${value}`);
        }
    return found;
}"""


@in_browser
def test_what_the_page_shows_is_from_the_catalogue(browser: "Browser", page_url: str) -> None:
    context = browser.new_context(base_url=page_url, locale="de-DE", viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.route(
        "**/page/strings-de.js", lambda route: route.fulfill(body=WRAPPED, content_type="text/javascript")
    )
    known = ["camera", "identity", "height>=170", "limner index", TEXT, "even", ".png", "refused by a test"]

    def bare() -> list[str]:
        found: list[str] = page.evaluate(UNWRAPPED, known)
        return found

    page.goto("/")
    page.wait_for_selector(".welcome")
    assert bare() == []
    # planted: the check sees a string that does not come from the catalogue
    page.evaluate("document.querySelector('#status').textContent = 'Planted words'")
    assert bare() == ["Planted words"]
    search_and_open_all(page)
    assert bare() == []
    for place in range(2):
        page.click(f"{CARDS} >> nth={place} >> .compare")
    page.click("#compare")
    page.wait_for_function("() => document.querySelectorAll('#columns .why h3').length === 2")
    assert bare() == []
    page.keyboard.press("Escape")
    searched(page, lambda: page.click("#apply"))
    open_first(page)
    assert bare() == []
    page.keyboard.press("Escape")
    searched(page, lambda: drop(page, a_picture()))
    assert bare() == []
    page.click("#to-many")
    page.fill("#many-text", TEXT)
    page.click("#many-form .go")
    page.wait_for_selector("#many-rows .first img")
    assert bare() == []
    refuse(page, "search", 503, "refused by a test")
    page.goto(f"/#q={TEXT}")
    page.wait_for_selector(".notice.trouble")
    assert page.inner_text(".notice.trouble h2") == f"⟦{catalogue('en')['serverBusy']}⟧"
    assert bare() == []
    context.close()


@pytest.fixture
def german(browser: "Browser", page_url: str) -> "Iterator[Page]":
    context = browser.new_context(base_url=page_url, locale="de-CH")
    yield context.new_page()
    context.close()


@in_browser
def test_the_browsers_language_and_one_that_is_chosen(german: "Page") -> None:
    page = german
    page.goto("/")
    page.wait_for_selector(".welcome")
    assert page.inner_text("h1") == catalogue("de")["heading"]
    assert page.get_attribute("html", "lang") == "de"
    # what was said of the store is drawn again, too
    page.select_option("#language", "en")
    page.wait_for_function("() => /^\\d+ pictures$/.test(document.querySelector('#stock').textContent)")
    page.select_option("#language", "de")
    page.wait_for_function("() => /^\\d+ Bilder$/.test(document.querySelector('#stock').textContent)")
    page.fill("#text", TEXT)
    searched(page, lambda: page.press("#text", "Enter"))
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    # the page is drawn again, and keeps its search and its marks
    searched(page, lambda: page.select_option("#language", "vi"))
    page.wait_for_selector("#grid [data-marked=right]")
    assert page.inner_text("#undo") == catalogue("vi")["undo"]
    assert page.inner_text("#apply") == catalogue("vi")["searchWith"].replace("{n}", "1")
    assert page.input_value("#text") == TEXT
    page.reload()
    shown(page)
    assert page.inner_text("#undo") == catalogue("vi")["undo"]
    page.select_option("#language", "zh")
    page.wait_for_function("() => document.documentElement.lang === 'zh-Hans'")
    assert page.get_attribute("#text", "placeholder") == catalogue("zh")["describe"]


@in_browser
def test_a_language_that_the_page_has_not_is_english(browser: "Browser", page_url: str) -> None:
    context = browser.new_context(base_url=page_url, locale="fi-FI")
    page = context.new_page()
    page.goto("/")
    page.wait_for_selector(".welcome")
    assert page.inner_text("h1") == catalogue("en")["heading"]
    context.close()


@in_browser
def test_numbers_and_times_are_written_as_the_browser_does(german: "Page") -> None:
    def edit(answer: JSON) -> None:
        answer["matching"] = answer["total"] = 1234567
        answer["hits"][0] |= {"probability": 0.6125, "taken": "2026-11-10T08:00:00"}

    page = german
    change(page, "search", edit)
    search(page)
    shown(page)
    # Swiss German: an apostrophe between thousands, no blank before the sign of percent
    assert re.search("1['’]234['’]567", page.inner_text("#status"))
    assert "61%" in page.inner_text(f"{CARDS} >> nth=0 >> .line")
    open_first(page)
    assert "10.11.2026, 08:00" in page.inner_text("#facts")
    assert "61.3%" in page.inner_text("#facts")


@in_browser
@pytest.mark.parametrize("width", [360, 1280])
def test_from_right_to_left_nothing_leaves_the_page(page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    search(page)
    ids = shown(page)
    page.evaluate("document.documentElement.dir = 'rtl'")
    page.click("#filters-toggle")
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("y")
    page.click("#export summary")
    outside = """() => [...document.querySelectorAll("header *, main *, footer *")]
        .filter((one) => one.checkVisibility() && !one.closest(".unseen, .skip, svg, .sprite"))
        .filter((one) => { const { left, right } = one.getBoundingClientRect();
            return left < -1 || right > innerWidth + 1; })
        .map((one) => one.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []
    page.keyboard.press("Escape")
    first, second = (page.locator(CARDS).nth(place).bounding_box() for place in range(2))
    assert first is not None
    assert second is not None
    assert first["x"] > second["x"]
    # the arrow to the left goes on
    page.focus(f"{CARDS} >> nth=0 >> .open")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.closest('li').dataset.id") == ids[1]
    open_first(page)
    assert page.evaluate("document.querySelector('#viewer .body').scrollWidth") <= width
    # between a fact's name, which has its own direction, and its value
    gaps = """names => names.map((name) => {
        const words = document.createRange();
        words.selectNodeContents(name);
        return words.getBoundingClientRect().left - name.nextElementSibling.getBoundingClientRect().right; })"""
    assert min(page.eval_on_selector_all("#facts dt", gaps)) >= 10


@in_browser
def test_texts_have_their_own_direction(page: "Page") -> None:
    own = ["امرأة بمعطف أزرق", TEXT]
    change(page, "info", lambda info: info.update(sentences=9, examples=own))

    def edit(answer: JSON) -> None:
        answer["hits"][0]["metadata"] = {"place": "ساحة"}

    change(page, "search", edit)
    page.goto("/")
    page.wait_for_selector(".example")
    direction = "(one) => getComputedStyle(one).direction"
    assert page.eval_on_selector(".example >> nth=0", direction) == "rtl"
    assert page.eval_on_selector(".example >> nth=1", direction) == "ltr"
    searched(page, lambda: page.click(".example >> nth=0"))
    assert page.eval_on_selector("#text", direction) == "rtl"
    open_first(page)
    assert page.eval_on_selector("#facts dd span:text-is('ساحة')", direction) == "rtl"


@in_browser
def test_alternative_texts_are_facts_and_not_names_of_files(page: "Page") -> None:
    def named(texts: list[str]) -> list[str]:
        return [text for text in texts if Path(text).suffix or ".png" in text]

    alts = "all => all.map((one) => one.alt ?? one.getAttribute('aria-label'))"
    search(page)
    shown(page)
    told: list[str] = page.eval_on_selector_all(f"{CARDS} img, {CARDS} .similar, {CARDS} .mark", alts)
    assert len(told) == 5 * 8
    assert named(told) == []
    assert named(["Picture 3.png"]) == ["Picture 3.png"]
    first = page.get_attribute(f"{CARDS} img >> nth=0", "alt")
    assert first is not None
    assert re.match(r"Result 1: .*camera [12]", first)
    open_first(page)
    assert page.get_attribute("#viewer .picture img", "alt") == first


@in_browser
def test_every_section_has_a_heading(page: "Page") -> None:
    def bare() -> list[str]:
        found: list[str] = page.eval_on_selector_all(
            "section",
            """all => all.filter((one) => one.checkVisibility() && !one.querySelector("h2, h3"))
                .map((one) => one.id)""",
        )
        return found

    search(page)
    shown(page)
    assert bare() == []
    open_first(page)
    assert [name for name in bare() if name != "judgement"] == []
    page.evaluate("document.querySelector('#results h2').remove()")
    assert "results" in bare()
