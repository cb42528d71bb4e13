"""A toy dataset of our own making: coloured shapes on plain ground, learnable in seconds."""

import json
from pathlib import Path

from PIL import Image, ImageDraw

from limner.data.records import Dataset, Record
from limner.data.transforms import ImageSettings
from limner.losses import CMCE, SDM, Instance, Levels, MaxSim, Pair, Ranking, Sextuple
from limner.models.co_attention import CoAttentionSettings
from limner.models.dual_path import DualPathSettings
from limner.models.hgan import HGANSettings
from limner.models.identity_aware import IdentityAwareSettings
from limner.models.image import BackboneSettings
from limner.models.late import LateSettings
from limner.models.levels import LevelsSettings, RegionSettings, ScoreSettings
from limner.models.local_matching import LocalMatchingSettings
from limner.models.mnil import MNiLSettings
from limner.models.pretrained import PretrainedSettings
from limner.models.text_cnn import TextCNNSettings
from limner.models.text_hgan import HierarchicalTextSettings
from limner.models.text_lstm import TextLSTMSettings
from limner.models.text_tower import TextTowerSettings
from limner.training.recipe import OptimiserSettings, PairSettings, Recipe, StageSettings, VocabularySettings

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 40), "blue": (40, 60, 200), "yellow": (230, 210, 40)}
SHAPES = ("square", "circle", "bar")
GROUNDS = {"white": (245, 245, 245), "grey": (120, 120, 120), "black": (10, 10, 10)}


def draw_toys(folder: Path, *, views: int = 1, labels: bool = False) -> Path:
    """Write pictures and a `captions.jsonl` with splits; an identity is one colour, shape and ground."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, number = [], 0
    for colour, paint in COLOURS.items():
        for shape in SHAPES:
            for ground, behind in GROUNDS.items():
                split = ("train", "train", "train", "val", "test")[number % 5]
                for view in range(views):
                    image = Image.new("RGB", (40, 36), behind)
                    draw = ImageDraw.Draw(image)
                    box = (8 + view, 6, 30 + view, 28) if shape != "bar" else (4, 14 + view, 36, 22 + view)
                    (draw.ellipse if shape == "circle" else draw.rectangle)(box, fill=paint)
                    name = f"{number:02d}-{view}.png"
                    image.save(folder / name)
                    rows.append(
                        {
                            "file": name,
                            "captions": [
                                f"a {colour} {shape} on {ground}",
                                f"on {ground} ground, a {shape} in {colour}",
                            ],
                            "identity": f"{colour} {shape} {ground}",
                            "split": split,
                            **({"labels": [colour, shape, ground]} if labels else {}),
                        }
                    )
                number += 1
    (folder / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return folder


def toy_dataset(folder: Path) -> Dataset:
    """The records of drawn toys, without going through a reader."""
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    records = [
        Record(folder / row["file"], tuple(row["captions"]), row["identity"], row["split"]) for row in rows
    ]
    return Dataset(f"folder:{folder}", "identity", tuple(records))


def toy_identity_aware() -> Recipe:
    """CMCE in seconds: a frozen backbone, an optimiser of its own for a part, then everything."""
    dual = toy_recipe()
    losses = (CMCE(sigma_images=0.1, sigma_texts=0.2),)
    first, second = (
        stage.replace(losses=losses, position_shift=False, pairing="group") for stage in dual.stages
    )
    own = {"image_projection": OptimiserSettings(name="sgd", rate=0.01)}
    return dual.replace(
        name="toy-identity-aware",
        model=IdentityAwareSettings(
            backbone=dual.model.backbone, text=TextLSTMSettings(words=10, word_dim=12, hidden=20), dim=16
        ),
        stages=(
            first.replace(epochs=2, part_optimisers=own),
            second.replace(part_optimisers={"backbone": own["image_projection"]}),
        ),
    )


def toy_reranking() -> Recipe:
    """A stage of the embedding, then a cross-encoder: language first with the CNN fixed, then everything."""
    one = toy_identity_aware()
    first = one.stages[0].replace(epochs=3)
    language = first.replace(
        name="stage-2-language",
        epochs=2,
        batch=16,
        views=2,
        part_optimisers={},
        losses=(),
        reranker_pairs=PairSettings(count=6, an_epoch=3, refresh=1),
    )
    everything = language.replace(
        name="stage-2",
        frozen=(),
        part_optimisers={"backbone": OptimiserSettings(name="sgd", rate=0.01)},
        reranker_pairs=PairSettings(count=6, an_epoch=1),
    )
    return one.replace(
        name="toy-reranking",
        cross_encoder=CoAttentionSettings(steps=2, spatial_dim=6, semantic_dim=7, dim=8),
        rerank=5,
        stages=(first, language, everything),
    )


def toy_hgan() -> Recipe:
    """All of HGAN's levels in seconds, from word vectors: a frozen backbone, then everything."""
    dual = toy_recipe()
    losses = (Instance(scale=10.0, dropout=0.0), Pair(), Levels())
    return dual.replace(
        name="toy-hgan",
        model=HGANSettings(
            backbone=dual.model.backbone,
            text=HierarchicalTextSettings(words=10, bert=None, word_dim=12, dim=16, heads=2, hidden=10),
            dim=16,
            regions=RegionSettings(map_size=(4, 4), kernel=(2, 2), stride=(2, 2), convolution=1),
            local=LocalMatchingSettings(hidden=8, last_temperature=0.5),
        ),
        stages=tuple(stage.replace(losses=losses, position_shift=False) for stage in dual.stages),
        rerank="all",
    )


