"""`limner demo`: the whole way on generated people, from drawing them to searching for them."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from limner.cli.console import counting, counting_each, err, out
from limner.cli.training_progress import TrainingProgress
from limner.demo.walkthrough import PEOPLE, Screen, run_demo
from limner.training.events import Event


def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder that everything is written to.")] = Path(
        "demo-output"
    ),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
    ] = None,
    identities: Annotated[
        int, typer.Option(help="People drawn, 100 for validation and 200 for testing.")
    ] = PEOPLE,
) -> None:
    """Draw people, train both stages, evaluate, index, and search three times.

    Run again, it goes on where it stopped. It writes over nothing that a demo has not made.
    """
    screen = Screen(say=out.print, counting=counting, counting_each=counting_each, training=_training)
    done = run_demo(folder, settings or [], identities, screen)
    out.print(f"Done in {done.minutes:.1f} minutes. Try:")
    out.print(f'   {_typed()} search {done.store} "{done.sentence}"')
    out.print(f"   {_typed()} serve {done.store}    # the same in a browser")


@contextmanager
def _training() -> Iterator[Callable[[Event], None]]:
    with TrainingProgress(err) as bars:
        yield bars.listen


def _typed() -> str:
    """How this program is to be typed: by its path in an environment that is not activated."""
    return "limner" if shutil.which("limner") else sys.argv[0]
