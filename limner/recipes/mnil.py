"""Recipes of MNiL.

Paper: Zhang et al., "Multi-Networks Joint Learning for Large-Scale Cross-Modal Retrieval", MM 2017. Released code:
liangzhang1407/Multi-Networks-Joint-Learning-for-Large-Scale-Cross-Modal-Retrieval.
"""

from limner.data.transforms import ImageSettings
from limner.losses import Sextuple
from limner.losses.contrastive import Contrastive
from limner.models.hub_correction import HubCorrectionSettings
from limner.models.image import BackboneSettings
from limner.models.mnil import MNiLSettings
from limner.models.text_bert import BertSettings
from limner.models.text_lstm import TextLSTMSettings
from limner.recipes.pretrained import MINILM, minilm_flickr8k
from limner.training.recipe import (
    AverageSettings,
    OptimiserSettings,
    Recipe,
    ScheduleSettings,
    StageSettings,
    VocabularySettings,
)


def mnil_mscoco() -> Recipe:
    """The paper on MSCOCO with its category labels. Reproduces Table 1.

    ResNet-50 and the LSTM are fine-tuned, the feature-map layers learn at ten times their rate; SGD with momentum 0.9.
    Decided where the text is silent: batches of 64, the released code's rate of 0.001 and weight decay of 5e-5 (of
    matrices and filters alone), 20 epochs, and hard negatives from a queue of 4,096 pairs. Expected on its 5,000 pairs:
    MAP@50 53.4 for sentences, 46.4 for pictures, MAP@all 35.6 and 38.8. Not yet run here at that size.
    `limner train mnil-mscoco --data mscoco-labels:DIR --out RUN`
    """
    return Recipe(
        name="mnil-mscoco",
        # The defaults are the paper's: ResNet-50, two LSTM layers, 20 words on MSCOCO (section 4.1).
        model=MNiLSettings(),
        stages=(
            StageSettings(
                name="stage-1",
                epochs=20,
                patience=5,
                batch=64,
                # The LSTM reads from the first word on; the shift is for dual-path's filters.
                position_shift=False,
                # Two samples of MSCOCO are relevant to each other if they share a category label (section 4.1).
                losses=(Sextuple(relevant="label"),),
                optimiser=OptimiserSettings(
                    # Momentum 0.9 is the paper's and the default; rate and weight decay are those of the released
                    # code.
                    rate=0.001,
                    weight_decay=5e-5,
                    # Section 4.1: ten times the rate of the lower layers, since these two are trained from nothing.
                    multipliers={"image_projection": 10.0, "text_projection": 10.0},
                ),
            ),
        ),
        # Table 1 reports MAP, by labels, in both directions.
        select="mAP",
    )


def mnil_flickr30k() -> Recipe:
    """The paper on Flickr30k, where each picture with its sentences is a class of its own. Reproduces Table 2.

    As `mnil-mscoco` otherwise, with 15 words. Expected R@1/5/10: image→text 36.9/64.1/76.9, text→image
    27.3/55.7/67.0. Not yet run here at that size.
    `limner train mnil-flickr30k --data flickr30k:DIR --out RUN`
    """
    mscoco = mnil_mscoco()
    (stage,) = mscoco.stages
    return mscoco.replace(
        name="mnil-flickr30k",
        # 15 words on Flickr30k (section 4.1).
        model=MNiLSettings(text=TextLSTMSettings(words=15, layers=2, feature="mean")),
        # By class: each image with its sentences is one, as in section 4.1 for Flickr30k.
        stages=(stage.replace(losses=(Sextuple(),)),),
        select="rsum",
    )


