from dataclasses import replace

import pytest
import torch
from torch import Tensor

from limner.losses import Instance, Pair, Ranking, Sextuple, SextupleLoss
from limner.losses.instance import InstanceLoss
from limner.losses.loss import LossSettings, Mined, Sextuples
from limner.models.registry import build_network
from limner.training.objective import Objective, TrainingBatch
from limner.training.optimiser import freeze_parts
from limner.training.recipe import StageSettings
from tests.reference.losses import instance_loss, pair_loss, ranking_loss, sextuple_loss
from tests.toy import toy_mnil, toy_recipe

GROUPS = torch.tensor([2, 0, 2, 1])
CLASSES = torch.tensor([1, 0, 1, 1])


def _objective(*losses: LossSettings) -> Objective:
    torch.manual_seed(0)
    objective = Objective(build_network(toy_recipe().model, 20), [losses], 3).train()
    objective.use(losses)
    return objective


def _batch(extra: int = 0, seed: int = 0) -> TrainingBatch:
    chance = torch.Generator().manual_seed(seed)
    images = torch.randn(4, 64, generator=chance)
    ids = torch.randint(0, 21, (4, 10), generator=chance)
    if not extra:
        return TrainingBatch(images, ids, GROUPS, CLASSES)
    chance.manual_seed(seed + 50)
    images = torch.cat([images, torch.randn(extra, 64, generator=chance)])
    ids = torch.cat([ids, torch.randint(0, 21, (extra, 10), generator=chance)])
    mined = Mined(torch.arange(extra), torch.arange(extra).flip(0))
    return TrainingBatch(images, ids, GROUPS, CLASSES, mined)


def _features(objective: Objective, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return objective.model.embed_images(batch.images), objective.model.encode_texts(batch.token_ids)


def _classifier(objective: Objective) -> InstanceLoss:
    found = objective.loss("instance")
    assert isinstance(found, InstanceLoss)
    return found


def _instance(objective: Objective, features: Tensor) -> float:
    weight = _classifier(objective).weight
    return instance_loss(features[:4].tolist(), weight.tolist(), CLASSES.tolist())


def test_total_is_the_weighted_sum_of_eq_9() -> None:
    objective = _objective(Instance(visual=2.0, textual=0.5, dropout=0.0), Ranking(weight=0.7, margin=0.4))
    batch = _batch()
    images, texts = _features(objective, batch)
    losses = objective(batch)
    ranking = ranking_loss(images.tolist(), texts.tolist(), GROUPS.tolist(), 0.4)
    visual, textual = _instance(objective, images), _instance(objective, texts)
    assert float(losses["ranking"]) == pytest.approx(ranking, rel=1e-4)
    assert float(losses["visual"]) == pytest.approx(visual, rel=1e-4)
    assert float(losses["textual"]) == pytest.approx(textual, rel=1e-4)
    assert losses["loss"].item() == pytest.approx(0.7 * ranking + 2.0 * visual + 0.5 * textual, rel=1e-4)


def test_joint_is_one_loss_on_the_sum() -> None:
    objective = _objective(Instance(visual=0, textual=0, joint=1.5, dropout=0.0))
    batch = _batch()
    images, texts = _features(objective, batch)
    losses = objective(batch)
    # Eq. 11: softmax(Wᵀ (f_img + f_text))
    expected = _instance(objective, images + texts)
    assert set(losses) == {"loss", "joint", "joint_error"}
    assert float(losses["joint"]) == pytest.approx(expected, rel=1e-4)
    assert losses["loss"].item() == pytest.approx(1.5 * expected, rel=1e-4)


def test_the_error_counts_the_classes_that_are_missed() -> None:
    objective = _objective(Instance(dropout=0.0))
    batch = _batch()
    losses = objective(batch)
    weight = _classifier(objective).weight.tolist()
    for name, features in zip(("visual", "textual"), _features(objective, batch), strict=True):
        missed = 0
        for feature, true in zip(features.tolist(), CLASSES.tolist(), strict=True):
            logits = [sum(w * f for w, f in zip(row, feature, strict=True)) for row in weight]
            missed += logits.index(max(logits)) != true
        assert float(losses[f"{name}_error"]) == pytest.approx(100 * missed / len(CLASSES))


def test_mined_negatives_enter_the_ranking_loss_only() -> None:
    # in eval mode the batch norm of a row does not depend on the others
    objective = _objective(Instance(dropout=0.0), Ranking(margin=1.0, negatives="sum")).eval()
    plain, more = objective(_batch()), objective(_batch(extra=3))
    assert torch.equal(plain["visual"], more["visual"])
    assert torch.equal(plain["textual"], more["textual"])
    images, texts = _features(objective, _batch(extra=3))
    expected = ranking_loss(
        images[:4].tolist(),
        texts[:4].tolist(),
        GROUPS.tolist(),
        1.0,
        extra_images=list(zip(images[4:].tolist(), [0, 1, 2], strict=True)),
        extra_texts=list(zip(texts[4:].tolist(), [2, 1, 0], strict=True)),
        negatives_are="sum",
    )
    assert float(more["ranking"]) == pytest.approx(expected, rel=1e-4)
    assert float(more["ranking"]) > float(plain["ranking"])


def test_only_the_losses_of_a_stage_are_computed_and_the_others_rest() -> None:
    first, second = (Instance(dropout=0.0),), (Pair(), Ranking())
    torch.manual_seed(0)
    objective = Objective(build_network(toy_recipe().model, 20), [first, second], 3).train()
    objective.use(second)
    assert set(objective(_batch())) == {"loss", "pair", "ranking"}
    assert "classifier" not in objective.parts()
    assert not _classifier(objective).weight.requires_grad
    images, texts = _features(objective, _batch())
    expected = pair_loss(images.tolist(), texts.tolist(), GROUPS.tolist())
    assert float(objective(_batch())["pair"]) == pytest.approx(expected, rel=1e-4)
    objective.use(first)
    assert set(objective(_batch())) == {"loss", "visual", "textual", "visual_error", "textual_error"}
    assert _classifier(objective).weight.requires_grad
    assert set(objective.handed_on()) == {"classifier"}


def _gradient(parameters: list[torch.nn.Parameter]) -> float:
    return sum(float(p.grad.abs().sum()) for p in parameters if p.grad is not None)


def test_gradients_reach_both_paths_and_spare_what_is_frozen() -> None:
    stage = StageSettings(name="s", frozen=("classifier", "words"), losses=(Instance(dropout=0.0), Ranking()))
    objective = _objective(*stage.losses)
    parts = objective.parts()
    freeze_parts(parts, stage)
    objective(_batch())["loss"].backward()
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


def test_pixels_go_through_the_backbone() -> None:
    objective = _objective(Instance(dropout=0.0))
    chance = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=chance)
    objective(replace(_batch(), images=pixels))["loss"].backward()
    assert _gradient(objective.parts()["backbone"]) > 0


