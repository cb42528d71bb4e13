"""`--show-paths`: where pictures lie is told in answers, exports and on the page, and may be asked for."""

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from limner.search.engine import Engine
from limner.search.judgement_files import file_name
from limner.search.store import Store
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.wire import Item
from tests.search.fake import draw
from tests.server.running import running
from tests.server.serving import HOME, base64_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SHOWN = ServerSettings(show_paths=True)


@pytest.fixture
def shown(engine: Engine) -> TestClient:
    return TestClient(create_app(Store(engine), SHOWN), raise_server_exceptions=False)


def test_answers_have_paths_and_conditions_ask_for_them(shown: TestClient, engine: Engine) -> None:
    paths = {item.id: str(item.path) for item in Store(engine).items().items}
    found = shown.post("/v1/search", json={"text": "a coat", "k": 8}).json()["hits"]
    assert {hit["id"]: hit["path"] for hit in found} == paths
    assert shown.get(f"/v1/items/{found[0]['id']}").json()["path"] == paths[found[0]["id"]]
    for where, count in ((f"path~*/{HOME}/*", 8), ("path~*/3.png", 1), ("path~*/other/*", 0)):
        assert shown.get("/v1/items", params={"where": where}).json()["total"] == count
        body = {"text": "a coat", "where": [where]}
        assert shown.post("/v1/search", json=body).json()["matching"] == count
    schemas = shown.get("/openapi.json").json()["components"]["schemas"]
    assert all("path" in schemas[name]["properties"] for name in ("Hit", "Item", "FoundSentence"))


def test_exports_have_paths_and_zips_file_names(shown: TestClient, engine: Engine) -> None:
    snapshot = engine.files.snapshot()
    searches = [{"text": "a coat", "pictures": [{"id": key, "mark": "right"} for key in snapshot.keys]}]

    def exported(form: str) -> bytes:
        return shown.post("/v1/export", json={"form": form, "searches": searches}).content

    paths = [str(item.path) for item in Store(engine).items().items]
    rows = list(csv.DictReader(io.StringIO(exported("csv").decode("utf-8-sig"))))
    assert sorted(row["path"] for row in rows) == sorted(paths)
    told = json.loads(exported("json"))["searches"][0]["pictures"]
    assert sorted(one["path"] for one in told) == sorted(paths)
    names = zipfile.ZipFile(io.BytesIO(exported("zip"))).namelist()
    assert {name for name in names if name.startswith("pictures/")} == {f"pictures/{i}.png" for i in range(8)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("IMG_1234.HEIC", "IMG_1234.jpg"),
        ("../../etc/passwd", "passwd.jpg"),
        ("..\\..\\x.png", "__.._x.jpg"),
        (".hidden.png", "_hidden.jpg"),
        ("a:b*c?.png", "a_b_c_.jpg"),
        ("Großmutter, 80. (2).jpeg", "Großmutter, 80. (2).jpg"),
        ("line\nfeed.png", "line_feed.jpg"),
        ("Taken.png", "Taken-0a.jpg"),
    ],
)
def test_names_in_a_zip_lead_nowhere_else(name: str, expected: str) -> None:
    known: dict[str, Any] = {"identity": None, "metadata": {}, "taken": None}
    item = Item(id="0a", name=name, path=Path("/a") / "b", **known)
    assert file_name(item, ".jpg", {"taken.jpg"}) == expected
    assert file_name(item.model_copy(update={"path": None}), ".jpg", {}) == "0a.jpg"


def test_an_upload_is_told_by_its_clients_name(engine: Engine, tmp_path: Path) -> None:
    settings = ServerSettings(show_paths=True, changes=True, uploads=tmp_path / "uploads")
    picture = draw(tmp_path / "new.png", 99)
    with TestClient(create_app(Store(engine), settings)) as client:
        added = client.post("/v1/items", json={"name": "mine.png", "image": base64_of(picture)}).json()
        assert (added["name"], Path(added["path"]).parent) == ("mine.png", tmp_path / "uploads")


def test_cards_and_the_viewer_say_where_a_picture_lies(
    browser: "Browser", engine: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / HOME
    with running(create_app(Store(engine), SHOWN)) as url:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{url}/#q=a+coat")
        card = page.locator("#grid li[data-id]").first
        card.locator(".known", has_text="pictures/").wait_for()
        card.locator(".open").click()
        facts = page.locator("#facts")
        facts.get_by_text(str(folder)).first.wait_for()
        # the folder's other pictures, by the button at the file's row
        facts.locator("dd", has_text=str(folder)).locator("button").click()
        page.locator("#filters, #conditions, body").get_by_text(f"path~{folder}/*").first.wait_for()
        page.locator("#grid li[data-id]").nth(7).wait_for()
