"""Repairs a store: sound rows are kept, and damaged ones are encoded again from their files.

What can be read of the tables is read in processes of its own (`limner.search.salvage`). Rows whose digests are right,
and whose bytes in the segments are, go into the tables of a new generation as they are. Of the others those with sound
facts are encoded again, if the file is still there. The new generation takes over in one step, so that a repair that
was killed has changed nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limner.errors import SettingsError, StoreError
from limner.search.commits import column_sum
from limner.search.entry import FIELDS, PLACE, StoredImage
from limner.search.image_look import Note, look_at
from limner.search.manifest import StoreManifest, write_manifest
from limner.search.row_digests import DIGEST, damaged
from limner.search.salvage import salvaged
from limner.search.store_files import StoreFiles
from limner.search.store_path import expect_own_files
from limner.search.store_writer import StoreWriter
from limner.search.table import Table, with_vectors
from limner.search.verify import BESIDE, DAMAGE, verify
from limner.store_reports import Repair
from limner.types import Encoder

_BATCH = 64  # images that are encoded at once
_ROWS = 8192  # rows of a commit

ModelSource = Callable[[], Encoder]
"""Loads the store's model; it is called if something must be encoded."""


def repair(
    files: StoreFiles, model: ModelSource, *, progress: Callable[[int, int], None] | None = None
) -> Repair:
    """Keep what is sound of a store, and encode again what is damaged and whose file is still there.

    `files` is opened with `check` off. A store whose tables are whole stays as it is, and one whose `store.json` was
    replaced by an older one has the newest generation again. What is wrong with the model in the store's folder or with
    a calibration is in the report and stays. `progress` is called with the images that were encoded again and their
    total.

    Raises `SettingsError` for a store on an object storage, `StoreError` while another process writes.
    """
    folder = files.folder
    if not isinstance(folder, Path):
        raise SettingsError(f"{folder}: a store is repaired on a disk; copy it there, and back afterwards")
    expect_own_files(folder)
    files.take_newest()
    found = verify(files).found
    beside = tuple(f"{DAMAGE[kind]}: {found[kind].example}" for kind in BESIDE if kind in found)
    # tables are not written anew for a model or a calibration: that would mend neither
    if not DAMAGE.keys() & found.keys() - set(BESIDE):
        return Repair(pictures=len(files), sentences=len(files.sentences), beside=beside)
    with files.taking_over() as manifest:
        return _Repairing(files, folder, manifest, model, progress).run(beside)


