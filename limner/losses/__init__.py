"""The losses by the papers' names; each file is one published loss."""

from limner.losses.cmce import CMCELoss
from limner.losses.instance import InstanceLoss
from limner.losses.matching import MatchingLoss
from limner.losses.ranking import RankingLoss
from limner.losses.sextuple import SextupleLoss

__all__ = ["CMCELoss", "InstanceLoss", "MatchingLoss", "RankingLoss", "SextupleLoss"]
