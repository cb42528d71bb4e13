"""The root command and the one error boundary: a user's mistake is one line and exit code 2."""

import errno
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer

from limner.cli import (
    ablate,
    calibrate,
    data,
    demo,
    evaluate,
    figure,
    index,
    recipes,
    score,
    search,
    serve,
    store,
    train,
)
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
app.add_typer(figure.app, name="figure")
app.add_typer(store.app, name="store")
app.command("train")(train.train_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("calibrate")(calibrate.calibrate_command)
app.command("score")(score.score_command)
app.command("ablate")(ablate.ablate_command)
app.command("index")(index.index_command)
app.command("index-sentences")(index.index_sentences_command)
app.command("reindex")(index.reindex_command)
app.command("search")(search.search_command)
app.command("explain")(search.explain_command)
app.command("serve")(serve.serve_command)
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

_OF_THE_DISK = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EMFILE", "ENFILE")
    if hasattr(errno, name)
}
"""What the system refuses to a file that is open already, and so without its name."""


def main() -> None:
    """Run a command.

    A mistake of the user's, and what the system refuses to do with a file, become one line on stderr and exit code
    2; Ctrl-C exit code 130; a reader that has gone (`| head`) exit code 141 without a word.
    """
    try:
        code = _run()
    except BrokenPipeError:
        code = _unread()
    except SystemExit as stop:
        # what typer and rich make of it
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        code = _unread()
    if code:
        sys.exit(code)


def _run() -> int:
    try:
        # what a command gave to `typer.Exit`; 130 of a Ctrl-C, about which typer says nothing
        code = app(standalone_mode=False) or 0
    except LimnerError as error:
        return _complain(str(error))
    except _UsageError as error:
        return _misused(error)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        raise
    except OSError as error:
        if not _refused_by_system(error):
            raise
        return _complain(_refusal(error))
    if code == 130:
        err.print("limner: stopped; what was finished is kept")
    return int(code)


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


def _refused_by_system(error: OSError) -> bool:
    """Whether it is about a file or the disk; any other is a bug of ours, or a library's."""
    return isinstance(error.filename, str | bytes) or error.errno in _OF_THE_DISK


def _refusal(error: OSError) -> str:
    reason = error.strerror or str(error)
    if not isinstance(error.filename, str | bytes):
        return f"{reason}; check the space of the disk and your rights"
    return f"{os.fsdecode(error.filename)}: {reason}; check the path, the space of the disk and your rights"


def _unread() -> int:
    """The exit code of a program that a broken pipe ends."""
    # what is still buffered goes nowhere, or Python would complain on its way out
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            os.dup2(nowhere, stream.fileno())
    return 141
