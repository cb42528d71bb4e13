"""Sentences in a store, which an image finds: a table of their own beside that of the images.

STORE/sentences-1.lance   one row a sentence: id, text, path of the image that it describes or null, vector
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from limner.errors import DataError, SettingsError
from limner.search.commits import column_sum
from limner.search.entry import key_of
from limner.search.kept_model import as_stored
from limner.search.row_digests import DIGEST
from limner.search.snapshot import Snapshot
from limner.search.store_files import StoreFiles
from limner.search.table import matrix_of, with_vectors
from limner.search.vectors import Vectors
from limner.types import Encoder
from limner.wire import FoundSentence, SentencesReport


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
    key: tuple[str, int, int]
    table: pa.Table
    vectors: Vectors


class SentenceTable:
    """The sentences of a store, embedded by its model."""

    def __init__(self, files: StoreFiles) -> None:
        self.files = files
        self._table = files.sentences
        self._snapshot: _Snapshot | None = None

    def __len__(self) -> int:
        return self.files.read(lambda: len(self._table))

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
        with self.files.writing():
            try:
                # the digests encode all text, so that broken Unicode is found before anything is written
                wanted = {sentence.id: sentence for sentence in sentences}
            except UnicodeEncodeError:
                raise DataError("a sentence or its picture's name is not valid Unicode") from None
            stored = self._table.all(["id", "path"]).to_pylist()
            stored_ids = {row["id"] for row in stored}
            pictures = {sentence.path for sentence in wanted.values()} - {None}
            # a new edition of a dataset replaces the sentences of its images; all others stay
            gone = [row["id"] for row in stored if row["path"] in pictures and row["id"] not in wanted]
            self._table.delete(gone)
            fresh = [sentence for key, sentence in wanted.items() if key not in stored_ids]
            # a sentence of unknown words alone has an arbitrary embedding, which some query would be nearest to
            known = [sentence for sentence in fresh if encoder.known_words(sentence.text)]
            for start in range(0, len(known), batch_size):
                batch = known[start : start + batch_size]
                self._add(batch, encoder.encode_texts([sentence.text for sentence in batch]))
                if progress is not None:
                    progress(start + len(batch), len(known))
            self._table.tidy()
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

    def search(self, query: Float[np.ndarray, " dim"], k: int) -> list[FoundSentence]:
        """Find the k sentences nearest to a query vector, best first: exact, equal scores ordered by text."""
        snapshot = self._current()
        best, scores = snapshot.vectors.first(np.ascontiguousarray(query, np.float32), k)
        # a sentence may be there before its image, and its path alone says nothing to a client
        pictures = self.files.snapshot()
        rows = snapshot.table.take(pa.array(best, pa.int64())).select(["text", "path"]).to_pylist()
        return [
            FoundSentence(
                rank=rank,
                score=float(score),
                text=row["text"],
                id=_key_in(pictures, row["path"]),
                path=None if row["path"] is None else Path(row["path"]),
            )
            for rank, (score, row) in enumerate(zip(scores, rows, strict=True), start=1)
        ]

    def describing(self) -> tuple[list[Sentence], Float[np.ndarray, "sentences dim"]]:
        """Return the sentences that have an image, ordered by text, and their vectors."""
        snapshot = self._current()
        rows = snapshot.table.select(["text", "path"]).to_pylist()
        places = [place for place, row in enumerate(rows) if row["path"] is not None]
        return [Sentence(**rows[place]) for place in places], snapshot.vectors[places]

    def _add(self, sentences: Sequence[Sentence], vectors: Float[np.ndarray, "sentences dim"]) -> None:
        # one NaN in a row makes each of its scores NaN, which no later search could rank
        if not np.isfinite(vectors).all():
            raise DataError("embeddings hold NaN or infinite values; the model has diverged")
        rows = [{"id": sentence.id, "text": sentence.text, "path": sentence.path} for sentence in sentences]
        columns = self._table.schema
        # vectors are added as one buffer: from_pylist would make a Python object of each number
        names = ("id", "text", "path")
        table = pa.Table.from_pylist(rows, schema=pa.schema([columns.field(name) for name in names]))
        self._table.merge(with_vectors(table, columns.field("vector"), np.asarray(vectors, np.float32)))

    def _current(self) -> _Snapshot:
        return self.files.read(self._read)

    def _read(self) -> _Snapshot:
        manifest = self.files.manifest
        # of a store or a generation that has taken the folder since, the version alone could be the same number
        key = (manifest.id, manifest.generation, self._table.version)
        held = self._snapshot
        if held is None or held.key != key:
            rows = self._table.all(["text", "path", "vector", DIGEST])
            self._table.expect(len(rows), column_sum(rows[DIGEST]))
            # by text, so that among equal scores the order does not depend on when a sentence was added
            order = pc.sort_indices(rows, [("text", "ascending"), ("path", "ascending")])
            vectors = Vectors(matrix_of(rows["vector"], self.files.dim)[order.to_numpy()])
            held = _Snapshot(key, rows.select(["text", "path"]).take(order), vectors)
            self._snapshot = held
        return held


def _key_in(pictures: Snapshot, path: str | None) -> str | None:
    """Key of the image of a path, if the store holds it."""
    key = None if path is None else key_of(path)
    return None if key is None or pictures.row(key) is None else key
