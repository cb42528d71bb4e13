"""`limner demo`: everything on generated people, from drawing them to searching for them."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limner.cli.console import out
from limner.cli.contract import command, group
from limner.cli.options import SetOption

if TYPE_CHECKING:
    from limner.cli.walkthrough import DemoSummary

app = group("Demo.")


@command(app, "demo")
def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Folder that everything is written to.")] = Path(
        "demo-output"
    ),
    settings: SetOption = None,
    identities: Annotated[int, "People drawn, 100 for validation and 200 for testing."] = 1800,
) -> "DemoSummary":
    """Draw people, train both stages, evaluate, index, and search three times.

    Run again, it continues where it stopped. It overwrites only files of an earlier demo.
    """
    from limner.cli.walkthrough import run_demo

    done = run_demo(folder, settings or [], identities)
    out.print(f"Done in {done.minutes:.1f} minutes. Try:")
    # the sentence of the demo's best search, so that the first one a user tries finds something
    out.print(f'   {_typed()} search {done.store} "{done.sentence}"')
    out.print(f"   {_typed()} serve {done.store}    # the same in a browser")
    return done


def _typed() -> str:
    """The command to type for this program: its path, if the environment is not activated."""
    if shutil.which("limner"):
        return "limner"
    return sys.argv[0] if Path(sys.argv[0]).name != "__main__.py" else f"{sys.executable} -m limner"
