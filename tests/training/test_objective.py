from typing import Any

import pytest
import torch
from torch import Tensor

from limner.models.registry import build_network
from limner.training.loss_settings import LossSettings
from limner.training.objective import Objective
from limner.training.optimiser import freeze_parts
from limner.training.settings import StageSettings
from tests.reference.losses import instance_loss, ranking_loss, sextuple_loss
from tests.toy import toy_mnil, toy_recipe

GROUPS = torch.tensor([2, 0, 2, 1])
CLASSES = torch.tensor([1, 0, 1, 1])


@pytest.fixture
def objective() -> Objective:
    torch.manual_seed(0)
    return Objective(build_network(toy_recipe().model, 20), 3, bias=False).train()


def _inputs(extra: int = 0, seed: int = 0) -> dict[str, Any]:
    chance = torch.Generator().manual_seed(seed)
    inputs: dict[str, Any] = {
        "pictures": torch.randn(4, 64, generator=chance),
        "numbers": torch.randint(0, 21, (4, 10), generator=chance),
        "groups": GROUPS,
        "classes": CLASSES,
    }
    if extra:
        chance.manual_seed(seed + 50)
        inputs["pictures"] = torch.cat([inputs["pictures"], torch.randn(extra, 64, generator=chance)])
        inputs["numbers"] = torch.cat(
            [inputs["numbers"], torch.randint(0, 21, (extra, 10), generator=chance)]
        )
        inputs["extra_image_groups"] = torch.arange(extra)
        inputs["extra_text_groups"] = torch.arange(extra).flip(0)
    return inputs


