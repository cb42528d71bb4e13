"""A dataset in a store is what its pictures, their metadata and its sentences are, added one after the other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import limner
from limner.data.readers import open_dataset
from limner.data.records import Dataset, Record
from limner.errors import DataError, SettingsError, StoreError
from limner.search.index import index_pictures
from limner.search.index_dataset import index_dataset
from limner.search.sentences import Sentence, SentenceTable
from limner.store.contents import thumbnails
from limner.store.files import StoreFiles
from tests.search.fake import DIM, FakeEncoder, draw, vectors_of

CAPTIONS = (
    "file,caption,identity,split,labels,camera,note\n"
    "b/1.png,a red coat,7,train,coat;man,north,\n"
    "b/1.png,zx a man,7,train,coat;man,north,\n"
    'a/2.png,"blue, with a bag",8,val,,south,late\n'
    "a/3.png,,8,test,,south,\n"
)
"""The form of `folder:`; the third picture has no sentence."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    for seed, name in enumerate(("b/1.png", "a/2.png", "a/3.png")):
        draw(root / name, seed)
    (root / "captions.csv").write_text(CAPTIONS, encoding="utf-8")
    return root


def new_store(folder: Path, name: str = "store") -> StoreFiles:
    return StoreFiles.create(folder / name, fingerprint="a" * 64, dim=DIM, run="run")


def contents(store: StoreFiles) -> tuple[object, ...]:
    """Everything of a store but the time stamps of its commits, its vectors as bytes."""
    store = StoreFiles.open(store.folder)
    entries = store.entries()
    ids = sorted(entry.id for entry in entries.values())
    with store.rows.reading() as reading:
        rows = sorted(reading.sentences())
    return entries, vectors_of(store, ids).tobytes(), thumbnails(store, ids), rows


def test_it_is_pictures_then_metadata_then_sentences(folder: Path, tmp_path: Path) -> None:
    encoder, source = FakeEncoder(), f"folder:{folder}"
    whole = new_store(tmp_path)
    seen: list[tuple[str, int, int]] = []
    report = index_dataset(encoder, whole, open_dataset(source), progress=lambda *told: seen.append(told))
    assert (report.added, report.skipped, report.unused_metadata) == (3, (), ())
    assert report.sentences is not None
    assert (report.sentences.added, report.sentences.unknown) == (3, ())
    assert seen[-2:] == [("pictures", 3, 3), ("sentences", 3, 3)]

    parts = new_store(tmp_path, "parts")
    notes = tmp_path / "set" / "notes.jsonl"
    notes.write_text(
        '{"file": "b/1.png", "identity": 7, "camera": "north", "labels": ["coat", "man"], "split": "train"}\n'
        '{"file": "a/2.png", "identity": 8, "camera": "south", "note": "late", "split": "val"}\n'
        '{"file": "a/3.png", "identity": 8, "camera": "south", "split": "test"}\n',
        encoding="utf-8",
    )
    limner.index(encoder, parts, folder, metadata=notes)
    SentenceTable(parts).index(
        encoder,
        [
            Sentence("a red coat", str(folder / "b/1.png")),
            Sentence("zx a man", str(folder / "b/1.png")),
            Sentence("blue, with a bag", str(folder / "a/2.png")),
        ],
    )
    assert contents(whole) == contents(parts)


def test_it_goes_on_where_it_stopped_and_follows_the_file(folder: Path, tmp_path: Path) -> None:
    encoder, source, store = FakeEncoder(), f"folder:{folder}", new_store(tmp_path)
    # killed after a batch: pictures without sentences
    index_pictures(encoder, store, [folder / "b/1.png"])
    first = limner.index(encoder, store, data=source)
    assert (first.added, first.updated, first.unchanged) == (2, 1, 0)
    encoder.encoded = 0
    again = limner.index(encoder, store, data=source)
    assert (again.unchanged, encoder.encoded) == (3, 0)
    assert again.sentences is not None
    assert (again.sentences.unchanged, again.sentences.added) == (3, 0)
    (folder / "captions.csv").write_text(CAPTIONS.replace("a red coat", "a green coat"), encoding="utf-8")
    changed = limner.index(encoder, store, data=source).sentences
    assert changed is not None
    assert (changed.added, changed.removed) == (1, 1)