def test_sextuples_are_taken_from_their_rows() -> None:
    torch.manual_seed(0)
    losses = (Sextuple(weight=2.0, rho=0.4, tau=0.6, beta_images=0.3, queue=5),)
    objective = Objective(build_network(toy_mnil().model, 20), [losses]).train()
    objective.use(losses, samples=50)
    chance = torch.Generator().manual_seed(9)
    # the second picture's relevant one is beside the batch, the other three are their own; two sentences likewise
    positives = torch.tensor([[0, 4], [4, 1], [2, 5], [3, 3]])
    draws = torch.tensor([[1, 3], [2, 0], [7, 1], [0, 60]])
    shares = torch.tensor([[1.0, 0.25], [0.5, 0.0], [0.25, 1.0], [0.0, 0.2]])
    batch = TrainingBatch(
        torch.randn(4 + 1 + 4, 64, generator=chance),
        torch.randint(1, 21, (4 + 2 + 4, 10), generator=chance),
        GROUPS,
        CLASSES,
        sextuples=Sextuples(positives, draws, shares),
    )
    images, texts = (
        torch.nn.functional.normalize(rows.double(), dim=1) for rows in _features(objective, batch)
    )
    rows = [
        {
            "x": images[i],
            "x+": images[positives[i, 0]],
            "x-": images[5 + i],
            "y": texts[i],
            "y+": texts[positives[i, 1]],
            "y-": texts[6 + i],
        }
        for i in range(4)
    ]
    expected = sextuple_loss(
        [{name: row.tolist() for name, row in one.items()} for one in rows],
        *(draws[:, 1].tolist(), draws[:, 0].tolist(), 50),
        rho=0.4,
        tau=0.6,
        beta_1=0.3,
        beta_2=0.2,
    )
    found = objective(batch)
    assert found["sextuple"].item() == pytest.approx(expected, rel=1e-5)
    assert found["loss"].item() == pytest.approx(2 * expected, rel=1e-5)
    assert found["violating"].item() == pytest.approx(40)
    loss = objective.loss("sextuple")
    assert isinstance(loss, SextupleLoss)
    assert loss.queue is not None
    assert loss.queue.slots == 5


@pytest.mark.parametrize("extra", [0, 3])
def test_a_picture_that_stands_once_gives_what_it_gives_in_each_row(extra: int) -> None:
    """Loss and gradients of a batch whose pictures are repeated, and of one that shows each once."""
    losses = (Instance(dropout=0.0), Ranking(margin=0.4, candidates=3 if extra else 0))
    whole = _batch(extra)
    row = torch.tensor([1, 0, 1, 1])
    shown = torch.cat([row, 2 + torch.arange(extra)])
    once = torch.cat([whole.images[:2], whole.images[4:]])
    found = []
    for batch in (replace(whole, images=once[shown]), replace(whole, images=once, shown=shown)):
        objective = _objective(*losses)
        # batch norm takes a picture that stands once for one, so its statistics are held here
        objective.model.eval()
        values = objective(batch)
        torch.autograd.backward(values["loss"])
        found.append((values, {name: weight.grad for name, weight in objective.named_parameters()}))
    (repeated, expected), (single, gradients) = found
    assert single["loss"].item() == pytest.approx(repeated["loss"].item(), rel=1e-6)
    for name, gradient in gradients.items():
        if gradient is not None:
            wanted = expected[name]
            assert wanted is not None, name
            # Of a tensor's largest: an element may be what is left of larger ones, whose rounding it has.
            rounding = 1e-5 * float(wanted.abs().max())
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=rounding)
