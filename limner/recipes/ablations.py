"""The ablation tables of the papers as data: which rows, what each changes, and the published figures.

Papers: Zheng et al., "Dual-path convolutional image-text embeddings with instance loss", ACM TOMM 16(2), 2020,
section 6.4; Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017, section 4.4.

Changes are settings as `limner train --set` takes them, stages by number, applied after the user's own. What depends on
the recipe or the data stands in braces:

    {ranking} {margin} {negatives} {candidates}   the ranking loss of the recipe's second stage
    {vectors}                                     the recipe's word vectors, or "captions" where it starts at random
    {few} {many}                                  numbers of pseudo-classes (Table 5)

**Decided**: rows of stage II all start from stage I with the instance loss alone, as the paper's training does. On a
set of other size Table 5's 3,000 and 10,000 classes become the same shares of the training pictures (the paper: of
113,287). The triplet loss of the identity-aware paper's Table 2 is the ranking loss, with the recipe's margin and
negatives; its rows of stage 2 are not here yet.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from limner.errors import SettingsError
from limner.recipes.registry import change
from limner.training.ablation import Variant
from limner.training.settings import Recipe

Stage = Literal["I", "II"]

MSCOCO_TRAINING_PICTURES = 113_287
_FEW, _MANY = 3_000, 10_000


@dataclass(frozen=True)
class Row:
    """One row: `figures` are R@1 and R@10 of image→text, then of text→image (None = not printed in the paper)."""

    key: str
    label: str
    stage: Stage
    figures: tuple[float | None, float | None, float | None, float | None]
    changes: tuple[str, ...] = ()
    after: str | None = None

    @property
    def published(self) -> dict[str, float]:
        """The figures by "direction measure"."""
        names = (f"{direction} R@{k}" for direction in ("image_to_text", "text_to_image") for k in (1, 10))
        return {name: value for name, value in zip(names, self.figures, strict=True) if value is not None}


@dataclass(frozen=True)
class Table:
    """A table: its title, the set and split of its figures, its rows in the paper's order, and whom they change."""

    title: str
    published_on: str
    rows: tuple[Row, ...]
    recipe: str = "dual-path-flickr8k"

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there are rows of."""
        return tuple(sorted({row.stage for row in self.rows}))


_NOT_CLASSIFIED = tuple(f"stages.0.losses.{name}=0" for name in ("visual", "textual", "joint"))
_INSTANCE = ("stages.0.losses.ranking=0", "stages.0.losses.joint=0")
_RANKING = tuple(
    f"stages.0.losses.{name}={{{name}}}" for name in ("ranking", "margin", "negatives", "candidates")
)

TABLES: dict[str, Table] = {
    "dual-path-table-4": Table(
        "Dual-path, Table 4: ranking loss and instance loss",
        "Flickr30k validation, ResNet-50",
        (
            Row(
                "ranking-1",
                "only ranking loss",
                "I",
                (6.1, 27.3, 4.9, 27.8),
                (*_RANKING, *_NOT_CLASSIFIED),
            ),
            Row("instance-1", "only instance loss", "I", (39.9, 79.1, 28.2, 67.9), _INSTANCE),
            Row("both-1", "instance loss + ranking loss", "I", (37.6, 75.1, 24.1, 65.6), _RANKING),
            Row(
                "instance-2",
                "only instance loss",
                "II",
                (50.5, 86.0, 34.9, 75.7),
                ("stages.1.losses.ranking=0",),
                "instance-1",
            ),
            Row(
                "ranking-2",
                "only ranking loss",
                "II",
                (47.5, 85.4, 29.0, 68.7),
                ("stages.1.losses.visual=0", "stages.1.losses.textual=0", "stages.1.losses.joint=0"),
                "instance-1",
            ),
            Row("both-2", "full model", "II", (55.4, 89.3, 39.7, 80.8), (), "instance-1"),
        ),
    ),
    "dual-path-table-5": Table(
        "Dual-path, Table 5: k-means classes against instances",
        "MSCOCO, 3,000 and 10,000 of 113,287 groups, ResNet-50",
        (
            Row("few", "{few} categories", "I", (38.0, None, 26.1, None), ("classes={few}",)),
            Row("many", "{many} categories", "I", (44.7, None, 31.3, None), ("classes={many}",)),
            Row("instance", "each group a class", "I", (52.2, None, 37.2, None), ("classes=null",)),
        ),
    ),
    "dual-path-table-6": Table(
        "Dual-path, Table 6: the word table's start",
        "Flickr30k validation, ResNet-50, word2vec",
        (
            Row("random", "random", "I", (38.0, 78.7, 26.6, 66.6), ("vocabulary.vectors=random",)),
            Row("vectors", "word vectors", "I", (39.9, 79.1, 28.2, 67.9), ("vocabulary.vectors={vectors}",)),
        ),
    ),
    "dual-path-table-7": Table(
        "Dual-path, Table 7: where a sentence stands",
        "Flickr30k validation, ResNet-50",
        (
            Row(
                "left",
                "left alignment",
                "I",
                (34.1, 73.1, 23.6, 61.4),
                ("stages.0.position_shift=false",),
            ),
            Row(
                "shift",
                "position shift",
                "I",
                (39.9, 79.1, 28.2, 67.9),
                ("stages.0.position_shift=true",),
            ),
        ),
    ),
    "dual-path-table-8": Table(
        "Dual-path, Table 8: one instance loss on the sum",
        "Flickr30k, ResNet-50; the row of two losses is Table 4's",
        (
            Row(
                "sum",
                "one loss on f_img + f_text",
                "I",
                (0.3, 1.7, 0.1, 1.4),
                (
                    "stages.0.losses.joint=1",
                    "stages.0.losses.visual=0",
                    "stages.0.losses.textual=0",
                    "stages.0.losses.ranking=0",
                ),
            ),
            Row("two", "a loss on each", "I", (39.9, 79.1, 28.2, 67.9), _INSTANCE),
        ),
    ),
    "identity-aware-table-2": Table(
        "Identity-aware, Table 2: the loss of stage 1",
        "CUHK-PEDES test, VGG-16",
        (
            Row(
                "triplet",
                "triplet",
                "I",
                (None, None, 14.76, 51.29),
                ("stages.0.losses.cmce=0", "stages.0.losses.ranking=1", *_NOT_CLASSIFIED),
            ),
            Row(
                "cmce",
                "stage 1 (CMCE)",
                "I",
                (None, None, 21.55, 54.78),
                ("stages.0.losses.cmce=1", "stages.0.losses.ranking=0", *_NOT_CLASSIFIED),
            ),
        ),
        recipe="identity-aware-people",
    ),
}
"""Every table by the name that `limner ablate` takes."""


def get_table(name: str) -> Table:
    """The table of a name. Raises `SettingsError` with the nearest name."""
    if name not in TABLES:
        close = difflib.get_close_matches(name, TABLES, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(TABLES)}"
        raise SettingsError(f"unknown table '{name}'; {hint}")
    return TABLES[name]


def variants(
    table: Table, recipe: Recipe, *, training_pictures: int, classes: tuple[int, int] | None = None
) -> dict[str, Variant]:
    """The table's rows as recipes by key, in the table's order.

    `classes` are the two numbers of pseudo-classes of Table 5; None = the paper's shares of the training pictures.
    Raises `SettingsError` when the recipe does not have the table's stages, or a change does not fit it.
    """
    if len(recipe.stages) < len(table.stages):
        raise SettingsError(
            f"recipe '{recipe.name}' has one stage, the table has rows of stages {' and '.join(table.stages)}; "
            "choose another with --recipe"
        )
    known = _known(recipe, classes or scaled_classes(training_pictures))
    found: dict[str, Variant] = {}
    for row in table.rows:
        own = tuple(_filled(text, known) for text in row.changes)
        settings = (*found[row.after].settings, *own) if row.after else own
        whole = change(recipe, settings)
        found[row.key] = Variant(
            row.key,
            _filled(row.label, known),
            row.stage,
            whole.replace(stages=whole.stages[: 1 if row.stage == "I" else 2]),
            row.published,
            row.after,
            settings,
        )
    return found


def scaled_classes(training_pictures: int) -> tuple[int, int]:
    """Table 5's numbers of classes at the paper's shares of the training pictures, at least 2 and 3."""
    share = training_pictures / MSCOCO_TRAINING_PICTURES
    few = max(2, round(_FEW * share))
    return few, max(few + 1, round(_MANY * share))


def _known(recipe: Recipe, classes: tuple[int, int]) -> Mapping[str, object]:
    losses = recipe.stages[min(1, len(recipe.stages) - 1)].losses
    vectors = recipe.vocabulary.vectors
    return {
        **{name: getattr(losses, name) for name in ("ranking", "margin", "negatives", "candidates")},
        "vectors": "captions" if vectors == "random" else vectors,
        "few": classes[0],
        "many": classes[1],
    }


def _filled(text: str, known: Mapping[str, object]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(known[found[1]]), text)
