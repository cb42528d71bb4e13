"""Repairs a store: sound rows are kept, and damaged ones are encoded again from their files.

What can be read of the tables is read in a process of its own (`limner.search.salvage`). Rows whose digests are right,
and whose bytes in the segments are, go into the tables of a new generation as they are. Of the others those with sound
facts are encoded again, if the file is still there. The new generation takes over in one step, so that a repair that
was killed has changed nothing.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limner.errors import SettingsError, StoreError
from limner.search.commits import column_sum
from limner.search.entry import FIELDS, PLACE, StoredImage, key_of
from limner.search.generations import remove_others
from limner.search.image_look import Note, look_at
from limner.search.manifest import StoreManifest, write_manifest
from limner.search.row_digests import DIGEST, damaged
from limner.search.salvage import Salvage, SalvageProcess
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
    files: StoreFiles,
    model: ModelSource,
    *,
    accept_loss: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Repair:
    """Keep what is sound of a store, and encode again what is damaged and whose file is still there.

    `files` is opened with `check` off. A store whose tables are whole stays as it is, and one whose `store.json` was
    replaced by an older one has the newest generation again. What is wrong with the model in the store's folder or with
    a calibration is in the report and stays. `progress` is called with the images that were encoded again and their
    total.

    Raises `SettingsError` for a store on an object storage, `StoreError` while another process writes, and if rows on
    record cannot be read while data files are there that could hold them: they would be removed. With `accept_loss`
    they are.
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
        repairing = _Repairing(files, folder, manifest, model, progress)
        repairing.read()
        if repairing.unread and not accept_loss:
            # nothing of the new generation is needed any more
            remove_others(folder, files.manifest)
            raise StoreError(f"{folder}: {repairing.unread}")
        return repairing.run(beside)


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
        self.broken: dict[str, StoredImage] = {}
        self.texts: list[dict[str, Any]] = []
        self.lost: dict[str, str] = {}
        self.lost_sentences: list[str] = []
        self.foreign: list[str] = []
        self.earlier = 0
        self.complete = True
        self.unread = ""
        """Why rows on record cannot be read though files are there that could hold them."""

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = self._model()
            self.files.check_model(self._encoder.fingerprint, self._encoder.dim)
        return self._encoder

    def read(self) -> None:
        """Copy sound rows into the new tables, and note what must be encoded again."""
        with SalvageProcess() as process:
            kept = self._keep(process, self.files.table, self.pictures, self._sound_pictures)
            # of a row that is damaged an earlier version may have had a sound one
            self.lost = {path: reason for path, reason in self.lost.items() if key_of(path) not in kept}
            self._keep(process, self.files.sentences, self.sentences, self._sound_sentences)

    def run(self, beside: tuple[str, ...]) -> Repair:
        """Encode again what `read` has found damaged, and let the new tables take over."""
        repaired = self._encode(list(self.broken.values()))
        self._encode_sentences(self.texts)
        new = {"pictures": self.pictures, "sentences": self.sentences}
        begun = tuple(kind for kind, table in new.items() if table.is_there())
        write_manifest(self.folder, self.manifest.model_copy(update={"begun": begun}))
        self.files.follow()
        return Repair(
            pictures=len(self.files),
            sentences=len(self.files.sentences),
            repaired=tuple(repaired),
            lost=tuple(sorted(self.lost.items())),
            lost_sentences=tuple(self.lost_sentences),
            foreign=tuple(self.foreign),
            earlier=self.earlier,
            beside=beside,
            complete=self.complete,
        )

    def _keep(
        self,
        process: SalvageProcess,
        old: Table,
        new: Table,
        sound: Callable[[pa.Table], tuple[pa.Table, list[str]]],
    ) -> set[str]:
        """Copy sound rows into the new table, and return their keys."""
        salvage = Salvage(process, self.folder, old.name, old.schema, old.record())
        seen: set[str] = set()
        # of rows that are encoded again those of earlier versions are not looked at
        waiting: set[str] = set()
        count, total, of_earlier = 0, (0, 0), 0
        for earlier, rows in _parts(salvage):
            # their digests are right all the same: a row does not say whose it is, its table does
            if old.is_foreign(rows.schema):
                self.foreign.append(old.name)
                salvage.unread = set(salvage.files)
                break
            if earlier:
                rows = _without(rows, seen | waiting)
                of_earlier += len(rows)
            low, high = column_sum(rows[DIGEST])
            count, total = count + len(rows), ((total[0] + low) % 2**64, (total[1] + high) % 2**64)
            kept, encoded = sound(_without(rows, seen))
            # of two rows of one key the first counts
            seen.update(kept["id"].to_pylist())
            waiting.update(encoded)
            if len(kept):
                new.merge(kept)
            # these are all: an earlier version has others that were deleted since
            if earlier and old.is_last(count, total):
                return seen
        if not old.is_last(count, total):
            # there are rows that nobody can read any more, or a commit or the record is lost
            self.complete = False
            self.earlier += of_earlier
            if salvage.unread:
                self.unread = _unread(old, salvage, count)
        return seen

    def _sound_pictures(self, rows: pa.Table) -> tuple[pa.Table, list[str]]:
        """The rows that can stay, and keys of others in `broken`; those with damaged facts are in `lost`."""
        facts, vectors = damaged(rows, rows.schema)
        stays = ~facts & ~vectors
        broken: list[str] = []
        for place, row in enumerate(rows.select(["id", *FIELDS, *PLACE]).to_pylist()):
            if facts[place]:
                self.lost[str(row["path"])] = "its row is damaged; index its folder again"
                continue
            stays[place] &= self._bytes_are_sound(row)
            if not stays[place]:
                self.broken[row["path"]] = StoredImage.from_row(row)
                broken.append(row["id"])
        return rows.filter(pa.array(stays)), broken

    def _sound_sentences(self, rows: pa.Table) -> tuple[pa.Table, list[str]]:
        """The sentences that can stay; of those whose embedding alone is damaged, text and path go to `texts`."""
        facts, vectors = damaged(rows, rows.schema)
        texts = rows.select(["id", "text", "path"]).filter(pa.array(vectors & ~facts)).to_pylist()
        self.texts += texts
        return rows.filter(pa.array(~facts & ~vectors)), [row["id"] for row in texts]

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
                    self.lost[entry.path] = seen
                elif seen.entry.sha256 != entry.sha256:
                    # its identity and metadata are of another picture, perhaps
                    self.lost[entry.path] = "its file has changed since; index it again"
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


