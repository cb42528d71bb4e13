"""Recipes with pretrained text towers, with pieces of words, and for fine-tuning an imported pair."""

from limner.data.transforms import ImageSettings
from limner.losses.contrastive import Contrastive
from limner.losses.instance import Instance
from limner.losses.ranking import Ranking
from limner.losses.sdm import SDM
from limner.models.hub_correction import HubCorrectionSettings
from limner.models.image import BackboneSettings
from limner.models.pretrained import PretrainedSettings
from limner.models.text_tower import TextTowerSettings
from limner.recipes.dual_path import dual_path_people
from limner.training.recipe import (
    AverageSettings,
    OptimiserSettings,
    Recipe,
    ScheduleSettings,
    StageSettings,
    VocabularySettings,
)

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def minilm_flickr8k() -> Recipe:
    """MiniLM and MobileNetV2 on Flickr8k: it reads words beyond those of Flickr8k's training captions.

    Both towers come pretrained, each for itself (MiniLM: Wang et al., NeurIPS 2020, tuned on a billion pairs of
    sentences); dropout and a linear layer above each lead into one space. MiniLM is held fixed throughout, so that a
    word of which no caption of Flickr8k's training split speaks keeps its place among its neighbours, and each sentence
    passes through it once; its table and two of its layers are read. Stage 1 learns the two layers by the contrastive
    loss; stage 2 the last four layers of the CNN, too, by the ranking loss (hardest negative of the batch, margin 0.2),
    with all sentences of 128 pictures in a batch, and keeps an average of the weights. What is near to every query is
    held back
    (`model.hub_correction`). An image is embedded at three sizes, four times the work of one; with
    `images.test_scales=[1.0]` validation loses 11 points of rsum. Half an hour on one thread beside other programs;
    Flickr8k test R@1 image→text / text→image 39.9 / 30.1 (means of seeds 0, 1, 2), after stage 1 32.4 / 24.5 (three
    seeds of limner 0.1.0).
    MiniLM has seen the captions of the test pictures: they are in Flickr30k, whose captions it was tuned to put
    together by picture (docs/results.md).
    `limner train minilm-flickr8k --data flickr8k:DIR --out RUN --set model.backbone.weights=FILE`, and where no hub can
    be reached `--set model.text.model=FOLDER` (docs/models.md).
    """
    # Learning MiniLM as well (a tenth of the rate) took 60 times as long an epoch and diverged at 0.001; at 0.0002 an
    # epoch over all sentences took rsum from 265.0 to 267.1, where stage 2 as it is had 283.5 after two (validation).
    first = StageSettings(
        name="stage-1",
        epochs=6,
        batch=128,
        sentences="all",
        position_shift=False,
        frozen=("backbone", "words", "text"),
        views=2,
        losses=(Contrastive(temperature=0.05, learnt=False),),
        optimiser=OptimiserSettings(name="adamw", rate=0.001, weight_decay=0.1, clip=2.0),
        schedule=ScheduleSettings(kind="cosine", warmup=0.5),
    )
    return Recipe(
        name="minilm-flickr8k",
        model=PretrainedSettings(
            backbone=BackboneSettings(name="mobilenet-v2", weights="imagenet"),
            # Words as they are in the table, in the middle and at last: rsum of two fixed towers 303, of the last 298.
            text=TextTowerSettings(model=MINILM, words=32, feature="mean", states=(0, 3, -1)),
            dim=512,
            projection="new",
            # rsum of two fixed towers on validation: 262 without, 281 with 0.3, 272 with 0.5 (docs/log/2026-11-26.md).
            dropout=0.3,
            # rsum 335 without, 345 with it, and 341 at the default temperature.
            hub_correction=HubCorrectionSettings(temperature=0.07),
        ),
        # Crops of 80 to 100 % lose rsum 3 to 4; one size at test 11 for a quarter of the work, two sizes 5 for half.
        images=ImageSettings(
            resize=(224, 224), train_crop="scaled", train_area=(0.4, 1.0), test_scales=(1.0, 1.143, 1.286)
        ),
        rerank=0,
        stages=(
            first,
            first.replace(
                name="stage-2",
                epochs=24,
                # Pairs: an epoch is 46 steps of 128 pictures.
                batch=640,
                sentences="together",
                losses=(Ranking(margin=0.2),),
                validate_every=2,
                frozen=("words", "text"),
                backbone_from="features.15",
                backbone_statistics="fixed",
                views=10,
                average=AverageSettings(decay=0.998),
                optimiser=first.optimiser.replace(multipliers={"backbone": 0.5}),
            ),
        ),
    )


def pieces_people() -> Recipe:
    """Generated people described in any language: pieces of words and a small text tower, learnt from nothing.

    The image path and the stages of `dual-path-people`, the second twice as long; the text path is a BERT of two layers
    above at most 2,000 pieces that are learnt from the training captions of all languages together, so that Chinese
    needs no blanks between its words.
    After `limner data people PEOPLE --language en,de,zh,vi`: `limner train pieces-people --data cuhk-pedes:PEOPLE --out
    RUN`
    """
    base = dual_path_people()
    return base.replace(
        name="pieces-people",
        model=PretrainedSettings(
            backbone=base.model.backbone,
            # The longest Chinese description has 90 pieces, half of them 44 or fewer.
            text=TextTowerSettings(words=96, feature="mean", width=192, layers=2, heads=4),
            dim=base.model.dim,
            projection="new",
        ),
        # With 1,000 German has 32 pieces in the middle and with 2,000 24, and English 30 and 26.
        vocabulary=VocabularySettings(pieces=2000),
        rerank=0,
        stages=tuple(
            stage.replace(
                epochs=epochs,
                # The recipe's rate is that of a CNN; attention is trained at a quarter of it.
                optimiser=stage.optimiser.replace(multipliers={"text": 0.25, "words": 0.5}),
            )
            # An epoch has one sentence an image, so four languages are seen a quarter as often each.
            for stage, epochs in zip(base.stages, (24, 40), strict=True)
        ),
    )


def fine_tune() -> Recipe:
    """An imported pair tuned on your own pictures and captions, by SDM and the instance loss.

    SDM (similarity distribution matching) and the rate are those of IRRA (Jiang and Ye, CVPR 2023), whose CLIP ViT-B/16
    they tune. Of the four systems' losses any other fits as well, by `--set`.
    `limner import hf:ORG/NAME START`, then `limner train fine-tune --data folder:PICTURES --out RUN --from START`
    """
    return Recipe(
        name="fine-tune",
        model=PretrainedSettings(),
        rerank=0,
        stages=(
            StageSettings(
                name="tune",
                epochs=10,
                batch=64,
                position_shift=False,
                views=0,
                losses=(SDM(), Instance(visual=0.5, textual=0.5, dropout=0.0)),
                # The new classifier's rate is not that of weights that only need a touch: five times it, as IRRA has.
                optimiser=OptimiserSettings(
                    name="adamw", rate=1e-5, weight_decay=0.01, clip=1.0, multipliers={"classifier": 5.0}
                ),
                schedule=ScheduleSettings(kind="cosine", warmup=1.0),
            ),
        ),
    )
