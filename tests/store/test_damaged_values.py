"""A damaged row gives values of any type: each reader tells of it in one line, and a repair mends or lists it."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limner.errors import StoreError
from limner.search.engine import Engine
from limner.search.repair import repair
from limner.search.sentences import SentenceTable
from limner.search.store_export import export_store
from limner.search.store_info import store_info
from limner.store.backup import backup
from limner.store.contents import region_features, thumbnails
from limner.store.erase import erase
from limner.store.files import StoreFiles
from limner.store.verify import DAMAGE, verify
from tests.search.fake import FakeEncoder
from tests.store.test_damage import Encoder, copied, template

__all__ = ["template"]

VALUES: dict[str, str] = {
    "null": "NULL",
    "whole": "5",
    "below": "-1",
    "infinite": "9e999",
    "text": "'another'",
    "no text": "CAST(x'61ff' AS TEXT)",
    "bytes": "x'ff00'",
}
"""A value of each type that SQLite has, and some that trouble Python."""

COLUMNS: dict[str, str] = {
    "pictures": (
        "id path sha256 size mtime taken_read taken_told identity metadata number vector_sum"
        " thumbnail_digest regions_digest digest"
    ),
    "sentences": "id text path vector_sum digest vector",
    "vectors": "vector",
    "thumbnails": "jpeg",
    "regions": "features",
    "states": "name version rows total",
    "texts": "name text",
}


def plant(file: Path, table: str, column: str, value: str, which: str) -> bool:
    """Give one row a value as damage gives it: its column's type and what it must be count for nothing."""
    with sqlite3.connect(file) as database:
        (schema,) = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        loose = re.sub(r"(?<!number) (TEXT|INTEGER|BLOB)| NOT NULL", "", schema)
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, table))
    database.close()
    with sqlite3.connect(file) as database:
        key = "number" if "number INTEGER PRIMARY" in loose else loose.split("(")[1].split(" ")[0]
        try:
            database.execute(
                f"UPDATE {table} SET {column} = {value} WHERE {key} = (SELECT {which}({key}) FROM {table})"
            )
        except sqlite3.IntegrityError:
            # a key is not NULL without a schema, too
            return False
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (schema, table))
    database.close()
    return True


READERS: dict[str, Callable[[StoreFiles, list[str], Path], Any]] = {
    "snapshot": lambda files, ids, to: files.snapshot(),
    "entries": lambda files, ids, to: files.entries(),
    "entry": lambda files, ids, to: [files.entry(one) for one in ids],
    "thumbnails": lambda files, ids, to: thumbnails(files, ids),
    "regions": lambda files, ids, to: region_features(files, ids),
    "sentences": lambda files, ids, to: SentenceTable(files).describing(),
    "search": lambda files, ids, to: SentenceTable(files).search(np.ones(files.dim, np.float32), 3),
    "count": lambda files, ids, to: (len(files), len(SentenceTable(files))),
    "info": lambda files, ids, to: store_info(Engine(files, FakeEncoder())),
    "export": lambda files, ids, to: export_store(str(files.folder), to / "rows.parquet", "parquet"),
    "backup": lambda files, ids, to: backup(str(files.folder), to / "copy"),
    "delete": lambda files, ids, to: files.delete(ids),
    "erase": lambda files, ids, to: erase(files, ids[3:5]),
}
WRITERS = ("delete", "erase")
"""Those that change the store: each has a copy of its own."""


@pytest.fixture(scope="module")
def ids(template: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return copied(template, tmp_path_factory.mktemp("ids") / "store").snapshot().keys


CASES = [(table, one, "min") for table, columns in COLUMNS.items() for one in columns.split()]
# the description, and the id
CASES += [("texts", "name", "max"), ("texts", "text", "max")]


@pytest.mark.parametrize(("table", "column", "which"), CASES)
def test_a_value_of_any_type_is_told_in_one_line(
    template: Path, tmp_path: Path, ids: list[str], table: str, column: str, which: str
) -> None:
    for name, value in VALUES.items():
        folder = tmp_path / name
        shutil.copytree(template / "store", folder / "planted")
        if not plant(folder / "planted" / "store.sqlite", table, column, value, which):
            continue
        refused, content = [], (folder / "planted" / "store.sqlite").read_bytes()
        for reader, read in READERS.items():
            store = folder / "planted"
            if reader in WRITERS:
                store = shutil.copytree(store, folder / reader)
            if error := refusal(partial(read_all, read, store, ids, folder)):
                assert "\n" not in error, (name, reader)
                refused.append(reader)
        assert (folder / "planted" / "store.sqlite").read_bytes() == content, "reading changes nothing"
        check_mending(folder / "planted", name, refused)
        shutil.rmtree(folder)


def read_all(read: Callable[[StoreFiles, list[str], Path], Any], store: Path, *arguments: Any) -> None:
    read(StoreFiles.open(store), *arguments)


def refusal(call: Callable[[], object]) -> str | None:
    """The text of the `StoreError` that a call ends with."""
    try:
        call()
    except StoreError as error:
        return str(error)
    return None


def check_mending(store: Path, name: str, refused: list[str]) -> None:
    if error := refusal(lambda: StoreFiles.open(store)):
        assert "damaged" in error, name
        return
    files = StoreFiles.open(store)
    report = verify(files)
    report.model_dump_json()
    assert report.found.keys() <= DAMAGE.keys(), name
    assert report.sound or refused, name
    if error := refusal(lambda: repair(files, Encoder).model_dump_json()):
        assert "\n" not in error, name
        assert "file" in report.found, name
        return
    done = repair(files, Encoder, accept_loss=True)
    assert done.applied
    assert verify(files).sound or done.beside, (name, verify(files).found)


@pytest.mark.parametrize("value", [value for value in VALUES.values() if value != "NULL"])
def test_a_sentence_whose_key_is_damaged_goes_with_its_picture(
    template: Path, tmp_path: Path, value: str
) -> None:
    files = copied(template, tmp_path / "store")
    with files.rows.reading() as reading:
        first = min((row for row, _ in reading.sentences()), key=lambda row: row.id)
    assert isinstance(files.folder, Path)
    assert first.path is not None
    assert plant(files.folder / "store.sqlite", "sentences", "id", value, "min")
    files = StoreFiles.open(files.folder)
    assert files.delete([files.entries([first.path])[first.path].id]) == 1
    with files.rows.reading() as reading:
        assert first.path not in {row.path for row, _ in reading.sentences()}
