"""Plan of a learner that grows trees: all that its clients and its server need to know before the first tree."""

from __future__ import annotations

from typing import NamedTuple

from quorank.kernels.arrays import Doubles
from quorank.learning.trees.gradients import LambdaRule
from quorank.learning.trees.growth import GrowthRule


class TreePlan(NamedTuple):
    """Settings of gradients and growth."""

    gradients: LambdaRule
    growth: GrowthRule
    bins: int  # of a feature, at most
    random: bool  # splits are drawn at random, independently of the data
    batch: int  # trees of a round
    propensities: Doubles | None  # (k,) of the ranks of logged lists; None: clients have labels
    temperature: float  # of logged lists
    least_lists: int
    quantile_releases: int  # that bins are agreed from, where there is noise; 0: bins are a grid