class _Repairing:
    """One repair: the damaged store, and the tables of the generation that is to take over."""

    def __init__(
        self,
        files: StoreFiles,
        folder: Path,
        manifest: StoreManifest,
        model: ModelSource,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.files, self.folder, self.manifest = files, folder, manifest
        self.progress = progress
        self._model = model
        self._encoder: Encoder | None = None
        self.pictures, self.sentences = files.tables_of(manifest)
        self.lost: list[tuple[str, str]] = []
        self.lost_sentences: list[str] = []
        self.foreign: list[str] = []

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = self._model()
            self.files.check_model(self._encoder.fingerprint, self._encoder.dim)
        return self._encoder

    def run(self, beside: tuple[str, ...]) -> Repair:
        broken: dict[str, StoredImage] = {}
        complete = self._keep(
            self.files.table, self.pictures, lambda rows: self._sound_pictures(rows, broken)
        )
        texts: list[dict[str, Any]] = []
        complete &= self._keep(
            self.files.sentences, self.sentences, lambda rows: _sound_sentences(rows, texts)
        )
        repaired = self._encode(list(broken.values()))
        self._encode_sentences(texts)
        new = {"pictures": self.pictures, "sentences": self.sentences}
        begun = tuple(kind for kind, table in new.items() if table.is_there())
        write_manifest(self.folder, self.manifest.model_copy(update={"begun": begun}))
        self.files.follow()
        return Repair(
            pictures=len(self.files),
            sentences=len(self.files.sentences),
            repaired=tuple(repaired),
            lost=tuple(sorted(self.lost)),
            lost_sentences=tuple(self.lost_sentences),
            foreign=tuple(self.foreign),
            beside=beside,
            complete=complete,
        )

    def _keep(self, old: Table, new: Table, sound: Callable[[pa.Table], pa.Table]) -> bool:
        """Copy sound rows into the new table; True if all rows of the last commit were read."""
        seen: set[str] = set()
        digests: list[pa.ChunkedArray] = []
        for rows in _parts(old, self.folder):
            # their digests are right all the same: a row does not say whose it is, its table does
            if old.is_foreign(rows.schema):
                self.foreign.append(old.name)
                break
            digests.append(rows[DIGEST])
            kept = sound(rows.filter(pa.array([key not in seen for key in rows["id"].to_pylist()])))
            # of two rows of one key the first counts
            seen.update(kept["id"].to_pylist())
            if len(kept):
                new.merge(kept)
        count = sum(map(len, digests))
        total = column_sum(pa.chunked_array(digests, old.schema.field(DIGEST).type)) if digests else (0, 0)
        # otherwise there are rows that nobody can read any more, or a commit or the record is lost
        return old.is_last(count, total)

    def _sound_pictures(self, rows: pa.Table, broken: dict[str, StoredImage]) -> pa.Table:
        """The rows that can stay; others go to `broken`, or to `lost` if their facts are damaged."""
        facts, vectors = damaged(rows, rows.schema)
        stays = ~facts & ~vectors
        for place, row in enumerate(rows.select([*FIELDS, *PLACE]).to_pylist()):
            if facts[place]:
                self.lost.append((str(row["path"]), "its row is damaged; index its folder again"))
                continue
            stays[place] &= self._bytes_are_sound(row)
            if not stays[place]:
                broken[row["path"]] = StoredImage.from_row(row)
        return rows.filter(pa.array(stays))

    def _bytes_are_sound(self, row: dict[str, Any]) -> bool:
        try:
            self.files.stored.thumbnails([row])
            if self.files.region_shape is not None:
                self.files.stored.regions([row])
        except StoreError:
            return False
        return True

    def _encode(self, broken: Sequence[StoredImage]) -> list[str]:
        """Encode images again from their files, and return the paths of those where it was possible."""
        repaired: list[str] = []
        writer = StoreWriter(self.folder, self.files.dim, self.pictures, self.files.stored)
        for start in range(0, len(broken), _BATCH):
            looked = []
            for entry in broken[start : start + _BATCH]:
                note = Note(entry.identity, entry.metadata, entry.taken)
                seen = look_at(entry.path, None, note, self.encoder.prepare_image)
                if isinstance(seen, str):
                    self.lost.append((entry.path, seen))
                else:
                    looked.append(seen)
            if looked:
                pixels = np.stack([seen.pixels for seen in looked if seen.pixels is not None])
                reranker = self.encoder.reranker if self.files.region_shape is not None else None
                writer.add(
                    [seen.entry for seen in looked],
                    self.encoder.encode_pixels(pixels),
                    None if reranker is None else reranker.region_features(pixels),
                    [seen.thumbnail for seen in looked],
                )
                repaired += [seen.entry.path for seen in looked]
            if writer.due:
                writer.commit()
            if self.progress is not None:
                self.progress(min(start + _BATCH, len(broken)), len(broken))
        writer.commit()
        return sorted(repaired)

    def _encode_sentences(self, texts: Sequence[dict[str, Any]]) -> None:
        known = [row for row in texts if self.encoder.known_words(row["text"])]
        self.lost_sentences += [row["text"] for row in texts if row not in known]
        if known:
            columns = [self.sentences.schema.field(name) for name in ("id", "text", "path")]
            table = pa.Table.from_pylist(known, schema=pa.schema(columns))
            vectors = self.encoder.encode_texts([row["text"] for row in known])
            field = self.sentences.schema.field("vector")
            self.sentences.merge(with_vectors(table, field, np.asarray(vectors, np.float32)))


def _parts(table: Table, folder: Path) -> Iterator[pa.Table]:
    """Yield what can be read of a table, in parts of a commit."""
    waiting: list[pa.Table] = []
    for rows in salvaged(folder, table.name, table.schema):
        waiting.append(rows)
        if sum(map(len, waiting)) >= _ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _sound_sentences(rows: pa.Table, texts: list[dict[str, Any]]) -> pa.Table:
    """The sentences that can stay; of those whose embedding alone is damaged, text and path go to `texts`."""
    facts, vectors = damaged(rows, rows.schema)
    texts += rows.select(["id", "text", "path"]).filter(pa.array(vectors & ~facts)).to_pylist()
    return rows.filter(pa.array(~facts & ~vectors))
