"""The log of a training run: its events while it runs, and metrics.jsonl, one line an epoch.

The command line draws the events, tests collect them. The same numbers go to TensorBoard where it is installed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limner.errors import CheckpointError

LOG_FILE = "metrics.jsonl"


@dataclass(frozen=True)
class Preparing:
    """Something before the first step: `what` is done for `done` of `total` pictures, or all at once (0 of 1)."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Stepped:
    """One step is done. `losses` are the mean so far in this epoch; `rate` is the pairs per second."""

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
    """The listener that ignores every event."""


class MetricsLog:
    """Appends rows; `cut` first drops rows of epochs that a resumed run will run again.

    TensorBoard counts epochs over all stages. Both raise `CheckpointError` when the disk refuses.
    """

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        self.path = folder / LOG_FILE
        self.enabled = enabled
        self._rows = 0
        self._writer: Any = None

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes; called once, before the first row."""
        if not self.enabled:
            return
        # "a+" creates a missing file and never clears one; in bytes, since the progress counts bytes.
        with self._refusals(), self.path.open("ab+") as log:
            log.truncate(size)
            # TensorBoard's count of epochs goes on from the rows that are kept.
            log.seek(0)
            self._rows = log.read().count(b"\n")
        self._writer = _tensorboard(self.path.parent, self._rows)

    def add(self, row: Mapping[str, Any]) -> int:
        """Append a row and return the log's length in bytes."""
        if not self.enabled:
            return 0
        with self._refusals(), self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
            # Through to the system before the state is written, which counts these bytes.
            log.flush()
            size = log.tell()
        self._rows += 1
        if self._writer is not None:
            # Epochs begin anew in each stage, and TensorBoard's steps must not go back: rows count on.
            for name, value in _flat(row):
                self._writer.add_scalar(f"{row['stage']}/{name}", value, self._rows)
        return size

    def close(self) -> None:
        """Flush TensorBoard's file."""
        # SummaryWriter writes from a thread of its own every two minutes; a run that ends would lose the last rows.
        if self._writer is not None:
            self._writer.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Resuming cuts the log at the last state, so half a row does no harm.
            raise CheckpointError(
                f"{self.path}: cannot be written ({error.strerror}); check the disk's space and rights, then resume"
            ) from None


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        # Rows are counted by epochs as it is, so `epoch` is no curve.
        elif isinstance(value, int | float) and name != "epoch":
            yield prefix + name, float(value)


def _tensorboard(folder: Path, rows: int) -> Any:
    """TensorBoard's writer, if it is installed; its later rows are dropped."""
    try:
        # Optional, and slow to import: only where a run writes.
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    # Steps from here on belong to epochs that will be run again; purge_step hides them in the old files.
    return SummaryWriter(str(folder / "tensorboard"), purge_step=rows + 1)
