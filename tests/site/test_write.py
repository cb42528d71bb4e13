"""A site holds what its owner chose, whole or not at all."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from limner.errors import SettingsError, StoreError
from limner.search.foreign_vectors import index_vectors, read_vectors, store_of_vectors
from limner.site import write, write_site
from limner.site.tower import TOWERS
from limner.store.contents import thumbnails
from limner.store.erase import erase
from limner.store.files import StoreFiles

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def pictures_of(folder: Path) -> list[str]:
    names: list[str] = json.loads((folder / "pictures.json").read_text(encoding="utf-8"))["name"]
    return names


def test_the_folder_has_all_that_the_page_needs(toy_store: Path, runtime: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    report = write_site(toy_store, out, runtime=[runtime], tower="int8")
    files = files_of(out)
    site = json.loads(files["site.json"])
    assert report.pictures == site["pictures"] == len(StoreFiles.open(toy_store)) == 36
    assert sum(name.startswith("thumbnails/") for name in files) == 36
    assert not any(name.startswith("full/") for name in files)
    assert len(files["vectors.bin"]) == 36 * (4 + 2 * site["dim"])
    assert {"index.html", "page/app.js", "page/style.css", "text.onnx", "tokenizer.json"} <= files.keys()
    assert {"library/ort.js", "library/ort-wasm.js", "library/ort-wasm.wasm"} <= files.keys()
    assert b"Microsoft" in files["library/LICENCES.txt"]
    assert report.bytes == sum(map(len, files.values()))
    assert not (tmp_path / "site.part").exists()


def test_no_file_names_a_folder_of_this_machine(
    toy_store: Path, toys: object, runtime: Path, tmp_path: Path
) -> None:
    out = tmp_path / "site"
    write_site(toy_store, out, runtime=[runtime], full_pictures=True, tower="fp32")
    stored = StoreFiles.open(toy_store).entries()
    folders = {str(Path(path).parent) for path in stored} | {
        str(tmp_path),
        str(Path(write.__file__).parents[2]),
    }
    # by the key of a picture, its path could be tried out
    secrets = [*folders, f"{Path.home()}/", *(entry.id for entry in stored.values())]
    for name, content in files_of(out).items():
        assert not [secret for secret in secrets if secret.encode() in content], name


def test_the_smallest_tower_that_agrees_is_taken(toy_store: Path, runtime: Path, tmp_path: Path) -> None:
    report = write_site(toy_store, tmp_path / "site", runtime=[runtime])
    assert list(report.same) == list(TOWERS[: len(report.same)])
    assert all(share < 0.95 for share in list(report.same.values())[:-1])
    assert report.same[report.tower] >= 0.95
    assert report.sentences == 72


def test_deleted_and_erased_pictures_never_come_along(toy_store: Path, runtime: Path, tmp_path: Path) -> None:
    store = StoreFiles.open(toy_store)
    keys = store.snapshot().keys
    gone = [store.entry(key) for key in keys[:2]]
    small = thumbnails(store, keys[:2])
    store.delete(keys[:1])
    erase(store, keys[1:2])
    out = tmp_path / "site"
    write_site(toy_store, out, runtime=[runtime], full_pictures=True, tower="int8")
    assert len(pictures_of(out)) == 34
    content = files_of(out)
    for entry, thumbnail in zip(gone, small, strict=True):
        assert entry is not None
        assert Path(entry.path).name not in pictures_of(out)
        assert thumbnail not in content.values()


def test_a_picture_that_is_erased_meanwhile_leaves_with_it(
    toy_store: Path, runtime: Path, tmp_path: Path
) -> None:
    store = StoreFiles.open(toy_store)
    key = store.snapshot().keys[3]
    entry, thumbnail = store.entry(key), thumbnails(store, [key])[0]
    assert entry is not None

    def erase_it(what: str, done: int, total: int) -> None:
        erase(StoreFiles.open(toy_store), [key])

    out = tmp_path / "site"
    report = write_site(
        toy_store, out, runtime=[runtime], full_pictures=True, tower="int8", progress=erase_it
    )
    assert (report.pictures, report.left_out) == (35, 1)
    assert Path(entry.path).name not in pictures_of(out)
    assert thumbnail not in files_of(out).values()
    assert len(list((out / "thumbnails").rglob("*.jpg"))) == len(list((out / "full").rglob("*.jpg"))) == 35


def test_full_pictures_come_without_their_metadata(toy_store: Path, runtime: Path, tmp_path: Path) -> None:
    store = StoreFiles.open(toy_store)
    first = Path(next(iter(sorted(store.entries()))))
    held, times = first.read_bytes(), first.stat()
    try:
        first.unlink()
        out = tmp_path / "site"
        report = write_site(toy_store, out, runtime=[runtime], full_pictures=True, tower="int8")
    finally:
        first.write_bytes(held)
        os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert report.without_full == 1
    pictures = sorted((out / "full").rglob("*.jpg"))
    assert len(pictures) == 36
    with Image.open(pictures[1]) as picture:
        assert picture.size == (40, 36)
        assert not picture.getexif()


def test_facts_can_be_left_out(toy_store: Path, runtime: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    write_site(toy_store, out, runtime=[runtime], facts=False, tower="int8")
    assert json.loads((out / "pictures.json").read_text(encoding="utf-8")).keys() == {"number"}
    whole = tmp_path / "whole"
    write_site(toy_store, whole, runtime=[runtime], tower="int8")
    told = json.loads((whole / "pictures.json").read_text(encoding="utf-8"))
    # the split and the labels of the dataset are metadata, too, and stay
    assert told.keys() == {"number", "name", "identity"}


def test_it_appears_whole_or_not_at_all(
    toy_store: Path, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "write_text_tower", fail)
    with pytest.raises(KeyboardInterrupt):
        write_site(toy_store, tmp_path / "new" / "site", runtime=[runtime])
    assert list((tmp_path / "new").iterdir()) == []


def test_mistakes_have_one_clear_error(toy_store: Path, runtime: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="it exists; give a new folder for the site"):
        write_site(toy_store, tmp_path)
    with pytest.raises(StoreError, match="store"):
        write_site(tmp_path / "none", tmp_path / "site")
    model = StoreFiles.open(toy_store).manifest
    empty = StoreFiles.create(tmp_path / "empty", fingerprint=model.fingerprint, dim=model.dim, run=model.run)
    with pytest.raises(StoreError, match="holds no picture"):
        write_site(empty.folder, tmp_path / "site")
    gone = StoreFiles.create(tmp_path / "gone", fingerprint="a" * 64, dim=8, run=tmp_path / "no run")
    with pytest.raises(StoreError, match=r"cannot be loaded.*--run"):
        write_site(gone.folder, tmp_path / "site")


def test_a_store_on_another_machine_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    pytest.importorskip("upath")
    with pytest.raises(SettingsError, match="copy it here first"):
        write_site("s3://bucket/store", tmp_path / "site")


def test_a_store_of_foreign_vectors_is_refused(toys: object, toy_store: Path, tmp_path: Path) -> None:
    paths = sorted(StoreFiles.open(toy_store).entries())[:3]
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, images=np.eye(3, dtype=np.float32), image_names=np.array(paths))
    index_vectors(store_of_vectors("other", 3, tmp_path / "foreign"), read_vectors(vectors), workers=1)
    with pytest.raises(StoreError, match="no model that could read a query"):
        write_site(tmp_path / "foreign", tmp_path / "site")
