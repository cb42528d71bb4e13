"""A search store: a folder with all that was indexed, bound to one model.

    STORE/store.sqlite     all rows, and the store's description (see `limner.store.sqlite_rows`)
    STORE/model/           the model that it was built with, if it keeps it
    STORE/.store.lock      held by the one that writes (see `limner.store.lock`)

On an object storage the rows are LanceDB's (`limner.store.lance_rows`). One process writes at a time, a second one is
refused; any number may read.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from limner.durable import sync
from limner.errors import SettingsError, StoreError
from limner.store.entry import PictureRow, StoredImage
from limner.store.lock import lock_of
from limner.store.manifest import (
    IN_STORE,
    MODEL_FOLDER,
    StoreManifest,
    check_empty,
    read_manifest,
    texts_of,
)
from limner.store.path import StorePath, expect_own_files, reached, store_path
from limner.store.rows import MomentGoneError, Reading, Rows
from limner.store.snapshot import Snapshot
from limner.store.sound import sound
from limner.store.sqlite_file import FILE
from limner.store.sqlite_rows import SqliteRows
from limner.store.writer import StoreWriter
from limner.types import Encoder, RegionFeatures

REMOTE = "store.json"
"""The description of a store on an object storage, which is written last."""

_OF_MODEL = ("fingerprint", "dim", "map", "precision")  # in a description
T = TypeVar("T")
_FEW = 1024  # images that are looked up by their keys; for more, all are read


class StoreFiles:
    """A store's folder: description, rows, lock. Made with `create` or opened with `open`; needs no model.

    `limner.search.store.Store` is this and a model together.
    """

    def __init__(self, folder: StorePath, rows: Rows) -> None:
        self.folder = folder
        self.rows = rows
        self.manifest = read_manifest(folder, rows)
        # one for all that may change: nobody may write between two commits that belong together
        self.lock = lock_of(folder)
        self.held: tuple[tuple[object, ...], Snapshot] | None = None

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
                # before the rows: a store names a model that is there
                if keep is not None:
                    keep(Path(str(folder)) / MODEL_FOLDER)
                if isinstance(folder, Path):
                    # the names, too: those of the model, and that of the store's folder
                    for place in (
                        *folder.glob(f"{MODEL_FOLDER}/*"),
                        *folder.glob(MODEL_FOLDER),
                        folder.parent,
                    ):
                        sync(place)
                    rows: Rows = SqliteRows.create(folder, texts_of(manifest))
                else:
                    from limner.store.lance_rows import LanceRows  # an extra

                    rows = LanceRows.create(folder, texts_of(manifest))
        return cls(folder, rows)

    @classmethod
    def open(cls, folder: str | Path | StorePath) -> "StoreFiles":
        """Open a store: a folder, or `s3://BUCKET/FOLDER`. Raises `StoreError` for one that is missing or damaged."""
        place = store_path(folder)
        if not isinstance(place, Path):
            from limner.store.lance_rows import LanceRows  # an extra

            return cls(place, LanceRows.open(place))
        expect_own_files(place)
        if not has_store(place):
            raise _no_store(place)
        return cls(place, SqliteRows(place))

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

    def check_model(self, fingerprint: str, dim: int) -> None:
        """Raise `StoreError` unless the store was built with this model."""
        if fingerprint != self.fingerprint:
            raise StoreError(
                f"{self.folder}: built with model {self.fingerprint[:12]} (run {self.run}), this is "
                f"model {fingerprint[:12]}; use that run, or make a store of this one with `limner reindex`"
            )
        if dim != self.dim:
            raise StoreError(f"{self.folder}: holds vectors of width {self.dim}, the model gives {dim}")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store for several changes; outside of it each change holds the store for itself.

        Raises `StoreError`, without waiting, while another handle or process writes.
        """
        with self.lock.held():
            yield

    @contextmanager
    def changing(self) -> Iterator[StoreWriter]:
        """Change the store: what the writer has been given is committed at the end, or abandoned after an error.

        Raises `StoreError`, without waiting, while another handle or process writes.
        """
        with self.writing():
            # another store may have taken the folder since this one looked
            self.follow()
            writing = self.rows.begin()
            writer = StoreWriter(self.folder, self.dim, self.region_shape, writing, self.lock)
            try:
                yield writer
                writer.commit()
            except BaseException:
                writer.abandon()
                raise
            finally:
                writing.close()

    def add(
        self,
        entries: Sequence[StoredImage],
        vectors: Float[np.ndarray, "images width"],
        region_features: RegionFeatures | None = None,
        thumbnails: Sequence[bytes | None] | None = None,
    ) -> None:
        """Add images, or replace those of the same key, in one commit: see `StoreWriter.add`.

        Raises what that raises, and `StoreError` while another process writes; the store is then as it was.
        """
        with self.changing() as writer:
            writer.add(entries, vectors, region_features, thumbnails)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove images by their keys, with the sentences that describe them, and return how many there were.

        Their files are left alone; unknown keys are ignored. Raises `StoreError`, also for a damaged row, whose
        bytes and sentences nobody could find.
        """
        with self.changing() as writer:
            self.read(lambda reading: list(sound(self.folder, reading.pictures(ids))))
            return writer.delete(ids)

    def images(self, paths: Sequence[str] | None = None, sizes: Collection[int] = ()) -> list[StoredImage]:
        """Stored images, ordered by path: all, or at least those of some absolute paths and those of some sizes."""

        def read(reading: Reading) -> list[PictureRow]:
            every = paths is None or len(paths) + len(sizes) > _FEW
            rows = reading.pictures() if every else reading.pictures_like(paths or (), [*sizes])
            return list(sound(self.folder, rows))

        return sorted(map(StoredImage.of, self.read(read)), key=lambda image: image.path)

    def take_out(self, paths: Collection[str]) -> int:
        """Take files out of their images, and return how many images had no others; these are removed as by `delete`.

        Sentences of these files go, too. Raises what `delete` raises.
        """
        out = set(paths)
        with self.changing() as writer:
            named = [image for image in self.images() if not out.isdisjoint(image.paths)]
            left = [[place for place in image.places if place.path not in out] for image in named]
            pairs = list(zip(named, left, strict=True))
            writer.update([image.at(some) for image, some in pairs if some])
            writer.delete_sentences(paths=list(out))
            return writer.delete([image.id for image, some in pairs if not some])

    def entries(self, paths: Sequence[str] | None = None) -> dict[str, StoredImage]:
        """Stored images by absolute path, by each of theirs: all, or at least those of some paths."""
        return {path: image for image in self.images(paths) for path in image.paths}

    def entry(self, key: str) -> StoredImage | None:
        """One stored image by its key; None if it is not there."""
        found = self.read(lambda reading: list(sound(self.folder, reading.pictures([key]))))
        if not found and self.snapshot().row(key) is not None:
            # its key may be damaged where rows are looked up: reading all says so
            self.forget()
            self.snapshot()
        return StoredImage.of(found[0]) if found else None

    def snapshot(self) -> Snapshot:
        """Return the rows in memory; what has changed since is read. Raises `StoreError`."""
        identity = self.follow()
        held = self.held
        if held is None or held[0] != identity:
            # vectors of unchanged rows are copied; another store numbers its own anew
            before = held[1] if held is not None and held[1].store == self.manifest.id else None

            def read(reading: Reading) -> tuple[tuple[object, ...], Snapshot]:
                # asked again: a commit may have come between the two
                identity = self.rows.identity()
                return identity, Snapshot.read(self.folder, reading, self.manifest.id, self.dim, before)

            self.held = held = self.read(read)
        return held[1]

    def read(self, read: Callable[[Reading], T]) -> T:
        """Read the rows of one moment, or once more those of a later one if another process has removed them."""
        try:
            with self.rows.reading() as reading:
                return read(reading)
        except MomentGoneError:
            with self.rows.reading() as reading:
                return read(reading)

    def follow(self) -> tuple[object, ...]:
        """Look whether another store has taken the folder, and return what changes with every commit.

        Raises `StoreError` for a store of another model, and for a folder that is no longer a store.
        """
        identity = self.rows.identity()
        if identity[0] != self.manifest.id:
            manifest = read_manifest(self.folder, self.rows)
            if any(getattr(manifest, name) != getattr(self.manifest, name) for name in _OF_MODEL):
                raise StoreError(
                    f"{self.folder}: was replaced by a store of model {manifest.fingerprint[:12]}; open it again",
                    "model",
                )
            self.manifest = manifest
        return identity

    def forget(self) -> None:
        """Release the rows in memory; the next call reads them again."""
        self.held = None
        self.rows.close()

    def waiting(self) -> int:
        """Number of images whose files are gone: no search finds them."""
        return self.read(lambda reading: sum(row.gone is not None for row in reading.pictures()))

    def __len__(self) -> int:
        with self.rows.reading() as reading:
            return reading.state("pictures").rows


def has_store(folder: StorePath) -> bool:
    """True if a folder holds a store, sound or not. Raises `StoreError` if it cannot be reached."""
    with reached(folder, "read"):
        return (folder / (FILE if isinstance(folder, Path) else REMOTE)).exists()


def _no_store(folder: Path) -> StoreError:
    if (folder / "store.json").exists():
        return StoreError(f"{folder}: a store of an earlier limner; index into a new folder")
    if folder.is_dir():
        return StoreError(
            f"{folder}: not a store, it has no {FILE}; build one with `limner index`", "missing"
        )
    return StoreError(f"{folder}: no such store; build one with `limner index RUN STORE PICTURES`", "missing")


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
    # not the folder: a create that was killed leaves one
    if not has_store(folder):
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
