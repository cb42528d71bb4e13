"""The root command, which knows its commands by name and imports the one that is called."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from limner.cli.commands import COMMANDS
from limner.cli.console import show_log_lines
from limner.cli.interrupts import check


class LazyGroup(TyperGroup):
    """A group whose commands are those of `COMMANDS`; `--help` imports none of them.

    Before, one module imported every command, and with them torch, a database and the web server: `limner --help` took
    4.7 s of CPU time.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command's module and build the command; None for an unknown name."""
        listed = COMMANDS.get(cmd_name)
        if listed is None:
            return None
        # a module may hold several commands (index, index-sentences, reindex): one import serves them
        module = import_module(listed.module)
        check()
        group = get_group(module.app)
        if listed.group:
            group.name = cmd_name
            return group
        return group.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does it, with names to suggest for one that is misspelt."""
        if args[0] not in COMMANDS:
            # typer looks for near names among commands that are built; it calls none of these
            self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands under their headings."""
        for section in dict.fromkeys(listed.section for listed in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, listed.about) for name, listed in COMMANDS.items() if listed.section == section]
                )


app = typer.Typer(
    name="limner",
    cls=LazyGroup,
    help="Find pictures by their description and descriptions by their picture.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # click has --help alone
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version  # which brings the parser of e-mails

        typer.echo(f"limner {version('limner')}")
        raise typer.Exit
    return wanted


@app.callback()
def _root(
    show: Annotated[
        # eager: it answers before typer asks for a command
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    show_log_lines()
