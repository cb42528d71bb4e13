"""`limner recipes`: what can be trained."""

from typing import Annotated

import typer

from limner.cli.console import out
from limner.recipes import RECIPES, change, get_recipe

app = typer.Typer(help="List and show the recipes that `limner train` knows.", no_args_is_help=True)


@app.command("list")
def list_command() -> None:
    """Print each recipe's name and what it is."""
    width = max(map(len, RECIPES))
    for name, make in RECIPES.items():
        first = (make.__doc__ or "").strip().splitlines()[0]
        out.print(f"{name:<{width}}  {first}")


@app.command("show")
def show_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or a .json file of one.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a setting, key=value.")] = None,
) -> None:
    """Print a recipe's whole configuration as JSON."""
    typer.echo(change(get_recipe(recipe), settings or []).model_dump_json(indent=2))
