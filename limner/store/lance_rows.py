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

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from limner.errors import DataError, LimnerError, SettingsError, StoreError, install_hint
from limner.sealed_json import opened, sealed
from limner.store.digests import row_digest, total_of, total_without, vector_sums
from limner.store.entry import StoredImage
from limner.store.path import StorePath, cause_of, endpoint, reached, read_text
from limner.store.rows import Picture, PictureRow, SentenceRow, State, contents_of, picture_row, same_contents

FILE = "store.json"
"""Name of the object that makes a folder a store."""

CACHED = 32 * 2**20
"""Bytes of LanceDB's metadata that are kept in memory. A commit leaves 26 KB there, and LanceDB's own limit is 1 GB."""

_KEYS = {"pictures": "id", "contents": "number", "sentences": "id"}
"""The tables, and the column that each is looked up by."""

_KEPT = timedelta(days=1)
"""Age of versions that compacting releases: whoever reads one has ended long before."""
_AT_ONCE = timedelta(microseconds=1)  # LanceDB warns of 0, which is what `scrub` is there for

_BLOCK = 8192  # vectors that are read at once
_LARGE = 256  # region features, of 200 KB each, that are read at once
_LOOKED_UP = 4096  # keys in one condition
_MANY = 4  # if one row in four or more is wanted, all are read from first to last
_FILES = 64  # files beside the square root of the rows from which joining them pays for readers
_NEWS = 8  # files below which nothing is joined
_LARGEST = 2**20  # rows from which LanceDB leaves a file as it is


class Kept(NamedTuple):
    """What `store.json` says of a table; `deleted`: files hold rows that have been deleted since the last `scrub`."""

    version: int = 0
    commits: int = 0
    rows: int = 0
    total: int = 0
    deleted: bool = False


class Head(NamedTuple):
    """The content of `store.json`. `number`: the last that a row was given; `tag`: the storage's name of this content."""

    texts: dict[str, str]
    tables: dict[str, Kept]
    number: int = 0
    changed: float | None = None
    tag: str | None = None


