"""The log of a training run: its events while it runs, and metrics.jsonl, one line an epoch.

The command line draws the events, tests collect them. The same numbers go to TensorBoard where it is installed.
"""

import errno
import io
import json
import os
import socket
import time
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
        self._is_cut = False
        self._events: _EventFile | None = None

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes, at the first call, which comes before the first row; later calls do nothing."""
        if not self.enabled or self._is_cut:
            return
        self._is_cut = True
        # "a+" creates a missing file and never clears one; in bytes, since the progress counts bytes.
        with self._refusals(), self.path.open("ab+") as log:
            # A log that is shorter, as somebody removed it, would be filled up with zeros.
            log.truncate(min(size, log.seek(0, os.SEEK_END)))
            # TensorBoard's count of epochs goes on from the rows that are kept.
            log.seek(0)
            self._rows = log.read().count(b"\n")
            self._events = _event_file(self.path.parent / "tensorboard", self._rows)

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
        if self._events is not None:
            # Epochs begin anew in each stage, and TensorBoard's steps must not go back: rows count on.
            with self._refusals():
                self._events.add({f"{row['stage']}/{name}": value for name, value in _flat(row)}, self._rows)
        return size

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._events is not None:
            self._events.close()

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


class _EventFile:
    """TensorBoard's file of curves; its later rows of the same folder are dropped.

    Written here, in TensorBoard's own records: its `SummaryWriter` writes from a thread, which ends with a stack trace
    on the terminal when the disk is full.
    """

    def __init__(self, folder: Path, first: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._record, self._writer = Record, RecordWriter
        folder.mkdir(exist_ok=True)
        # TensorBoard finds the files by the first part of the name, and reads them in the names' order
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        # unbuffered: bytes that a full disk has refused would be tried again, and complained of, at the end
        self._file = (folder / name).open("ab", buffering=0)
        # the session starts at this step: rows from it on, in older files, belong to epochs that are run again
        started = SessionLog(status=SessionLog.START)
        self._write(
            Record(wall_time=time.time(), file_version="brain.Event:2"),
            Record(wall_time=time.time(), step=first, session_log=started),
        )

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of one step."""
        record = self._record(wall_time=time.time(), step=step)
        for name, value in values.items():
            record.summary.value.add(tag=name, simple_value=value)
        self._write(record)

    def close(self) -> None:
        self._file.close()

    def _write(self, *records: Any) -> None:
        content = io.BytesIO()
        for record in records:
            self._writer(content).write(record.SerializeToString())
        # without a buffer a full disk takes what fits, without an error
        if self._file.write(content.getvalue()) < content.tell():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _event_file(folder: Path, rows: int) -> _EventFile | None:
    """Start TensorBoard's file, if it is installed."""
    try:
        # optional, and slow to import: only where a run writes
        return _EventFile(folder, rows + 1)
    except ImportError:
        return None
