"""A server that keeps its store what its folders are, and says how far it is; `limner open`."""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from limner.client import Client
from limner.errors import SettingsError
from limner.search.engine import Engine
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.following import Following
from limner.server.settings import ServerSettings
from limner.store.folders import Folder, follow_folders
from tests.forked import run_python, started
from tests.search.fake import FakeEncoder, draw
from tests.search.test_places import made
from tests.server.running import running
from tests.server.serving import COUNT, HOME, base64_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("watchfiles")

LONG = 60.0
WATCHING = ServerSettings(watch=True)


def until(holds: Callable[[], bool], what: Callable[[], Any] = lambda: None) -> None:
    late = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < late, what()
        time.sleep(0.1)


@pytest.fixture
def folder(engine: Engine, tmp_path: Path) -> Path:
    follow_folders(engine.files, [Folder(str(tmp_path / HOME))])
    return tmp_path / HOME


def test_new_files_are_found_and_deleted_ones_are_not(engine: Engine, folder: Path) -> None:
    with TestClient(create_app(Store(engine), WATCHING)) as client:

        def now() -> Following:
            return Following.model_validate(client.get("/v1/following").json())

        until(lambda: now().total == COUNT)
        draw(folder / "new.png", 50)
        for number in range(80, 90):
            draw(folder / "more" / f"{number}.png", number)
        until(lambda: client.get("/v1/info").json()["pictures"] == COUNT + 11)
        key = next(one["id"] for one in client.get("/v1/items").json()["items"] if one["name"] == "new.png")
        assert client.get(f"/v1/thumbnails/{key}").status_code == 200
        (folder / "new.png").unlink()
        until(lambda: now().waiting == 1)
        assert client.get("/v1/items").json()["total"] == now().pictures == COUNT + 10
        for kind in ("items", "images", "thumbnails"):
            assert client.get(f"/v1/{kind}/{key}").status_code == 404
        assert now() == Following(
            follows=True, pictures=COUNT + 10, done=now().done, total=now().total, waiting=1
        )
        draw(folder / "new.png", 50)
        until(lambda: now().waiting == 0)
        assert client.get("/v1/items").json()["total"] == now().pictures == COUNT + 11
        (folder / "new.png").unlink()
        until(lambda: now().waiting == 1)
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "x").mkdir()
        until(lambda: now().doubted == COUNT + 10)
        assert HOME not in client.get("/v1/following").text


