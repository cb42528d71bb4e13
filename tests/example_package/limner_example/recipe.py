"""A recipe: the example's encoder, learnt by the example's loss."""

from limner.data.transforms import ImageSettings
from limner.models.image import BackboneSettings
from limner.models.text_encoder import WordTableSettings
from limner.training.recipe import OptimiserSettings, Recipe, StageSettings
from limner_example.encoder import MeanWordsSettings
from limner_example.loss import InBatch


def mean_words() -> Recipe:
    """A frozen random CNN and mean word vectors: seconds on one core, for small coloured images."""
    return Recipe(
        name="mean-words",
        model=MeanWordsSettings(
            backbone=BackboneSettings(name="resnet-18", width=0.125),
            text=WordTableSettings(words=10, word_dim=16),
            dim=16,
        ),
        images=ImageSettings(resize=(36, 36), crop=(32, 32)),
        stages=(
            StageSettings(
                name="stage-1",
                epochs=4,
                batch=8,
                views=2,
                frozen=("backbone",),
                position_shift=False,
                losses=(InBatch(),),
                optimiser=OptimiserSettings(name="adamw", rate=0.01),
            ),
        ),
        precision="fp32",
    )
