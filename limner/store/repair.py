"""Repairs a store: sound rows are kept, and damaged ones are encoded again from their files.

What can be read of the tables is read in a process of its own (`limner.search.salvage`), of each table one version.
Rows whose digests are right, and whose bytes in the segments are, go into the tables of a new generation as they are.
Of the others those with sound facts are encoded again, if the file is still there. The new generation takes over in one
step, so that a repair that was killed has changed nothing; and only if nothing is lost, or the caller accepts that.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from limner.errors import SettingsError, StoreError
from limner.search.commits import column_sum
from limner.store.entry import FIELDS, PLACE, StoredImage, key_of
from limner.search.image_look import Note, Seen, look_at
from limner.store.manifest import StoreManifest, write_manifest
from limner.search.row_digests import DIGEST, damaged
from limner.search.salvage import Salvage, SalvageProcess
from limner.store.files import StoreFiles
from limner.store.path import expect_own_files, reached
from limner.store.writer import StoreWriter
from limner.search.table import Table, with_vectors
from limner.store.verify import BESIDE, DAMAGE, verify
from limner.store_reports import Repair
from limner.types import Encoder

_BATCH = 64  # images that are encoded at once
_ROWS = 8192  # rows of a commit

ModelSource = Callable[[], Encoder]
"""Loads the store's model; it is called if an image or a sentence is damaged, also for a repair that is refused."""


