"""The losses by the papers' names; each file is one published loss."""

from limner.losses.circle import Circle, CircleLoss
from limner.losses.cmce import CMCE, CMCELoss
from limner.losses.contrastive import Contrastive, ContrastiveLoss
from limner.losses.instance import Instance, InstanceLoss
from limner.losses.levels import Levels, LevelsLoss
from limner.losses.loss import Embedded, Loss, LossSettings, Terms
from limner.losses.maxsim import MaxSim, MaxSimLoss
from limner.losses.pair import Pair, PairLoss
from limner.losses.ranking import Ranking, RankingLoss
from limner.losses.registry import register_loss
from limner.losses.sdm import SDM, SDMLoss
from limner.losses.sextuple import Sextuple, SextupleLoss
from limner.losses.siglip import SigLIP, SigLIPLoss
from limner.losses.tal import TAL, TALLoss

__all__ = [
    "CMCE",
    "SDM",
    "TAL",
    "CMCELoss",
    "Circle",
    "CircleLoss",
    "Contrastive",
    "ContrastiveLoss",
    "Embedded",
    "Instance",
    "InstanceLoss",
    "Levels",
    "LevelsLoss",
    "Loss",
    "LossSettings",
    "MaxSim",
    "MaxSimLoss",
    "Pair",
    "PairLoss",
    "Ranking",
    "RankingLoss",
    "SDMLoss",
    "Sextuple",
    "SextupleLoss",
    "SigLIP",
    "SigLIPLoss",
    "TALLoss",
    "Terms",
    "register_loss",
]
