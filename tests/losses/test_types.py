"""What a type checker sees of a loss: `mypy` fails here where a call is `Any`."""

from typing import assert_type

import torch
from torch import Tensor

from limner.losses import (
    CircleLoss,
    CMCELoss,
    ContrastiveLoss,
    InstanceLoss,
    LevelsLoss,
    PairLoss,
    RankingLoss,
    SDMLoss,
    SextupleLoss,
    SigLIPLoss,
    TALLoss,
)

ROWS = torch.eye(2, 3)
GROUPS = torch.tensor([0, 1])


def test_a_loss_is_a_tensor() -> None:
    assert_type(InstanceLoss(3, 2)(ROWS, GROUPS), Tensor)
    assert_type(RankingLoss()(ROWS, ROWS, GROUPS), Tensor)
    cmce = CMCELoss(3, 2)
    cmce.fill(ROWS, GROUPS, ROWS, GROUPS)
    assert_type(cmce(ROWS, ROWS, GROUPS), Tensor)
    assert_type(PairLoss()(ROWS, ROWS, GROUPS), Tensor)
    assert_type(SDMLoss()(ROWS, ROWS, GROUPS), Tensor)
    assert_type(ContrastiveLoss()(ROWS, ROWS, GROUPS), Tensor)
    assert_type(SigLIPLoss()(ROWS, ROWS, GROUPS), Tensor)
    assert_type(TALLoss()(ROWS, ROWS, GROUPS), Tensor)
    assert_type(CircleLoss()(ROWS, ROWS, GROUPS), Tensor)
    assert_type(LevelsLoss()(torch.eye(2), GROUPS >= 0, GROUPS), Tensor)
    draws = torch.ones(2, dtype=torch.long)
    found = SextupleLoss()(
        *(ROWS, ROWS, ROWS, ROWS, ROWS, ROWS), image_draws=draws, sentence_draws=draws, samples=2
    )
    assert_type(found, Tensor)
