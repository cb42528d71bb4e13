"""The rows of a store in tables of LanceDB, the engine of a store on an object storage (`limner[lance]`).

    STORE/store.json        texts, and of each table the version that counts, its rows and the sum of their digests
    STORE/pictures.lance    facts of images
    STORE/contents.lance    vectors, thumbnails and region features, by number
    STORE/sentences.lance   sentences with their vectors

A commit of LanceDB's changes one table. So a change is what `store.json` says of all three, and that is put as a whole:
a reader gets it in one request and reads the versions that it names, whatever is written meanwhile. What a writer that
was killed has left is in versions that it does not name, and the next writer restores the named ones. An object storage
has checksums of its own; digests of rows find what they do not.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from limner.errors import StoreError
from limner.store.digests import row_digest, total_of, total_without, vector_sums
from limner.store.entry import PictureRow, StoredImage, further_paths
from limner.store.lance_head import Head, Kept, put_head, read_head
from limner.store.lance_tables import (
    AT_ONCE,
    KEYS,
    conditions,
    connected,
    expect_rows,
    join_files,
    matrix_of,
    pays,
    scan,
    taken_over,
    to_arrow,
    told,
    twice,
    values_of,
    write_anew,
)
from limner.store.path import StorePath
from limner.store.rows import (
    MomentGoneError,
    Picture,
    SentenceRow,
    State,
    contents_of,
    picture_row,
    same_contents,
)
from limner.store.sound import damaged

_MANY = 4  # if one row in four or more is wanted, all are read from first to last


class _Own(threading.local):
    """The reading of a thread."""

    reading: "LanceReading | None" = None


class LanceRows:
    """Rows in LanceDB's tables of a folder; see `limner.store.rows.Rows`."""

    def __init__(self, folder: StorePath) -> None:
        self.folder = folder
        self.database = connected(folder)
        self._own = _Own()
        self._opened: dict[str, tuple[tuple[str, int], Any]] = {}

    @classmethod
    def create(cls, folder: StorePath, texts: dict[str, str]) -> "LanceRows":
        """Make a store without rows: its description alone, in one request. Raises `StoreError`."""
        rows = cls(folder)
        put_head(folder, Head(texts, {name: Kept() for name in KEYS}), new=True)
        return rows

    @classmethod
    def open(cls, folder: StorePath) -> "LanceRows":
        """Open the rows of a store. Raises `StoreError` if it is not there or was made by an earlier limner."""
        rows = cls(folder)
        rows.head()
        return rows

    def head(self, *, tagged: bool = False) -> Head:
        """The state of the store now, or of the moment that this thread reads; `tagged` to put another."""
        if self._own.reading is not None and not tagged:
            return self._own.reading.head
        return read_head(self.folder, tagged=tagged)

    def identity(self) -> tuple[object, ...]:
        """See `Rows.identity`; one request."""
        head = self.head()
        return head.texts.get("id"), *(head.tables[name] for name in ("pictures", "sentences"))

    def text(self, name: str) -> str | None:
        """See `Rows.text`."""
        return self.head().texts.get(name)

    def set_text(self, name: str, text: str | None) -> None:
        """See `Rows.set_text`."""
        head = self.head(tagged=True)
        others = {key: value for key, value in head.texts.items() if key != name}
        put_head(self.folder, head._replace(texts=others if text is None else {**others, name: text}))

    @contextmanager
    def reading(self) -> Iterator["LanceReading"]:
        """See `Rows.reading`."""
        # one within another reads the same moment
        before = self._own.reading
        self._own.reading = reading = before or LanceReading(self, self.head())
        try:
            yield reading
        finally:
            self._own.reading = before

    def at(self, head: Head, name: str) -> Any:
        """LanceDB's handle of a table at the version that a state names; None before its first rows."""
        version = head.tables[name].version
        if not version:
            return None
        key = (head.texts.get("id", ""), version)
        held = self._opened.get(name)
        if held is None or held[0] != key:
            # a handle of its own for each version: other threads may still read the one before
            table = self.database.open_table(name)
            table.checkout(version)
            self._opened[name] = held = (key, table)
        return held[1]

    def begin(self) -> "LanceWriting":
        """See `Rows.begin`."""
        return LanceWriting(self)

    def scrub(self) -> None:
        """Write tables anew of which rows have been deleted, and remove the files of all earlier versions.

        Whoever still reads an earlier version gets `MomentGoneError`.
        """
        with told(self.folder, "written"):
            head = self.head(tagged=True)
            tables = {name: self.settled(name, kept) for name, kept in head.tables.items() if kept.version}
            for name, table in tables.items():
                if head.tables[name].deleted:
                    write_anew(table)
                join_files(table, name)
            self._name(head, tables, deleted=False)
            # not before the new versions are named: a kill leaves a store that can be read
            for table in tables.values():
                version = table.version
                table.optimize(cleanup_older_than=AT_ONCE, delete_unverified=True)
                if table.version != version:
                    raise taken_over(self.folder)

    def tidy(self, tables: dict[str, Any]) -> None:
        """Join the small files of tables where that pays; versions of the last day stay for those who read them."""
        if many := {name: table for name, table in tables.items() if pays(table.stats())}:
            head = self.head(tagged=True)
            for name, table in many.items():
                join_files(table, name)
            self._name(head, many)

    def _name(self, head: Head, tables: dict[str, Any], **changes: bool) -> None:
        """Name the versions that tables of the same rows have now."""
        named = dict(head.tables)
        for name, table in tables.items():
            expect_rows(self.folder, table, named[name].rows)
            named[name] = named[name]._replace(version=int(table.version), **changes)
        put_head(self.folder, head._replace(tables=named))

    def settled(self, name: str, kept: Kept) -> Any:
        """A table for writing, of the rows that a state names; None before the first."""
        if not kept.version:
            return None
        with told(self.folder):
            table = self.database.open_table(name)
            if int(table.version) != kept.version:
                # of a writer that was killed, or has abandoned its change
                table.checkout(kept.version)
                table.restore()
        return table

    def faults(self) -> list[str]:
        """See `Rows.faults`: what is to be read and cannot be."""
        found = []
        with self.reading() as reading:
            for name, kept in reading.head.tables.items():
                try:
                    count = sum(len(batch) for batch in reading.scan(name))
                    found += [f"{name}: {count} rows, not {kept.rows}"] if count != kept.rows else []
                except StoreError as error:
                    found.append(f"{name}: {error}")
        return found

    def copy(self, folder: Path) -> None:
        """See `Rows.copy`. Raises `StoreError`: the tools of a storage copy all of its objects as they are."""
        raise StoreError(f"{self.folder}: copy it with the tools of the storage, while nobody writes")

    def changed_at(self) -> float | None:
        """See `Rows.changed_at`."""
        return self.head().changed

    def close(self) -> None:
        """See `Rows.close`."""
        self._opened.clear()


