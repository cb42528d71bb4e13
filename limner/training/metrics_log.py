"""metrics.jsonl: one line an epoch, and the same numbers for TensorBoard where it is installed."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limner.errors import CheckpointError

LOG_FILE = "metrics.jsonl"


class MetricsLog:
    """Appends rows; `cut` drops rows of epochs that a resumed run will run again.

    Both raise `CheckpointError` when the disk refuses.
    """

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        self.path = folder / LOG_FILE
        self.enabled = enabled
        self._writer = _tensorboard(folder) if enabled else None

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes."""
        if self.enabled and self.path.exists():
            with self._refusals(), self.path.open("rb+") as log:
                log.truncate(size)

    def add(self, row: Mapping[str, Any]) -> int:
        """Append a row and return the log's length in bytes."""
        if not self.enabled:
            return 0
        with self._refusals(), self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
            log.flush()
            size = log.tell()
        if self._writer is not None:
            for name, value in _flat(row):
                self._writer.add_scalar(f"{row['stage']}/{name}", value, row["epoch"])
        return size

    def close(self) -> None:
        """Flush TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot be written ({error.strerror}); check the disk's space and rights, then resume"
            ) from None


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "epoch":
            yield prefix + name, float(value)


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))
