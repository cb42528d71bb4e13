"""An imported pair behind the server, and its words and patches on the page."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

import limner
from limner.search.store import Store
from limner.server.app import create_app
from tests import towers
from tests.search.fake import draw
from tests.server.browsing import CHROMIUM, open_first, search
from tests.server.running import running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Six pictures, indexed with a tiny CLIP that was imported."""
    folder = tmp_path_factory.mktemp("imported")
    source = folder / "source"
    source.mkdir()
    towers.save_clip(source)
    run = limner.import_model(str(source), folder / "run")
    for seed in range(6):
        draw(folder / "pictures" / f"{seed}.png", seed)
    limner.index(run, folder / "store", folder / "pictures")
    return limner.open_store(folder / "store")


def test_any_language_is_searched_and_explained(store: Store) -> None:
    client = TestClient(create_app(store))
    info = client.get("/v1/info").json()
    assert (info["model"]["system"], info["explains"], info["reranks"]) == ("pretrained", "attention", False)
    # no calibration: no threshold, and nothing called good or not
    answer = client.post("/v1/search", json={"text": "一只斑马, zebra"}).json()
    assert (len(answer["hits"]), answer["unknown"], answer["good"]) == (6, [], None)
    key = answer["hits"][0]["id"]
    found = client.post("/v1/explain", json={"id": key, "text": "a zebra"}).json()
    assert found["attention"]["words"] == ["a", "zebra"]
    assert sum(map(sum, found["attention"]["of_regions"][1])) == pytest.approx(1, abs=1e-5)


def test_words_behind_the_length_of_the_model_are_said(store: Store) -> None:
    client = TestClient(create_app(store))
    text = " ".join(["zebra"] * 30 + ["sunset"])
    answer = client.post("/v1/search", json={"text": text}).json()
    assert answer["unread"][-1] == "sunset"
    assert "unread" not in client.post("/v1/search", json={"text": "a dog"}).json()


def test_without_its_file_a_picture_is_explained_by_words_alone(store: Store, tmp_path: Path) -> None:
    for seed in range(2):
        draw(tmp_path / "pictures" / f"{seed}.png", seed)
    run = store.engine.encoder
    limner.index(run, tmp_path / "store", tmp_path / "pictures")
    shutil.rmtree(tmp_path / "pictures")
    opened = limner.open_store(tmp_path / "store", run=store.files.run)
    found = opened.explain("a red bar", next(iter(opened)).id)
    assert found.attention is None
    assert found.words == ("a", "red", "bar")


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    with running(create_app(store)) as url:
        yield f"{url}/"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_the_page_shows_where_words_point(address: str, browser: "Browser") -> None:
    page = browser.new_page(base_url=address)
    search(page)
    open_first(page)
    page.wait_for_selector("text=Where the model looks")
    assert page.locator("text=What each phrase does").count() == 1
    page.close()
