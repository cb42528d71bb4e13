"""The progress of a training run on the terminal: a bar for the epoch, a line for each finished epoch."""

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from limner.training.log import EpochEnded, Event, Preparing, StageEnded, Stepped

SECONDS_BETWEEN_LINES = 60
"""Seconds between two lines of progress without a terminal."""


class TrainingProgress:
    """Listens to training events; use it as a context.

    Where the console is no terminal (a log file), a plain line every minute takes the bar's place.
    """

    def __init__(self, console: Console) -> None:
        self._said = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
            # rich would write an empty line for each bar into a file
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, note="")
        self._stage: tuple[str, float, int] | None = None
        self._prepared: tuple[Preparing, float] | None = None

    def __enter__(self) -> "TrainingProgress":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def listen(self, event: Event) -> None:
        """Draw one event."""
        if isinstance(event, Preparing):
            self._show(event.what, event.done, event.total, self._speed(event))
        elif isinstance(event, Stepped):
            self._show(
                f"{event.stage} {event.epoch}/{event.epochs}",
                event.step,
                event.steps,
                f"loss {event.losses['loss']:.3f}  {event.rate:.0f} pairs/s  {self._left(event)} left",
            )
        elif isinstance(event, EpochEnded):
            # through the bar's console, which draws the line above the bar
            self._progress.console.print(_line(event.row, event.improved), markup=False)
        elif isinstance(event, StageEnded):
            self._progress.console.print(
                f"{event.stage}: {event.reason}; best epoch {event.best_epoch}, "
                f"validation score {event.best_score:.2f}",
                markup=False,
            )

    def _show(self, what: str, done: int, total: int, note: str) -> None:
        self._progress.update(self._task, description=what, completed=done, total=total, note=note)
        if self._progress.disable and time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            line = f"{what}  {done}/{total}  {note}".rstrip()
            self._progress.console.print(line, markup=False, highlight=False)

    def _speed(self, event: Preparing) -> str:
        """Pictures per second since the first event of its kind, and time left; empty for that first one."""
        now = time.monotonic()
        first, began = self._prepared or (event, now)
        # counted from here: features that an interrupted run has left would make this one look fast
        if event.what != first.what or event.done <= first.done:
            self._prepared = (event, now)
            return ""
        # two events may fall into one tick of the clock
        rate = (event.done - first.done) / max(now - began, 1e-3)
        left = _clock((event.total - event.done) / rate)
        return f"{rate:.{0 if rate >= 10 else 1}f} pictures/s  {left} left"

    def _left(self, event: Stepped) -> str:
        """Time left in the stage at its rate so far, validation included."""
        done = event.epoch - 1 + event.step / event.steps
        if self._stage is None or self._stage[0] != event.stage:
            # a millisecond ago, so that some time has passed at the first step
            self._stage = (event.stage, time.monotonic() - 1e-3, event.epoch)
            # a resumed stage begins in its middle
            self._start = done
        passed = time.monotonic() - self._stage[1]
        share = done - self._start
        # no rate is known before the second step
        if share <= 0:
            return "?"
        return _clock(passed / share * (event.epochs - done))


def _clock(duration: float) -> str:
    seconds = int(duration)
    # hours beyond 24 stay hours: a long run reads 277:45:30
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _line(row: Mapping[str, object], improved: bool) -> str:
    parts = [
        f"{row['stage']} {row['epoch']}",
        f"loss {row['loss']:.3f}",
        f"{row['pairs_per_second']} pairs/s",
    ]
    for direction, name in (("image_to_text", "image→text"), ("text_to_image", "text→image")):
        measured = row.get(direction)
        # epochs that are not validated have no measures
        if isinstance(measured, Mapping):
            parts.append(f"{name} R@1/5/10 " + "/".join(f"{measured[f'R@{k}']:.1f}" for k in (1, 5, 10)))
    return "  ".join(parts) + ("  ← best" if improved else "")