def test_a_folder_that_is_away_is_told(
    engine: Engine, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log at its default level, to Prometheus, and by its name to those who see paths."""
    aside, broken = tmp_path / "aside", folder / "broken.png"
    broken.write_bytes(b"broken")
    settings = ServerSettings(watch=True, show_paths=True, rate=0.0)
    with TestClient(create_app(Store(engine), settings)) as client:

        def now() -> Following:
            return Following.model_validate(client.get("/v1/following").json())

        def gauge(name: str) -> float | None:
            families = text_string_to_metric_families(client.get("/metrics").text)
            return next(one.value for family in families for one in family.samples if one.name == name)

        until(lambda: now().skipped == 1)
        # a look at one file says nothing of the other
        draw(folder / "new.png", 50)
        until(lambda: now().pictures == COUNT + 1)
        assert now().skipped == 1
        (folder / "kept").mkdir()
        for path in folder.glob("?.png"):
            path.rename(tmp_path / path.name)
        until(lambda: now().doubted > 0 and gauge("limner_pictures_doubted") == now().doubted)
        for path in tmp_path.glob("?.png"):
            path.rename(folder / path.name)
        until(lambda: now().doubted == 0)
        folder.rename(aside)
        until(lambda: now().away == 1)
        assert (now().away_folders, gauge("limner_folders_away")) == ((str(folder),), 1)
        assert not now().trouble
        aside.rename(folder)
        until(lambda: now().away == 0)
        assert gauge("limner_folders_away") == gauge("limner_pictures_doubted") == 0
    lines = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    away = f"{folder} is not there"
    told = [line for line in lines if away in line]
    assert len(told) == 1
    assert sum(line.endswith(f"{folder} no longer seems to be away") for line in lines) == 1
    assert sum("more than a tenth" in line and "no longer in doubt: " in line for line in lines) == 1


def test_clients_add_and_search_meanwhile(engine: Engine, folder: Path, tmp_path: Path) -> None:
    settings = ServerSettings(watch=True, changes=True, uploads=tmp_path / "uploads", rate=0.0)
    picture = draw(tmp_path / "theirs.png", 60)
    with TestClient(create_app(Store(engine), settings)) as client:
        for number in range(100, 160):
            draw(folder / "many" / f"{number}.png", number)
        added = client.post("/v1/items", json={"name": "theirs.png", "image": base64_of(picture)})
        assert added.status_code == 201
        for _ in range(20):
            assert client.post("/v1/search", json={"text": "a coat"}).status_code == 200
        until(lambda: client.get("/v1/info").json()["pictures"] == COUNT + 61)
        # an upload is in no folder that is followed
        assert client.get(f"/v1/items/{added.json()['id']}").status_code == 200


def test_it_ends_with_its_server(engine: Engine, folder: Path) -> None:
    with TestClient(create_app(Store(engine), WATCHING)) as client:
        until(lambda: client.get("/v1/following").json()["total"] == COUNT)
    time.sleep(3)
    draw(folder / "late.png", 70)
    time.sleep(4)
    assert len(engine.files) == COUNT


def test_without_folders_or_without_watching(engine: Engine) -> None:
    with pytest.raises(SettingsError, match="follows no folder"):
        create_app(Store(engine), WATCHING)
    with TestClient(create_app(Store(engine))) as client:
        assert client.get("/v1/following").json() == Following().model_dump(mode="json")


def test_the_page_fills_while_pictures_are_indexed(browser: "Browser", tmp_path: Path) -> None:
    seen = threading.Event()

    class Waits(FakeEncoder):
        """Until the page has shown how far it is: one batch, and no more."""

        def encode_pixels(self, pixels: Any) -> Any:
            if self.encoded:
                seen.wait(LONG)
            return super().encode_pixels(pixels)

    folder = tmp_path / "pictures"
    for number in range(60):
        draw(folder / f"{number}.png", number)
    store = made(tmp_path / "store")
    follow_folders(store, [Folder(str(folder))])
    with running(create_app(Store(Engine(store, Waits())), WATCHING)) as url:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(url)
        page.locator("#following", has_text=re.compile(r"Indexing: \d+ of 60 files, \d+ a second")).wait_for()
        page.locator("#following progress").wait_for()
        # without a word of the user's
        page.locator("#notice img").first.wait_for()
        seen.set()
        page.locator("#stock", has_text="60 pictures").wait_for()
        page.locator("#following:empty").wait_for(state="attached")
        page.close()


def opened(tmp_path: Path, *arguments: object) -> Any:
    log = tmp_path / "log"
    command = ("-m", "limner", "open", *map(str, arguments), "--no-browser", "--cpu", "--json")
    environment = {"XDG_DATA_HOME": str(tmp_path / "data")}
    return started(run_python, command, log, environment=environment), log


def test_open_makes_a_store_and_opens_it_again(toy_run: Path, toys: Any, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for record in toys.records[:20]:
        shutil.copy(record.image, photos)
    store = _searched(tmp_path, 20, photos, "--model", toy_run)
    assert store.parent == tmp_path / "data" / "limner"
    assert re.fullmatch("photos-[0-9a-f]{8}", store.name)
    shutil.copy(toys.records[30].image, photos / "new.png")
    assert _searched(tmp_path, 21, photos) == store
    assert list(store.parent.iterdir()) == [store]


def test_open_of_an_empty_folder_waits_for_pictures(toy_run: Path, toys: Any, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    process, log = opened(tmp_path, photos, "--model", toy_run)
    try:
        until(lambda: log.exists() and "http://" in log.read_text(), lambda: log.read_text())
        said = log.read_text()
        assert f"{photos}: is empty; pictures are found as they come" in said
        shutil.copy(toys.records[0].image, photos)
        served = json.loads(next(one for one in said.splitlines() if one.startswith("{")))
        with Client(served["url"]) as client:
            until(lambda: client.info().pictures == 1, lambda: log.read_text())
        assert "as if its disk were away" not in log.read_text()
        process.terminate()
        process.join(LONG)
        assert process.exitcode == 0, log.read_text()
    finally:
        process.kill()


def test_open_leaves_out_what_was_left_out(toy_run: Path, toys: Any, tmp_path: Path) -> None:
    for number, record in enumerate(toys.records[:8]):
        place = tmp_path / "photos" / ("no" if number < 3 else "yes")
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(record.image, place)
    command = ["index", toy_run, tmp_path / "store", tmp_path / "photos", "--exclude", "no", "--cpu"]
    process = started(
        run_python, ("-m", "limner", *map(str, command)), tmp_path / "index.log", environment={}
    )
    process.join(LONG)
    assert process.exitcode == 0
    _searched(tmp_path, 5, tmp_path / "photos", "--store", tmp_path / "store")


def _searched(tmp_path: Path, count: int, *arguments: object) -> Path:
    """Search by `limner open` once it has so many pictures, and return where its store is."""
    process, log = opened(tmp_path, *arguments)
    try:
        until(lambda: log.exists() and "http://" in log.read_text(), lambda: log.read_text())
        served = json.loads(next(one for one in log.read_text().splitlines() if one.startswith("{")))
        with Client(served["url"]) as client:
            until(lambda: client.info().pictures == count, lambda: log.read_text())
            assert client.search("a red square").hits
            # of whom it is, it may be told
            assert client.alerts().may_change
            client.save_alert("red", "a red square", at_least=0.5)
            client.delete_alert("red")
        process.terminate()
        process.join(LONG)
        assert process.exitcode == 0, log.read_text()
    finally:
        process.kill()
    log.unlink()
    return Path(served["store"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing here"], "nothing here: there is no such folder; is its disk mounted"),
        (["photos/1.png"], "expected a folder of pictures"),
        (["photos", "photos/1.png"], "1.png: expected a folder of pictures"),
        (["photos"], r"hf:google/siglip2-base-patch16-224 is not on this machine \(1.5 GB\): add --yes"),
        (["photos", "--model", "hf:a/b"], "its size is not known"),
        (["photos", "--model", "no/folder"], "no/folder"),
    ],
)
def test_open_refuses_in_one_line_and_leaves_nothing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    draw(tmp_path / "photos" / "1.png", 1)
    # options and what belongs to them are no places
    count = next((place for place, one in enumerate(arguments) if one.startswith("--")), len(arguments))
    process, log = opened(tmp_path, *(tmp_path / one for one in arguments[:count]), *arguments[count:])
    process.join(LONG)
    told = json.loads(log.read_text())["error"]["message"]
    assert re.search(message, told), told
    assert process.exitcode == 2
    assert not (tmp_path / "data").exists()
