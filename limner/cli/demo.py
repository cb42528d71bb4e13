"""`limner demo`: everything on generated people, from drawing them to searching for them."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import counting, counting_each, err, out
from limner.cli.contract import command, group
from limner.cli.options import SetOption
from limner.documented import Result

if TYPE_CHECKING:
    from limner.training.log import Event

app = group("Demo.")

_PEOPLE = 1800
"""The same value as in `limner.cli.walkthrough`, whose import takes torch; a test compares them."""


class DemoSummary(Result):
    """The measures of the demo."""

    store: Path
    """Store that can be searched now."""
    sentence: str
    """A description that finds its person there."""
    text_to_image: float
    """R@1 in percent, on people that training has not seen; one seed (docs/results.md has the mean of three)."""
    colours: float
    """R@1 of comparing colours alone."""
    minutes: float
    """How long it took."""


@command(app, "demo")
def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder that everything is written to.")] = Path(
        "demo-output"
    ),
    settings: SetOption = None,
    identities: Annotated[int, "People drawn, 100 for validation and 200 for testing."] = _PEOPLE,
) -> DemoSummary:
    """Draw people, train both stages, evaluate, index, and search three times.

    Run again, it continues where it stopped. It overwrites only files of an earlier demo.
    """
    from limner.cli.walkthrough import Screen, run_demo

    screen = Screen(say=out.print, counting=counting, counting_each=counting_each, training=_training)
    done = run_demo(folder, settings or [], identities, screen)
    out.print(f"Done in {done.minutes:.1f} minutes. Try:")
    # the sentence of the demo's best search, so that the first one a user tries finds something
    out.print(f'   {_typed()} search {done.store} "{done.sentence}"')
    out.print(f"   {_typed()} serve {done.store}    # the same in a browser")
    # from the file that the demo leaves, so that both say the same
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return DemoSummary(
        store=done.store,
        sentence=done.sentence,
        text_to_image=summary["text_to_image R@1"],
        colours=summary["colours R@1"],
        minutes=done.minutes,
    )


@contextmanager
def _training() -> "Iterator[Callable[[Event], None]]":
    # here: it imports rich, which the command's help does without
    from limner.cli.training_progress import TrainingProgress

    with TrainingProgress(err.rich) as bars:
        yield bars.listen


def _typed() -> str:
    """The command to type for this program: its path, if the environment is not activated."""
    if shutil.which("limner"):
        return "limner"
    return sys.argv[0] if Path(sys.argv[0]).name != "__main__.py" else f"{sys.executable} -m limner"