class LanceReading:
    """All rows at one moment, see `limner.store.rows.Reading`."""

    def __init__(self, rows: LanceRows, head: Head) -> None:
        self._rows, self.head = rows, head

    def state(self, table: str) -> State:
        """See `Reading.state`."""
        kept = self.head.tables[table]
        return State(kept.commits, kept.rows, kept.total)

    def pictures(self, ids: Sequence[str] | None = None) -> Iterator[PictureRow]:
        """See `Reading.pictures`."""
        for batch in self.scan("pictures", PictureRow._fields, ids):
            yield from map(PictureRow._make, values_of(batch))

    def pictures_like(self, paths: Sequence[str], sizes: Sequence[int]) -> Iterator[PictureRow]:
        """See `Reading.pictures_like`: all, since each condition is a request of its own."""
        return self.pictures()

    def digests(self) -> dict[Any, Any]:
        """See `Reading.digests`."""
        return {
            key: digest
            for batch in self.scan("pictures", ("id", "digest"))
            for key, digest in values_of(batch)
        }

    def sentences(self) -> Iterator[tuple[SentenceRow, bytes]]:
        """See `Reading.sentences`."""
        for batch in self.scan("sentences"):
            rows = values_of(batch.select(SentenceRow._fields))
            yield from zip(
                map(SentenceRow._make, rows), (row.tobytes() for row in matrix_of(batch)), strict=True
            )

    def vectors(
        self, numbers: Int[np.ndarray, " some"]
    ) -> Iterator[tuple[Int[np.ndarray, " block"], list[bytes]]]:
        """See `Reading.vectors`."""
        if not (left := len(numbers)):
            return
        order = np.argsort(numbers)
        ascending = numbers[order]
        few = _MANY * left < self.head.tables["contents"].rows
        for batch in self.scan("contents", ("number", "vector"), ascending.tolist() if few else None):
            read = batch.column("number").to_numpy()
            places = np.minimum(np.searchsorted(ascending, read), len(ascending) - 1)
            wanted = ascending[places] == read
            left -= int(wanted.sum())
            yield order[places[wanted]], [row.tobytes() for row in matrix_of(batch)[wanted]]
        if left:
            raise damaged(self._rows.folder, f"{left} of its vectors are gone")

    def thumbnails(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.thumbnails`."""
        return self._contents("thumbnail", numbers)

    def regions(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.regions`."""
        return self._contents("regions", numbers)

    def _contents(self, column: str, numbers: Sequence[int]) -> dict[int, bytes]:
        found = (values_of(batch) for batch in self.scan("contents", ("number", column), numbers))
        return {number: content for rows in found for number, content in rows if content is not None}

    def scan(
        self, name: str, columns: Sequence[str] | None = None, keys: Sequence[Any] | None = None
    ) -> Iterator[Any]:
        """Batches of a table's rows: of all, or of some keys."""
        try:
            with told(self._rows.folder):
                table = self._rows.at(self.head, name)
                if table is not None:
                    yield from scan(table, columns, KEYS[name], keys)
        except StoreError as error:
            # `scrub` of another process has removed what this state names
            if error.trouble == "damaged" and self._rows.head(tagged=True).tables != self.head.tables:
                raise MomentGoneError(
                    f"{self._rows.folder}: was written anew while it was read; try again"
                ) from None
            raise


class LanceWriting:
    """One change, see `limner.store.rows.Writing`.

    Rows that are added wait in memory until something else is asked for or the change ends: each of LanceDB's commits
    takes several requests, and leaves a file that every reader opens.
    """

    def __init__(self, rows: LanceRows) -> None:
        self._rows = rows
        self.abandon()

    def abandon(self) -> None:
        """See `Writing.abandon`; what is in the tables has no name."""
        self._head: Head | None = None
        self._kept: dict[str, Kept] = {}
        self._tables: dict[str, Any] = {}
        self._touched: set[str] = set()
        self._number = 0
        self._waiting: dict[str, tuple[PictureRow, tuple[bytes, bytes | None, bytes | None]]] = {}
        self.pending = 0

    def close(self) -> None:
        """End the change; what was not committed is abandoned."""
        self.abandon()

    def add(self, pictures: Sequence[Picture]) -> None:
        """See `Writing.add`."""
        ids = [picture.image.id for picture in pictures]
        if len(set(ids)) < len(ids):
            raise twice()
        # the later one counts
        with self._changing(flushed=not self._waiting.keys().isdisjoint(ids)):
            sums = vector_sums(np.stack([one.vector for one in pictures])) if pictures else []
            for picture, vector_sum in zip(pictures, sums, strict=True):
                self._number += 1
                content = contents_of(picture)
                row = picture_row(picture.image, self._number, vector_sum, content[1:])
                self._waiting[row.id] = row, content
                self.pending += sum(len(part or b"") for part in content)

    def update(self, images: Sequence[StoredImage]) -> None:
        """See `Writing.update`."""
        with self._changing():
            ids = [image.id for image in images]
            found = self._found("pictures", ids, PictureRow._fields)
            before = {row.id: row for row in map(PictureRow._make, found)}
            if gone := set(ids) - before.keys():
                raise damaged(self._rows.folder, f"the row of {min(gone)} is gone")
            for row in before.values():
                # it must not get a digest that says that it is sound
                if row.digest != row_digest(row[:-1]):
                    raise damaged(self._rows.folder, f"the row of {row.id} is damaged")
            self._remove("pictures", ids, [row.digest for row in before.values()])
            self._append("pictures", [same_contents(image, before[image.id]) for image in images])

    def delete(self, ids: Sequence[Any]) -> int:
        """See `Writing.delete`."""
        with self._changing():
            found = list(self._found("pictures", ids, ["path", "others"]))
            # also the sentences of a picture whose row is no longer there cannot be told whose they are
            self.delete_sentences(
                paths=[one for path, others in found for one in (path, *further_paths(others))]
            )
            return self._delete(ids)

    def add_sentences(
        self, sentences: Sequence[tuple[str, str, str | None]], vectors: Float[np.ndarray, "sentences dim"]
    ) -> None:
        """See `Writing.add_sentences`."""
        ids = [key for key, *_ in sentences]
        with self._changing():
            if len(set(ids)) < len(ids) or list(self._found("sentences", ids, ["id"])):
                raise twice()
            sums = vector_sums(vectors)
            rows = [(*one, vector_sum) for one, vector_sum in zip(sentences, sums, strict=True)]
            contents = [vector.tobytes() for vector in np.asarray(vectors, "<f4")]
            self._append(
                "sentences",
                [(*row, row_digest(row), content) for row, content in zip(rows, contents, strict=True)],
            )

    def delete_sentences(self, ids: Sequence[Any] = (), paths: Sequence[str] = ()) -> int:
        """See `Writing.delete_sentences`."""
        with self._changing():
            by_id = self._found("sentences", ids, ["id", "digest"])
            by_path = self._found("sentences", paths, ["id", "digest"], "path")
            found = dict([*by_id, *by_path])
            self._remove("sentences", list(found), list(found.values()))
            return len(found)

    def recount(self) -> None:
        """See `Writing.recount`."""
        with self._changing():
            for name in ("pictures", "sentences"):
                if (table := self._table(name)) is not None:
                    digests = [one for batch in scan(table, ["digest"]) for (one,) in values_of(batch)]
                    self._kept[name] = self._kept[name]._replace(rows=len(digests), total=total_of(digests))
                    self._touched.add(name)

    def commit(self) -> None:
        """See `Writing.commit`. Raises `StoreError` if another process has written meanwhile."""
        with self._changing():
            if not self._touched:
                return
            now = self._rows.head(tagged=True)
            if self._head is None or now.tables != self._head.tables:
                raise taken_over(self._rows.folder)
            for name in self._touched:
                kept, table = self._kept[name], self._tables[name]
                expect_rows(self._rows.folder, table, kept.rows)
                self._kept[name] = kept._replace(version=int(table.version), commits=kept.commits + 1)
            tables, changed = dict(self._kept), time.time()
            put_head(self._rows.folder, now._replace(tables=tables, number=self._number, changed=changed))
            touched = {name: self._tables[name] for name in self._touched}
            self.abandon()
            self._rows.tidy(touched)

    @contextmanager
    def _changing(self, *, flushed: bool = True) -> Iterator[None]:
        with told(self._rows.folder, "written"):
            if self._head is None:
                self._head = head = self._rows.head(tagged=True)
                self._kept, self._number = dict(head.tables), head.number
            if flushed:
                self._flush()
            yield

    def _flush(self) -> None:
        if waiting := self._waiting:
            self._waiting, self.pending = {}, 0
            self._delete(list(waiting))
            self._append("pictures", [row for row, _ in waiting.values()])
            self._append("contents", [(row.number, *content) for row, content in waiting.values()])

    def _delete(self, ids: Sequence[Any]) -> int:
        """Remove images with their bytes."""
        found = list(self._found("pictures", ids, ["id", "number", "digest"]))
        self._remove("pictures", [key for key, _, _ in found], [digest for *_, digest in found])
        self._remove("contents", [number for _, number, _ in found], [])
        return len(found)

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = self._rows.settled(name, self._kept[name])
        return self._tables[name]

    def _found(
        self, name: str, keys: Sequence[Any], columns: Sequence[str], by: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        table = self._table(name) if keys else None
        if table is not None:
            for batch in scan(table, columns, by or KEYS[name], keys):
                yield from values_of(batch)

    def _remove(self, name: str, keys: Sequence[Any], digests: Sequence[bytes]) -> None:
        for condition in conditions(KEYS[name], keys):
            self._table(name).delete(condition)
        if keys:
            kept = self._kept[name]
            total = total_without(digests, kept.total)
            self._kept[name] = kept._replace(rows=kept.rows - len(keys), total=total, deleted=True)
            self._touched.add(name)

    def _append(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        content = to_arrow(name, rows)
        if (table := self._table(name)) is None:
            create = self._rows.database.create_table
            try:
                self._tables[name] = create(name, content)
            except ValueError:
                # a writer that was killed has made it
                self._tables[name] = create(name, content, mode="overwrite")
        else:
            table.add(content)
        kept = self._kept[name]
        # contents have none: their pictures' rows hold it
        digests = content["digest"].to_pylist() if "digest" in content.column_names else []
        self._kept[name] = kept._replace(rows=kept.rows + len(rows), total=total_of(digests, kept.total))
        self._touched.add(name)
