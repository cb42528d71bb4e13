"""What a stage leaves behind must not reach the next one: gradients of what rests, and runs that are killed between."""

from pathlib import Path

from limner.data.records import Dataset
from limner.losses import Ranking
from limner.training.loop import train
from tests.toy import toy_recipe
from tests.training.interrupted import same_run, stopped_and_resumed


def test_a_loss_that_rests_is_not_clipped_by(toys: Dataset, tmp_path: Path) -> None:
    """A resumed run has no gradient of the stage before, so an uninterrupted one must not count it either."""
    first, second = toy_recipe().stages
    # the first does not clip, or too little of its gradient would be left to be seen
    second = second.replace(
        losses=(Ranking(margin=0.2),), optimiser=second.optimiser.replace(rate=0.1, clip=100)
    )
    recipe = toy_recipe().replace(stages=(first.replace(epochs=1), second))
    whole = train(recipe, toys.split("train"), toys.split("val"), tmp_path / "whole", cpu=True)
    # two steps and the epoch's end; the stage's end; the first step of stage 2
    for kill_at in (3, 4, 5):
        stopped_and_resumed(toys, recipe, tmp_path / str(kill_at), kill_at=kill_at)
        same_run(tmp_path / str(kill_at), whole)
