"""`limner cite`: what to cite for a result, as BibTeX."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from limner.cli.conflicts import Conflict
from limner.cli.console import out
from limner.cli.contract import command, group
from limner.documented import Result
from limner.errors import CheckpointError, SettingsError

if TYPE_CHECKING:
    from limner.training.recipe import Recipe

app = group("Cite.")


class CitedWork(Result):
    """A work that a result rests on."""

    key: str
    """Its BibTeX key."""
    role: Literal["software", "system", "loss", "dataset", "network", "part"]
    """Its part in the result."""
    bibtex: str
    """Its entry."""


@command(app, "cite", Conflict("--data", needs="RECIPE"))
def cite_command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a recipe, a .json file of one, or a run folder; without it limner alone."
        ),
    ] = None,
    data: Annotated[
        str | None,
        "Format of the data, e.g. flickr30k, or FORMAT:PATH (default: what the recipe is for, or what the "
        "run was trained on).",
    ] = None,
) -> list[CitedWork]:
    """Print BibTeX of limner and of what a recipe or a run rests on: system, losses, networks and data."""
    from limner.recipes.references import OF_DATA, cited_by, software

    if data is not None and (given := data.partition(":")[0]) not in OF_DATA:
        raise SettingsError(f"--data {given[:40]}: no such format; there are: {', '.join(sorted(OF_DATA))}")
    works = [("software", software())]
    if recipe is not None:
        chosen, formats = _of_run(Path(recipe)) if _is_run(recipe) else _of_recipe(recipe)
        works += cited_by(chosen, formats if data is None else (data.partition(":")[0],))
    out.print_lines("\n\n".join(work.bibtex() for _, work in works))
    return [CitedWork(key=work.key, role=role, bibtex=work.bibtex()) for role, work in works]


def _is_run(name: str) -> bool:
    from limner.inference.source import kind_of

    return kind_of(name) is not None or Path(name).is_dir()


def _of_recipe(name: str) -> "tuple[Recipe, tuple[str, ...]]":
    from limner.recipes.registry import all_recipes, get_recipe

    chosen = get_recipe(name)
    # by the recipe's own name, which a file of it keeps
    listed = all_recipes().get(chosen.name)
    return chosen, () if listed is None else listed.data


def _of_run(folder: Path) -> "tuple[Recipe, tuple[str, ...]]":
    from limner.inference.checkpoint import read_description
    from limner.inference.run_file import checkpoint_path
    from limner.training.recipe import Recipe

    description = read_description(checkpoint_path(folder, None))
    if (content := description.get("recipe")) is None or "stages" not in content:
        raise CheckpointError(
            f"{folder}: an imported run, which no recipe has trained; cite its model's own card"
        )
    return Recipe.parse(content), (str(description["data"]["source"]).partition(":")[0],)
