"""Sentences in a store, to be found by a picture: a table of their own beside the pictures'.

STORE/sentences.lance   one row a sentence: id, text, path of the picture that it describes or null, vector
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float

from limner.errors import DataError, SettingsError
from limner.search.snapshot import top
from limner.search.store import Store
from limner.search.table import matrix_of, with_vectors
from limner.search.vectors import Vectors
from limner.types import Encoder


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the absolute path of the picture that it describes, where there is one."""

    text: str
    path: str | None = None

    @property
    def id(self) -> str:
        """Key of the row: a digest of both, 32 hex digits."""
        return hashlib.sha256(f"{self.text}\0{self.path or ''}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class SentenceHit:
    """A sentence that a search found: its rank from 1, its cosine with the query, and the picture it is of."""

    rank: int
    score: float
    text: str
    path: Path | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        path = None if self.path is None else str(self.path)
        return {"rank": self.rank, "score": self.score, "text": self.text, "path": path}


@dataclass(frozen=True)
class SentenceSummary:
    """What `SentenceTable.index` did: sentences added, there already, without a word that the model knows, removed."""

    added: int
    unchanged: int
    unknown: tuple[str, ...]
    removed: int


@dataclass(frozen=True, eq=False)
class _Snapshot:
    store: str
    version: int
    table: pa.Table
    vectors: Vectors


class SentenceTable:
    """The sentences of a store, embedded by its model."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._table = store.sentences
        self._snapshot: _Snapshot | None = None

    def __len__(self) -> int:
        return len(self._table)

    def index(
        self,
        encoder: Encoder,
        sentences: Iterable[Sentence],
        *,
        batch_size: int = 1024,
        progress: Callable[[int, int], None] | None = None,
    ) -> SentenceSummary:
        """Add sentences, one commit a batch; those that are there already are left.

        Other sentences of the same pictures are removed. A sentence without a word that the model knows is left out and
        listed. Raises `StoreError` for another model and while another process writes, `DataError` for text that is not
        Unicode, `SettingsError` for a batch below 1.
        """
        if batch_size < 1:
            raise SettingsError(f"expected a batch size of at least 1, got {batch_size}")
        self.store.check_model(encoder.fingerprint, encoder.dim)
        with self.store.writing():
            try:
                wanted = {sentence.id: sentence for sentence in sentences}
            except UnicodeEncodeError:
                raise DataError("a sentence or its picture's name is not valid Unicode") from None
            stored = self._table.all(["id", "path"]).to_pylist()
            there = {row["id"] for row in stored}
            pictures = {sentence.path for sentence in wanted.values()} - {None}
            gone = [row["id"] for row in stored if row["path"] in pictures and row["id"] not in wanted]
            self._table.delete(gone)
            fresh = [sentence for key, sentence in wanted.items() if key not in there]
            known = [sentence for sentence in fresh if encoder.known_words(sentence.text)]
            for start in range(0, len(known), batch_size):
                batch = known[start : start + batch_size]
                self._add(batch, encoder.encode_texts([sentence.text for sentence in batch]))
                if progress is not None:
                    progress(start + len(batch), len(known))
            if len(known) > 8 * batch_size:
                self._table.compact()
        unknown = tuple(sentence.text for sentence in fresh if not encoder.known_words(sentence.text))
        return SentenceSummary(len(known), len(wanted) - len(fresh), unknown, len(gone))

    def search(self, query: Float[np.ndarray, " dim"], k: int) -> list[SentenceHit]:
        """The k sentences nearest to a query vector, best first; exact, equal ones by text."""
        snapshot = self._current()
        scores = snapshot.vectors.scores(np.ascontiguousarray(query, np.float32))
        best = top(scores, k)
        rows = snapshot.table.take(pa.array(best, pa.int64())).select(["text", "path"]).to_pylist()
        return [
            SentenceHit(
                rank, float(scores[place]), row["text"], None if row["path"] is None else Path(row["path"])
            )
            for rank, (place, row) in enumerate(zip(best, rows, strict=True), start=1)
        ]

    def _add(self, sentences: Sequence[Sentence], vectors: Float[np.ndarray, "sentences dim"]) -> None:
        if not np.isfinite(vectors).all():
            raise DataError("embeddings hold NaN or infinite values; the model has diverged")
        rows = [{"id": one.id, "text": one.text, "path": one.path} for one in sentences]
        columns = self._table.schema
        table = pa.Table.from_pylist(rows, schema=columns.remove(columns.get_field_index("vector")))
        self._table.merge(with_vectors(table, columns.field("vector"), np.asarray(vectors, np.float32)))

    def _current(self) -> _Snapshot:
        self.store.follow()
        version, store = self._table.version, self.store.card.id
        if self._snapshot is None or (self._snapshot.store, self._snapshot.version) != (store, version):
            rows = self._table.all(["text", "path", "vector"])
            order = pc.sort_indices(rows, [("text", "ascending"), ("path", "ascending")])
            vectors = Vectors.of(matrix_of(rows["vector"], self.store.dim)[order.to_numpy()])
            self._snapshot = _Snapshot(store, version, rows.drop_columns(["vector"]).take(order), vectors)
        return self._snapshot
