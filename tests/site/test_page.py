"""The page in a browser: it finds what the server finds, and asks nobody but its own files."""

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from limner.data.records import Dataset
from limner.inference.import_model import import_model
from limner.requests import SearchRequest
from limner.search.engine import Engine
from limner.search.store import open_store
from limner.site import write_site
from tests import towers
from tests.server.browsing import CHROMIUM, QUIET
from tests.site.conftest import store_of
from tests.site.npm import REAL_RUNTIME, REAL_TOKENIZERS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
else:
    pytest.importorskip("playwright.sync_api")

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
    pytest.mark.skipif(REAL_RUNTIME is None, reason="no archive of onnxruntime-web is here"),
]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def store(toy_run: Path, toys: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_of(toy_run, toys, tmp_path_factory.mktemp("stores") / "store")


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Writes a store as a site and serves it as `python -m http.server` does; returns the address."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def host(store: Path, **options: Any) -> str:
        out = tmp_path_factory.mktemp("sites") / "site"
        archives = [path for path in (REAL_RUNTIME, REAL_TOKENIZERS) if path is not None]
        write_site(store, out, runtime=archives, **options)
        handler = functools.partial(_Quiet, directory=str(out.parent))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        # in a folder of the host, as such pages often are
        return f"http://127.0.0.1:{server.server_port}/site/"

    yield host
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def url(store: Path, hosted: Callable[..., str]) -> str:
    return hosted(store)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: "Browser") -> "Iterator[Callable[[str], Page]]":
    """Opens an address in a page that must end without an error, a refusal or a request to anybody else."""
    wrong: list[str] = []
    contexts = []

    def open_at(url: str) -> "Page":
        context = browser.new_context(viewport={"width": 1280, "height": 860}, base_url=url, locale="en-GB")
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda sent: None if sent.url.startswith(url) else wrong.append(sent.url))
        page.on("request", lambda sent: None if sent.method == "GET" else wrong.append(sent.method))
        page.goto(url)
        page.wait_for_selector(".welcome img")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not wrong


DONE = "() => !document.body.hasAttribute('data-busy') && document.body.dataset.state === 'results'"


def found(page: "Page", text: str) -> list[str]:
    """Names of the pictures that the page shows for a text, in their order."""
    page.fill("#text", text)
    page.press("#text", "Enter")
    page.wait_for_function(DONE)
    names: list[str] = page.eval_on_selector_all("#grid img", "found => found.map((one) => one.alt)")
    return names


def same_first_ten(page: "Page", store: Path, sentences: list[str]) -> float:
    """The share of sentences whose first ten pictures are the server's, in its order."""
    engine: Engine = open_store(store, device="cpu").engine
    same = []
    for sentence in sentences:
        hits = engine.answer(SearchRequest(text=sentence, k=10, words=False)).hits
        same.append(found(page, sentence)[:10] == [hit.name for hit in hits])
    return float(np.mean(same))


def test_the_first_ten_are_the_servers(
    url: str, store: Path, toys: Dataset, opened: "Callable[[str], Page]"
) -> None:
    sentences = [sentence for record in toys.records for sentence in record.sentences]
    assert same_first_ten(opened(url), store, sentences) >= 0.95


