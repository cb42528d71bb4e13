"""A search store: a folder with a LanceDB table of images, bound to one model.

    STORE/store.json       which model (see `limner.search.manifest`)
    STORE/pictures.lance   one row an image: id, path, sha256, size, mtime, taken, identity, metadata, thumbnail,
                           vector, and, for a model that re-ranks, map
    STORE/sentences.lance  sentences that images find (see `limner.search.sentences`)
    STORE/.store.lock      held by the one that writes (see `limner.search.lock`)

Every change is one commit (see `limner.search.table`). One process writes at a time, a second one is refused; any
number may read.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from limner.errors import DataError, SettingsError, StoreError, UnknownPictureError
from limner.search.entry import FIELDS, StoredImage, schema, sentence_schema
from limner.search.lock import LEASE_FILE, LOCK_FILE, Lease, WriterLock
from limner.search.manifest import (
    FILE,
    IN_STORE,
    MODEL_FOLDER,
    PARTIAL_MODEL,
    StoreManifest,
    read_manifest,
    write_manifest,
)
from limner.search.snapshot import Snapshot
from limner.search.store_path import StorePath, is_remote, reached, store_path
from limner.search.table import Table, matrix_of, with_vectors
from limner.types import Encoder, RegionFeatures
from limner.wire import Hit

_MANY = 4  # if one image in four or more is looked up, the table is read from first to last
_LEFT_BEHIND = {f".{FILE}.partial", LOCK_FILE, LEASE_FILE, PARTIAL_MODEL}  # of a create that was killed


class StoreFiles:
    """A store's folder: manifest, tables, lock. Made with `create` or opened with `open`; needs no model.

    `limner.search.store.Store` is this and a model together.
    """

    def __init__(self, folder: StorePath, manifest: StoreManifest) -> None:
        self.folder = folder
        self.manifest = manifest
        # one for both tables: deleting an image changes both, and nobody may write in between
        self._lock = lock_of(folder)
        map_size = None if manifest.map is None else math.prod(manifest.map)
        self._table = Table(folder, "pictures", schema(manifest.dim, map_size), self._lock)
        self.sentences = Table(folder, "sentences", sentence_schema(manifest.dim), self._lock)
        self._snapshot: Snapshot | None = None

    @classmethod
    def create(
        cls,
        folder: str | Path | StorePath,
        *,
        fingerprint: str,
        dim: int,
        run: str | Path,
        region_shape: tuple[int, int, int] | None = None,
        keep: Callable[[Path], None] | None = None,
    ) -> "StoreFiles":
        """Make an empty store for the model of this fingerprint and width; `run` is kept as given.

        With `region_shape` (height, width, channels) it keeps the region features of each image for re-ranking.
        `keep` puts the model into the folder that it is called with, and `run` is then where that model came from.

        The folder may exist if it is empty. Raises `StoreError` for one that holds anything, or that
        cannot be written.
        """
        folder = store_path(folder)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        values = {
            "fingerprint": fingerprint,
            "dim": dim,
            "map": region_shape,
            "run": str(run) if keep is None else IN_STORE,
            "kept_from": None if keep is None else str(run),
            "created": created,
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
    def open(cls, folder: str | Path | StorePath) -> "StoreFiles":
        """Open a store: a folder, or `s3://BUCKET/FOLDER`. Raises `StoreError` for one that is missing or damaged."""
        place = store_path(folder)
        store = cls(place, read_manifest(place))
        # so that a damaged table is told when the store is opened, not by the first query
        store._table.opened()
        return store

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
        return self._table.opened() is not None

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
        """Open the tables anew if another store has taken the folder.

        Raises `StoreError` for a store of another model, and for a folder that is no longer a store.
        """
        # a small file before each use: its random id tells apart two stores of one model and as many commits
        manifest = read_manifest(self.folder)
        if manifest == self.manifest:
            return
        if (manifest.fingerprint, manifest.dim, manifest.map) != (
            self.fingerprint,
            self.dim,
            self.region_shape,
        ):
            raise StoreError(
                f"{self.folder}: was replaced by a store of model {manifest.fingerprint[:12]}; open it again"
            )
        # LanceDB would go on with what it has read as long as both tables count as many commits
        self.manifest = manifest
        self.forget()

    def writing(self) -> AbstractContextManager[None]:
        """Hold the store for several changes; outside of it each change holds the store for itself.

        Raises `StoreError`, without waiting, while another handle or process writes.
        """
        return self._lock.held()

    def add(
        self,
        entries: Sequence[StoredImage],
        vectors: Float[np.ndarray, "images width"],
        region_features: RegionFeatures | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
    ) -> None:
        """Add images, or replace those of the same path, in one commit; with `region_features` if the store keeps them.

        `thumbnails` are JPEG files, None for an image without.

        Raises `StoreError` for another width or region features, while another process writes and if the disk refuses,
        `DataError` for NaN, a path given twice or metadata that JSON cannot hold; the store is then as it was.
        """
        rows = [entry.to_row() for entry in entries]
        # a merge of no rows would be a commit all the same
        if not rows:
            return
        self.follow()
        # LanceDB's merge keeps both rows of a new key that is given twice (0.40)
        if len({row["id"] for row in rows}) != len(rows):
            raise DataError("a picture was given twice in one batch")
        if vectors.shape != (len(rows), self.dim):
            raise StoreError(
                f"{self.folder}: expected {len(rows)} vectors of width {self.dim}, got shape {vectors.shape}"
            )
        # one NaN in a row makes each of its scores NaN, which no later search could rank
        if not np.isfinite(vectors).all():
            raise DataError("embeddings hold NaN or infinite values; the model has diverged")
        if thumbnails is not None and len(thumbnails) != len(rows):
            raise StoreError(f"{self.folder}: expected {len(rows)} thumbnails, got {len(thumbnails)}")
        rows = [
            {**row, "thumbnail": thumbnail}
            for row, thumbnail in zip(rows, thumbnails or [None] * len(rows), strict=True)
        ]
        columns = self._table.schema
        given = {
            "vector": np.asarray(vectors, dtype=np.float32),
            "map": self._checked(region_features, len(rows)),
        }
        # without the vectors, of whose every number from_pylist would make a Python object
        table = pa.Table.from_pylist(
            rows, schema=pa.schema([field for field in columns if field.name not in given])
        )
        for name, values in given.items():
            if values is not None:
                table = with_vectors(table, columns.field(name), values)
        self._table.merge(table)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove images by their keys, in one commit, and return how many there were; their files are left alone.

        The sentences that describe them go first, in a separate commit. Unknown keys are ignored. Raises `StoreError`
        while another process writes and if the disk refuses.
        """
        self.follow()
        with self.writing():
            # sentences first: killed after it, the images are still there and the same call goes on. In the other
            # order nobody would know any more whose sentences those are
            paths = self._table.rows(ids, ["path"])["path"].to_pylist()
            self.sentences.delete(paths, "path")
            return self._table.delete(ids)

    def batches(self, columns: Sequence[str], size: int = 1024) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, at most `size` rows at a time, of one version of the table.

        Raises `StoreError` for rows that cannot be read.
        """
        return self._table.batches(columns, size)

    def entries(self) -> dict[str, StoredImage]:
        """All stored images by absolute path, without the vectors."""
        return {row["path"]: StoredImage.from_row(row) for row in self._table.all(FIELDS).to_pylist()}

    def entry(self, key: str) -> StoredImage | None:
        """One stored image by its key; None if it is not there."""
        rows = self._table.rows([key], FIELDS).to_pylist()
        return StoredImage.from_row(rows[0]) if rows else None

    def row_of(self, snapshot: Snapshot, key: str) -> int:
        """The row of an image by its key. Raises `UnknownPictureError`."""
        try:
            return snapshot.places[key]
        except KeyError:
            raise UnknownPictureError(f"{self.folder}: holds no picture {key[:64]!a}") from None

    def vectors(self, ids: Sequence[str]) -> Float[np.ndarray, "images dim"]:
        """Stored vectors of images by their keys, in order. Raises `UnknownPictureError` for others."""
        return self._table.arrays(ids, "vector")

    def region_features(self, ids: Sequence[str]) -> RegionFeatures:
        """Stored region features of images by their keys, in order. Raises `UnknownPictureError` for others."""
        shape = self._region_shape()
        return self._table.arrays(ids, "map").reshape(len(ids), *shape)

    def region_blocks(
        self, ids: Sequence[str], size: int
    ) -> Iterator[tuple[Int[np.ndarray, " block"], RegionFeatures]]:
        """Stored region features of many images, at most `size` at a time, in the table's order, with places in `ids`.

        For few images their rows are looked up, for many the whole table is read once.
        """
        if len(ids) <= size or len(ids) * _MANY < len(self):
            for start in range(0, len(ids), size):
                block = ids[start : start + size]
                yield np.arange(start, start + len(block)), self.region_features(block)
            return
        # keys in SQL are compared with every row, block by block: 100 blocks would read 100 times all keys
        places = {key: place for place, key in enumerate(ids)}
        for batch in self.batches(["id", "map"], size):
            # popped, so that what is left at the end are the keys that the table does not have
            found = [places.pop(key, -1) for key in batch.column("id").to_pylist()]
            wanted = np.flatnonzero(np.array(found) >= 0)
            if len(wanted):
                rows = pa.chunked_array([batch.column("map")])
                region_features = matrix_of(rows, rows.type.list_size)[wanted]
                yield np.array(found)[wanted], region_features.reshape(len(wanted), *self._region_shape())
        if places:
            raise self._table.unknown(next(iter(places)))

    def _region_shape(self) -> tuple[int, int, int]:
        if self.region_shape is None:
            raise StoreError(f"{self.folder}: keeps no region features, its model does not re-rank")
        return self.region_shape

    def thumbnails(self, ids: Sequence[str]) -> list[bytes | None]:
        """Stored thumbnails of images by their keys, in order: JPEG files, None for one that has none."""
        rows = self._table.rows(ids, ["thumbnail"])
        # LanceDB answers in the order of its files, not in that of the keys
        found = dict(zip(rows["id"].to_pylist(), rows["thumbnail"].to_pylist(), strict=True))
        return [found.get(one) for one in ids]

    def _checked(self, region_features: RegionFeatures | None, count: int) -> RegionFeatures | None:
        shape = None if self.region_shape is None else (count, *self.region_shape)
        given = None if region_features is None else region_features.shape
        if given != shape:
            raise StoreError(f"{self.folder}: expected region features of shape {shape}, got {given}")
        if region_features is not None and not np.isfinite(region_features).all():
            raise DataError(
                "region features hold NaN or infinite values; the model has diverged, or half precision is too small"
            )
        # half precision is what the column holds; beyond 65,504 it is infinite, which was refused above
        return None if region_features is None else np.asarray(region_features, dtype=np.float16)

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
        self.follow()
        # asked before reading: after a commit in between it is too low, which costs one more reading and loses nothing
        version = self._table.version
        if self._snapshot is None or self._snapshot.version != version:
            # it has the one before, whose vectors of unchanged rows it copies
            self._snapshot = Snapshot.read(self._table, version, self.dim, self._snapshot)
        return self._snapshot

    def forget(self) -> None:
        """Release the rows in memory and the open tables; the next call reads them again."""
        self._snapshot = None
        self._table.reopen()
        self.sentences.reopen()

    def compact(self, *, purge: bool = False) -> None:
        """Join the small files that many commits leave, of images and of sentences; readers are not disturbed.

        Deleted rows stay on disk until they are seven days old. With `purge` they go now: whoever has the store open
        must then open it again. Raises `StoreError` while another process writes and if the disk refuses.
        """
        with self.writing():
            self._table.compact(purge)
            self.sentences.compact(purge)

    def __len__(self) -> int:
        return len(self._table)


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
            region_shape=reranker.region_shape if reranker is not None and keeps else None,
            keep=keep,
        )
    files = StoreFiles.open(folder)
    files.check_model(encoder.fingerprint, encoder.dim)
    return files


def lock_of(folder: StorePath) -> WriterLock | Lease:
    """The lock of a store's folder: a file, or a lease on an object storage."""
    return WriterLock(folder) if isinstance(folder, Path) else Lease(folder)


def check_empty(folder: StorePath, *, besides: str | None = None) -> None:
    """Raise `StoreError` for a folder that holds anything but the remains of a create that was killed.

    `besides` may be there too.
    """
    if is_remote(folder) and not folder.is_dir():
        return  # an object storage has no empty folders
    others = {path.name for path in folder.iterdir()} - _LEFT_BEHIND - {besides}
    if others:
        raise StoreError(f"{folder}: not empty (holds {min(others)!a}); choose a new folder for the store")
