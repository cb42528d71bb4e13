"""Sentences in a store, which an image finds: a table of their own beside that of the images."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float

from limner.errors import DataError, SettingsError
from limner.store.digests import total_of, vector_sums
from limner.store.files import StoreFiles
from limner.store.kept_model import as_stored
from limner.store.rows import Reading, SentenceRow, State
from limner.store.sound import damaged, matrix_of, sound_sentences
from limner.store.vectors import Vectors
from limner.store.writer import StoreWriter
from limner.store_reports import SentencesReport
from limner.types import Encoder
from limner.wire import FoundSentence


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the absolute path of the image that it describes, if it describes one."""

    text: str
    path: str | None = None

    @property
    def id(self) -> str:
        """Key of the row: a digest of both, 32 hex digits."""
        # \0 keeps the two parts apart: no path can hold it
        return hashlib.sha256(f"{self.text}\0{self.path or ''}".encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class _Snapshot:
    identity: tuple[object, ...]
    sentences: list[Sentence]
    vectors: Vectors

    @cached_property
    def by_picture(self) -> Mapping[str, Sequence[str]]:
        said: defaultdict[str, list[str]] = defaultdict(list)
        for one in self.sentences:
            if one.path is not None:
                said[one.path].append(one.text)
        return said


_NONE: Mapping[str, Sequence[str]] = {}


class SentenceTable:
    """The sentences of a store, embedded by its model."""

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self._snapshot: _Snapshot | None = None

    def __len__(self) -> int:
        with self.files.rows.reading() as reading:
            return reading.state("sentences").rows

    def index(
        self,
        encoder: Encoder,
        sentences: Iterable[Sentence],
        *,
        batch_size: int = 1024,
        progress: Callable[[int, int], None] | None = None,
    ) -> SentencesReport:
        """Add sentences, one commit a batch; sentences that the store has already stay.

        Other sentences of the same images are removed. A sentence without a word that the model knows is left out and
        listed. Raises `StoreError` for another model and while another process writes, `DataError` for text that is not
        Unicode, `SettingsError` for a batch below 1.
        """
        if batch_size < 1:
            raise SettingsError(f"expected a batch size of at least 1, got {batch_size}")
        self.files.check_model(encoder.fingerprint, encoder.dim)
        encoder = as_stored(encoder, self.files)
        with self.files.changing() as writer:
            try:
                # the digests encode all text, so that broken Unicode is found before anything is written
                wanted = {sentence.id: sentence for sentence in sentences}
            except UnicodeEncodeError:
                raise DataError("a sentence or its picture's name is not valid Unicode") from None
            stored = {row.id: row.path for row, _ in self._read()}
            pictures = {sentence.path for sentence in wanted.values()} - {None}
            # a new edition of a dataset replaces the sentences of its images; all others stay
            gone = [key for key, path in stored.items() if path in pictures and key not in wanted]
            writer.delete_sentences(gone)
            fresh = [sentence for key, sentence in wanted.items() if key not in stored]
            # a sentence of unknown words alone has an arbitrary embedding, which some query would be nearest to
            known = [sentence for sentence in fresh if encoder.known_words(sentence.text)]
            for start in range(0, len(known), batch_size):
                batch = known[start : start + batch_size]
                vectors = encoder.encode_texts([sentence.text for sentence in batch])
                writer.add_sentences([(one.id, one.text, one.path) for one in batch], vectors)
                writer.commit()
                if progress is not None:
                    progress(start + len(batch), len(known))
        unknown = tuple(sentence.text for sentence in fresh if not encoder.known_words(sentence.text))
        # an encoder of another package may not say what it cuts
        count = getattr(encoder, "count_truncated", None)
        return SentencesReport(
            added=len(known),
            unchanged=len(wanted) - len(fresh),
            unknown=unknown,
            removed=len(gone),
            cut=0 if count is None else count([sentence.text for sentence in known]),
        )

    def move(self, writer: StoreWriter, moves: Mapping[str, str]) -> None:
        """Let sentences follow their images to new paths, given by the old ones."""
        if not moves or not len(self):
            return
        rows = self._read()
        ours = [(row, vector) for row, vector in rows if row.path in moves]
        moved = {}
        for row, vector in ours:
            one = Sentence(row.text, moves[row.path or ""])
            moved[one.id] = (one, vector)
        # a copy, or what has gone from the new path, may have the same sentence
        writer.delete_sentences([*(row.id for row, _ in ours), *moved])
        vectors = matrix_of(self.files.folder, [vector for _, vector in moved.values()], self.files.dim)
        writer.add_sentences([(key, one.text, one.path) for key, (one, _) in moved.items()], vectors)

    def search(self, query: Float[np.ndarray, " dim"], k: int) -> list[FoundSentence]:
        """Find the k sentences nearest to a query vector, best first: exact, equal scores ordered by text."""
        snapshot = self._current()
        best, scores = snapshot.vectors.first(np.ascontiguousarray(query, np.float32), k)
        # a sentence may be there before its image, and its path alone says nothing to a client
        pictures = self.files.snapshot()
        found = [snapshot.sentences[row] for row in best.tolist()]
        return [
            FoundSentence(
                rank=rank,
                score=float(score),
                text=sentence.text,
                id=pictures.key_at(sentence.path),
                key=sentence.id,
                path=None if sentence.path is None else Path(sentence.path),
            )
            for rank, (score, sentence) in enumerate(zip(scores, found, strict=True), start=1)
        ]

    def describing(self) -> tuple[list[Sentence], Float[np.ndarray, "sentences dim"]]:
        """Return the sentences that have an image, ordered by text, and their vectors."""
        snapshot = self._current()
        places = [place for place, one in enumerate(snapshot.sentences) if one.path is not None]
        return [snapshot.sentences[place] for place in places], snapshot.vectors[places]

    def by_picture(self) -> Mapping[str, Sequence[str]]:
        """The sentences of each path; the same object as long as the store is the same."""
        return self._current().by_picture if len(self) else _NONE

    def _current(self) -> _Snapshot:
        identity = self.files.follow()
        held = self._snapshot
        if held is None or held.identity != identity:
            rows = self._read()
            out = self.files.snapshot().gone
            rows = [row for row in rows if row[0].path not in out]
            # by text, so that among equal scores the order does not depend on when a sentence was added
            rows.sort(key=lambda row: (row[0].text, row[0].path is None, row[0].path or ""))
            vectors = matrix_of(self.files.folder, [vector for _, vector in rows], self.files.dim)
            sentences = [Sentence(row.text, row.path) for row, _ in rows]
            held = _Snapshot(identity, sentences, Vectors(vectors))
            self._snapshot = held
        return held

    def _read(self) -> list[tuple[SentenceRow, bytes]]:
        """All sentences of one moment, compared with their digests. Raises `StoreError`."""
        files = self.files

        def read(reading: Reading) -> tuple[State, list[tuple[SentenceRow, bytes]]]:
            return reading.state("sentences"), list(sound_sentences(files.folder, reading.sentences()))

        state, rows = files.read(read)
        vectors = matrix_of(files.folder, [vector for _, vector in rows], files.dim)
        if vector_sums(vectors) != [row.vector_sum for row, _ in rows]:
            raise damaged(files.folder, "a sentence's vector has changed since it was written")
        if (len(rows), total_of(row.digest for row, _ in rows)) != (state.rows, state.total):
            raise damaged(files.folder, f"its {len(rows)} sentences are not those of its last commit")
        return rows
