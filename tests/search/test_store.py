"""A store and its model as one object, and the same calls over HTTP."""

import inspect
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limner.client import Client
from limner.data.images import encoded_anew
from limner.errors import (
    ChangedPictureError,
    DataError,
    LimnerError,
    SettingsError,
    StoreError,
    UnknownPictureError,
)
from limner.search.engine import Engine
from limner.search.sentences import Sentence, SentenceTable
from limner.search.store import Store, index
from limner.server.app import create_app
from limner.server.settings import ServerSettings
from limner.store.files import StoreFiles
from limner.wire import Answer
from tests.search.fake import DIM, FakeEncoder, draw
from tests.server.running import running
from tests.server.serving import COUNT, HOME, toy_engine

LOCAL = {"engine", "files", "index"}
"""What only a store of this machine has: its model, its folder, the indexing of files that lie here."""
REMOTE = {"url", "health", "alerts", "save_alert", "delete_alert"}
"""What only a connection has."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    engine = toy_engine(folder)
    SentenceTable(engine.files).index(
        engine.encoder, [Sentence("a red coat", str(folder / HOME / "3.png")), Sentence("blue")]
    )
    return Store(engine)


@pytest.fixture(scope="module")
def client(store: Store, folder: Path) -> Iterator[Client]:
    # other handles of the same folder: the server's adding and deleting must be seen through ours
    served = Store(Engine(StoreFiles.open(store.files.folder), store.engine.encoder))
    settings = ServerSettings(changes=True, uploads=folder / "uploads", rate=0)
    with running(create_app(served, settings)) as url, Client(url) as client:
        yield client


def public(of: type) -> dict[str, Any]:
    special = {"__len__", "__iter__", "__enter__", "__exit__", "__repr__"}
    return {
        name: inspect.signature(member)
        for name, member in vars(of).items()
        if callable(member) and (not name.startswith("_") or name in special)
    }


def test_a_store_and_a_client_have_the_same_calls() -> None:
    local, remote = public(Store), public(Client)
    assert local.keys() - LOCAL == remote.keys() - REMOTE
    for name in local.keys() & remote.keys() - {"__enter__"}:
        assert local[name] == remote[name], name


def comparable(value: Any) -> Any:
    """An answer without what only one side tells: paths of this machine, and how long it took."""
    if isinstance(value, Answer):
        return [comparable(hit) for hit in value], value.total, value.matching, value.good, value.unknown
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return value.model_copy(update={"path": None}) if "path" in type(value).model_fields else value


ASKED: list[dict[str, Any]] = [
    {"text": "a red coat", "k": 3},
    {"text": "a zxqv"},
    {"text": "a", "where": "camera=1"},
    {"text": "a", "where": {"camera": 1, "identity": ["even", "odd"]}},
    {"text": "a", "where": ["camera>=1", {"camera": [1, 2]}], "group": "identity"},
    {"text": "a", "after": datetime(2026, 11, 12), "before": "2026-11-14"},
    {"text": "a", "where": ["camera=9"]},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_both_answer_alike(store: Store, client: Client, asked: dict[str, Any]) -> None:
    here, there = store.search(**asked), client.search(**asked)
    assert comparable(here) == comparable(there)
    assert here.took_ms is None
    assert there.took_ms is not None
    assert all(hit.path is not None and hit.path.name == hit.name for hit in here)
    assert all(hit.path is None for hit in there)


def test_both_answer_alike_by_pictures(store: Store, client: Client, folder: Path) -> None:
    picture = folder / HOME / "3.png"
    key = store.search(image=picture, k=1)[0].id
    searches: tuple[dict[str, Any], ...] = (
        {"image": picture},
        {"image": str(picture), "text": "a", "text_weight": 0.2},
        {"image": bytearray(picture.read_bytes()), "group": "near"},
        {"like": key, "k": 4},
        {"image": Image.open(picture)},
        {"image": np.array(Image.open(picture))},
    )
    for asked in searches:
        assert comparable(store.search(**asked)) == comparable(client.search(**asked))
        plain = {name: value for name, value in asked.items() if name != "group"}
        assert comparable(store.sentences(**plain)) == comparable(client.sentences(**plain))
    assert store.explain("a red coat", key) == client.explain("a red coat", key)
    assert store.image(key) == picture.read_bytes()
    assert client.image(key) == encoded_anew(picture.read_bytes())[0]
    assert store.thumbnail(key) == client.thumbnail(key)


def test_both_tell_alike_of_pictures(store: Store, client: Client) -> None:
    assert len(store) == len(client) == COUNT
    assert comparable(list(store)) == comparable(list(client))
    for asked in ({}, {"offset": 2, "limit": 3}, {"where": {"camera": 1}}, {"offset": 99}):
        assert comparable(store.items(**asked).items) == comparable(client.items(**asked).items)
        assert store.items(**asked).total == client.items(**asked).total
    key = next(iter(store)).id
    assert comparable(store.item(key)) == comparable(client.item(key))
    here, there = store.info(), client.info()
    assert here.model_copy(update={"max_k": 100}) == there


def test_many_at_once(store: Store, client: Client) -> None:
    texts = [f"a {word} coat" for word in ("red", "blue", "green", "zxqv")] * 80
    asked: list[str | dict[str, Any]] = [*texts, {"text": "a", "k": 1}, {"like": next(iter(store)).id}]
    here = store.search_many(asked, k=2, where={"camera": 1})
    assert comparable(here) == comparable(client.search_many(asked, k=2, where={"camera": 1}))
    assert [len(answer) for answer in here] == [2] * 320 + [1, 2]
    assert comparable(here[1]) == comparable(store.search(texts[1], k=2, where={"camera": 1}))
    assert store.search_many([]) == client.search_many([]) == []
    for one in (store, client):
        with pytest.raises(LimnerError):
            one.search_many(["a", " "])
        with pytest.raises(SettingsError, match="unknown argument 'kk'; did you mean 'k'"):
            one.search_many([{"kk": 3}])


def test_a_client_waits_as_long_as_it_is_told_to(store: Store) -> None:
    with (
        running(create_app(store, ServerSettings(rate=20, burst=2))) as url,
        Client(url) as patient,
        Client(url, timeout=0.5) as hurried,
    ):
        assert len(patient.search_many(["a"] * 6)) == 6
        with pytest.raises(LimnerError, match="requests a second"):
            hurried.search_many(["a"] * 60)


def test_added_and_deleted(store: Store, client: Client, folder: Path) -> None:
    picture = draw(folder / "new" / "new.png", 99)
    for one in (store, client):
        added = one.add(picture, identity="9", metadata={"camera": 3})
        assert (added.name, added.identity, added.metadata["camera"]) == ("new.png", "9", 3)
        assert comparable(store.item(added.id)).model_copy(update={"name": "new.png"}) == comparable(added)
        assert len(store) == len(client) == COUNT + 1
        # what is not given stays
        assert one.add(picture).metadata == added.metadata
        assert one.add(picture, metadata={"taken": "2026-11-20"}).taken_from == "told"
        kept = one.add(picture, identity="8")
        assert (kept.identity, kept.taken and kept.taken.year, kept.metadata["camera"]) == ("8", 2026, 3)
        # and null takes a fact away
        fewer = one.add(picture, metadata={"taken": None, "camera": None})
        assert (fewer.identity, fewer.taken, "camera" in fewer.metadata) == ("8", None, False)
        # as in a file of metadata
        assert one.add(picture, metadata={"identity": "7"}).identity == "7"
        one.delete(added.id)
        assert len(store) == len(client) == COUNT
        with pytest.raises(LimnerError):
            one.delete(added.id)
    assert picture.exists()
    named = store.add(f"{folder}/new/../new/new.png", name="coat")
    assert (named.path, named.metadata) == (picture, {"name": "coat"})
    store.delete(named.id)
    with pytest.raises(SettingsError, match="keeps no picture files"):
        store.add(picture.read_bytes())
    (folder / "text.png").write_text("no picture")
    with pytest.raises(StoreError, match="not a picture"):
        store.add(folder / "text.png")


def test_what_a_store_does_not_hold(store: Store, client: Client) -> None:
    for one in (store, client):
        for call in (one.item, one.image, one.thumbnail, one.delete):
            with pytest.raises(LimnerError):
                call("0" * 32)
        with pytest.raises(LimnerError):
            one.search("a", like="0" * 32)
    with pytest.raises(UnknownPictureError, match="holds no picture"):
        store.item("nothing")
    with pytest.raises(SettingsError, match="at least 0, got -1 and 50"):
        store.items(offset=-1)
    with pytest.raises(SettingsError, match="at least 0, got 0 and -1"):
        store.items(limit=-1)
    with pytest.raises(SettingsError, match="expected 'identity' or 'near', got 'nearly'"):
        store.search_many([{"text": "a", "group": "nearly"}])
    with pytest.raises(SettingsError, match="after: expected a time in ISO 8601"):
        store.search("a", after="yesterday")


def test_a_file_that_has_changed_is_not_shown(tmp_path: Path) -> None:
    store = Store(toy_engine(tmp_path))
    changed, gone, *_ = store
    assert changed.path is not None
    assert gone.path is not None
    draw(changed.path, 77)
    gone.path.unlink()
    for item in (changed, gone):
        with pytest.raises(ChangedPictureError, match="gone or has changed"):
            store.image(item.id)
        # what the store keeps of it is still there
        assert store.thumbnail(item.id).startswith(b"\xff\xd8")


def test_a_picture_that_browsers_do_not_show_comes_as_jpeg(tmp_path: Path) -> None:
    store = Store(toy_engine(tmp_path))
    Image.new("RGB", (30, 20), (9, 99, 9)).save(tmp_path / "one.tif")
    content = store.image(store.add(tmp_path / "one.tif").id)
    with Image.open(io.BytesIO(content)) as image:
        assert (image.format, image.size) == ("JPEG", (30, 20))


def test_it_is_a_context_and_one_line(tmp_path: Path) -> None:
    with Store(toy_engine(tmp_path)) as store:
        before = store.search("a red coat")
        assert repr(store).endswith(f"{COUNT} pictures, model aaaaaaaaaaaa)")
        assert "\n" not in repr(store)
    # closed, it holds nothing in memory; asked again, it reads again
    assert store.search("a red coat") == before


def test_indexing_makes_a_store_or_adds_to_one(tmp_path: Path) -> None:
    class Model(FakeEncoder):
        path = tmp_path / "run"

    pictures = [draw(tmp_path / "pictures" / f"{seed}.png", seed) for seed in range(3)]
    (tmp_path / "facts.csv").write_text("file,camera\npictures/1.png,7\n")
    seen: list[tuple[int, int]] = []
    report = index(
        Model(),
        tmp_path / "store",
        tmp_path / "pictures",
        metadata=tmp_path / "facts.csv",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (report.added, report.skipped, seen[-1]) == (3, (), (3, 3))
    assert repr(report) == "IndexReport(3 added, 0 updated, 0 unchanged, 0 skipped, 0 passed over)"
    store = Store(Engine(StoreFiles.open(tmp_path / "store"), Model()))
    assert store.files.manifest.run == str(tmp_path / "run")
    assert [item.name for item in store.items(where="camera=7")] == ["1.png"]
    more = draw(tmp_path / "more.png", 9)
    assert index(Model(), store, [more]).added == 1
    assert index(Model(), store.files, str(more)).unchanged == 1
    assert store.index([*pictures, more]).unchanged == 4
    assert len(store) == 4
    with pytest.raises(SettingsError, match="a model without a path"):
        index(FakeEncoder(dim=DIM), str(tmp_path / "other"), pictures)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no pictures in"):
        index(Model(), str(tmp_path / "none"), tmp_path / "empty")
    assert not (tmp_path / "none").exists()


def test_filters_alone_list_the_newest_first(folder: Path, store: Store, client: Client) -> None:
    times = ["2024-01-01", "2026-01-01T10:00", "2025-01-01", "2026-01-01T10:00"]
    told = {
        str(draw(folder / "dated" / f"{number}.png", 60 + number)): {"taken": taken, "aperture": "c"}
        for number, taken in enumerate(times)
    }
    store.index(told, metadata=told)
    for one in (store, client):
        items = one.items(where="aperture=c", newest=True)
        assert [item.name for item in items] == ["1.png", "3.png", "2.png", "0.png"]
        assert [item.name for item in one.items(where="aperture=c", newest=True, offset=1, limit=2)] == [
            "3.png",
            "2.png",
        ]
        every = one.items(newest=True, limit=500)
        known = [item.taken for item in every if item.taken is not None]
        assert [item.taken for item in every] == sorted(known, reverse=True) + [None] * (
            len(every) - len(known)
        )
        assert (items.absent, every.absent) == ({}, {})
        assert one.items(where="Apertur=c").absent == {"Apertur": "aperture"}
        answer = one.search(
            "red", where=["apertur!=c", "zzzz=1", "path~*"] if one is store else ["apertur!=c", "zzzz=1"]
        )
        assert answer.absent == {"apertur": "aperture", "zzzz": None}
        assert one.search("red", where="aperture=c").absent == {}
        with pytest.raises(LimnerError, match="exchange them, or leave one out"):
            one.search("red", after="2026-01-02", before="2026-01-01")