@pytest.mark.skipif(REAL_TOKENIZERS is None, reason="no archive of @huggingface/tokenizers is here")
def test_a_pretrained_pair_too(
    toys: Dataset, hosted: Callable[..., str], opened: "Callable[[str], Page]", tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    towers.save_clip(tmp_path / "source")
    import_model(str(tmp_path / "source"), tmp_path / "run")
    store = store_of(tmp_path / "run", toys, tmp_path / "store")
    sentences = [record.sentences[0] for record in toys.records]
    # a smaller tower is taken for 95 % of all the store's sentences, which may be fewer of these
    assert same_first_ten(opened(hosted(store, tower="fp32")), store, sentences) >= 0.95


def test_it_says_what_it_is(url: str, opened: "Callable[[str], Page]") -> None:
    page = opened(url)
    assert "36 pictures, copied on" in page.inner_text("#stock")
    assert "nothing you type leaves it" in page.inner_text("#copy")
    page.select_option("#language", "de")
    page.wait_for_function("() => document.documentElement.lang === 'de'")
    assert "36 Bilder, Kopie vom" in page.inner_text("#stock")


def test_the_address_keeps_the_query(url: str, opened: "Callable[[str], Page]") -> None:
    page = opened(url)
    first = found(page, "a red square")
    assert "q=a+red+square" in page.url
    page.click("#more")
    page.wait_for_function("() => document.querySelectorAll('#grid li').length === 36")
    page.reload()
    page.wait_for_selector("#grid li")
    assert page.input_value("#text") == "a red square"
    again = page.eval_on_selector_all("#grid img", "found => found.map((one) => one.alt)")
    assert again[: len(first)] == first
    assert len(again) == 36
    found(page, "a blue bar")
    page.go_back()
    page.wait_for_function("() => document.querySelector('#text').value === 'a red square'")


def test_keys_lead_through_the_results(url: str, opened: "Callable[[str], Page]") -> None:
    page = opened(url)
    names = found(page, "a green circle")
    page.focus("#grid .open >> nth=0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#viewer[open]")
    assert page.inner_text("#viewer-title") == names[1]
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "name => document.querySelector('#viewer-title').textContent === name", arg=names[2]
    )
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")
    assert page.evaluate("document.activeElement.querySelector('img').alt") == names[2]
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"


def test_more_like_a_picture(url: str, store: Path, opened: "Callable[[str], Page]") -> None:
    page = opened(url)
    name = found(page, "a green circle")[0]
    page.click("#grid .open >> nth=0")
    page.click("#similar")
    page.wait_for_function("() => location.hash.includes('like=')")
    page.wait_for_function(DONE)
    engine = open_store(store, device="cpu").engine
    key = next(item.id for item in open_store(store, device="cpu") if item.name == name)
    hits = engine.answer(SearchRequest(like=key, k=10)).hits
    likes = page.eval_on_selector_all("#grid img", "found => found.map((one) => one.alt)")
    assert likes[:10] == [hit.name for hit in hits]


def test_unknown_words_have_a_word(url: str, opened: "Callable[[str], Page]") -> None:
    page = opened(url)
    assert found(page, "zxqv") == []
    assert "knows no word" in page.inner_text("#notice")


def test_a_part_that_is_missing_is_told(url: str, browser: "Browser") -> None:
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.route("**/text.onnx", lambda route: route.fulfill(status=404))
    page.goto(url)
    page.wait_for_selector(".welcome img")
    page.fill("#text", "a red square")
    page.press("#text", "Enter")
    page.wait_for_selector(".notice.trouble")
    assert "text.onnx: 404" in page.inner_text(".notice")
    page.unroute("**/text.onnx")
    page.press("#text", "Enter")
    page.wait_for_selector("#grid li")
    context.close()


def test_its_policy_lets_nothing_else_in(url: str, browser: "Browser") -> None:
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(".welcome img")
    refused = page.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
            document.head.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" }));
        })"""
    )
    assert refused.startswith("script-src")
    other = page.evaluate("() => fetch('http://127.0.0.1:1/').then(() => 'sent', (error) => 'refused')")
    assert other == "refused"
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_hinders(url: str, opened: "Callable[[str], Page]", width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe is installed")
    page = opened(url)
    page.set_viewport_size({"width": width, "height": 860})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")

    def violations() -> list[str]:
        found = axe.Axe().run(page).response["violations"]
        return [f"{rule['id']}: {rule['nodes'][0]['html'][:120]}" for rule in found]

    assert violations() == []
    found(page, "a red square")
    assert violations() == []
    page.click("#grid .open >> nth=0")
    page.wait_for_selector("#viewer[open]")
    assert violations() == []