def toy_late() -> Recipe:
    """Late interaction in seconds, above a CNN and a small BERT: a frozen backbone, then everything."""
    dual = toy_recipe()
    optimiser, losses = dual.stages[0].optimiser, (SDM(temperature=0.1), MaxSim())
    first, second = (
        stage.replace(losses=losses, position_shift=False, views=0, epochs=epochs, optimiser=optimiser)
        for stage, epochs in zip(dual.stages, (2, 4), strict=True)
    )
    return dual.replace(
        name="toy-late",
        model=PretrainedSettings(
            backbone=dual.model.backbone.replace(last_stride=1),  # type: ignore[union-attr]
            text=TextTowerSettings(words=16, feature="mean", width=16, layers=1, heads=2),
            dim=16,
            projection="new",
            late=LateSettings(dim=8, regions=5, weight=0.5),
        ),
        images=ImageSettings(resize=(50, 34), crop=(48, 32)),
        vocabulary=VocabularySettings(pieces=300),
        rerank=4,
        stages=(first, second),
    )


def toy_levels() -> Recipe:
    """HGAN's levels above a CNN and a small BERT, both held fixed and cached, then everything."""
    late = toy_late()
    losses = (SDM(temperature=0.1), Levels())
    fixed, everything = (stage.replace(losses=losses) for stage in late.stages)
    return late.replace(
        name="toy-levels",
        model=late.model.replace(
            late=None,
            levels=LevelsSettings(
                dim=16,
                heads=2,
                regions=RegionSettings(map_size=(3, 2), kernel=(2, 1), stride=(1, 1), convolution=1),
                local=LocalMatchingSettings(hidden=8, last_temperature=0.5),
                scores=ScoreSettings(word=0.5, phrase=0.25),
            ),
        ),
        rerank="all",
        stages=(fixed.replace(frozen=("backbone", "words", "text"), views=2), everything),
    )


def toy_recipe() -> Recipe:
    """Both stages in seconds: a narrow network, a frozen first stage."""
    optimiser = OptimiserSettings(name="adamw", rate=0.003)
    instance = Instance(dropout=0.2, scale=10.0)
    return Recipe(
        name="toy",
        model=DualPathSettings(
            backbone=BackboneSettings(name="resnet-18", width=0.125),
            text=TextCNNSettings(words=10, word_dim=12, width=1 / 32),
            dim=16,
        ),
        images=ImageSettings(resize=(36, 36), crop=(32, 32)),
        stages=(
            StageSettings(
                name="stage-1",
                epochs=3,
                batch=8,
                views=3,
                frozen=("backbone",),
                losses=(instance,),
                optimiser=optimiser,
            ),
            StageSettings(
                name="stage-2",
                epochs=2,
                batch=8,
                losses=(instance, Ranking(candidates=6)),
                optimiser=optimiser.replace(name="sgd", rate=0.01),
            ),
        ),
        precision="fp32",
        seed=3,
    )


def toy_mnil(*, by_label: bool = False) -> Recipe:
    """Sextuples in seconds: a frozen backbone and feature maps at ten times the rate, then everything."""
    dual = toy_recipe()
    sextuple = Sextuple(queue=12, relevant="label" if by_label else "class")
    sgd = OptimiserSettings(
        name="sgd", rate=0.05, multipliers={"image_projection": 10, "text_projection": 10}
    )
    first, second = (
        stage.replace(losses=(sextuple,), position_shift=False, optimiser=sgd) for stage in dual.stages
    )
    return dual.replace(
        name="toy-mnil",
        model=MNiLSettings(
            backbone=dual.model.backbone,
            text=TextLSTMSettings(words=10, word_dim=12, hidden=20, layers=2, feature="mean"),
            dim=16,
            projection="orthonormal",
        ),
        stages=(first, second.replace(losses=(sextuple.replace(queue=9),))),
        select="mAP" if by_label else "rsum",
    )
