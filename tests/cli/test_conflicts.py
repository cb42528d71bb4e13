"""Options that do not go together."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from limner.cli.conflicts import Conflict
from limner.cli.contract import command, group
from limner.errors import SettingsError
from tests.cli.test_contract import BUILT, NAMES


@pytest.mark.parametrize("path", BUILT, ids=NAMES)
def test_each_rule_names_options_of_its_command(path: tuple[str, ...]) -> None:
    built = BUILT[path]
    known = {name for param in built.params for name in (*param.opts, *param.secondary_opts, param.metavar)}
    for rule in built.callback.conflicts:
        named = " ".join((rule.option, rule.without, rule.needs, rule.only)).split()
        assert {name.partition("=")[0] for name in named} <= known


RULES = (
    Conflict(needs="FILES --old"),
    Conflict("--old", without="--new --form=b", why="is gone"),
    Conflict("--form=b", needs="--new"),
    Conflict("--alone", only="FILES --new"),
)


def _refusal(*typed: str) -> str | None:
    own = group("Own.")

    @command(own, "own", *RULES)
    def run(
        store: Annotated[Path, "A store."],
        files: Annotated[list[str] | None, typer.Argument()] = None,
        old: bool = False,
        new: Annotated[bool | None, typer.Option("--new/--no-new")] = None,
        form: Annotated[str, "A form, in either case.", "a|b", str.lower] = "a",
        alone: int = 3,
    ) -> dict[str, Any]:
        """Run."""
        return {}

    done = CliRunner().invoke(own, ["store", *typed])
    assert done.exception is None or isinstance(done.exception, SettingsError), done.exception
    return None if done.exception is None else str(done.exception)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            ("x", "--form", "a", "--form", "b"),
            "--form: is given twice, and one alone counts; leave out the other",
        ),
        (("x", "--new", "--no-new"), "--new: is given twice, and one alone counts; leave out the other"),
        (("x", "--json", "--json"), None),
        ((), "give FILES or --old"),
        (("x",), None),
        (("--old",), None),
        (("--old", "--no-new"), "--old: is gone; leave out --new"),
        (("--old", "--form", "a"), None),
        (("--old", "--form", "b"), "--old: is gone; leave out --form"),
        (("x", "--form", "B"), "--form=b: is of no use alone; give --new"),
        (("x", "--form", "b", "--new"), None),
        # typed as its default is typed
        (("x", "--alone", "3", "--form", "a"), "--alone: goes with FILES and --new only; leave out --form"),
        (("x", "--alone", "3", "--new", "--json"), None),
    ],
)
def test_a_command_line_is_refused_by_the_first_rule_that_it_breaks(
    typed: tuple[str, ...], said: str | None
) -> None:
    assert _refusal(*typed) == said
