"""A table of a paper as data: its rows, the change of a recipe that each makes, and the published figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from limner.training.recipe import Recipe, StageSettings

Stage = Literal["I", "II"]
Change = Callable[[Recipe], Recipe]


def unchanged(recipe: Recipe) -> Recipe:
    """The recipe as it is."""
    return recipe


def in_stage(number: int, change: Callable[[StageSettings], StageSettings]) -> Change:
    """The change of a recipe that changes one of its stages, by number from 0."""

    def changed(recipe: Recipe) -> Recipe:
        stages = list(recipe.stages)
        stages[number] = change(stages[number])
        # `replace` validates the whole recipe anew, so a row that does not fit fails before anything is trained.
        return recipe.replace(stages=tuple(stages))

    return changed


@dataclass(frozen=True)
class Row:
    """One row of a table.

    - `published`: the figures by "direction measure", e.g. "image_to_text R@1", as the paper prints them.
    - `change`: makes the row's recipe of the one that the table is run with, the user's own changes included.
    - `after`: key of the row whose first stage this one starts from, and whose change comes first.
    - `alone`: whether its recipe goes without the first stage.
    """

    key: str
    label: str
    stage: Stage
    published: Mapping[str, float]
    change: Change = unchanged
    after: str | None = None
    alone: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its title, the set and split of its figures, its rows in the paper's order, and the recipe that they
    change.

    `published_on` is None for a table of no paper, whose rows have no published figures. `protocol` is what its figures are measured by, where that is not the dataset's own; `matching` says that its rows
    change the cross-encoder of a recipe, `system` that they change the network of one system. `by_classes` makes the
    rows of a table whose numbers of classes depend on the data, of two such numbers; `rows` are then those of the
    paper's. `draws` are the pictures for validation and for testing that the paper draws at random, where its figures
    are means over several draws.
    """

    title: str
    published_on: str | None
    rows: tuple[Row, ...]
    # The one recipe of these that runs on two cores and is the paper's otherwise.
    recipe: str = "dual-path-flickr8k"
    protocol: str | None = None
    matching: bool = False
    system: str | None = None
    by_classes: Callable[[int, int], tuple[Row, ...]] | None = None
    draws: tuple[int, int] | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there are rows of."""
        return tuple(sorted({row.stage for row in self.rows}))


def recalls(*figures: float | None) -> dict[str, float]:
    """Published R@1 and R@10 of image→text, then of text→image; None = not printed."""
    # The order of the paper's columns, without R@5: its ablations print the first and the tenth.
    names = (f"{direction} R@{k}" for direction in ("image_to_text", "text_to_image") for k in (1, 10))
    return {name: value for name, value in zip(names, figures, strict=True) if value is not None}
