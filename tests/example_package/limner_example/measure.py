"""A measure: the share of queries whose last match is among the first K, so that nothing is missed there."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from limner.evaluation.measures import Matches


@dataclass(frozen=True)
class Within:
    """within@K: percent of queries with all of their true matches among the first K."""

    k: int
    unit: ClassVar[Literal["percent"]] = "percent"

    def __str__(self) -> str:
        return f"within@{self.k}"  # the name of the entry point, which a report has

    def each(self, matches: Matches) -> Float[np.ndarray, " queries"]:
        """1 where all matches are among the first K, else 0."""
        return np.asarray(matches.among(self.k) == matches.counts, np.float64)

    def over(self, values: Float[np.ndarray, " queries"]) -> float:
        """The mean, in percent."""
        return 100.0 * float(values.mean())
