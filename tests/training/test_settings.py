from collections.abc import Mapping
from typing import Any

import pytest

from limner.errors import SettingsError
from limner.training.loss_settings import LossSettings
from limner.training.settings import OptimiserSettings, Recipe, ScheduleSettings, StageSettings


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (OptimiserSettings, {"nesterov": True, "momentum": 0}, "nesterov needs"),
        (OptimiserSettings, {"nesterov": True, "name": "adamw"}, "nesterov needs"),
        (OptimiserSettings, {"weight_decay": float("inf")}, "weight_decay"),
        (OptimiserSettings, {"clip": float("inf")}, "clip"),
        (LossSettings, {"scale": float("inf")}, "scale"),
        (ScheduleSettings, {"warmup": float("inf")}, "warmup"),
        (
            StageSettings,
            {
                "name": "s",
                "frozen": ["backbone", "image_projection", "words", "text", "text_projection"],
                "losses": {"ranking": 1, "visual": 0, "textual": 0},
            },
            "nothing is left to learn",
        ),
        (StageSettings, {"name": "s", "sentences": "all", "pairing": "group"}, "pairing=group"),
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
    frozen = ("backbone", "image_projection", "words", "text", "text_projection")
    assert StageSettings.parse({"name": "s", "frozen": frozen}).frozen == frozen
