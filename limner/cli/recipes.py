"""`limner recipes`: what can be trained."""

from typing import Annotated

from pydantic import JsonValue

from limner.cli.console import err, out
from limner.cli.contract import command, group
from limner.cli.options import SetOption
from limner.documented import Result
from limner.recipes.registry import all_recipes, get_recipe

app = group("List and show the recipes that `limner train` knows.")


class RecipeListed(Result):
    """A recipe as `limner recipes list` has it."""

    name: str
    """A recipe in the list."""
    group: str
    """The task that it is for."""
    about: str
    """One line."""
    data: tuple[str, ...]
    """Formats of the sets that it is for; docs/terms.md has their terms."""


class TableListed(Result):
    """A table as `limner recipes tables` has it."""

    name: str
    """A table in the list."""
    title: str
    """Paper, number and subject."""
    recipe: str
    """The recipe that its rows change unless `--recipe` names another."""


@command(app, "list")
def list_command() -> list[RecipeListed]:
    """Print each recipe's name and one line about it, by what it is for."""
    recipes = all_recipes()
    width = max(map(len, recipes))
    for heading in dict.fromkeys(listed.group for listed in recipes.values()):
        out.print(heading)
        for name, listed in recipes.items():
            if listed.group == heading:
                out.print(f"  {name:<{width}}  {listed.about}")
    return [
        RecipeListed(name=name, group=listed.group, about=listed.about, data=listed.data)
        for name, listed in recipes.items()
    ]


@command(app, "show")
def show_command(
    recipe: Annotated[str, "Name of a recipe, or a .json file of one."],
    settings: SetOption = None,
) -> dict[str, JsonValue]:
    """Print a recipe's whole configuration as JSON, and on stderr the terms of the data that it is for."""
    from limner.data.terms import TERMS
    from limner.recipes.change import change

    # imported inside of the command: `change` brings the settings of all networks and losses, and with them torch
    chosen = change(get_recipe(recipe), settings or [])
    # what stands here is what `limner train` takes as a .json file
    out.print_lines(chosen.model_dump_json(indent=2))
    # on stderr, so that the recipe alone goes into a file; by the recipe's own name, which such a file keeps
    listed = all_recipes().get(chosen.name)
    for name in () if listed is None else listed.data:
        err.print(f"terms of {TERMS[name].line()} (docs/terms.md)")
    return chosen.model_dump(mode="json")


@command(app, "tables")
def tables_command() -> list[TableListed]:
    """Print the tables of the papers that `limner ablate` trains."""
    from limner.recipes.ablations import TABLES

    width = max(map(len, TABLES))
    for name, table in TABLES.items():
        out.print(f"{name:<{width}}  {table.title}")
    return [TableListed(name=name, title=table.title, recipe=table.recipe) for name, table in TABLES.items()]
