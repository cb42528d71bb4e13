"""A server for the tests, and a browser that looks at its page."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from tests.server.browsing import CHROMIUM, QUIET
from tests.server.running import running
from tests.server.serving import toy_engine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return toy_engine(tmp_path)


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with TestClient(create_app(Store(engine)), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running server of the toys, with a slash at its end; LIMNER_PAGE_URL names another one."""
    if (url := os.environ.get("LIMNER_PAGE_URL")) is not None:
        yield url
        return
    with running(create_app(Store(toy_engine(tmp_path_factory.mktemp("page"))))) as url:
        yield f"{url}/"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", page_url: str) -> "Iterator[Page]":
    """An empty page that must end without script errors, without a refused resource, and without a foreign request."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, base_url=page_url)
    # as much as a machine takes that does something else, too: with thirty busy processes beside, 15 s were not enough
    context.set_default_timeout(60_000)
    # most of these tests judge; test_page_marks has the page as it is at first
    context.add_init_script(
        "try { localStorage.setItem('limner.judging', localStorage.getItem('limner.judging') ?? '1') } catch {}"
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None
    )
    page.on(
        "request",
        lambda sent: None if sent.url.startswith((page_url, "blob:", "data:")) else wrong.append(sent.url),
    )
    yield page
    # an answer that a test holds back or edits may be asked for at its very end, and would fail in the next test
    for routed in (page, context):
        routed.unroute_all(behavior="ignoreErrors")
    context.close()
    assert not wrong
