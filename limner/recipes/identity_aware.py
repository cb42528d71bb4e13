"""Recipes of the identity-aware system, stage 1.

Paper: Li et al., "Identity-Aware Textual-Visual Matching with Latent Co-attention", ICCV 2017.
"""

from limner.data.transforms import ImageSettings
from limner.models.backbones import BackboneSettings
from limner.models.identity_aware import IdentityAwareSettings
from limner.models.text_lstm import TextLSTMSettings
from limner.training.settings import (
    LossSettings,
    OptimiserSettings,
    Recipe,
    ScheduleSettings,
    StageSettings,
    VocabularySettings,
)

_CMCE = LossSettings(cmce=1.0, visual=0.0, textual=0.0)


def identity_aware_cuhk_pedes() -> Recipe:
    """The paper's stage 1 on persons: VGG-16 up to drop7, an LSTM, CMCE with σ = 0.04. Reproduces Table 1, "Stage-1".

    Decided where the text is silent: 60 epochs with patience, batches of 64, the CNN's rate 1e-3, 50 words, widths
    of 512. Expected on CUHK-PEDES, text→image R@1 / R@10: 21.55 / 54.78. Not yet run here at that size.
    `limner train identity-aware-cuhk-pedes --data cuhk-pedes:DIR --out RUN`
    """
    return Recipe(
        name="identity-aware-cuhk-pedes",
        model=IdentityAwareSettings(),
        stages=(
            StageSettings(
                name="stage-1",
                epochs=60,
                patience=10,
                batch=64,
                pairing="group",
                position_shift=False,
                losses=_CMCE,
                optimiser=OptimiserSettings(name="adamw", rate=1e-4),
                part_optimisers={"backbone": OptimiserSettings(name="sgd", rate=1e-3)},
            ),
        ),
        select="text_to_image R@1",
    )


def identity_aware_cub() -> Recipe:
    """The paper's stage 1 on birds and flowers: GoogLeNet up to its pool. Reproduces Tables 3 and 4, "Stage-1".

    An identity is a species. Decided as in `identity-aware-cuhk-pedes`. Expected on CUB, image→text top-1 61.5,
    text→image AP@50 55.5; on Flowers 68.4 and 68.0. Not yet run here at that size.
    `limner train identity-aware-cub --data cub:DIR --out RUN`
    """
    persons = identity_aware_cuhk_pedes()
    return persons.replace(
        name="identity-aware-cub",
        model=IdentityAwareSettings(backbone=BackboneSettings(name="googlenet", weights="imagenet")),
        select="rsum",
    )


def identity_aware_people() -> Recipe:
    """Generated people from nothing but themselves: small enough for two cores.

    Departures: a narrow ResNet-18 that starts at random, AdamW for everything, word vectors learnt from the captions,
    and the buffers' rows normalised again after each update (docs/log.md: without it half of the R@1 is lost).
    After `limner data people PEOPLE`: `limner train identity-aware-people --data cuhk-pedes:PEOPLE --out RUN`
    """
    return Recipe(
        name="identity-aware-people",
        model=IdentityAwareSettings(
            backbone=BackboneSettings(name="resnet-18", width=0.5),
            text=TextLSTMSettings(words=40, word_dim=128, hidden=256),
            dim=256,
        ),
        images=ImageSettings(resize=(128, 64), crop=(128, 64), train_crop="pad", pad=6),
        vocabulary=VocabularySettings(min_count=2, vectors="captions"),
        stages=(
            StageSettings(
                name="stage-1",
                epochs=24,
                batch=64,
                pairing="group",
                position_shift=False,
                # margin and negatives are those of the triplet baseline
                losses=_CMCE.replace(renormalise=True, margin=0.2, negatives="sum"),
                optimiser=OptimiserSettings(name="adamw", rate=0.002, weight_decay=0.05, clip=5.0),
                schedule=ScheduleSettings(kind="cosine", warmup=1),
                validate_every=4,
            ),
        ),
        select="text_to_image R@1",
    )
