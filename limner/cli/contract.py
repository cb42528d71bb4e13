"""The contract of every command: `--json`, `--quiet` and `--verbose`, and a result with a schema.

A command is a function that returns its result, a pydantic model of the layer that made it, or a list of them; what it
prints for people goes through `limner.cli.console`. Under `--json` that is dropped and the result is printed instead,
so that nothing else can be on stdout. The type that the function returns is the schema that docs/cli.md shows. It may
be imported under `TYPE_CHECKING`: help then starts without the layer, and with it torch. A result that is not `sound`
is printed like any other, and the exit code is 1, for scripts.

`NAME: Annotated[TYPE, HELP]` is an argument, with a default the option --NAME, without an opposite. Behind HELP a text
names its value, and a function reads it. Where more is to say, typer's own `Option` or `Argument` stands there.
"""

import ast
import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, Union, get_args, get_type_hints

import typer
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from limner.cli.allocator import keep_freed_memory
from limner.cli.conflicts import Conflict, refuse, refuse_twice
from limner.cli.console import err, out
from limner.documented import Result
from limner.errors import SettingsError

F = TypeVar("F", bound=Callable[..., Any])

_SWITCHES = {
    "in_json": Annotated[bool, typer.Option("--json", help="Print the result as JSON, and errors too.")],
    "quiet": Annotated[bool, "Print no progress and no notes on stderr."],
    "verbose": Annotated[bool, "Print time and memory on stderr, and where a mistake was noticed."],
}
"""The options that every command has, by parameter name."""


class Mistake(Result):
    """The error message."""

    type: str
    """Class of the error, e.g. "SettingsError", "UsageError" or "Interrupted"."""
    message: str
    """The line that is printed without `--json`."""
    exit_code: int
    """Exit code of the command: 2, or 130 after Ctrl-C."""


# the error boundary (`limner.cli.main`) writes this by hand, without pydantic; a test reads its line back
# as this class
class ErrorReport(Result):
    """An error under `--json`: the last line of stderr."""

    error: Mistake
    """The error."""


class PlainCommand(TyperCommand):
    """A command that takes an option once unless its help says otherwise, and whose help is plain.

    Arguments are in capitals, without typer's braces and Python types.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does it, which silently takes the last of several values."""
        if args and not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            refuse_twice(order)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the usage line."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            # typer adds "<TEXT>" and the like to a name, which says less than the help beside it
            records = [
                param.get_help_record(ctx) for param in self.get_params(ctx) if param.param_type_name == kind
            ]
            rows = [(re.sub(" <.*>$", "", record[0]), record[1]) for record in records if record is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


# typer cuts the line off where the terminal ends
class PlainGroup(TyperGroup):
    """A group whose help has the whole first line of each command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands and what they do."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_line(command)) for name, command in self.commands.items()])


def first_line(built: Any) -> str:
    """The first line of a command's help."""
    return str(built.help).split("\n\n")[0].replace("\n", " ")


def group(about: str) -> typer.Typer:
    """A module's commands. Their help is plain text: rich's markup would eat "[openvino]"."""
    return typer.Typer(
        cls=PlainGroup,
        help=about,
        no_args_is_help=True,
        rich_markup_mode=None,
        # a bug keeps Python's own stack trace, which `limner.cli.main` lets through
        pretty_exceptions_enable=False,
    )


def command(app: typer.Typer, name: str, *conflicts: Conflict, schema: Any = None) -> Callable[[F], F]:
    """Make a function a command of a group, under the contract.

    `schema` is the type of the result of a command that prints its own, see `emit`; else it is what the function
    returns, where None stands for a result that was printed already. A command line with one of the `conflicts` is
    refused before anything is done.
    """

    def register(function: F) -> F:
        # the function itself is returned as it was: tests and other code call it without switches
        app.command(name, cls=PlainCommand)(_under_contract(function, schema, conflicts))
        return function

    return register


def as_json() -> bool:
    """True if the command that runs was called with `--json`."""
    return out.muted


def emit(result: object, *, lines: bool = False) -> None:
    """Print a result under `--json`, before the command ends; with `lines` on one line."""
    if out.muted or lines:
        # of bytes in a path that are no text, json writes what json.loads reads back; pydantic refuses them.
        # NaN is no JSON: other languages' parsers stop at it, so it is an error here
        typer.echo(json.dumps(to_jsonable_python(result), indent=None if lines else 2, allow_nan=False))


def schema_of(built: Any) -> dict[str, Any]:
    """The JSON schema of what a command, as typer has built it, prints under `--json`."""
    return TypeAdapter(result_of(built)).json_schema(mode="serialization")


def result_of(built: Any) -> Any:
    """The type of what a command, as typer has built it, prints under `--json`."""
    function, schema = inspect.unwrap(built.callback), built.callback.schema
    if schema is None:
        schema = get_type_hints(function, localns=_for_types(sys.modules[function.__module__]))["return"]
    parts = get_args(schema)
    if NoneType not in parts:
        return schema
    # the operator | cannot join what is known at run time only
    return Union[tuple(part for part in parts if part is not NoneType)]  # noqa: UP007


def _for_types(module: Any) -> dict[str, Any]:
    """The names that a module imports under `TYPE_CHECKING`."""
    blocks = [
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        one.asname or one.name: getattr(import_module(node.module), one.name)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for one in node.names
    }


def _under_contract(
    function: Callable[..., Any], schema: Any, conflicts: Sequence[Conflict]
) -> Callable[..., None]:
    own = inspect.signature(function).parameters
    parameters = [
        *own.values(),
        # keyword-only ones may follow any others, with defaults or without
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=switch)
            for name, switch in _SWITCHES.items()
        ),
    ]
    takes_context = "context" in own
    if not takes_context:
        # typer fills it in by its type; it is no option
        parameters.append(
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        )
    parameters = [_named(one) for one in parameters]

    @wraps(function)
    def run(*, in_json: bool, quiet: bool, verbose: bool, **given: Any) -> None:
        if quiet and verbose:
            raise SettingsError("--quiet and --verbose: give one of them")
        refuse(conflicts, given["context"] if takes_context else given.pop("context"))
        # monotonic: a clock that is set in between would make a negative time
        began = time.monotonic()
        # here and not on import: only a command may do this to the process, and --help has no need of it
        keep_freed_memory()
        # the exit below is outside, where the streams speak again
        with _speaking(in_json, quiet):
            result = function(**given)
            if result is not None:
                emit(result)
            if verbose:
                err.print(_cost(time.monotonic() - began))
        if not getattr(result, "sound", True):
            raise typer.Exit(1)

    # typer reads both: the signature for order and defaults, the annotations for types; `wraps` has set those
    # of the function, without the switches
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.schema, run.conflicts = schema, conflicts  # type: ignore[attr-defined]
    return run


