"""The ablation tables of the papers: their rows as recipes.

Changes are settings as `limner train --set` takes them, stages by number (`stages.*.matching.KEY`: of every matching
stage), applied after the user's own. What depends on the recipe or the data stands in braces:

    {ranking} {margin} {negatives} {candidates}   the ranking loss of the recipe's second stage
    {vectors}                                     the recipe's word vectors, or "captions" where it starts at random
    {few} {many}                                  numbers of pseudo-classes (dual-path, Table 5)
    {bert}                                        the recipe's BERT, or one at random where it has none (HGAN)
    {frozen}                                      what the recipe's first stage holds fixed, without BERT
"""

import difflib
import json
import re
from collections.abc import Mapping

from limner.errors import SettingsError
from limner.models.hgan import HGANSettings
from limner.models.text_bert import BertSettings
from limner.recipes.ablation_table import Table
from limner.recipes.change import change
from limner.recipes.dual_path_tables import DUAL_PATH_TABLES
from limner.recipes.hgan_tables import HGAN_TABLES
from limner.recipes.identity_aware_tables import IDENTITY_AWARE_TABLES
from limner.recipes.mnil_tables import MNIL_TABLES
from limner.training.ablation import Variant
from limner.training.settings import Recipe

MSCOCO_TRAINING_PICTURES = 113_287
_FEW, _MANY = 3_000, 10_000
_EVERY = "stages.*.matching."

TABLES = {**DUAL_PATH_TABLES, **IDENTITY_AWARE_TABLES, **MNIL_TABLES, **HGAN_TABLES}
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
    if table.matching != (recipe.matcher is not None):
        raise SettingsError(
            f"recipe '{recipe.name}' has {'no' if table.matching else 'a'} matcher, of which the table's rows know "
            f"{'the settings' if table.matching else 'nothing'}; choose another with --recipe"
        )
    if table.system is not None and table.system != recipe.model.system:
        raise SettingsError(
            f"recipe '{recipe.name}' is of {recipe.model.system}, the table of {table.system}; choose another with "
            "--recipe"
        )
    known = _known(recipe, classes or scaled_classes(training_pictures))
    found: dict[str, Variant] = {}
    for row in table.rows:
        own = tuple(each for text in row.changes for each in _spelled(_filled(text, known), recipe))
        settings = (*found[row.after].settings, *own) if row.after else own
        whole = change(recipe, settings)
        found[row.key] = Variant(
            row.key,
            _filled(row.label, known),
            row.stage,
            whole.replace(stages=whole.stages[:1] if row.stage == "I" else whole.stages[row.alone :]),
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
    bert = BertSettings(model=None)
    if isinstance(recipe.model, HGANSettings) and recipe.model.text.bert is not None:
        bert = recipe.model.text.bert
    return {
        "bert": bert.model_dump_json(),
        "frozen": json.dumps([part for part in recipe.stages[0].frozen if part != "bert"]),
        **{name: getattr(losses, name) for name in ("ranking", "margin", "negatives", "candidates")},
        "vectors": "captions" if vectors == "random" else vectors,
        "few": classes[0],
        "many": classes[1],
    }


def _filled(text: str, known: Mapping[str, object]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(known[found[1]]), text)


def _spelled(change: str, recipe: Recipe) -> list[str]:
    """A change of every matching stage as one of each."""
    if not change.startswith(_EVERY):
        return [change]
    numbers = [number for number, stage in enumerate(recipe.stages) if stage.matching is not None]
    return [f"stages.{number}.matching.{change.removeprefix(_EVERY)}" for number in numbers]
