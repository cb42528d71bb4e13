"""The losses by the papers' names; each file is one published loss."""

from limner.losses.cmce import CMCE, CMCELoss
from limner.losses.instance import Instance, InstanceLoss
from limner.losses.levels import Levels, LevelsLoss
from limner.losses.loss import Embedded, Loss, LossSettings, Terms
from limner.losses.pair import Pair, PairLoss
from limner.losses.ranking import Ranking, RankingLoss
from limner.losses.registry import register_loss
from limner.losses.sextuple import Sextuple, SextupleLoss

__all__ = [
    "CMCE",
    "CMCELoss",
    "Embedded",
    "Instance",
    "InstanceLoss",
    "Levels",
    "LevelsLoss",
    "Loss",
    "LossSettings",
    "Pair",
    "PairLoss",
    "Ranking",
    "RankingLoss",
    "Sextuple",
    "SextupleLoss",
    "Terms",
    "register_loss",
]
