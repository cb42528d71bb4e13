"""Arguments of a loss that its settings would refuse are refused by the loss, too, which computed something else."""

import subprocess
import sys

import pytest

from limner.errors import SettingsError
from limner.losses import InstanceLoss, RankingLoss
from tests.losses.test_shapes import LOSSES, built

REFUSED = {
    "RankingLoss(negatives='hardst')": "negatives': Input should be 'hardest', 'sum' or 'mean', got 'hardst'",
    "RankingLoss(0.2, 'hardst')": "negatives': Input should be",
    "RankingLoss(margin=-1)": "margin': Input should be greater than or equal to 0, got -1",
    "ContrastiveLoss(positives='foo')": "positives': Input should be 'group' or 'pair', got 'foo'",
    "ContrastiveLoss(0.001)": "a learnt temperature is clipped at 1/100",
    "LevelsLoss(negatives='foo')": "negatives': Input should be",
    "InstanceLoss(4, 4, initial='foo')": "initial': Input should be 'random' or 'images', got 'foo'",
    "InstanceLoss(4, 4, dropout=1.5)": "dropout': Input should be less than 1",
    "SextupleLoss(direction='foo')": "direction': Input should be 'both', 'image_to_text' or 'text_to_image'",
    "SDMLoss(temperature=0)": "temperature': Input should be greater than 0, got 0",
    "TALLoss(temperature=float('nan'))": "temperature': Input should be",
    "MaxSimLoss(0)": "temperature': Input should be greater than 0",
    "SigLIPLoss(scale=0)": "scale': Input should be greater than 0",
    "CircleLoss(gamma=None)": "gamma': Input should be a valid number, got None",
    "CMCELoss(4, 4, keep=1)": "keep': Input should be less than 1",
}


def test_what_the_settings_refuse_is_refused_in_one_line() -> None:
    # a process of its own: the type checks of the test run would refuse it first
    script = """
import sys
from limner.errors import SettingsError
from limner.losses import *
for line in sys.stdin:
    try:
        print("taken", eval(line))
    except SettingsError as error:
        print(error)
"""
    calls = "\n".join(REFUSED)
    done = subprocess.run([sys.executable, "-c", script], input=calls, capture_output=True, text=True)
    assert not done.stderr
    for (call, expected), told in zip(REFUSED.items(), done.stdout.splitlines(), strict=True):
        name = call.partition("(")[0]
        assert told.startswith(f"{name}: "), call
        assert expected in told, call


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_held_to_its_settings(name: str) -> None:
    # the pair loss has no settings but its weight
    assert hasattr(type(built(name)).__init__, "__wrapped__") or name == "PairLoss"


def test_what_is_given_is_taken() -> None:
    assert (RankingLoss(0.3, "sum").margin, RankingLoss(negatives="mean").negatives) == (0.3, "mean")
    assert InstanceLoss(4, 3, scale=None, bias=True).bias is not None


def test_a_loss_below_one_of_these_is_held_to_them() -> None:
    class Mine(RankingLoss):
        def __init__(self) -> None:
            super().__init__(margin=-2.0)

    with pytest.raises(SettingsError, match=r"^RankingLoss: setting 'margin'"):
        Mine()
