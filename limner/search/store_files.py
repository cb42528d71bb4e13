"""A search store: a folder with LanceDB tables and segments, bound to one model.

    STORE/store.json         which model, and the generation of the tables (see `limner.search.manifest`)
    STORE/pictures-1.lance   one row an image: id, path, sha256, size, mtime, taken, identity, metadata, vector, and the
                             place of its thumbnail and region features
    STORE/segments/NAME      thumbnails and region features (see `limner.search.segments`)
    STORE/sentences-1.lance  sentences that images find (see `limner.search.sentences`)
    STORE/.store.lock        held by the one that writes (see `limner.search.lock`)

Every change is one commit of a table (see `limner.search.table`). One process writes at a time, a second one is
refused; any number may read. Whoever writes removes what no reader can need.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int

from limner.errors import DataError, SettingsError, StoreError, UnknownPictureError
from limner.search.compaction import compact_segments, segment_names
from limner.search.entry import FIELDS, PLACE, StoredImage, keys_of, schema, sentence_schema
from limner.search.generations import begin, newest_manifest, of_newest, remove_others, remove_unfinished
from limner.search.lock import lock_of
from limner.search.manifest import (
    FILE,
    IN_STORE,
    MODEL_FOLDER,
    StoreManifest,
    check_empty,
    read_manifest,
    reread_manifest,
    write_manifest,
)
from limner.search.segments import MissingSegmentError
from limner.search.snapshot import Snapshot
from limner.search.store_path import StorePath, expect_own_files, reached, store_path
from limner.search.store_writer import StoreWriter
from limner.search.stored_bytes import StoredBytes
from limner.search.table import Table, matrix_of
from limner.types import Encoder, RegionFeatures
from limner.wire import Hit

T = TypeVar("T")

_TRIES = 3  # of a reading that a writer's compaction or erasure may disturb
_OF_MODEL = ("fingerprint", "dim", "map", "precision")  # in a manifest
_FEW = 1024  # paths that are looked up by their keys; for more, all rows are read


class StoreFiles:
    """A store's folder: manifest, tables, lock. Made with `create` or opened with `open`; needs no model.

    `limner.search.store.Store` is this and a model together.
    """

    def __init__(self, folder: StorePath, manifest: StoreManifest) -> None:
        self.folder = folder
        self.manifest = manifest
        # one for both tables: deleting an image changes both, and nobody may write in between
        self.lock = lock_of(folder)
        self._held = 0
        self.table, self.sentences = self.tables_of(manifest)
        self._note_begun(manifest)
        self.stored = StoredBytes(folder, manifest.map)
        self._known_segments: set[str] = set()
        self.held: tuple[tuple[str, int, int], Snapshot] | None = None

    @classmethod
    def create(
        cls,
        folder: str | Path | StorePath,
        *,
        fingerprint: str,
        dim: int,
        run: str | Path,
        precision: str | None = None,
        region_shape: tuple[int, int, int] | None = None,
        keep: Callable[[Path], None] | None = None,
    ) -> "StoreFiles":
        """Make an empty store for the model of this fingerprint, width and arithmetic; `run` is kept as given.

        With `region_shape` (height, width, channels) it keeps the region features of each image for re-ranking.
        `keep` puts the model into the folder that it is called with, and `run` is then where that model came from.

        The folder may exist if it is empty. Raises `StoreError` for one that holds anything or cannot be written.
        """
        folder = store_path(folder)
        values = {
            "fingerprint": fingerprint,
            "dim": dim,
            "map": region_shape,
            "run": str(run) if keep is None else IN_STORE,
            "kept_from": None if keep is None else str(run),
            "precision": precision,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "id": secrets.token_hex(16),
        }
        # before the folder is made: refused values leave nothing behind
        manifest = StoreManifest.parse(values)
        with reached(folder):
            if isinstance(folder, Path):
                folder.mkdir(parents=True, exist_ok=True)
            besides = MODEL_FOLDER if manifest.run == IN_STORE else None
            check_empty(folder, besides=besides)  # before the lock leaves a file in it
            with lock_of(folder).held():
                # again: another process may have made a store between the two
                check_empty(folder, besides=besides)
                # before the manifest: a store names a model that is there
                if keep is not None:
                    keep(Path(str(folder)) / MODEL_FOLDER)
                write_manifest(folder, manifest)
        return cls(folder, manifest)

    @classmethod
    def open(cls, folder: str | Path | StorePath, *, check: bool = True) -> "StoreFiles":
        """Open a store: a folder, or `s3://BUCKET/FOLDER`.

        Raises `StoreError` for one that is missing or damaged. With `check` off damaged tables are not looked at: for
        `limner.search.verify` and `limner.search.repair`.
        """
        place = store_path(folder)
        if not check:
            return cls(place, read_manifest(place))
        store = cls(place, newest_manifest(place))
        expect_own_files(place)
        # so that a damaged table is told when the store is opened, not by the first query
        store.read(store.table.opened)
        return store

    def tables_of(self, manifest: StoreManifest) -> tuple[Table, Table]:
        """The tables of images and of sentences of a generation, which need not be there yet."""
        pictures, sentences = (
            Table(self.folder, manifest.table(kind), columns(manifest.dim), self.lock, manifest.id)
            for kind, columns in (("pictures", schema), ("sentences", sentence_schema))
        )
        return pictures, sentences

    @contextmanager
    def taking_over(self) -> Iterator[StoreManifest]:
        """Hold the store to write a new generation beside this one, and yield its manifest. `write_manifest` lets it
        take over; what has been left of earlier ones is then removed, and if it is given up, nothing but its own."""
        with self.lock.held():
            # another process may have taken over since this one looked
            self.follow()
            manifest = self.manifest
            # what an earlier one has left, before its names are used again
            remove_unfinished(self.folder, manifest)
            begin(self.folder, manifest.generation + 1)
            yield manifest.model_copy(update={"generation": manifest.generation + 1})
            if read_manifest(self.folder) == manifest:
                return remove_unfinished(self.folder, manifest)
            self.follow()
            self._known_segments = set()
            self.clean()

    def take_newest(self) -> None:
        """Name the newest generation in `store.json` again, if an older one was put in its place."""
        with self.lock.held():
            manifest = of_newest(self.folder, read_manifest(self.folder))
            if manifest is not None:
                write_manifest(self.folder, manifest)
        self.follow()

    @property
    def fingerprint(self) -> str:
        """Digest of the model whose embeddings are stored."""
        return self.manifest.fingerprint

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        return self.manifest.dim

    @property
    def run(self) -> str:
        """Path of the model's run folder."""
        run = self.manifest.run
        return f"{self.folder}/{MODEL_FOLDER}" if run == IN_STORE else run

    @property
    def region_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels of the region features it keeps; None = it keeps none."""
        return self.manifest.map

    @property
    def has_table(self) -> bool:
        """True if images have ever been added."""
        return self.read(self.table.opened) is not None

    def check_model(self, fingerprint: str, dim: int) -> None:
        """Raise `StoreError` unless the store was built with this model."""
        if fingerprint != self.fingerprint:
            raise StoreError(
                f"{self.folder}: built with model {self.fingerprint[:12]} (run {self.run}), this is "
                f"model {fingerprint[:12]}; use that run, or make a store of this one with `limner reindex`"
            )
        if dim != self.dim:
            raise StoreError(f"{self.folder}: holds vectors of width {self.dim}, the model gives {dim}")

    def follow(self) -> None:
        """Open the tables anew if another store, or a new generation of this one, has taken the folder.

        Raises `StoreError` for a store of another model, and for a folder that is no longer a store.
        """
        # a small file before each use: its random id tells apart two stores of one model and as many commits
        if reread_manifest(self.folder) == self.manifest:
            return
        manifest = newest_manifest(self.folder)
        if any(getattr(manifest, name) != getattr(self.manifest, name) for name in _OF_MODEL):
            raise StoreError(
                f"{self.folder}: was replaced by a store of model {manifest.fingerprint[:12]}; open it again",
                "model",
            )
        if (manifest.id, manifest.generation) == (self.manifest.id, self.manifest.generation):
            self._note_begun(manifest)
        else:
            # LanceDB would go on with what it has read as long as both tables count as many commits
            self._reopen(manifest)
        # last: a thread that finds it up to date must find the tables so, too
        self.manifest = manifest

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store for several changes; outside of it each change holds the store for itself.

        Raises `StoreError`, without waiting, while another handle or process writes.
        """
        with self.lock.held():
            # whoever holds the lock is one thread, so nobody else counts meanwhile
            if not self._held:
                self.follow()
                # before anything is removed for what rows name or do not name
                for table in (self.table, self.sentences):
                    table.settle()
                self.clean()
                self._keep_begun()
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
            if not self._held:
                self._keep_begun()

    def writer(self) -> StoreWriter:
        """Make a writer of images, whose changes become visible by its `commit`; for use within `writing`."""
        return StoreWriter(self.folder, self.dim, self.table, self.stored)

    def add(
        self,
        entries: Sequence[StoredImage],
        vectors: Float[np.ndarray, "images width"],
        region_features: RegionFeatures | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
    ) -> None:
        """Add images, or replace those of the same path, in one commit: see `StoreWriter.add`.

        Raises what that raises, and `StoreError` while another process writes; the store is then as it was.
        """
        # a merge of no rows would be a commit all the same
        if not entries:
            return
        with self.writing():
            writer = self.writer()
            try:
                writer.add(entries, vectors, region_features, thumbnails)
                writer.commit()
            except BaseException:
                writer.abandon()
                raise

    def delete(self, ids: Sequence[str]) -> int:
        """Remove images by their keys, in one commit, and return how many there were; their files are left alone.

        The sentences that describe them go first, in a separate commit. Unknown keys are ignored. Raises `StoreError`.
        """
        with self.writing():
            # before either is changed: a refused call has changed nothing
            self.table.opened(afresh=True)
            # sentences first: killed after it, the same call goes on; else nobody would know whose sentences those are
            paths = self.table.rows(ids, ["path"])["path"].to_pylist()
            self.sentences.delete(paths, "path")
            return self.table.delete(ids)

    def batches(self, columns: Sequence[str], size: int = 1024) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, at most `size` rows at a time, of one version of the table.

        Raises `StoreError` for rows that cannot be read, and if a new generation takes over meanwhile.
        """
        self.follow()
        return self.table.batches(columns, size)

    def entries(self, paths: Sequence[str] | None = None) -> dict[str, StoredImage]:
        """Stored images by absolute path, without the vectors: all, or at least those of some paths."""
        ids = None if paths is None or len(paths) > _FEW else keys_of(paths)
        rows = self.read(lambda: self.table.all(FIELDS) if ids is None else self.table.rows(ids, FIELDS))
        return {row["path"]: StoredImage.from_row(row) for row in rows.to_pylist()}

    def entry(self, key: str) -> StoredImage | None:
        """One stored image by its key; None if it is not there."""
        rows = self.read(lambda: self.table.rows([key], FIELDS)).to_pylist()
        return StoredImage.from_row(rows[0]) if rows else None

    def row_of(self, snapshot: Snapshot, key: str) -> int:
        """The row of an image by its key. Raises `UnknownPictureError`."""
        row = snapshot.row(key)
        if row is None:
            raise UnknownPictureError(f"{self.folder}: holds no picture {key[:64]!a}")
        return row

    def vectors(self, ids: Sequence[str]) -> Float[np.ndarray, "images dim"]:
        """Stored vectors of images by their keys, in order. Raises `UnknownPictureError` for others."""
        return self.read(lambda: matrix_of(self.table.in_order(ids, ["vector"])["vector"], self.dim))

    def region_features(self, ids: Sequence[str]) -> RegionFeatures:
        """Stored region features of images by their keys, in order. Raises `UnknownPictureError` for others."""
        self.stored.expect_regions()
        return self.read(lambda: self.stored.regions(self.table.in_order(ids, PLACE).to_pylist()))

    def region_blocks(
        self, ids: Sequence[str], size: int
    ) -> Iterator[tuple[Int[np.ndarray, " block"], RegionFeatures]]:
        """Stored region features of images, at most `size` at a time, in the order of the disk; places in `ids`."""
        rows = self.read(lambda: self.table.in_order(ids, PLACE))
        keys = [("segment", "ascending"), ("offset", "ascending")]
        order = pc.sort_indices(rows, keys).to_numpy().astype(np.int64)
        for start in range(0, len(order), size):
            block = order[start : start + size]
            try:
                features = self.stored.regions(rows.take(block).to_pylist())
            except MissingSegmentError:
                # compacted since the rows were read
                features = self.region_features([ids[place] for place in block])
            yield block, features

    def thumbnails(self, ids: Sequence[str]) -> list[bytes | None]:
        """Stored thumbnails of images by their keys, in order: JPEG files, None for one that has none."""
        return self.read(lambda: self._thumbnails(ids))

    def places(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """The keys and places (`limner.search.entry.PLACE`) of the rows that exist now, in no order."""
        rows: list[dict[str, Any]] = self.read(lambda: self.table.rows(ids, PLACE)).to_pylist()
        return rows

    def _thumbnails(self, ids: Sequence[str]) -> list[bytes | None]:
        rows = self.table.rows(ids, PLACE).to_pylist()
        # LanceDB answers in the order of its files, not in that of the keys
        found = dict(zip((row["id"] for row in rows), self.stored.thumbnails(rows), strict=True))
        return [found.get(one) for one in ids]

    def read(self, read: Callable[[], T]) -> T:
        """Read from the tables and segments, again if a writer has moved them meanwhile."""
        for left in reversed(range(_TRIES)):
            self.follow()
            try:
                return read()
            except UnknownPictureError:
                raise
            except StoreError:
                # no look at what has changed: real damage is as damaged the second time
                if not left:
                    raise
                # an open table may still name files that a compaction has removed
                self.forget()
        raise AssertionError("unreachable")

    def search(self, query: Float[np.ndarray, " width"], k: int = 10) -> list[Hit]:
        """Find the k nearest images to a query vector of the store's model, best first; exact.

        Scores are dot products; equal ones are ordered by path. A store of fewer images gives fewer hits.
        Raises `StoreError` for another width, `DataError` for NaN, `SettingsError` for k below 1.
        """
        if k < 1:
            raise SettingsError(f"k: expected at least 1, got {k}")
        if query.shape != (self.dim,):
            raise StoreError(
                f"{self.folder}: expected a query of width {self.dim} from model {self.fingerprint[:12]}, "
                f"got shape {query.shape}; encode it with run {self.run}"
            )
        if not np.isfinite(query).all():
            raise DataError("the query's embedding holds NaN or infinite values")
        return self.snapshot().search(np.ascontiguousarray(query, dtype=np.float32), k)

    def snapshot(self) -> Snapshot:
        """Return the rows in memory; rows that have changed in the table since are read."""
        return self.read(self._current)

    def _current(self) -> Snapshot:
        # asked before reading: after a commit in between it is too low, which costs one more reading and loses nothing
        key = (self.manifest.id, self.manifest.generation, self.table.version)
        held = self.held
        if held is None or held[0] != key:
            # it has the one before, whose vectors of unchanged rows it copies; rows are numbered anew in each table
            before = held[1] if held is not None and held[0][:2] == key[:2] else None
            self.held = held = (key, Snapshot.read(self.table, key[2], self.dim, before))
        return held[1]

    def forget(self) -> None:
        """Release the rows in memory and the open tables; the next call reads them again."""
        self._reopen(self.manifest)

    def _reopen(self, manifest: StoreManifest) -> None:
        self.held = None
        self.table.reopen(manifest.table("pictures"), manifest.id)
        self.sentences.reopen(manifest.table("sentences"), manifest.id)
        self._note_begun(manifest)

    def _note_begun(self, manifest: StoreManifest) -> None:
        self.table.begun, self.sentences.begun = ("pictures" in manifest.begun, "sentences" in manifest.begun)

    def change_manifest(self, **changes: Any) -> None:
        """Write `store.json` with other values of some fields. Whoever calls this holds the store."""
        manifest = self.manifest.model_copy(update=changes)
        if manifest != self.manifest:
            write_manifest(self.folder, manifest)
            self.follow()

    def _keep_begun(self) -> None:
        """Note tables that have been begun since. After their first commit: a kill in between loses the note alone."""
        tables = {"pictures": self.table, "sentences": self.sentences}
        begun = tuple(kind for kind, table in tables.items() if table.begun or table.is_there())
        self.change_manifest(begun=begun)

    def compact(self) -> None:
        """Join the small files that many commits leave, of images and of sentences; readers are not disturbed.

        Old versions stay for a day. Raises `StoreError` while another process writes and if the disk refuses.
        """
        with self.writing():
            self._compact_segments()
            self.table.compact()
            self.sentences.compact()

    def tidy(self) -> None:
        """Compact what pays; to be called after any number of changes. Raises what `compact` raises."""
        with self.writing():
            self._compact_segments()
            self.table.tidy()
            self.sentences.tidy()

    def _compact_segments(self) -> None:
        compact_segments(self.table, self.stored, self.writer())
        self._known_segments = set(self.stored.segments.sizes())

    def clean(self) -> None:
        """Remove what a killed writer, or a generation before, has left. Whoever calls this holds the store."""
        remove_others(self.folder, self.manifest)
        # reading the names in the table takes longer than listing them, which finds nothing new as a rule
        if self.stored.segments.sizes().keys() - self._known_segments:
            self._known_segments = segment_names(self.table)
            self.stored.segments.remove_others(self._known_segments)

    def __len__(self) -> int:
        return self.read(lambda: len(self.table))


def store_for(
    encoder: Encoder,
    run: Path,
    folder: StorePath,
    *,
    regions: bool | None = None,
    keep: Callable[[Path], None] | None = None,
) -> StoreFiles:
    """Open the store in a folder, or make one there, to index into it with the model of a run.

    `regions`: a new store keeps region features to re-rank from; None = where the model re-ranks of itself. `keep`: as
    `StoreFiles.create` has it.

    Raises `StoreError` for a folder that holds anything else, a damaged store, and another model's.
    """
    with reached(folder, "read"):
        # the manifest, not the folder: a create that was killed leaves one
        is_there = (folder / FILE).exists()
    if not is_there:
        reranker = encoder.reranker
        if regions and reranker is None:
            raise SettingsError("regions: the model has no reranker that could read them; leave it out")
        keeps = reranker is not None and (encoder.rerank != 0 if regions is None else regions)
        return StoreFiles.create(
            folder,
            fingerprint=encoder.fingerprint,
            dim=encoder.dim,
            # absolute: the store is opened from other working directories
            run=run if str(run) == IN_STORE else run.resolve(),
            # an encoder of another package need not say
            precision=getattr(encoder, "precision", None),
            region_shape=reranker.region_shape if reranker is not None and keeps else None,
            keep=keep,
        )
    files = StoreFiles.open(folder)
    files.check_model(encoder.fingerprint, encoder.dim)
    return files
