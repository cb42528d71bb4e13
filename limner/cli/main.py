"""The one error boundary: a user's mistake is one line and exit code 2, or one line of JSON under `--json`."""

import errno
import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer

from limner.cli.commands import COMMANDS
from limner.cli.interrupts import held_back, taken
from limner.cli.root import app
from limner.errors import LimnerError
from limner.one_line import one_line

# typer has a copy of click of its own from 0.26 on, and names the base of these errors in neither
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

_OF_THE_DISK = {
    getattr(errno, name)
    # not every system has all of them
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EMFILE", "ENFILE")
    if hasattr(errno, name)
}
"""Errors of the system about a file that is already open; they come without its name."""

_WITHOUT_TORCH = (
    "this needs PyTorch, which is not installed here: install limner with all that it needs (docs/install.md); "
    "indexing and searching by an export of a run need none (docs/export.md)"
)

# 128 and the signal's number, as shells have it: 2 for SIGINT; 141 below is SIGPIPE's 13
_STOPPED = 130


def main() -> None:
    """Run a command.

    A mistake of the user's, and what the system refuses to do with a file, become one line on stderr and exit code
    2; Ctrl-C exit code 130; a closed pipe (`| head`) exit code 141 without a message.
    """
    given = sys.argv[1:]
    _prepare_streams()
    try:
        # from before the first import of a command: imports are seconds in which people press Ctrl-C
        with held_back():
            code = _run(given)
    except BrokenPipeError:
        code = _unread()
    except SystemExit as stop:
        # what typer and rich make of it
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        code = _unread()
    if code:
        sys.exit(code)


def _prepare_streams() -> None:
    """Send what nobody listens to (`>&-`, a service without a terminal) nowhere, as `print` does it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (for as long as Python runs)
        # as on stderr: a letter that its encoding lacks must not cost the report of what was done
        elif isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _run(given: Sequence[str]) -> int:
    try:
        # what a command gave to `typer.Exit`; 130 of a Ctrl-C, about which typer says nothing
        code = app(standalone_mode=False) or 0
        # Python would do it on its way out, where nothing can say what became of it
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = _STOPPED
    except BrokenPipeError:
        raise
    except Exception as error:
        # after Ctrl-C among imports the error of what came behind them is not what the user asks about
        if not taken():
            return _explained(error, given)
        code = _STOPPED
    if code == _STOPPED:
        _complain(_stopped(given), given, kind="Interrupted", code=_STOPPED)
    return int(code)


def _explained(error: Exception, given: Sequence[str]) -> int:
    """Print an error's line and return the exit code. Raises every other error, which is a bug."""
    if isinstance(error, LimnerError):
        # looked up in the words themselves, since an error may come before they are parsed
        if "--verbose" in _options(given):
            traceback.print_exception(error)
        return _complain(str(error), given, kind=type(error).__name__)
    if isinstance(error, _UsageError):
        return _misused(error, given)
    # not every OSError: a connection that is reset is one as well, and no mistake of the user's
    if isinstance(error, OSError) and _refused_by_system(error):
        _drop_unwritten()
        return _complain(_refusal(error), given, kind="OSError")
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return _complain(_WITHOUT_TORCH, given, kind="SettingsError")
    # a bug of ours keeps its stack trace: one line would hide where it is
    raise error


def _complain(message: str, given: Sequence[str], *, kind: str, code: int = 2) -> int:
    # a file name in the message may hold a line break, or what a terminal takes for its commands
    line = one_line(" ".join(message.split()))
    if "--json" in _options(given):
        output = json.dumps({"error": {"type": kind, "message": line, "exit_code": code}})
    else:
        output = f"limner: {line}"
        # no colour codes in log files, nor where NO_COLOR is set (no-color.org)
        if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
            output = f"\x1b[31m{output}\x1b[0m"
    with suppress(OSError):  # a terminal that is gone
        sys.stderr.write(output + "\n")
        sys.stderr.flush()
    return code


def _options(given: Sequence[str]) -> Sequence[str]:
    """The part of a command line that may hold options; one that cannot be parsed has no more structure."""
    return given[: given.index("--")] if "--" in given else given


def _misused(error: Any, given: Sequence[str]) -> int:
    """A command line that cannot be parsed: an unknown or missing option, a word instead of a number."""
    message = error.format_message().strip()
    if type(error).__name__ == "NoArgsIsHelpError":
        # a group alone asks for its help, which is the message
        typer.echo(message)
        return 2
    if error.ctx is not None and not message.endswith("?"):  # did you mean …?
        # without the program's own name, which may be a path or "python -m limner"
        command = error.ctx.command_path.removeprefix(error.ctx.find_root().command_path)
        message = f"{message.removesuffix('.')}; see `limner{command} --help`"
    return _complain(message, given, kind="UsageError")


def _stopped(given: Sequence[str]) -> str:
    """The message after Ctrl-C: whether anything is lost, and how to continue."""
    listed = COMMANDS.get(given[0]) if given else None
    return "; ".join(filter(None, ("stopped", "what was finished is kept", listed.goes_on if listed else "")))


def _refused_by_system(error: OSError) -> bool:
    """True if the error is about a file or the disk; any other is a bug, ours or a library's."""
    return isinstance(error.filename, str | bytes) or error.errno in _OF_THE_DISK


def _refusal(error: OSError) -> str:
    reason = error.strerror or str(error)
    if not isinstance(error.filename, str | bytes):
        return f"{reason}; check the space of the disk and your rights"
    return f"{os.fsdecode(error.filename)}: {reason}; check the path, the space of the disk and your rights"


def _unread() -> int:
    """The exit code of a program that a broken pipe ends."""
    _drop_unwritten()
    return 141


def _drop_unwritten() -> None:
    """Send what cannot be written nowhere, or Python would complain on its way out."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
