"""The ablation tables: their rows as recipes."""

import difflib

from limner.errors import SettingsError
from limner.recipes.change import differences
from limner.recipes.clip_tables import CLIP_TABLES
from limner.recipes.dual_path_tables import DUAL_PATH_TABLES
from limner.recipes.hgan_tables import HGAN_TABLES
from limner.recipes.identity_aware_tables import IDENTITY_AWARE_TABLES
from limner.recipes.mnil_tables import MNIL_TABLES
from limner.recipes.table import Table
from limner.training.ablation import Variant
from limner.training.recipe import Recipe

# dataset_coco.json's training split with restval; Table 5 has 3,000 and 10,000 classes of it.
MSCOCO_TRAINING_PICTURES = 113_287
_FEW, _MANY = 3_000, 10_000

TABLES = {**DUAL_PATH_TABLES, **IDENTITY_AWARE_TABLES, **MNIL_TABLES, **HGAN_TABLES, **CLIP_TABLES}
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

    `classes` are the two numbers of pseudo-classes of dual-path's Table 5; None = the paper's shares of the training
    pictures. Raises `SettingsError` when the recipe does not have the table's stages, or a change does not fit it.
    """
    _expect_fit(table, recipe)
    rows = table.rows
    if table.by_classes is not None:
        rows = table.by_classes(*(classes or scaled_classes(training_pictures)))
    whole: dict[str, Recipe] = {}
    found: dict[str, Variant] = {}
    for row in rows:
        # A row of stage II repeats the change of the row that it starts from: the first stages must be equal to
        # branch.
        changed = whole[row.key] = row.change(whole[row.after] if row.after else recipe)
        # A row of stage I trains that stage alone, whatever follows it in the recipe.
        stages = changed.stages[:1] if row.stage == "I" else changed.stages[row.alone :]
        found[row.key] = Variant(
            row.key,
            row.label,
            row.stage,
            changed.replace(stages=stages),
            row.published,
            row.after,
            differences(recipe, changed),
        )
    return found


def _expect_fit(table: Table, recipe: Recipe) -> None:
    if len(recipe.stages) < len(table.stages):
        raise SettingsError(
            f"recipe '{recipe.name}' has one stage, the table has rows of stages {' and '.join(table.stages)}; "
            "choose another with --recipe"
        )
    # Both ways: rows that change a cross-encoder need one, and the others would be measured with it.
    if table.matching != (recipe.cross_encoder is not None):
        raise SettingsError(
            f"recipe '{recipe.name}' has {'no' if table.matching else 'a'} cross-encoder, of which the table's rows "
            f"know {'the settings' if table.matching else 'nothing'}; choose another with --recipe"
        )
    if table.system is not None and table.system != recipe.model.system:
        raise SettingsError(
            f"recipe '{recipe.name}' is of {recipe.model.system}, the table of {table.system}; choose another with "
            "--recipe"
        )


def scaled_classes(training_pictures: int) -> tuple[int, int]:
    """Table 5's numbers of classes at the paper's shares of the training pictures, at least 2 and 3."""
    share = training_pictures / MSCOCO_TRAINING_PICTURES
    # `Recipe.classes` takes 2 at least, and the two rows must differ.
    few = max(2, round(_FEW * share))
    return few, max(few + 1, round(_MANY * share))
