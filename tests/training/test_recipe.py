from collections.abc import Mapping
from typing import Any

import pytest

from limner.errors import SettingsError
from limner.losses import Instance
from limner.models.dual_path import DualPathSettings
from limner.training.recipe import OptimiserSettings, Recipe, ScheduleSettings, StageSettings

EMBEDDING = DualPathSettings().parts()


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (OptimiserSettings, {"nesterov": True, "momentum": 0}, "nesterov needs"),
        (OptimiserSettings, {"nesterov": True, "name": "adamw"}, "nesterov needs"),
        (OptimiserSettings, {"weight_decay": float("inf")}, "weight_decay"),
        (OptimiserSettings, {"clip": float("inf")}, "clip"),
        (Instance, {"scale": float("inf")}, "scale"),
        (ScheduleSettings, {"warmup": float("inf")}, "warmup"),
        (
            Recipe,
            {
                "name": "r",
                "stages": [{"name": "s", "frozen": sorted(EMBEDDING), "losses": [{"kind": "ranking"}]}],
            },
            "nothing is left to learn",
        ),
        (StageSettings, {"name": "s", "losses": []}, "a stage needs a loss"),
        (
            StageSettings,
            {"name": "s", "losses": [{"kind": "pair"}, {"kind": "pair"}]},
            "'pair' stands there twice",
        ),
        (StageSettings, {"name": "s", "losses": ["pair"]}, "expected a loss"),
        (StageSettings, {"name": "s", "losses": [{"kind": "pairs"}]}, "did you mean 'pair'"),
        (
            StageSettings,
            {"name": "s", "losses": [{"kind": "pair", "wieght": 1}]},
            r"losses\.pair\.wieght'; did you mean 'weight'",
        ),
        (
            StageSettings,
            {"name": "s", "losses": [{"kind": "pair", "weight": 0}]},
            r"'losses\.pair\.weight': .*greater than 0",
        ),
        (
            StageSettings,
            {"name": "s", "reranker_pairs": {}, "losses": [{"kind": "pair"}]},
            "binary cross-entropy alone",
        ),
        (
            StageSettings,
            {"name": "s", "losses": [{"kind": "sextuple"}, {"kind": "ranking", "candidates": 4}]},
            "either candidates for the ranking loss or hard negatives",
        ),
        (
            Recipe,
            {
                "name": "r",
                "stages": [{"name": "a"}, {"name": "b", "losses": [{"kind": "instance", "bias": True}]}],
            },
            "stages 'a' and 'b' share what losses.instance learns, so its bias",
        ),
        (Recipe, {"name": "r", "stages": [{"name": "a", "frozen": ["bakbone"]}]}, "did you mean 'backbone'"),
        (
            Recipe,
            {"name": "r", "stages": [{"name": "a", "frozen": ["classifier"], "losses": [{"kind": "pair"}]}]},
            "no part 'classifier'",
        ),
        (StageSettings, {"name": "s", "sentences": "all", "pairing": "group"}, "pairing=group"),
        (StageSettings, {"name": "s", "sentences": "together", "pairing": "group"}, "pairing=group"),
        (StageSettings, {"name": "s", "sentences": "together", "chunk": 4}, "fewer pictures than pairs"),
        (Recipe, {"name": "r", "stages": [{"name": "last"}]}, "'last' is that of another file"),
        (Recipe, {"name": "r", "stages": [{"name": "a"}, {"name": "a-classifier"}]}, "another file"),
    ],
)
def test_settings_that_would_fail_later_are_refused_at_once(
    cls: type[Any], values: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        cls.parse(values)
    assert "\n" not in str(caught.value)


def test_a_stage_may_teach_the_classifier_alone() -> None:
    frozen = tuple(sorted(EMBEDDING))
    assert Recipe.parse({"name": "r", "stages": [{"name": "s", "frozen": frozen}]}).stages[0].frozen == frozen