def mnil_flickr8k() -> Recipe:
    """The network and the loss on Flickr8k, with the training changed to suit 6,000 pictures and two cores.

    Departures: MobileNetV2 in place of ResNet-50, held fixed in a first stage with five cached views of each picture,
    its last four layers learning in a second; AdamW at one rate for all parts, with a cosine schedule, weight decay and
    clipped gradients; batches of 128, every sentence in an epoch; words seen twice at least, with vectors learnt from
    the training captions, 24 of a sentence; an embedding of 1,024. About 42 minutes on one thread; Flickr8k test
    R@1 image→text / text→image after stage I 19.8 / 14.9, after stage II 24.0 / 19.8 (means of seeds 0 and 1).
    `limner train mnil-flickr8k --data flickr8k:DIR --out RUN --set model.backbone.weights=FILE`
    """
    first = StageSettings(
        name="stage-1",
        epochs=6,
        batch=128,
        # The images' features are cached, so an epoch of five sentences an image costs no further pass of the CNN.
        sentences="all",
        position_shift=False,
        frozen=("backbone",),
        views=5,
        losses=(Sextuple(),),
        # Width, rate and length are those of a first try; nothing was tuned on it (docs/log/2026-11-22.md).
        optimiser=OptimiserSettings(name="adamw", rate=0.001, weight_decay=0.1, clip=5.0),
        schedule=ScheduleSettings(kind="cosine", warmup=0.5),
    )
    return Recipe(
        name="mnil-flickr8k",
        model=MNiLSettings(
            backbone=BackboneSettings(name="mobilenet-v2", weights="imagenet"),
            text=TextLSTMSettings(words=24, word_dim=300, layers=2, feature="mean"),
            dim=1024,
        ),
        images=ImageSettings(resize=(224, 224), train_crop="scaled"),
        vocabulary=VocabularySettings(min_count=2, vectors="captions"),
        stages=(
            first,
            first.replace(
                name="stage-2",
                # The rate begins anew, which costs at first: validation 17.2 | 14.0 before, 13.7 | 12.4 after the
                # first epoch of this stage, 26.5 | 20.5 after the last.
                epochs=5,
                frozen=(),
                # The last four layers alone: 80 to 100 pairs a second on one thread, where stage I has 210 to 240.
                backbone_from="features.15",
                backbone_statistics="fixed",
            ),
        ),
    )


def mnil_flickr8k_strong() -> Recipe:
    """MNiL's loss and LSTM above two pretrained towers: MiniLM beside MobileNetV2, contrastive loss first.

    Departures beyond those of `mnil-flickr8k`: the LSTM, half as wide, reads MiniLM's states of the words in place of
    word vectors that it learns; dropout on them and before the feature-map layers; both towers held fixed; a first
    stage by the contrastive loss, and a second by both, the sextuples at a fifth, with the sentences of a picture
    together in batches of 320; an average of the weights; what is near to every query is held back
    (`model.hub_correction`); a picture is embedded at three sizes, four times the work of one. About six minutes of
    one thread and what the towers take once. Flickr8k test R@1 image→text / text→image 28.3 / 22.5, after stage 1,
    which has no sextuples, 28.8 / 22.5 (means of seeds 0, 1, 2).
    MiniLM has seen the captions of the test pictures, which are in Flickr30k (docs/results.md).
    `limner train mnil-flickr8k-strong --data flickr8k:DIR --out RUN --set model.backbone.weights=FILE`, and where no
    hub can be reached `--set model.text.bert.model=FOLDER` (docs/models.md).
    """
    first = StageSettings(
        name="stage-1",
        epochs=5,
        batch=128,
        # What both towers give is cached, so an epoch of all sentences costs the LSTM alone.
        sentences="all",
        position_shift=False,
        frozen=("backbone", "bert"),
        views=2,
        losses=(Contrastive(temperature=0.05, learnt=False),),
        average=AverageSettings(decay=0.998),
        validate_every=5,
        optimiser=OptimiserSettings(name="adamw", rate=0.001, weight_decay=0.1, clip=5.0),
        schedule=ScheduleSettings(kind="cosine", warmup=0.5),
    )
    return Recipe(
        name="mnil-flickr8k-strong",
        model=MNiLSettings(
            backbone=BackboneSettings(name="mobilenet-v2", weights="imagenet"),
            text=TextLSTMSettings(
                words=24,
                word_dim=384,
                hidden=256,
                layers=2,
                feature="mean",
                dropout=0.2,
                bert=BertSettings(model=MINILM, hidden="last"),
            ),
            dim=1024,
            dropout=0.3,
            hub_correction=HubCorrectionSettings(temperature=0.07),
        ),
        images=ImageSettings(resize=(224, 224), test_scales=(1.0, 1.143, 1.286)),
        stages=(
            first,
            first.replace(
                name="stage-2",
                epochs=1,
                # Pairs: with the sentences of a picture together, most positives stand in the batch already.
                batch=320,
                sentences="together",
                losses=(*first.losses, Sextuple(weight=0.2)),
                validate_every=1,
                average=AverageSettings(decay=0.98),
                optimiser=first.optimiser.replace(rate=0.0005),
            ),
        ),
    )


