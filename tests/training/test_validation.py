from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limner.data.records import Dataset
from limner.evaluation.report import Report
from limner.inference.encoding import Encoding
from limner.training import rerank_stage
from limner.training import stage as stage_module
from limner.training.feature_cache import cached_views
from limner.training.loop import train
from limner.training.prepare import Prepared, prepare
from limner.training.recipe import Recipe
from limner.training.stage import EmbeddingStage
from limner.training.validation import score, validate
from tests.reference.ranking import first_match_rank, recall_at
from tests.toy import toy_hgan, toy_late, toy_recipe, toy_reranking

KEYS = ("R@1", "R@5", "R@10", "mAP")


def _report() -> Report:
    return Report(
        protocol="validation",
        split="val",
        counts={},
        image_to_text=dict(zip(KEYS, (1.0, 2.0, 4.0, 64.0), strict=True)),
        text_to_image=dict(zip(KEYS, (8.0, 16.0, 32.0, 128.0), strict=True)),
    )


@pytest.fixture(scope="module")
def prepared(toys: Dataset) -> Prepared:
    return prepare(toy_recipe(), toys.split("train"), toys.split("val"))


def test_scores() -> None:
    report = _report()
    assert score(report, "rsum") == 1 + 2 + 4 + 8 + 16 + 32
    assert score(report, "text_to_image R@1") == 8
    assert score(report, "image_to_text R@1") == 1
    assert score(report, "text_to_image mAP") == 128


def test_measures_are_those_of_the_networks_own_embeddings(prepared: Prepared) -> None:
    model = prepared.objective.model
    report = validate(prepared, Encoding(model, "fp32"), None)
    crops = torch.from_numpy(prepared.val_pictures.centred(range(len(prepared.val)))).permute(0, 3, 1, 2)
    model.eval()
    with torch.no_grad():
        both = [model.embed_images(model.pool_images(pixels)) for pixels in (crops, crops.flip(3))]
        images = torch.nn.functional.normalize((both[0] + both[1]) / 2, dim=1)
        texts = torch.nn.functional.normalize(
            model.encode_texts(torch.from_numpy(prepared.val_tokens.token_ids)), dim=1
        )
    scores = (texts @ images.T).tolist()
    groups = prepared.val_image_groups.tolist()
    ranks = [
        first_match_rank(row, [group == own for group in groups])
        for row, own in zip(scores, prepared.val_sentence_groups.tolist(), strict=True)
    ]
    assert report.text_to_image["R@1"] == pytest.approx(recall_at(1, ranks))
    assert report.text_to_image["R@5"] == pytest.approx(recall_at(5, ranks))
    assert report.split == "val"


def test_cached_features_measure_what_pixels_measure(prepared: Prepared) -> None:
    model = prepared.objective.model
    pooled = cached_views(
        model.backbone, model.settings.backbone, prepared.val_pictures, 3, seed=0, precision="fp32"
    )
    encoding = Encoding(model, "fp32")
    cached, direct = validate(prepared, encoding, pooled), validate(prepared, encoding, None)
    assert cached.counts == direct.counts
    # float16 features may swap near ties; 7 pictures and 14 sentences of steps 1/7 and 1/14
    assert cached.text_to_image["mAP"] == pytest.approx(direct.text_to_image["mAP"], abs=100 / 14)
    model.backbone.set_frozen(False, until="layer4.0")
    maps = cached_views(
        model.backbone,
        model.settings.backbone,
        prepared.val_pictures,
        2,
        seed=0,
        precision="fp32",
        until="layer4.0",
    )
    from_maps = validate(prepared, encoding, maps)
    assert from_maps.text_to_image["mAP"] == pytest.approx(direct.text_to_image["mAP"], abs=100 / 14)
    only_two = validate(prepared, encoding, np.array(pooled[:, :2]))
    assert only_two.model_dump() == cached.model_dump()


def test_mode_of_the_network_is_kept(prepared: Prepared) -> None:
    model = prepared.objective.model
    for mode in (True, False):
        model.train(mode)
        validate(prepared, Encoding(model, "fp32"), None)
        assert model.training is mode


@pytest.mark.parametrize("make", [toy_recipe, toy_hgan, toy_late, toy_reranking])
def test_it_is_in_fp32_on_a_cpu_whatever_the_steps_compute_in(
    make: Callable[[], Recipe], toys: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make()
    recipe = recipe.replace(
        precision="bf16", stages=tuple(stage.replace(epochs=1) for stage in recipe.stages)
    )
    train_split, val_split = toys.split("train"), toys.split("val")
    validated: list[str] = []
    cached: list[tuple[bool, str]] = []

    def spy(module: object, name: str, note: Callable[..., None]) -> None:
        real = getattr(module, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            note(*arguments, **named)
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, noted)

    for module in (stage_module, rerank_stage):
        spy(module, "validate_reranked", lambda _, reranker, *more: validated.append(reranker.precision))
    spy(stage_module, "validate", lambda _, encoding, *more: validated.append(encoding.precision))
    # embeddings that a reranker's validation begins with
    spy(EmbeddingStage, "_encoding", lambda _, precision: validated.append(precision))
    spy(
        stage_module,
        "cached_views",
        lambda _, __, pictures, *more, **named: cached.append(
            (len(pictures) == len(val_split), named["precision"])
        ),
    )
    train(recipe, train_split, val_split, tmp_path / "run", cpu=True)
    assert len(validated) >= len(recipe.stages)
    assert set(validated) == {"fp32"}
    assert {precision for of_val, precision in cached if of_val} <= {"fp32"}
    # what the steps read is computed as they compute
    assert {precision for of_val, precision in cached if not of_val} <= {"bf16"}
    if any(stage.views for stage in recipe.stages):
        assert {of_val for of_val, _ in cached} == {True, False}
