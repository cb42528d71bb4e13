"""The root command and the one error boundary: a user's mistake is one line and exit code 2."""

import sys
from importlib.metadata import version
from typing import Annotated, Any

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


# typer has a copy of click of its own from 0.26 on, and names the base of these errors in neither
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run a command; a mistake of the user's becomes one line on stderr and exit code 2, Ctrl-C exit code 130."""
    try:
        # 130 of a Ctrl-C, about which typer says nothing; else what a command gave to `typer.Exit`
        code = app(standalone_mode=False)
    except LimnerError as error:
        code = _complain(str(error))
    except _UsageError as error:
        code = _misused(error)
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        err.print("limner: stopped; what was finished is kept")
    if code:
        sys.exit(code)


def _complain(message: str) -> int:
    # a file name in the message may hold a line break
    err.print(f"limner: {' '.join(message.split())}", style="red")
    return 2


def _misused(error: Any) -> int:
    """A command line that cannot be read: an unknown option, one that is missing, a word for a number."""
    message = error.format_message().strip()
    if type(error).__name__ == "NoArgsIsHelpError":
        # a group alone asks for its help, which typer has printed if it prints with rich, and else is the message
        if message:
            typer.echo(message, err=True)
        return 2
    if error.ctx is not None and not message.endswith("?"):  # did you mean …?
        command = error.ctx.command_path.removeprefix(error.ctx.find_root().command_path)
        message = f"{message.removesuffix('.')}; see `limner{command} --help`"
    return _complain(message)
