"""The root command and the one error boundary: a user's mistake is one line and exit code 2."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from limner.cli import ablate, data, demo, evaluate, recipes, search, train
from limner.cli.console import err
from limner.errors import LimnerError

app = typer.Typer(
    name="limner",
    help="Find pictures by their description and descriptions by their picture.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(data.app, name="data")
app.add_typer(recipes.app, name="recipes")
app.command("train")(train.train_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("ablate")(ablate.ablate_command)
app.command("index")(search.index_command)
app.command("search")(search.search_command)
app.command("demo")(demo.demo_command)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"limner {version('limner')}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; `LimnerError` becomes one line on stderr and exit code 2, Ctrl-C exit code 130."""
    try:
        app()
    except LimnerError as error:
        # a file name in the message may hold a line break
        err.print(f"limner: {' '.join(str(error).split())}", style="red")
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as stop:
        # typer makes 130 of a Ctrl-C inside a command, and says nothing
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        err.print("limner: stopped; what was finished is kept")
        sys.exit(130)
