"""Repairs a store: sound rows stay, and damaged ones are encoded again from their pictures' files.

What SQLite itself cannot read, no repair reads either: that is for a copy of the store, or for indexing anew. All
changes of a repair are one commit, so that one which is killed has changed nothing; and it is made only if nothing is
lost, or the caller accepts that.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from limner.errors import LimnerError, SettingsError, StoreError
from limner.search.image_look import Seen, Task, look_at, told_of
from limner.store.contents import chunks
from limner.store.entry import StoredImage
from limner.store.files import StoreFiles
from limner.store.kept_model import take_back
from limner.store.path import expect_own_files, is_remote
from limner.store.rows import SentenceRow
from limner.store.verify import BESIDE, DAMAGE, checked_pictures, checked_sentences, verify
from limner.store.writer import StoreWriter
from limner.store_reports import Repair, as_text
from limner.types import Encoder

ModelSource = Callable[[], Encoder]
"""Loads the store's model; it is called if an image or a sentence has to be encoded."""


def repair(
    files: StoreFiles,
    model: ModelSource,
    *,
    accept_loss: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Repair:
    """Keep what is sound of a store, and encode again what is damaged and whose file is still there.

    If anything would be lost, nothing is changed unless `accept_loss` is given: the report then says what would be
    (`applied` is False). A damaged model in the store's folder is taken back from its run if that still has it, which
    loses nothing; otherwise it is in the report and stays, as a damaged calibration does. `progress` is called with
    the images that were encoded again and their total.

    Raises `SettingsError` for a store on an object storage, and `StoreError` for a file that SQLite cannot read and
    while another process writes.
    """
    if is_remote(files.folder):
        raise SettingsError(
            f"{files.folder}: a store is repaired on a disk; copy it there, and back afterwards"
        )
    expect_own_files(files.folder)
    with files.writing():
        if faults := files.rows.faults():
            raise StoreError(
                f"{files.folder}: SQLite cannot read all of it ({faults[0]}); put back a copy of the store, or index "
                "into a new folder",
                "damaged",
            )
        found = verify(files).found
        repairing = _Repairing(files, model, progress)
        # first, since pictures may have to be encoded again by it
        if "model" in found:
            repairing.take_model_back()
        repairing.beside = tuple(
            f"{DAMAGE[kind]}: {found[kind].example}"
            for kind in BESIDE
            if kind in found and not (kind == "model" and repairing.model_from)
        )
        repairing.read()
        planned = repairing.report(applied=not repairing.finds)
        if not repairing.finds or (planned.loses and not accept_loss):
            return planned
        repairing.mend(accept_loss=accept_loss)
        return repairing.report(applied=accept_loss or not repairing.lost)


class _Repairing:
    """One repair: what is damaged, and what becomes of it."""

    def __init__(
        self, files: StoreFiles, model: ModelSource, progress: Callable[[int, int], None] | None
    ) -> None:
        self.files, self.progress = files, progress
        self._model = model
        self._encoder: Encoder | None = None
        self.pictures = self.sentences = 0
        self.broken: dict[str, StoredImage] = {}
        """Pictures to encode again, by the keys of their rows."""
        self.gone: dict[str, tuple[str, str]] = {}
        """Pictures that are lost, by the keys of their rows: path and reason."""
        self.lost_paths: set[str] = set()
        """All paths of these."""
        self.texts: list[SentenceRow] = []
        """Sentences to encode again."""
        self.lost_sentences: list[SentenceRow] = []
        self.missing: list[str] = []
        """Faults in the number of rows, in words."""
        self.beside: tuple[str, ...] = ()
        self.model_from: str | None = None

    @property
    def finds(self) -> bool:
        """True if anything is damaged."""
        return bool(self.broken or self.gone or self.texts or self.lost_sentences or self.missing)

    @property
    def lost(self) -> bool:
        """True if anything is lost."""
        return bool(self.gone or self.lost_sentences or self.missing)

    def take_model_back(self) -> None:
        """Replace the model in the store's folder by that of its run, if this is still the same."""
        # whatever is wrong with the run: what is wrong with the model itself is in the report
        with suppress(LimnerError):
            take_back(self.files)
            self.model_from = self.files.manifest.kept_from

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = self._model()
            self.files.check_model(self._encoder.fingerprint, self._encoder.dim)
        return self._encoder

    def read(self) -> None:
        """Note what must be encoded again and what is lost."""
        with self.files.rows.reading() as reading:
            for row, faults in checked_pictures(self.files, reading):
                if "rows" in faults:
                    self.missing.append(f"pictures: {row.path} rows of the last commit")
                elif "row" in faults:
                    self.gone[row.id] = (row.path, "its row is damaged; index its folder again")
                    self.lost_paths.add(row.path)
                    with suppress(ValueError, TypeError):
                        self.lost_paths.update(row.paths)
                elif faults:
                    self.broken[row.id] = StoredImage.of(row)
                self.pictures += "rows" not in faults and "row" not in faults
            for sentence, faults in checked_sentences(self.files, reading):
                if "rows" in faults:
                    self.missing.append(sentence.text)
                elif "row" in faults:
                    self.lost_sentences.append(sentence)
                else:
                    self.sentences += 1
                    if faults:
                        self.texts.append(sentence)
        for key, entry in list(self.broken.items()):
            if isinstance(seen := self._look(entry), str):
                self._lose(key, entry, seen)
        # what takes the place of a lost picture could be the picture of somebody else
        if lost := self.lost_paths:
            with self.files.rows.reading() as reading:
                others = [row for row, _ in reading.sentences() if row.path in lost]
            known = {row.id for row in self.lost_sentences}
            self.lost_sentences += [row for row in others if row.id not in known]
            self.texts = [row for row in self.texts if row.path not in lost]
            self.sentences -= sum(row.id not in known for row in others)

    def mend(self, *, accept_loss: bool) -> None:
        """Write what is encoded again, and remove what is lost, in one commit."""
        with self.files.changing() as writer:
            done = 0
            for keys in chunks(list(self.broken)):
                looked = {key: self._look(self.broken[key]) for key in keys}
                # a file may have changed since it was looked at
                for key, seen in looked.items():
                    if isinstance(seen, str):
                        self._lose(key, self.broken[key], seen)
                some = [seen for seen in looked.values() if not isinstance(seen, str)]
                if some:
                    self._encode(writer, some)
                done += len(keys)
                if self.progress is not None:
                    self.progress(done, len(self.broken))
            if self.lost and not accept_loss:
                raise StoreError(f"{self.files.folder}: pictures have changed meanwhile; repair it again")
            known = [row for row in self.texts if self.encoder.known_words(row.text)]
            self.lost_sentences += [row for row in self.texts if row not in known]
            writer.delete(list(self.gone))
            writer.delete_sentences([row.id for row in (*self.lost_sentences, *known)])
            if known:
                vectors = self.encoder.encode_texts([row.text for row in known])
                writer.add_sentences([(row.id, row.text, row.path) for row in known], vectors)
            writer.recount()

    def report(self, *, applied: bool) -> Repair:
        """The repair, as it is done or would be."""
        return Repair(
            applied=applied,
            pictures=self.pictures,
            sentences=self.sentences,
            repaired=tuple(sorted(entry.path for entry in self.broken.values())),
            lost=tuple(sorted((as_text(path), reason) for path, reason in self.gone.values())),
            lost_sentences=tuple(as_text(row.text) for row in self.lost_sentences),
            beside=self.beside,
            model_from=self.model_from,
            missing=tuple(self.missing),
        )

    def _lose(self, key: str, entry: StoredImage, reason: str) -> None:
        self.gone[key] = (entry.path, reason)
        self.lost_paths.update(entry.paths)
        del self.broken[key]
        self.pictures -= 1

    def _encode(self, writer: StoreWriter, looked: Sequence[Seen]) -> None:
        pixels = np.stack([seen.pixels for seen in looked if seen.pixels is not None])
        reranker = self.encoder.reranker if self.files.region_shape is not None else None
        writer.add(
            [seen.entry for seen in looked],
            self.encoder.encode_pixels(pixels),
            None if reranker is None else reranker.region_features(pixels),
            [seen.thumbnail for seen in looked],
        )

    def _look(self, entry: StoredImage) -> Seen | str:
        """An image as it can be encoded again, or why it cannot."""
        # of several files any that is as it was will do
        reasons = []
        for path in entry.paths:
            seen = look_at(Task(path, None, told_of(entry)), self.encoder.prepare_image)
            if isinstance(seen, str):
                reasons.append(seen)
            elif seen.entry.sha256 != entry.sha256:
                # its identity and metadata are of another picture, perhaps
                reasons.append("its file has changed since; index it again")
            else:
                return replace(seen, entry=replace(seen.entry.at(entry.places), key=entry.id))
        return reasons[0]