def words_flickr8k() -> Recipe:
    """A bag of words beside MobileNetV2 on Flickr8k: its text has seen the training captions and no other sentence.

    `minilm-flickr8k` with the mean of word vectors in the place of MiniLM, whose tuning pairs held the captions of the
    test pictures, too (Flickr30k has them). The vectors start from the training captions and learn in both stages; the
    layers above the two features are MNiL's feature maps, which take features of length 1. Image side, losses, views,
    sizes at test and hub correction are those of `minilm-flickr8k`. Twelve minutes on one thread beside what the views
    take once; Flickr8k test R@1 image→text / text→image 35.0 / 26.9 (means of three seeds).
    `limner train words-flickr8k --data flickr8k:DIR --out RUN --set model.backbone.weights=FILE`
    """
    minilm = minilm_flickr8k()
    first, second = minilm.stages
    return minilm.replace(
        name="words-flickr8k",
        model=MNiLSettings(
            backbone=minilm.model.backbone,
            # rsum of two fixed towers: 271 with vectors of 300, 278 of 600, 285 of 1,000; filters and attention
            # above those of 300 gained nothing (docs/log/2026-11-28.md).
            text=TextLSTMSettings(words=32, word_dim=1000, layers=0, feature="mean"),
            dim=minilm.model.dim,
            dropout=0.3,
            hub_correction=minilm.model.hub_correction,
        ),
        vocabulary=VocabularySettings(min_count=2, vectors="captions"),
        stages=(first.replace(frozen=("backbone",)), second.replace(frozen=())),
    )


def mnil_birds() -> Recipe:
    """Few species on two cores: MobileNetV2 held fixed, a species a class.

    Departures as in `mnil-flickr8k`, in one stage with batches of 64 and a queue of 1,024. Two minutes on one thread;
    by class MAP@50 50.7 image→text, 49.1 text→image (means of three seeds).
    Ten species of CUB, three to be tested on: `limner train mnil-birds --data folder:CUB10 --out RUN`
    """
    flickr = mnil_flickr8k()
    first, _ = flickr.stages
    return flickr.replace(
        name="mnil-birds",
        images=ImageSettings(),
        stages=(
            first.replace(
                # Validation chose epochs 4, 2 and 2 of three seeds.
                epochs=10,
                batch=64,
                views=3,
                losses=(Sextuple(queue=1024),),
            ),
        ),
        select="mAP",
    )


def mnil_people() -> Recipe:
    """Generated people by the labels of what they wear and carry.

    Departures as in `mnil-birds`, on pictures of 192×96 and 40 words, half as wide, with the queue of 4,096. A CNN that
    starts at random, as other recipes of generated people have it, learns next to nothing from sextuples by label.
    Five minutes on one thread; by label MAP@50 75.3 image→text, 79.2 text→image (means of three seeds).
    After `limner data people PEOPLE`:
    `limner train mnil-people --data cuhk-pedes:PEOPLE --out RUN --set model.backbone.weights=FILE`
    """
    birds = mnil_birds()
    (stage,) = birds.stages
    return birds.replace(
        name="mnil-people",
        # A ResNet-18 from a random start had mAP 49.2 by label after 8 epochs (chance about 40): everything violates
        # the margin, so a hard negative says nothing. MobileNetV2 held fixed had 57.7 after 6
        # (docs/log/2026-11-22.md).
        model=birds.model.replace(
            text=TextLSTMSettings(words=40, word_dim=300, hidden=256, layers=2, feature="mean"), dim=512
        ),
        images=ImageSettings(resize=(192, 96), crop=(192, 96), train_crop="pad"),
        # `relevant="label"`: three seeds have MAP@50 75.3 and 79.2, chance is 42.8 and 42.5.
        stages=(stage.replace(views=2, validate_every=2, losses=(Sextuple(relevant="label"),)),),
    )