def repair(
    files: StoreFiles,
    model: ModelSource,
    *,
    accept_loss: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Repair:
    """Keep what is sound of a store, and encode again what is damaged and whose file is still there.

    `files` is opened with `check` off. A store whose tables are whole stays as it is, and one whose `store.json` was
    replaced by an older one has the newest generation again, before all else. If anything would be lost, nothing is
    changed unless `accept_loss` is given: the report then says what would be (`applied` is False). What is wrong with
    the model in the store's folder or with a calibration is in the report and stays. `progress` is called with the
    images that were encoded again and their total.

    Raises `SettingsError` for a store on an object storage and `StoreError` while another process writes.
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
    with reached(folder), files.taking_over() as manifest:
        repairing = _Repairing(files, folder, manifest, model, progress)
        repairing.read()
        planned = repairing.report(beside, applied=False)
        if accept_loss or not planned.loses:
            repairing.encode()
            # a file may have changed since it was looked at
            planned = repairing.report(beside, applied=False)
        if planned.loses and not accept_loss:
            return planned
        repairing.take_over()
        return repairing.report(beside, applied=True)


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
        self.damaged: list[dict[str, Any]] = []
        """Keys and paths of pictures whose facts are damaged, as they are read."""
        self.broken: dict[str, StoredImage] = {}
        """Pictures to encode again, by their keys."""
        self.texts: dict[str, dict[str, Any]] = {}
        """Sentences to encode again, by theirs."""
        self.repaired: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.lost_sentences: list[str] = []
        self.foreign: list[str] = []
        self.earlier = 0
        self.missing: list[str] = []
        """Faults in the number of a table's rows, in words."""

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = self._model()
            self.files.check_model(self._encoder.fingerprint, self._encoder.dim)
        return self._encoder

    def read(self) -> None:
        """Copy sound rows into the new tables, and note what must be encoded again and what is lost."""
        with SalvageProcess() as process:
            kept, count = self._keep(process, self.files.table, self.pictures, self._sound_pictures)
            # of two rows of one key the other may be sound
            self.broken = {key: entry for key, entry in self.broken.items() if key not in kept}
            for key, entry in list(self.broken.items()):
                if isinstance(seen := self._look(entry), str):
                    self.lost.append((entry.path, seen))
                    del self.broken[key]
            known = kept | self.broken.keys()
            # a damaged path may read as that of another picture
            self.lost += [
                (str(row["path"]), "its row is damaged; index its folder again")
                for row in self.damaged
                if row["id"] not in known or row["id"] != _key_of(row["path"])
            ]
            self._account(self.files.table, count, len(known) + len(self.lost))
            loses_pictures = bool(self.lost or self.foreign or self.missing)
            kept, count = self._keep(
                process,
                self.files.sentences,
                self.sentences,
                lambda rows: self._sound_sentences(rows, known if loses_pictures else None),
            )
            self.texts = {key: row for key, row in self.texts.items() if key not in kept}
            self._account(self.files.sentences, count, len(kept) + len(self.texts) + len(self.lost_sentences))

    def encode(self) -> None:
        """Encode again what `read` has found damaged."""
        self._encode(list(self.broken.values()))
        self._encode_sentences(list(self.texts.values()))
        self.broken, self.texts = {}, {}

    def take_over(self) -> None:
        """Let the new tables take the place of the old ones."""
        new = {"pictures": self.pictures, "sentences": self.sentences}
        for kind in self.files.manifest.begun:
            # a generation without a table is not told from one whose tables are lost
            if not new[kind].is_there():
                new[kind].merge(new[kind].schema.empty_table().drop_columns([DIGEST]))
        begun = tuple(kind for kind, table in new.items() if table.is_there())
        write_manifest(self.folder, self.manifest.model_copy(update={"begun": begun}))
        self.files.follow()

    def report(self, beside: tuple[str, ...], *, applied: bool) -> Repair:
        """The repair, as it is done or would be."""
        return Repair(
            applied=applied,
            pictures=len(self.pictures) + len(self.broken),
            sentences=len(self.sentences) + len(self.texts),
            repaired=tuple(sorted([*self.repaired, *(entry.path for entry in self.broken.values())])),
            lost=tuple(sorted(self.lost)),
            lost_sentences=tuple(self.lost_sentences),
            foreign=tuple(self.foreign),
            earlier=self.earlier,
            beside=beside,
            missing=tuple(self.missing),
        )

    def _keep(
        self,
        process: SalvageProcess,
        old: Table,
        new: Table,
        sound: Callable[[pa.Table], pa.Table],
    ) -> tuple[set[str], int]:
        """Copy sound rows into the new table, and return their keys, and the number of all rows that could be read."""
        salvage = Salvage(process, self.folder, old.name, old.schema, old.record())
        kept_keys: set[str] = set()
        count, total = 0, (0, 0)
        for rows in _commits_of(salvage.rows()):
            # their digests are right all the same: a row does not say whose it is, its table does
            if old.is_foreign(rows.schema):
                self.foreign.append(old.name)
                break
            low, high = column_sum(rows[DIGEST])
            count, total = count + len(rows), ((total[0] + low) % 2**64, (total[1] + high) % 2**64)
            kept = _first_of_each(sound(rows), kept_keys)
            if len(kept):
                new.merge(kept)
        if salvage.is_ahead or not old.is_last(count, total):
            # there are rows that nobody can read any more, or a commit or the record is lost
            record = salvage.record
            of = "" if record is None else f" of the {record.last[-1].rows} on record"
            self.missing.append(f"{old.name}.lance: {count} rows{of} can be read")
            if not salvage.is_last:
                self.earlier += count
        return kept_keys, count

    def _account(self, table: Table, rows: int, accounted: int) -> None:
        """Say of how many rows nothing else is said; whatever the damage was, none goes without a word."""
        if accounted < rows:
            self.missing.append(
                f"{table.name}.lance: {rows - accounted} rows stand for what another row stands for"
            )

    def _sound_pictures(self, rows: pa.Table) -> pa.Table:
        """The rows that can stay; others are in `broken`, and those with damaged facts in `damaged`."""
        facts, vectors = damaged(rows, rows.schema)
        stays = ~facts & ~vectors
        self.damaged += rows.select(["id", "path"]).filter(pa.array(facts)).to_pylist()
        # Python has no value for some that damage makes, as of times
        for place, row in zip(
            np.flatnonzero(~facts),
            rows.select(["id", *FIELDS, *PLACE]).filter(pa.array(~facts)).to_pylist(),
            strict=True,
        ):
            stays[place] &= self._bytes_are_sound(row)
            if not stays[place]:
                self.broken[row["id"]] = StoredImage.from_row(row)
        return rows.filter(pa.array(stays))

    def _sound_sentences(self, rows: pa.Table, pictures: Collection[str] | None) -> pa.Table:
        """The sentences that can stay; of those whose embedding alone is damaged, text and path go to `texts`.

        `pictures`: keys of those that are left, or None if none is lost. The sentences of others go with them: what
        takes their place could be the picture of somebody else.
        """
        facts, vectors = damaged(rows, rows.schema)
        stays = ~facts & ~vectors
        for place, row in enumerate(rows.select(["id", "text", "path"]).to_pylist()):
            is_gone = pictures is not None and row["path"] is not None and key_of(row["path"]) not in pictures
            if facts[place] or is_gone:
                self.lost_sentences.append(str(row["text"]))
                stays[place] = False
            elif vectors[place]:
                self.texts[row["id"]] = row
        return rows.filter(pa.array(stays))

    def _bytes_are_sound(self, row: dict[str, Any]) -> bool:
        try:
            self.files.stored.thumbnails([row])
            if self.files.region_shape is not None:
                self.files.stored.regions([row])
        except StoreError:
            return False
        return True

    def _encode(self, broken: Sequence[StoredImage]) -> None:
        """Encode images again from their files."""
        writer = StoreWriter(self.folder, self.files.dim, self.pictures, self.files.stored)
        for start in range(0, len(broken), _BATCH):
            looked = []
            for entry in broken[start : start + _BATCH]:
                seen = self._look(entry)
                if isinstance(seen, str):
                    # since `read` has looked
                    self._lose(entry.path, seen)
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
                self.repaired += [seen.entry.path for seen in looked]
            if writer.due:
                writer.commit()
            if self.progress is not None:
                self.progress(min(start + _BATCH, len(broken)), len(broken))
        writer.commit()

    def _look(self, entry: StoredImage) -> Seen | str:
        """An image as it can be encoded again, or why it cannot."""
        note = Note(entry.identity, entry.metadata, entry.taken)
        seen = look_at(entry.path, None, note, self.encoder.prepare_image)
        if isinstance(seen, str) or seen.entry.sha256 == entry.sha256:
            return seen
        # its identity and metadata are of another picture, perhaps
        return "its file has changed since; index it again"

    def _lose(self, path: str, reason: str) -> None:
        """Note an image as lost, with its sentences."""
        self.lost.append((path, reason))
        rows = [*self.sentences.all(["text", "path"]).to_pylist(), *self.texts.values()]
        self.lost_sentences += [row["text"] for row in rows if row["path"] == path]
        self.texts = {key: row for key, row in self.texts.items() if row["path"] != path}
        self.sentences.delete([path], "path")

    def _encode_sentences(self, texts: Sequence[dict[str, Any]]) -> None:
        known = [row for row in texts if self.encoder.known_words(row["text"])]
        self.lost_sentences += [row["text"] for row in texts if row not in known]
        if known:
            columns = [self.sentences.schema.field(name) for name in ("id", "text", "path")]
            table = pa.Table.from_pylist(known, schema=pa.schema(columns))
            vectors = self.encoder.encode_texts([row["text"] for row in known])
            field = self.sentences.schema.field("vector")
            self.sentences.merge(with_vectors(table, field, np.asarray(vectors, np.float32)))


def _commits_of(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join parts of a table to such as are worth a commit."""
    waiting: list[pa.Table] = []
    for rows in parts:
        waiting.append(rows)
        if sum(map(len, waiting)) >= _ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _key_of(path: str | None) -> str | None:
    """Key of a path that may be damaged."""
    return None if path is None else key_of(path)


def _first_of_each(rows: pa.Table, seen: set[str]) -> pa.Table:
    """Rows of keys that are not in `seen` yet, which takes them up; LanceDB would keep several of a key."""
    first = []
    for key in rows["id"].to_pylist():
        first.append(key not in seen)
        seen.add(key)
    return rows.filter(pa.array(first, pa.bool_()))
