"""Slow twins of the optimisers on drawn rows: loops in float64, typed from the rules of SGD, Adam and AdamW."""

import math
from dataclasses import dataclass, field


@dataclass
class Row:
    """A row of weights with its moments."""

    weights: list[float]
    momentum: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        for moment in (self.momentum, self.first, self.second):
            moment.extend(0.0 for _ in self.weights)


def step_of_rows(
    rows: list[Row],
    gradients: dict[int, list[float]],
    number: int,
    *,
    name: str,
    rate: float,
    momentum: float,
    nesterov: bool,
    decay: float,
) -> None:
    """The `number`-th step, from 1, on the rows that have a gradient; the others are not looked at."""
    for k, gradient in gradients.items():
        row = rows[k]
        for i, slope in enumerate(gradient):
            w, g = row.weights[i], slope
            if name == "adamw":
                w -= rate * decay * w
            else:
                g += decay * w
            if name == "sgd":
                row.momentum[i] = momentum * row.momentum[i] + g
                w -= rate * (g + momentum * row.momentum[i] if nesterov else row.momentum[i])
            else:
                row.first[i] = momentum * row.first[i] + (1 - momentum) * g
                row.second[i] = 0.999 * row.second[i] + (1 - 0.999) * g * g
                mean = row.first[i] / (1 - momentum**number)
                square = row.second[i] / (1 - 0.999**number)
                w -= rate * mean / (math.sqrt(square) + 1e-8)
            row.weights[i] = w
