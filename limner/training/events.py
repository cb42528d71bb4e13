"""What a training run tells while it runs; the command line draws it, tests collect it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Preparing:
    """Something before the first step: `what` is done for `done` of `total` pictures, or all at once (0 of 1)."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Stepped:
    """One step is done. `losses` are the mean so far in this epoch; `rate` is pairs per second in it."""

    stage: str
    epoch: int
    epochs: int
    step: int
    steps: int
    losses: Mapping[str, float]
    rate: float


@dataclass(frozen=True)
class EpochEnded:
    """A row of metrics.jsonl: losses of the epoch, validation measures where there were any, and the best so far."""

    row: Mapping[str, object]
    improved: bool


@dataclass(frozen=True)
class StageEnded:
    """A stage is complete. `reason`: "all epochs" or "no better validation in N"."""

    stage: str
    reason: str
    best_epoch: int
    best_score: float


Event = Preparing | Stepped | EpochEnded | StageEnded
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """The listener that says nothing."""
