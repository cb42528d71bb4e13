"""A table of a paper as data: its rows, what each changes in a recipe, and the published figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["I", "II"]


@dataclass(frozen=True)
class Row:
    """One row of a table.

    - `published`: the figures by "direction measure", e.g. "image_to_text R@1", as the paper prints them.
    - `changes`: settings as `limner train --set` takes them (see `limner.recipes.ablations`).
    - `after`: key of the row whose first stage this one starts from, and whose changes it shares.
    - `alone`: whether its recipe goes without the first stage.
    """

    key: str
    label: str
    stage: Stage
    published: Mapping[str, float]
    changes: tuple[str, ...] = ()
    after: str | None = None
    alone: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its title, the set and split of its figures, its rows in the paper's order, and whom they change.

    `protocol` is what its figures are measured by, where that is not the dataset's own; `matching` says that its rows
    change the matcher of a recipe, `system` that they change the network of one system.
    """

    title: str
    published_on: str
    rows: tuple[Row, ...]
    recipe: str = "dual-path-flickr8k"
    protocol: str | None = None
    matching: bool = False
    system: str | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there are rows of."""
        return tuple(sorted({row.stage for row in self.rows}))


def recalls(*figures: float | None) -> dict[str, float]:
    """Published R@1 and R@10 of image→text, then of text→image; None = not printed."""
    names = (f"{direction} R@{k}" for direction in ("image_to_text", "text_to_image") for k in (1, 10))
    return {name: value for name, value in zip(names, figures, strict=True) if value is not None}