def _parts(salvage: Salvage) -> Iterator[tuple[bool, pa.Table]]:
    """Yield what can be read of a table, in parts of a commit, each of the newest version or of earlier ones."""
    waiting: list[pa.Table] = []
    waiting_earlier = False
    for earlier, rows in salvage.rows():
        if waiting and (earlier != waiting_earlier or sum(map(len, waiting)) >= _ROWS):
            yield waiting_earlier, pa.concat_tables(waiting)
            waiting = []
        waiting_earlier = earlier
        waiting.append(rows)
    if waiting:
        yield waiting_earlier, pa.concat_tables(waiting)


def _without(rows: pa.Table, keys: Collection[str]) -> pa.Table:
    return rows.filter(pa.array([key not in keys for key in rows["id"].to_pylist()], pa.bool_()))


def _unread(table: Table, salvage: Salvage, count: int) -> str:
    record = salvage.record
    wanted = "" if record is None else f" of the {record.last[-1].rows} rows on record"
    kind = table.name.split("-")[0]
    file = f"{table.name}.lance/data/{min(salvage.unread)}"
    return (
        f"nothing was repaired: {count}{wanted} of the table of {kind} can be read, and {len(salvage.unread)} data "
        f"files that may hold others would be removed (e.g. {file}); put back the files of this table from a copy, or "
        "repair with --accept-loss"
    )
