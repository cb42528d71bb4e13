"""The consoles of the commands: results on stdout, progress and notes on stderr.

rich draws tables and progress bars, and is imported only where one is drawn: its import is a third of the time that
`limner recipes list` takes.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from limner.errors import SettingsError
from limner.one_line import one_line

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console


class Screen:
    """One of the two streams.

    Text is written as it stands: a file may be called "[bold]" or ":dog:", and rich would read emoji codes even where
    it reads no markup. All of it is escaped here, so that no command has to think of it: a file, a caption or a fact
    may hold what a terminal takes for its commands.
    """

    def __init__(self, stream: str, console: "Console | None" = None) -> None:
        self._stream, self._console = stream, console
        self.muted = False
        """True if what is printed is dropped."""

    @property
    def rich(self) -> "Console":
        """The stream as a console of rich, for tables and bars."""
        if self._console is None:
            from limner.cli.escaping_console import EscapingConsole

            self._console = EscapingConsole(
                stderr=self._stream == "stderr", markup=False, emoji=False, highlight=False, soft_wrap=True
            )
        self._console.quiet = self.muted
        return self._console

    @property
    def is_terminal(self) -> bool:
        """True if somebody watches, so that a bar can be drawn."""
        if self._console is not None:
            return self._console.is_terminal
        # asked of the stream: rich is not imported only to learn that there is nothing to draw
        return bool(getattr(sys, self._stream).isatty())

    def print(self, what: object = "") -> None:
        """Write a line of text, line breaks in it escaped, or draw what rich draws."""
        if self.muted:
            return
        if isinstance(what, str):
            what = one_line(what)
        if isinstance(what, str) and self._console is None:
            # looked up at each call: pytest and torch's launcher put other streams in their place
            stream = getattr(sys, self._stream)
            stream.write(what + "\n")
            # a file or a service's log would get the lines of a watch at its end
            stream.flush()
        else:
            self.rich.print(what)

    def print_lines(self, text: str) -> None:
        """Write a text of several lines, such as JSON; names in it cannot have line breaks."""
        for line in text.split("\n"):
            self.print(line)


out = Screen("stdout")
err = Screen("stderr")


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        err.print(self.format(record))


def show_log_lines() -> None:
    """Print what `limner.data` logs of long work, such as the unpacking of shards, a line each on stderr."""
    log = logging.getLogger("limner.data")
    # Commands run several times in one process in tests and notebooks.
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())
        log.setLevel(logging.INFO)
        # A handler of the root logger would print the line once more.
        log.propagate = False


@contextmanager
def counting_each(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar with rate and time left for each thing that is counted, fed by (what, done, total).

    The bar of the first one is there before its total is known. Nothing is drawn into a file: rich would write an empty
    line for each bar there.
    """
    if err.muted or not err.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # columns of our own: rich's default description reads markup, and a bar may be named after a file
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
    )
    # transient: the bars go when the work is done, and the results stand alone
    with Progress(*columns, console=err.rich, transient=True) as progress:
        tasks = {first: progress.add_task(first, total=None, rate="")}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, rate="")
            # the number of a task is its place in the list as long as none is removed; no speed before two updates
            speed = progress.tasks[tasks[what]].speed
            progress.update(tasks[what], completed=done, total=total, rate=f"{speed:.0f}/s" if speed else "")

        yield update


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with rate and time left, fed by (done, total)."""
    with counting_each(what) as update:
        yield partial(update, what)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on the terminal what is being done, if there is nothing to count."""
    if err.muted or not err.is_terminal:
        yield
        return
    # a status and no bar: t-SNE and ranking say nothing of how far they are
    with err.rich.status(what):
        yield


def save_sheet(sheet: "Image", path: Path) -> None:
    """Save a picture under the name of an option. Raises `SettingsError`."""
    try:
        sheet.save(path)
    # Pillow knows formats by the file's ending, and calls an unknown one a ValueError
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: the sheet cannot be saved ({error}); try a name in .jpg") from None
    err.print(f"drawn to {path}")


def say_looks(looks: int | None, problem: str, split: str) -> None:
    """Tell how often a run was evaluated on a test split, and what is wrong with the log that counts it."""
    if problem:
        unknown = "how often this run was evaluated on this split is not known: " if looks is None else ""
        err.print(f"{unknown}{problem}")
    if split == "test" and looks is not None and looks > 1:
        # said, since a recipe that is changed after each look is chosen on the test split
        err.print(f"this run was evaluated on this split {looks} times; choose nothing by it")
