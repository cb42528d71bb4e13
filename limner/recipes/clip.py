"""Recipes that tune CLIP on the published sets, and a small pair of towers that starts from nothing."""

from limner.data.transforms import ImageSettings
from limner.losses.contrastive import Contrastive
from limner.losses.instance import Instance
from limner.losses.maxsim import MaxSim
from limner.losses.sdm import SDM
from limner.models.late import LateSettings
from limner.models.pretrained import PretrainedSettings
from limner.recipes.pretrained import pieces_people
from limner.training.recipe import (
    OptimiserSettings,
    Recipe,
    ScheduleSettings,
    StageSettings,
    VocabularySettings,
)

_PERSONS = ImageSettings(resize=(384, 128), crop=(384, 128), train_crop="pad", pad=10)
"""IRRA's size of persons, for which positions are interpolated, and its crops."""


def clip_cuhk_pedes() -> Recipe:
    """CLIP on CUHK-PEDES by SDM and the instance loss, with the rates and the schedule of IRRA.

    From Jiang and Ye, CVPR 2023, and their code: 384 × 128 pixels, batches of 64, 60 epochs of every sentence, Adam at
    1e-5 and five times that for the new classifier, a warm-up of five epochs, a cosine. Left out: the masked words with
    their transformer above both towers, random erasing, and mirrored views; and norms' scales have no weight decay
    here (of theirs only biases go without). They choose on the test split, this on
    validation.
    `limner train clip-cuhk-pedes --data cuhk-pedes:DIR --out RUN --from hf:openai/clip-vit-base-patch16`
    """
    return _persons("clip-cuhk-pedes")


def clip_icfg_pedes() -> Recipe:
    """CLIP on ICFG-PEDES, as `clip-cuhk-pedes`.

    `limner train clip-icfg-pedes --data icfg-pedes:DIR --out RUN --from hf:openai/clip-vit-base-patch16`
    """
    return _persons("clip-icfg-pedes")


def clip_rstpreid() -> Recipe:
    """CLIP on RSTPReid, as `clip-cuhk-pedes`.

    `limner train clip-rstpreid --data rstpreid:DIR --out RUN --from hf:openai/clip-vit-base-patch16`
    """
    return _persons("clip-rstpreid")


def clip_flickr30k() -> Recipe:
    """CLIP on Flickr30k by its own contrastive loss, in large batches.

    **Decided**: AdamW at 1e-5 with weight decay 0.05, batches of 256 and six epochs of every sentence; CLIP's authors
    report no tuning. 32 pairs pass the network at once.
    `limner train clip-flickr30k --data flickr30k:DIR --out RUN --from hf:openai/clip-vit-base-patch16`
    """
    return _scenes("clip-flickr30k")


def clip_mscoco() -> Recipe:
    """CLIP on MSCOCO, as `clip-flickr30k`.

    `limner train clip-mscoco --data mscoco:DIR --out RUN --from hf:openai/clip-vit-base-patch16`
    """
    return _scenes("clip-mscoco")


def clip_people() -> Recipe:
    """A small pair of towers on generated people, from nothing: a CNN, and a transformer above pieces of words.

    The stage of `clip-cuhk-pedes` with the networks and rates of `pieces-people`, for trying losses on two cores.
    After `limner data people PEOPLE`: `limner train clip-people --data cuhk-pedes:PEOPLE --out RUN`
    """
    base = pieces_people()
    return base.replace(
        name="clip-people",
        # English alone, which has shorter rows of fewer pieces.
        model=base.model.replace(text=base.model.text.replace(words=64)),
        vocabulary=VocabularySettings(pieces=1000),
        stages=(
            StageSettings(
                name="tune",
                epochs=40,
                batch=64,
                pairing="group",
                position_shift=False,
                losses=(SDM(), Instance(visual=0.5, textual=0.5, dropout=0.1, scale=16.0, smoothing=0.1)),
                optimiser=base.stages[0].optimiser,
                schedule=ScheduleSettings(kind="cosine", warmup=2),
                validate_every=4,
            ),
        ),
    )


def clip_people_late() -> Recipe:
    """`clip-people` re-ranked by late interaction: a person's regions against the words of a description.

    MaxSim of ColBERT and FILIP above both towers, by its own contrastive loss beside those of the embedding.
    After `limner data people PEOPLE`: `limner train clip-people-late --data cuhk-pedes:PEOPLE --out RUN`
    """
    base = clip_people()
    return base.replace(
        name="clip-people-late",
        model=base.model.replace(late=LateSettings()),
        rerank=20,
        stages=tuple(stage.with_losses(MaxSim()) for stage in base.stages),
    )


def _persons(name: str) -> Recipe:
    stage = StageSettings(
        name="tune",
        epochs=60,
        batch=64,
        sentences="all",
        position_shift=False,
        views=0,
        # The mean of both halves, as theirs.
        losses=(SDM(), Instance(visual=0.5, textual=0.5, dropout=0.0)),
        optimiser=OptimiserSettings(
            name="adam", rate=1e-5, weight_decay=4e-5, multipliers={"classifier": 5.0}
        ),
        schedule=ScheduleSettings(kind="cosine", warmup=5),
    )
    return Recipe(
        name=name,
        model=PretrainedSettings(),
        images=_PERSONS,
        rerank=0,
        stages=(stage,),
        select="text_to_image R@1",
    )


def _scenes(name: str) -> Recipe:
    stage = StageSettings(
        name="tune",
        epochs=6,
        batch=256,
        chunk=32,
        sentences="all",
        position_shift=False,
        views=0,
        # The lowest that the loss learns, at which CLIP's published weights stand.
        losses=(Contrastive(temperature=0.01),),
        optimiser=OptimiserSettings(name="adamw", rate=1e-5, weight_decay=0.05, clip=1.0),
        schedule=ScheduleSettings(kind="cosine", warmup=0.2),
    )
    return Recipe(
        name=name,
        model=PretrainedSettings(),
        images=ImageSettings(train_crop="scaled"),
        rerank=0,
        stages=(stage,),
    )
