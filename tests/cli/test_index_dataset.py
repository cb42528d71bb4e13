"""`limner index --data`: a dataset in a store, as the commands for its parts would put it there."""

import json
from pathlib import Path

from limner.cli.index import Indexed
from limner.store.contents import thumbnails as thumbnails_of
from limner.store.files import StoreFiles
from tests.cli.command import Limner, refused
from tests.search.fake import vectors_of


def _contents(folder: Path) -> tuple[object, ...]:
    store = StoreFiles.open(folder)
    entries = store.entries()
    ids = sorted(entry.id for entry in entries.values())
    with store.rows.reading() as reading:
        sentences = sorted(reading.sentences())
    return entries, vectors_of(store, ids).tobytes(), thumbnails_of(store, ids), sentences


def test_it_is_the_same_as_by_parts(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    """Vectors to the bit; identities, metadata and sentences equal."""
    rows = [json.loads(line) for line in (pictures / "captions.jsonl").read_text("utf-8").splitlines()]
    notes = tmp_path / "notes.jsonl"
    facts = [
        {"file": str(pictures / row["file"]), "identity": row["identity"], "split": row["split"]}
        for row in rows
    ]
    notes.write_text("\n".join(map(json.dumps, facts)), encoding="utf-8")
    whole, parts, source = tmp_path / "whole", tmp_path / "parts", f"folder:{pictures}"
    made = limner("index", toy_run, whole, "--data", source, "--cpu")
    assert made.code == 0, made.err
    assert made.out == (
        f"{whole}: 36 pictures; 36 added, 0 updated, 0 unchanged, 0 skipped\n"
        "sentences: 72 added, 0 unchanged, 0 left out, 0 removed\n"
    )
    assert limner("index", toy_run, parts, pictures, "--metadata", notes, "--cpu").code == 0
    assert limner("index-sentences", toy_run, parts, source, "--cpu").code == 0
    assert _contents(whole) == _contents(parts)
    told = Indexed.model_validate_json(limner("index", toy_run, whole, "--data", source, "--json").out)
    assert told.sentences is not None
    assert (told.unchanged, told.sentences.unchanged, told.sentences.added) == (36, 72, 0)
    found = limner("search", whole, "a red square", "--where", "split=test", "--json").out
    assert json.loads(found)["matching"] == sum(row["split"] == "test" for row in rows)
    one = limner("index", toy_run, tmp_path / "one", "--data", source, "--split", "val")
    assert "7 pictures; 7 added" in one.out


def test_mistakes_are_one_line(limner: Limner, toy_run: Path, pictures: Path, tmp_path: Path) -> None:
    store, source = tmp_path / "store", f"folder:{pictures}"
    command = ("index", toy_run, store)
    refused(limner(*command), "expected pictures, or a dataset")
    refused(limner(*command, pictures, "--data", source), "not both")
    refused(limner(*command, "--data", source, "--metadata", "x.csv"), "a dataset has its own")
    refused(limner(*command, pictures, "--split", "val"), "split goes with a dataset")
    refused(limner(*command, "--data", f"foldr:{pictures}"), "did you mean 'folder'")
    refused(limner(*command, "--data", str(pictures)), "its files suggest folder:")
    refused(limner(*command, "--data", source, "--split", "dev"), "no picture in split 'dev'")
    refused(limner(*command, "--data", "folder:nowhere"), "no such folder")
    # refused before the store is made
    assert not store.exists()