class LanceRows:
    """Rows in LanceDB's tables of a folder; see `limner.store.rows.Rows`."""

    def __init__(self, folder: StorePath) -> None:
        self.folder = folder
        library = lancedb()
        # of its own: what readers and writers of this store keep in memory
        session = library.Session(index_cache_size_bytes=CACHED, metadata_cache_size_bytes=CACHED)
        self.database = library.connect(str(folder), storage_options=storage_options(folder), session=session)
        self._own = threading.local()
        self._opened: dict[str, tuple[tuple[str, int], Any]] = {}

    @classmethod
    def create(cls, folder: StorePath, texts: dict[str, str]) -> "LanceRows":
        """Make a store without rows: its description alone, in one request. Raises `StoreError`."""
        rows = cls(folder)
        rows.put(Head(texts, {name: Kept() for name in _KEYS}), new=True)
        return rows

    @classmethod
    def open(cls, folder: StorePath) -> "LanceRows":
        """Open the rows of a store. Raises `StoreError` if it is not there or was made by an earlier limner."""
        rows = cls(folder)
        rows.head()
        return rows

    def head(self, *, tagged: bool = False) -> Head:
        """The state of the store now, or of the moment that this thread reads; `tagged` for whoever puts another."""
        if (reading := self._reading) is not None and not tagged:
            return reading.head
        path: Any = self.folder / FILE
        with _told(self.folder):
            # the tag first: if the content changes before it is read, the put on the condition of this tag fails
            remote = tagged and not isinstance(path, Path)
            tag = path.fs.info(path.path, refresh=True).get("ETag") if remote else None
            text = read_text(path)
        try:
            values = json.loads(text)
            if isinstance(values, dict) and "texts" not in values:
                raise StoreError(f"{self.folder}: a store of an earlier limner; index into a new folder")
            values = opened(values)
            tables = {name: Kept(*values["tables"][name]) for name in _KEYS}
            return Head(values["texts"], tables, values["number"], values["changed"], tag)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise _damaged(self.folder, f"{FILE} has changed since it was written") from None

    def put(self, head: Head, *, new: bool = False) -> None:
        """Write the state, unless another process has done so since it was read."""
        path: Any = self.folder / FILE
        text = sealed({name: value for name, value in head._asdict().items() if name != "tag"})
        with _told(self.folder, "written"):
            if isinstance(path, Path):
                partial = path.with_name(f".{FILE}.partial")
                partial.write_text(text)
                partial.replace(path)
                return
            condition = {"mode": "create"} if new else {} if head.tag is None else {"IfMatch": head.tag}
            try:
                path.fs.pipe_file(path.path, text.encode(), **condition)
            except OSError:
                # what a storage says of a condition that is not met differs
                if new or head.tag == path.fs.info(path.path, refresh=True).get("ETag"):
                    raise
                raise _taken_over(self.folder) from None

    @property
    def _reading(self) -> "LanceReading | None":
        return getattr(self._own, "reading", None)

    def identity(self) -> tuple[object, ...]:
        """See `Rows.identity`; one request."""
        head = self.head()
        return head.texts.get("id"), *(head.tables[name].commits for name in ("pictures", "sentences"))

    def text(self, name: str) -> str | None:
        """See `Rows.text`."""
        return self.head().texts.get(name)

    def set_text(self, name: str, text: str | None) -> None:
        """See `Rows.set_text`."""
        head = self.head(tagged=True)
        others = {key: value for key, value in head.texts.items() if key != name}
        self.put(head._replace(texts=others if text is None else {**others, name: text}))

    @contextmanager
    def reading(self) -> Iterator["LanceReading"]:
        """See `Rows.reading`."""
        if (held := self._reading) is not None:
            # one within another reads the same moment
            yield held
            return
        self._own.reading = reading = LanceReading(self, self.head())
        try:
            yield reading
        finally:
            self._own.reading = None

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

        LanceDB keeps deleted rows of a file as long as they are few, and their keys in the file of the transaction.
        Whoever still reads an earlier version gets an error that says to try again.
        """
        import pyarrow as pa  # an extra

        with _told(self.folder, "written"):
            head = self.head(tagged=True)
            tables = {name: settled(self, name, kept) for name, kept in head.tables.items()}
            there = {name: table for name, table in tables.items() if table is not None}
            for name, table in there.items():
                if head.tables[name].deleted:
                    batches = table.search().to_batches(batch_size=_LARGE)
                    table.add(pa.RecordBatchReader.from_batches(table.schema, batches), mode="overwrite")
                _tidy(table, name)
            head = self._named(head, there, deleted=False)
            # not before the new versions are named: a kill leaves a store that can be read
            for table in there.values():
                table.optimize(cleanup_older_than=_AT_ONCE, delete_unverified=True)
            if any(int(table.version) != head.tables[name].version for name, table in there.items()):
                raise _taken_over(self.folder)

    def tidy(self, tables: dict[str, Any]) -> None:
        """Join the small files of tables where that pays; versions of the last day stay for those who read them."""
        many = {name: table for name, table in tables.items() if _pays(table.stats())}
        if many:
            head = self.head(tagged=True)
            for name, table in many.items():
                _tidy(table, name)
            self._named(head, many)

    def _named(self, head: Head, tables: dict[str, Any], **changes: bool) -> Head:
        """Name the versions that tables with the same rows have now."""
        for name, table in tables.items():
            expect_rows(self.folder, table, head.tables[name])
        now = {
            name: head.tables[name]._replace(version=int(table.version), **changes)
            for name, table in tables.items()
        }
        head = head._replace(tables={**head.tables, **now})
        self.put(head)
        return head

    def faults(self) -> list[str]:
        """See `Rows.faults`: what is to be read and cannot be."""
        found = []
        for name, key in _KEYS.items():
            try:
                with self.reading() as reading:
                    count = sum(len(batch) for batch in reading.scan(name))
                    if count != reading.head.tables[name].rows:
                        found.append(f"{name}: {count} rows, and the last commit left another number")
            except StoreError as error:
                found.append(f"{name} by {key}: {error}")
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
            yield from map(PictureRow._make, _values(batch))

    def sentences(self) -> Iterator[tuple[SentenceRow, bytes]]:
        """See `Reading.sentences`."""
        for batch in self.scan("sentences"):
            rows = _values(batch.select(SentenceRow._fields))
            yield from zip(map(SentenceRow._make, rows), (row.tobytes() for row in _matrix(batch)), strict=True)

    def vectors(
        self, numbers: Int[np.ndarray, " some"]
    ) -> Iterator[tuple[Int[np.ndarray, " block"], list[bytes]]]:
        """See `Reading.vectors`."""
        order = np.argsort(numbers)
        ascending = numbers[order]
        every = _MANY * len(numbers) >= self.head.tables["contents"].rows
        left = len(numbers)
        for batch in self.scan("contents", ("number", "vector"), None if every else ascending.tolist()):
            read = batch.column("number").to_numpy()
            places = np.minimum(np.searchsorted(ascending, read), len(ascending) - 1)
            wanted = ascending[places] == read if left else np.zeros(len(read), bool)
            left -= int(wanted.sum())
            yield order[places[wanted]], [row.tobytes() for row in _matrix(batch)[wanted]]
        if left:
            raise _damaged(self._rows.folder, f"{left} of its vectors are gone")

    def thumbnails(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.thumbnails`."""
        return self._contents("thumbnail", numbers)

    def regions(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """See `Reading.regions`."""
        return self._contents("regions", numbers)

    def _contents(self, column: str, numbers: Sequence[int]) -> dict[int, bytes]:
        found = (_values(batch) for batch in self.scan("contents", ("number", column), numbers))
        return {number: content for rows in found for number, content in rows if content is not None}

    def scan(
        self, name: str, columns: Sequence[str] | None = None, keys: Sequence[Any] | None = None
    ) -> Iterator[Any]:
        """Batches of a table's rows: of all, or of some keys."""
        try:
            with _told(self._rows.folder):
                table = self._rows.at(self.head, name)
                if table is not None:
                    yield from _scan(table, columns, _KEYS[name], keys)
        except StoreError as error:
            # `scrub` of another process has removed what this state names
            if error.trouble == "damaged" and self._rows.head(tagged=True).tables != self.head.tables:
                raise StoreError(
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
        """See `Writing.abandon`; what is in the tables nobody names."""
        self._head: Head | None = None
        self._kept: dict[str, Kept] = {}
        self._tables: dict[str, Any] = {}
        self._touched: set[str] = set()
        self._number = 0
        self._forget_pending()

    def _forget_pending(self) -> None:
        self._pictures: dict[str, tuple[PictureRow, tuple[bytes, bytes | None, bytes | None]]] = {}
        self._sentences: dict[str, tuple[SentenceRow, bytes]] = {}
        self.pending = 0

    def close(self) -> None:
        """End the change; what was not committed is abandoned."""
        self.abandon()

    def add(self, pictures: Sequence[Picture]) -> None:
        """See `Writing.add`."""
        ids = [picture.image.id for picture in pictures]
        if len(set(ids)) < len(ids):
            raise _twice()
        # the later one counts
        with self._changing(flushed=not self._pictures.keys().isdisjoint(ids)):
            sums = vector_sums(np.stack([one.vector for one in pictures])) if pictures else []
            for picture, vector_sum in zip(pictures, sums, strict=True):
                self._number += 1
                content = contents_of(picture)
                row = picture_row(picture.image, self._number, vector_sum, content[1:])
                self._pictures[row.id] = row, content
                self.pending += sum(len(part or b"") for part in content)

    def update(self, images: Sequence[StoredImage]) -> None:
        """See `Writing.update`."""
        with self._changing():
            ids = [image.id for image in images]
            found = self._found("pictures", ids, PictureRow._fields)
            before = {row.id: row for row in map(PictureRow._make, found)}
            if gone := set(ids) - before.keys():
                raise _damaged(self._rows.folder, f"the row of {min(gone)} is gone")
            for row in before.values():
                # it must not get a digest that says that it is sound
                if row.digest != row_digest(row[:-1]):
                    raise _damaged(self._rows.folder, f"the row of {row.id} is damaged")
            self._remove("pictures", ids, [row.digest for row in before.values()])
            self._append("pictures", [same_contents(image, before[image.id]) for image in images])

    def delete(self, ids: Sequence[str]) -> int:
        """See `Writing.delete`."""
        with self._changing():
            found = list(self._found("pictures", ids, ["id", "path"]))
            # also the sentences of a picture whose row is no longer there cannot be told whose they are
            self.delete_sentences(paths=[path for _, path in found])
            return self._delete(ids)

    def add_sentences(
        self, sentences: Sequence[tuple[str, str, str | None]], vectors: Float[np.ndarray, "sentences dim"]
    ) -> None:
        """See `Writing.add_sentences`."""
        ids = [key for key, *_ in sentences]
        with self._changing(flushed=False):
            again = len(set(ids)) < len(ids) or not self._sentences.keys().isdisjoint(ids)
            if again or list(self._found("sentences", ids, ["id"])):
                raise _twice()
            sums = vector_sums(vectors)
            for one, vector_sum, vector in zip(sentences, sums, np.asarray(vectors, "<f4"), strict=True):
                values = (*one, vector_sum)
                self._sentences[one[0]] = SentenceRow(*values, row_digest(values)), vector.tobytes()
                self.pending += vector.nbytes

    def delete_sentences(self, ids: Sequence[str] = (), paths: Sequence[str] = ()) -> int:
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
                    digests = [one for batch in _scan(table, ["digest"]) for (one,) in _values(batch)]
                    self._kept[name] = self._kept[name]._replace(rows=len(digests), total=total_of(digests))
                    self._touched.add(name)

    def commit(self) -> None:
        """See `Writing.commit`. Raises `StoreError` if another process has written meanwhile."""
        with self._changing():
            if not self._touched:
                return
            now = self._rows.head(tagged=True)
            if self._head is None or now.tables != self._head.tables:
                raise _taken_over(self._rows.folder)
            for name in self._touched:
                kept, table = self._kept[name], self._tables[name]
                # LanceDB lets rows of two writers into one table
                expect_rows(self._rows.folder, table, kept)
                self._kept[name] = kept._replace(version=int(table.version), commits=kept.commits + 1)
            self._rows.put(now._replace(tables=dict(self._kept), number=self._number, changed=time.time()))
            touched = {name: self._tables[name] for name in self._touched}
            self.abandon()
            self._rows.tidy(touched)

    @contextmanager
    def _changing(self, *, flushed: bool = True) -> Iterator[None]:
        with _told(self._rows.folder, "written"):
            if self._head is None:
                self._head = head = self._rows.head(tagged=True)
                self._kept, self._number = dict(head.tables), head.number
            if flushed:
                self._flush()
            yield

    def _flush(self) -> None:
        pictures, sentences = self._pictures, self._sentences
        self._forget_pending()
        if pictures:
            self._delete(list(pictures))
            self._append("pictures", [row for row, _ in pictures.values()])
            self._append("contents", [(row.number, *content) for row, content in pictures.values()])
        self._append("sentences", [(*row, vector) for row, vector in sentences.values()])

    def _delete(self, ids: Sequence[str]) -> int:
        """Remove images with their bytes."""
        found = list(self._found("pictures", ids, ["id", "number", "digest"]))
        self._remove("pictures", [key for key, _, _ in found], [digest for *_, digest in found])
        self._remove("contents", [number for _, number, _ in found], [])
        return len(found)

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = settled(self._rows, name, self._kept[name])
        return self._tables[name]

    def _found(
        self, name: str, keys: Sequence[Any], columns: Sequence[str], by: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        table = self._table(name) if keys else None
        if table is not None:
            for batch in _scan(table, columns, by or _KEYS[name], keys):
                yield from _values(batch)

    def _remove(self, name: str, keys: Sequence[Any], digests: Sequence[bytes]) -> None:
        for condition in _conditions(_KEYS[name], keys):
            self._table(name).delete(condition)
        if keys:
            kept = self._kept[name]
            total = total_without(digests, kept.total)
            self._kept[name] = kept._replace(rows=kept.rows - len(keys), total=total, deleted=True)
            self._touched.add(name)

    def _append(self, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        content = _arrow(name, rows)
        if (table := self._table(name)) is None:
            # what a writer that was killed has left has this name, perhaps
            self._tables[name] = self._rows.database.create_table(name, content, mode="overwrite")
        else:
            table.add(content)
        kept = self._kept[name]
        # contents have none: their pictures' rows hold it
        digests = content["digest"].to_pylist() if "digest" in content.column_names else []
        self._kept[name] = kept._replace(rows=kept.rows + len(rows), total=total_of(digests, kept.total))
        self._touched.add(name)


def lancedb() -> Any:
    """Import LanceDB. Raises `SettingsError` without it."""
    try:
        import lancedb
        import pyarrow  # noqa: F401 - the other half of the extra
    except ImportError:
        raise SettingsError(f"stores on S3 and tables of Lance need more: {install_hint('lance')}") from None
    return lancedb


def storage_options(place: StorePath) -> dict[str, str] | None:
    """Options for LanceDB with an object storage that is not Amazon's own."""
    url = endpoint()
    if isinstance(place, Path) or not url:
        return None
    # LanceDB refuses plain HTTP unless told; test servers and those behind a private network have no TLS
    return {"endpoint": url, "allow_http": str(url.startswith("http:")).lower()}


def settled(rows: LanceRows, name: str, kept: Kept) -> Any:
    """A handle for writing, at the version that `store.json` names; None before a table's first rows."""
    if not kept.version:
        return None
    with _told(rows.folder):
        table = rows.database.open_table(name)
        if int(table.version) != kept.version:
            # of a writer that was killed, or has abandoned its change
            table.checkout(kept.version)
            table.restore()
    return table


def expect_rows(folder: StorePath, table: Any, kept: Kept) -> None:
    """Raise `StoreError` if another process has written into a table."""
    if int(table.count_rows()) != kept.rows:
        raise _taken_over(folder)


def _tidy(table: Any, name: str) -> None:
    """Join small files, and look rows up by an index from then on."""
    table.optimize(cleanup_older_than=_KEPT)
    if not table.list_indices() and table.count_rows():
        table.create_scalar_index(_KEYS[name], index_type="BTREE")


def _pays(stats: dict[str, Any]) -> bool:
    """Decide by LanceDB's statistics: rows are written again about once for each doubling of a table."""
    rows, files = stats["num_rows"], stats["fragment_stats"]
    small, largest = files["num_small_fragments"], files["lengths"]["max"]
    many = small >= _FILES + isqrt(min(rows, _LARGEST))
    # of a table of several large files nobody can tell how many rows have come since
    return bool(many or (rows < _LARGEST and small >= _NEWS and rows >= 2 * largest))


def _scan(
    table: Any, columns: Sequence[str] | None = None, key: str = "", keys: Sequence[Any] | None = None
) -> Iterator[Any]:
    names = list(columns) if columns else table.schema.names
    size = _LARGE if {"thumbnail", "regions"}.intersection(names) else _BLOCK
    for condition in [None] if keys is None else _conditions(key, keys):
        query = table.search().select(names)
        yield from (query if condition is None else query.where(condition)).to_batches(batch_size=size)


def _conditions(column: str, keys: Sequence[Any]) -> Iterator[str]:
    """SQL that is true for rows of some keys, a part of them after the other."""
    once = list(dict.fromkeys(keys))
    for start in range(0, len(once), _LOOKED_UP):
        some = once[start : start + _LOOKED_UP]
        # paths may hold quotes
        quoted = (str(one) if isinstance(one, int) else "'" + one.replace("'", "''") + "'" for one in some)
        yield f"{column} IN ({', '.join(quoted)})"


def _arrow(name: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Rows as a table of Arrow."""
    import pyarrow as pa  # an extra

    text, whole, content = pa.string(), pa.int64(), pa.large_binary()
    digest, vector = pa.binary(), pa.binary()
    columns = {
        "pictures": dict(
            zip(
                PictureRow._fields,
                (text, text, text, whole, whole, whole, text, text, whole, whole, digest, digest, digest),
                strict=True,
            )
        ),
        "contents": {"number": whole, "vector": vector, "thumbnail": content, "regions": content},
        "sentences": dict(
            zip((*SentenceRow._fields, "vector"), (text, text, text, whole, digest, vector), strict=True)
        ),
    }[name]
    arrays = {
        column: pa.array(values, kind)
        for (column, kind), values in zip(columns.items(), zip(*rows, strict=True), strict=True)
    }
    if "vector" in arrays:
        matrix = np.frombuffer(b"".join(arrays["vector"].to_pylist()), "<f4").reshape(len(rows), -1)
        arrays["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
    return pa.table(arrays)


def _values(batch: Any) -> Iterable[tuple[Any, ...]]:
    """Rows of a batch as plain values."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _matrix(batch: Any) -> Float[np.ndarray, "rows dim"]:
    """The vectors of a batch."""
    column = batch.column("vector")
    matrix: Float[np.ndarray, "rows dim"] = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return matrix


def _twice() -> DataError:
    return DataError("a picture or sentence was given twice in one commit")


def _taken_over(folder: StorePath) -> StoreError:
    return StoreError(f"{folder}: another process has taken over the writing; index again")


def _damaged(folder: StorePath, reason: str) -> StoreError:
    return StoreError(f"{folder}: is damaged ({reason}); look at it with `limner store verify`", "damaged")


@contextmanager
def _told(folder: StorePath, doing: str = "read") -> Iterator[None]:
    """Turn errors of LanceDB and of the storage into a `StoreError` with the next step."""
    try:
        with reached(folder, doing):
            yield
    except LimnerError:
        raise
    # LanceDB has no error of its own; a ValueError of a write would be a mistake of ours
    except (RuntimeError, ValueError) as error:
        if doing == "written" and isinstance(error, ValueError):
            raise
        said = str(error).splitlines()[0][:160]
        number = re.search(r"\(os error (\d+)\)", str(error))
        trouble, advice = cause_of(int(number[1]) if number else None)
        if re.search(r"Generic \w+ error|error sending request", str(error)):
            trouble, advice = "disk", f"; the endpoint is {endpoint() or 'that of AWS'}"
        if trouble == "other" and doing == "read":
            raise _damaged(folder, said) from None
        raise StoreError(f"{folder}: cannot be {doing} ({said}){advice}", trouble) from None
