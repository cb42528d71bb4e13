"""One answer of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Hit:
    """A picture that a search found.

    - `rank`: from 1.
    - `score`: dot product with the query, for L2-normalised embeddings the cosine, in [-1, 1]; higher is
      better.
    - `path`: the picture's file when it was indexed; `id`: its key in the store.
    - `identity`: whom or what it shows, where the metadata say so.
    - `metadata`: everything else that was given for it.
    """

    rank: int
    score: float
    path: Path
    id: str
    identity: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "rank": self.rank,
            "score": self.score,
            "path": str(self.path),
            "id": self.id,
            "identity": self.identity,
            "metadata": dict(self.metadata),
        }
