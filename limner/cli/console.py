"""What the commands print with: tables and results on stdout, progress and complaints on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# A file may be called "[bold]" or ":dog:"; rich reads emoji codes even where it reads no markup.
out = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
err = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


@contextmanager
def counting_each(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar with rate and time left for each thing that is counted, fed by (what, done, total).

    The bar of the first one is there before its total is known.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
    )
    # into a file, rich would write an empty line for each bar
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        tasks = {first: progress.add_task(first, total=None, rate="")}

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, rate="")
            speed = progress.tasks[tasks[what]].speed
            progress.update(tasks[what], completed=done, total=total, rate=f"{speed:.0f}/s" if speed else "")

        yield update


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with rate and time left, fed by (done, total)."""
    with counting_each(what) as update:
        yield partial(update, what)