@contextmanager
def _speaking(in_json: bool, quiet: bool) -> Iterator[None]:
    # under --json notes still go to stderr: whoever parses stdout can read there what is going on
    out.muted, err.muted = in_json, quiet
    try:
        yield
    finally:
        # tests run many commands in one process, and the next is not to inherit this one's mode
        out.muted, err.muted = False, False


def _named(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter as typer reads it, with a name in capitals for its value."""
    hint = parameter.annotation
    match getattr(hint, "__metadata__", ()):
        case str(help), *more:
            named = {"metavar" if isinstance(one, str) else "parser": one for one in more}
            told: dict[str, Any] = {"help": help, **named}
            is_argument = parameter.default is parameter.empty
            info = typer.Argument(**told) if is_argument else typer.Option(*flags(parameter.name), **told)
            hint = Annotated[hint.__origin__, info]
    for info in getattr(hint, "__metadata__", ()):
        if isinstance(info, ArgumentInfo) and info.metavar is None:
            # commands share these objects (`limner.cli.options`), so the first name stays: use one name for all
            info.metavar = parameter.name.upper()
        # a switch has no value to name
        elif isinstance(info, OptionInfo) and info.metavar is None and hint.__origin__ is not bool:
            info.metavar = value_name(hint.__origin__)
    return parameter.replace(annotation=hint)


def flag(name: str) -> str:
    """How an option is typed, by its parameter's name."""
    return f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"


def flags(name: str) -> tuple[str, ...]:
    """All ways to type an option: one of a single letter with two dashes, too."""
    return (flag(name),) if len(name) > 1 else (flag(name), f"--{name}")


def value_name(kind: Any) -> str:
    """How help calls a value of a type: PATH, NUMBER or TEXT."""
    parts = get_args(kind)
    if parts:
        return value_name(next(part for part in parts if part is not NoneType))
    return {Path: "PATH", int: "NUMBER", float: "NUMBER"}.get(kind, "TEXT")


def _cost(seconds: float) -> str:
    # process_time counts from the start of the process, imports included; `seconds` does not
    message = f"took {seconds:.1f} s, {time.process_time():.1f} s of processor time with the imports"
    try:
        import resource  # which not every system has
    except ImportError:
        return message
    # ru_maxrss is in KiB on Linux
    return f"{message}, at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB of memory"
