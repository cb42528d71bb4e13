"""One answer of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Crop = tuple[float, float, float, float]
"""Left, top, right and bottom, as shares of the upright picture's width and height."""


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Where a matcher looked: for the explain views.

    - `words`: the query's words as the model reads them.
    - `of_regions`: each word's attention over the rows and columns of the picture's regions; each word's sum to 1.
    - `of_words`: the attention over the words of each `reader`, which sums to 1: of each step of the identity-aware
      decoder, or of each of HGAN's regions, row by row.
    - `crop`: the part of the upright picture that the model saw, and that `of_regions` divides into rows and columns:
      left, top, right and bottom, as shares of its width and height in [0, 1].

    `of_regions` and `of_words` are None where the model has no such attention.
    """

    words: tuple[str, ...]
    of_regions: Float[np.ndarray, "words map_height map_width"] | None
    of_words: Float[np.ndarray, "readers words"] | None
    reader: Literal["step", "region"]
    crop: Crop

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, nested lists in the same order."""
        return {
            "words": list(self.words),
            "of_regions": None if self.of_regions is None else self.of_regions.tolist(),
            "of_words": None if self.of_words is None else self.of_words.tolist(),
            "reader": self.reader,
            "crop": list(self.crop),
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """A picture that a search found.

    - `rank`: from 1.
    - `score`: dot product with the query, for L2-normalised embeddings the cosine, in [-1, 1]; higher is
      better.
    - `path`: the picture's file when it was indexed; `id`: its key in the store.
    - `identity`: whom or what it shows, where the metadata say so.
    - `metadata`: everything else that was given for it.
    - `taken`: when, by the camera's own clock, where that is known.
    - `confidence`: of the matcher that re-ranked it, in [0, 1]; None for a picture that none did.
    - `probability`: that it is a right answer to a text, in [0, 1], where the model is calibrated
      (`limner.evaluation.calibration`).
    - `group`: with grouping, how many of the pictures that were ranked are of its group, itself among them.
    - `attention`: where that matcher looked, where a query asks for it.
    """

    rank: int
    score: float
    path: Path
    id: str
    identity: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    confidence: float | None = None
    attention: Attention | None = None
    taken: datetime | None = None
    probability: float | None = None
    group: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "rank": self.rank,
            "score": self.score,
            "path": str(self.path),
            "id": self.id,
            "identity": self.identity,
            "metadata": dict(self.metadata),
            "taken": None if self.taken is None else self.taken.isoformat(),
            "confidence": self.confidence,
            "probability": self.probability,
            "group": self.group,
            **({} if self.attention is None else {"attention": self.attention.to_dict()}),
        }
