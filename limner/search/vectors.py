"""Embeddings in memory, searched exactly; equal ones score alike."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from limner.evaluation.twins import twin_rows


@dataclass(frozen=True, eq=False)
class Vectors:
    """Rows, those of them that repeat an earlier one (`later`), and which (`first`)."""

    matrix: Float[np.ndarray, "rows dim"]
    later: Int[np.ndarray, " twins"]
    first: Int[np.ndarray, " twins"]

    @classmethod
    def of(cls, matrix: Float[np.ndarray, "rows dim"]) -> "Vectors":
        """Look for equal rows."""
        later, first = twin_rows(torch.from_numpy(matrix))
        return cls(matrix, later.numpy(), first.numpy())

    def scores(self, query: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " rows"]:
        """Dot products with a query.

        Equal rows get equal scores: rounding would otherwise order copies by their place in the matrix.
        """
        scores: Float[np.ndarray, " rows"] = self.matrix @ query
        scores[self.later] = scores[self.first]
        return scores