def _features(objective: Objective, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return objective.model.embed_images(inputs["pictures"]), objective.model.encode_texts(
            inputs["numbers"]
        )


def _instance(objective: Objective, features: Tensor) -> float:
    return instance_loss(features[:4].tolist(), objective.classifier.weight.tolist(), CLASSES.tolist())


def test_total_is_the_weighted_sum_of_eq_9(objective: Objective) -> None:
    objective.use(LossSettings(ranking=0.7, visual=2.0, textual=0.5, margin=0.4, dropout=0.0))
    inputs = _inputs()
    images, texts = _features(objective, inputs)
    losses = objective(**inputs)
    ranking = ranking_loss(images.tolist(), texts.tolist(), GROUPS.tolist(), 0.4)
    visual, textual = _instance(objective, images), _instance(objective, texts)
    assert float(losses["ranking"]) == pytest.approx(ranking, rel=1e-4)
    assert float(losses["visual"]) == pytest.approx(visual, rel=1e-4)
    assert float(losses["textual"]) == pytest.approx(textual, rel=1e-4)
    assert losses["loss"].item() == pytest.approx(0.7 * ranking + 2.0 * visual + 0.5 * textual, rel=1e-4)


def test_joint_is_one_loss_on_the_sum(objective: Objective) -> None:
    objective.use(LossSettings(visual=0, textual=0, joint=1.5, dropout=0.0))
    inputs = _inputs()
    images, texts = _features(objective, inputs)
    losses = objective(**inputs)
    # Eq. 11: softmax(Wᵀ (f_img + f_text))
    expected = _instance(objective, images + texts)
    assert set(losses) == {"loss", "joint", "joint_error"}
    assert float(losses["joint"]) == pytest.approx(expected, rel=1e-4)
    assert losses["loss"].item() == pytest.approx(1.5 * expected, rel=1e-4)


def test_the_error_counts_the_classes_that_are_missed(objective: Objective) -> None:
    objective.use(LossSettings(dropout=0.0))
    inputs = _inputs()
    losses = objective(**inputs)
    weight = objective.classifier.weight.tolist()
    for name, features in zip(("visual", "textual"), _features(objective, inputs), strict=True):
        missed = 0
        for feature, true in zip(features.tolist(), CLASSES.tolist(), strict=True):
            logits = [sum(w * f for w, f in zip(row, feature, strict=True)) for row in weight]
            missed += logits.index(max(logits)) != true
        assert float(losses[f"{name}_error"]) == pytest.approx(100 * missed / len(CLASSES))


def test_mined_negatives_enter_the_ranking_loss_only(objective: Objective) -> None:
    # in eval mode the batch norm of a row does not depend on the others
    objective.eval().use(LossSettings(ranking=1.0, margin=1.0, negatives="sum", dropout=0.0))
    plain, more = objective(**_inputs()), objective(**_inputs(extra=3))
    assert torch.equal(plain["visual"], more["visual"])
    assert torch.equal(plain["textual"], more["textual"])
    inputs = _inputs(extra=3)
    images, texts = _features(objective, inputs)
    expected = ranking_loss(
        images[:4].tolist(),
        texts[:4].tolist(),
        GROUPS.tolist(),
        1.0,
        extra_images=list(zip(images[4:].tolist(), [0, 1, 2], strict=True)),
        extra_texts=list(zip(texts[4:].tolist(), [2, 1, 0], strict=True)),
        hardest=False,
    )
    assert float(more["ranking"]) == pytest.approx(expected, rel=1e-4)
    assert float(more["ranking"]) > float(plain["ranking"])


def test_losses_of_weight_zero_are_not_computed(objective: Objective) -> None:
    objective.use(LossSettings(ranking=1, visual=0, textual=0))
    assert set(objective(**_inputs())) == {"loss", "ranking"}


def _gradient(parameters: list[torch.nn.Parameter]) -> float:
    return sum(float(p.grad.abs().sum()) for p in parameters if p.grad is not None)


def test_gradients_reach_both_paths_and_spare_what_is_frozen(objective: Objective) -> None:
    stage = StageSettings(
        name="s", frozen=("classifier", "words"), losses=LossSettings(ranking=1, dropout=0.0)
    )
    objective.use(stage.losses)
    parts = objective.parts()
    freeze_parts(parts, stage)
    objective(**_inputs())["loss"].backward()
    reached = {part: _gradient(parameters) > 0 for part, parameters in parts.items()}
    # the pictures are cached features, so nothing comes down to the backbone
    assert reached == {
        "backbone": False,
        "image_projection": True,
        "words": False,
        "text": True,
        "text_projection": True,
        "classifier": False,
    }


def test_pixels_go_through_the_backbone(objective: Objective) -> None:
    objective.use(LossSettings(dropout=0.0))
    inputs = _inputs()
    inputs["pictures"] = torch.randint(
        0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    objective(**inputs)["loss"].backward()
    assert _gradient(objective.parts()["backbone"]) > 0


def test_sextuples_are_taken_from_their_rows() -> None:
    torch.manual_seed(0)
    objective = Objective(build_network(toy_mnil().model, 20), 0).train()
    losses = LossSettings(sextuple=2.0, visual=0, textual=0, rho=0.4, tau=0.6, beta_images=0.3, bank=5)
    objective.use(losses, samples=50)
    inputs = _inputs()
    chance = torch.Generator().manual_seed(9)
    inputs["pictures"] = torch.randn(4 + 1 + 4, 64, generator=chance)
    inputs["numbers"] = torch.randint(1, 21, (4 + 2 + 4, 10), generator=chance)
    # the second picture's relevant one is beside the batch, the other three are their own; two sentences likewise
    inputs["positives"] = torch.tensor([[0, 4], [4, 1], [2, 5], [3, 3]])
    inputs["draws"] = torch.tensor([[1, 3], [2, 0], [7, 1], [0, 60]])
    inputs["shares"] = torch.tensor([[1.0, 0.25], [0.5, 0.0], [0.25, 1.0], [0.0, 0.2]])
    images, texts = (
        torch.nn.functional.normalize(rows.double(), dim=1) for rows in _features(objective, inputs)
    )
    rows = [
        {
            "x": images[i],
            "x+": images[inputs["positives"][i, 0]],
            "x-": images[5 + i],
            "y": texts[i],
            "y+": texts[inputs["positives"][i, 1]],
            "y-": texts[6 + i],
        }
        for i in range(4)
    ]
    expected = sextuple_loss(
        [{name: row.tolist() for name, row in one.items()} for one in rows],
        *(inputs["draws"][:, 1].tolist(), inputs["draws"][:, 0].tolist(), 50),
        rho=0.4,
        tau=0.6,
        beta_1=0.3,
        beta_2=0.2,
    )
    found = objective(**inputs)
    assert found["sextuple"].item() == pytest.approx(expected, rel=1e-5)
    assert found["loss"].item() == pytest.approx(2 * expected, rel=1e-5)
    assert found["violating"].item() == pytest.approx(40)
    assert objective.bank is not None
    assert objective.bank.slots == 5
