"""A search store: a folder with a LanceDB table of pictures, bound to one model.

    STORE/store.json       which model (see `limner.search.card`)
    STORE/pictures.lance   one row a picture: id, path, sha256, size, mtime, identity, metadata, vector
    STORE/.store.lock      held by the one that writes (see `limner.search.lock`)

Every change is one commit of the table: a reader sees all of a batch or nothing of it, and so does whoever
opens the store after the writer was killed. One process writes at a time, a second is refused; any number read.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from jaxtyping import Float

from limner.errors import DataError, SettingsError, StoreError
from limner.search.card import FILE, StoreCard, read_card, write_card
from limner.search.entry import FIELDS, Entry, schema
from limner.search.hits import Hit
from limner.search.lock import LOCK_FILE, WriterLock
from limner.search.snapshot import Snapshot, matrix_of

_TABLE = "pictures"
_LEFT_BEHIND = {f".{FILE}.partial", LOCK_FILE}  # by a create that was killed


class Store:
    """An open store; make one with `Store.create` or `Store.open`."""

    def __init__(self, folder: Path, card: StoreCard) -> None:
        self.folder = folder
        self.card = card
        self._lock = WriterLock(folder)
        # Without this a handle would not see what another process has added.
        self._database = lancedb.connect(folder, read_consistency_interval=timedelta(0))
        self._table: Any = None
        self._snapshot: Snapshot | None = None

    @classmethod
    def create(cls, folder: str | Path, *, fingerprint: str, dim: int, run: str | Path) -> "Store":
        """Make an empty store for the model of this fingerprint and width; `run` is kept as given.

        The folder may exist if it is empty. Raises `StoreError` for one that holds anything, and where it
        cannot be written.
        """
        folder = Path(folder)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        card = StoreCard.parse({"fingerprint": fingerprint, "dim": dim, "run": str(run), "created": created})
        try:
            folder.mkdir(parents=True, exist_ok=True)
            check_empty(folder)  # before the lock leaves a file in it
            with WriterLock(folder).held():
                check_empty(folder)
                write_card(folder, card)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written ({error.strerror})") from None
        return cls(folder, card)

    @classmethod
    def open(cls, folder: str | Path) -> "Store":
        """Open a store. Raises `StoreError` for a folder that is missing, no store, or damaged."""
        store = cls(Path(folder), read_card(Path(folder)))
        store._opened()
        return store

    @property
    def fingerprint(self) -> str:
        """Digest of the model whose embeddings are stored."""
        return self.card.fingerprint

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        return self.card.dim

    def check_model(self, fingerprint: str, dim: int) -> None:
        """Raise `StoreError` unless the store was built with this model."""
        if fingerprint != self.fingerprint:
            raise StoreError(
                f"{self.folder}: built with model {self.fingerprint[:12]} (run {self.card.run}), this is "
                f"model {fingerprint[:12]}; use that run, or index again with this one into a new folder"
            )
        if dim != self.dim:
            raise StoreError(f"{self.folder}: holds vectors of width {self.dim}, the model gives {dim}")

    def writing(self) -> AbstractContextManager[None]:
        """Hold the store for several changes; each takes it for itself otherwise, and inside it again.

        Raises `StoreError`, without waiting, while another handle or process writes.
        """
        return self._lock.held()

    def add(self, entries: Sequence[Entry], vectors: Float[np.ndarray, "images width"]) -> None:
        """Add pictures, or replace those of the same path, in one commit.

        Raises `StoreError` for another width, while another process writes and where the disk refuses, `DataError`
        for NaN, a path given twice or metadata that JSON cannot hold; the store is then as it was.
        """
        rows = [entry.to_row() for entry in entries]
        if not rows:
            return
        if len({row["id"] for row in rows}) != len(rows):
            raise DataError("a picture was given twice in one batch")
        if vectors.shape != (len(rows), self.dim):
            raise StoreError(
                f"{self.folder}: expected {len(rows)} vectors of width {self.dim}, got shape {vectors.shape}"
            )
        if not np.isfinite(vectors).all():
            raise DataError("embeddings hold NaN or infinite values; the model has diverged")
        columns = schema(self.dim)
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        table = pa.Table.from_pylist(rows, schema=columns.remove(columns.get_field_index("vector")))
        table = table.append_column(
            columns.field("vector"), pa.FixedSizeListArray.from_arrays(flat, self.dim)
        )
        with self.writing(), self._refusals():
            if self._opened() is None:
                self._table = self._database.create_table(_TABLE, schema=columns, exist_ok=True)
            merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(table)

    def entries(self) -> dict[str, Entry]:
        """What is stored, by absolute path, without the vectors."""
        table = self._opened()
        if table is None:
            return {}
        rows = table.search().select(list(FIELDS)).to_arrow().to_pylist()
        return {row["path"]: Entry.from_row(row) for row in rows}

    def vectors(self, entries: Sequence[Entry]) -> Float[np.ndarray, "images dim"]:
        """Stored vectors of the given pictures, in order. Raises `StoreError` for one that is not there."""
        table = self._opened()
        rows: dict[str, Any] = {}
        if table is not None and entries:
            wanted = ", ".join(f"'{entry.id}'" for entry in entries)
            found = table.search().where(f"id IN ({wanted})").select(["id", "vector"]).to_arrow()
            rows = dict(zip(found["id"].to_pylist(), matrix_of(found["vector"], self.dim), strict=True))
        missing = [entry.path for entry in entries if entry.id not in rows]
        if missing:
            raise StoreError(f"{self.folder}: does not hold {missing[0]}")
        return (
            np.stack([rows[entry.id] for entry in entries])
            if entries
            else np.empty((0, self.dim), np.float32)
        )

    def search(self, query: Float[np.ndarray, " width"], k: int = 10) -> list[Hit]:
        """The k nearest pictures to a query vector of the store's model, best first; exact.

        Scores are dot products; equal ones are ordered by path. Fewer than k where the store holds fewer.
        Raises `StoreError` for another width, `DataError` for NaN, `SettingsError` for k below 1.
        """
        if k < 1:
            raise SettingsError(f"k: expected at least 1, got {k}")
        if query.shape != (self.dim,):
            raise StoreError(
                f"{self.folder}: expected a query of width {self.dim} from model {self.fingerprint[:12]}, "
                f"got shape {query.shape}; encode it with run {self.card.run}"
            )
        if not np.isfinite(query).all():
            raise DataError("the query's embedding holds NaN or infinite values")
        return self.snapshot().search(np.ascontiguousarray(query, dtype=np.float32), k)

    def snapshot(self) -> Snapshot:
        """The rows in memory, read again only when the table has changed since."""
        table = self._opened()
        # Asked before reading: a commit in between then only means one reading too many.
        version = table.version if table is not None else 0
        if self._snapshot is None or self._snapshot.version != version:
            rows = table.to_arrow() if table is not None else schema(self.dim).empty_table()
            self._snapshot = Snapshot.of(rows, version, self.dim)
        return self._snapshot

    def compact(self) -> None:
        """Join the small files that many commits leave; readers are not disturbed.

        Raises `StoreError` while another process writes and where the disk refuses.
        """
        with self.writing(), self._refusals():
            if (table := self._opened()) is not None:
                table.optimize()

    def __len__(self) -> int:
        table = self._opened()
        return 0 if table is None else int(table.count_rows())

    def _opened(self) -> Any:
        """The table, or None as long as nothing has been added."""
        if self._table is None and (self.folder / f"{_TABLE}.lance" / "_versions").is_dir():
            try:
                table = self._database.open_table(_TABLE)
                matches = table.schema.equals(schema(self.dim))
            except Exception as error:  # lancedb raises what its Rust side happens to call it
                raise StoreError(
                    f"{self.folder}: its table is damaged ({_reason(error)}); index into a new folder"
                ) from None
            if not matches:
                raise StoreError(f"{self.folder}: its table has other columns than {FILE} says; index anew")
            self._table = table
        return self._table

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """What lancedb makes of a disk that is full or may not be written, as `StoreError`."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise StoreError(f"{self.folder}: cannot be written ({_reason(error)})") from None


def check_empty(folder: Path) -> None:
    """Raise `StoreError` for a folder that holds anything but what the making of a store leaves when it is killed."""
    others = {path.name for path in folder.iterdir()} - _LEFT_BEHIND
    if others:
        raise StoreError(f"{folder}: not empty (holds {min(others)!a}); choose a new folder for the store")


def _reason(error: Exception) -> str:
    """The system's words of a message of lancedb's, where it has them, else the beginning of it."""
    said = re.search(r"([^:]+) \(os error \d+\)", str(error))
    return said[1].strip() if said else str(error).splitlines()[0][:120]