def test_one_split(folder: Path, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    calls: list[tuple[int, int]] = []
    report = limner.index(
        FakeEncoder(),
        store,
        data=open_dataset(f"folder:{folder}"),
        split="val",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert (report.added, calls) == (1, [(1, 1)])
    assert list(store.entries()) == [str(folder / "a/2.png")]
    with pytest.raises(DataError, match=r"no picture in split 'dev'; splits here: train \(1\)"):
        limner.index(FakeEncoder(), store, data=f"folder:{folder}", split="dev")


def test_a_bad_file_is_skipped_with_its_sentences_until_it_is_mended(folder: Path, tmp_path: Path) -> None:
    encoder, source, store = FakeEncoder(), f"folder:{folder}", new_store(tmp_path)
    (folder / "b/1.png").write_bytes(b"no picture")
    (folder / "a/2.png").unlink()
    report = limner.index(encoder, store, data=source)
    assert dict(report.skipped) == {
        str(folder / "b/1.png"): "not a picture (UnidentifiedImageError)",
        str(folder / "a/2.png"): "there is no such file",
    }
    assert (report.added, len(SentenceTable(store))) == (1, 0)
    draw(folder / "b/1.png", 1)
    assert limner.index(encoder, store, data=source).added == 1
    assert len(SentenceTable(store)) == 2
    for name in ("b/1.png", "a/3.png"):
        (folder / name).unlink()
    with pytest.raises(DataError, match=r"none of its 3 pictures can be read, e\.g\. .*no such file"):
        limner.index(encoder, store, data=source)
    # nothing that was indexed before is lost
    assert (len(store), len(SentenceTable(store))) == (2, 2)


def test_a_split_that_the_reader_drew_is_told_only_of_what_the_model_learnt(tmp_path: Path) -> None:
    root = tmp_path / "set"
    rows = [f"{number}.png,a coat {number}" for number in range(30)]
    for number in range(30):
        draw(root / f"{number}.png", number)
    (root / "captions.csv").write_text("\n".join(["file,caption", *rows]), encoding="utf-8")
    dataset = open_dataset(f"folder:{root}")
    assert set(dataset.split_counts) == {"train", "val", "test"}
    other, own = FakeEncoder(), FakeEncoder()
    own.description = {"data": {"train": dataset.split("train").fingerprint}}  # type: ignore[attr-defined]
    first, second = new_store(tmp_path), new_store(tmp_path, "second")
    index_dataset(other, first, dataset)
    index_dataset(own, second, dataset, split="val")
    assert [entry.metadata for entry in first.entries().values()] == [{}] * 30
    assert {str(entry.metadata) for entry in second.entries().values()} == {"{'split': 'val'}"}
    assert {entry.identity for entry in first.entries().values()} == {None}
    # of a folder that has grown since, named in another way
    own.description = {"data": {"train": "older", "source": f"folder:{root}/../set"}}  # type: ignore[attr-defined]
    grown = new_store(tmp_path, "grown")
    index_dataset(own, grown, dataset)
    assert {entry.metadata["split"] for entry in grown.entries().values()} == {"train", "val", "test"}
    drawn = open_dataset(f"folder:{root}#seed=5")
    index_dataset(other, first, drawn)
    assert [entry.metadata for entry in first.entries().values()] == [{}] * 30


def test_vectors_are_those_of_the_sentences(folder: Path, tmp_path: Path) -> None:
    encoder, store = FakeEncoder(), new_store(tmp_path)
    limner.index(encoder, store, data=f"folder:{folder}")
    [found] = SentenceTable(store).search(encoder.encode_texts(["a red coat"])[0], 1)
    assert (found.text, found.path) == ("a red coat", folder / "b/1.png")
    assert np.isclose(found.score, 1)


def test_what_excludes_each_other_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    encoder, store, source = FakeEncoder(), new_store(tmp_path), f"folder:{folder}"
    for arguments, message in (
        ({"images": folder, "data": source}, "not both"),
        ({}, "got neither"),
        ({"data": source, "metadata": {}}, "a dataset has its own"),
        ({"images": folder, "split": "val"}, "split goes with a dataset"),
    ):
        with pytest.raises(SettingsError, match=message) as refused:
            limner.index(encoder, store, **arguments)
        assert "\n" not in str(refused.value)
    with pytest.raises(DataError, match="unknown dataset format 'foldr'"):
        limner.index(encoder, store, data=f"foldr:{folder}")
    with pytest.raises(StoreError, match="built with model"):
        limner.index(FakeEncoder("b" * 64), store, data=source)
    with store.writing(), pytest.raises(StoreError, match="is being written"):
        limner.index(encoder, StoreFiles.open(store.folder), data=source)
    odd = Dataset("folder:x", "image", (Record(folder / "a/2.png", (), "a", metadata={"path": 1}),))
    with pytest.raises(DataError, match="'path' is the picture's own"):
        limner.index(encoder, store, data=odd)
    with pytest.raises(DataError, match="none of its 0 pictures"):
        limner.index(encoder, store, data=replace(odd, records=()))
    assert len(store) == 0
