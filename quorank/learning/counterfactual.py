"""Federated counterfactual learning: the ranking is shown as it is, and clicks are corrected by propensities.

Nothing is explored by default, so that every list is the ranking; documents that users did not examine are corrected
for by the propensities of the ranks (`inverse_propensity` has the estimates and their papers). They are given, by a law
(1/rank)^power or one by one. A client goes η·gradient after each
interaction, as in PDGD, so that privacy, aggregation and the network treat its update alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.learning.inverse_propensity import DR, IPS, SNIPS, ClickRule, rank_propensities
from quorank.learning.pdgd import ListLearner

_ESTIMATORS = {"ips": IPS, "snips": SNIPS, "dr": DR}


@dataclass(frozen=True)
class Counterfactual(ListLearner):
    """Counterfactual learning: θ ← θ + η·Σ (v(a) − v(b))·∇P(a ≻ b) over the shown documents.

    v is a document's relevance, estimated from its click and the propensity p_r of its rank r, such as click/p_r (IPS).

    Args:
        eta: η, length of a step, above 0.
        step: "interaction" moves θ after each list, "batch" once by their sum.
        proximal: μ of FedProx, as in PDGD.
        loss: "pairwise" over pairs of shown documents, "listwise" a softmax over the list.
        estimator: Of relevance: "ips" inverse propensity, "snips" self-normalised, "dr" doubly robust.
        power: p_r = (1/r)^power unless propensities are given; 0 means no position bias.
        propensities: p_1, p_2, …, one in (0, 1] for each rank that is shown.
        clip: Lower bound on propensities, in (0, 1].
        reach: Pairs are of documents at most this many ranks apart.
        temperature: τ of the lists that are explored.
        window: w: no document of these lists is more than w positions from its rank; None leaves it free.
        share: Share of the lists, in [0, 1], that are explored.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range, `counterfactual.proximal-overshoots` if η·μ is
            above 2.

    >>> Counterfactual(power=1.0).propensities_of(4)
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """

    kind: ClassVar[str] = "counterfactual"
    takes_any_list: ClassVar[bool] = True

    eta: float = 0.1
    step: Literal["interaction", "batch"] = "interaction"
    proximal: float = 0.0
    loss: Literal["pairwise", "listwise"] = "pairwise"
    estimator: Literal["ips", "snips", "dr"] = "ips"
    power: float = 0.5
    propensities: tuple[float, ...] | None = None
    clip: float = 0.1
    reach: int = 3
    temperature: float = 1.0
    window: int | None = None
    share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("power", self.power, least=0.0, below=100.0)
        require_range("clip", self.clip, above=0.0, most=1.0)
        for propensity in self.propensities or ():
            require_range("propensities", propensity, above=0.0, most=1.0)
        require_range("reach", self.reach, least=1, below=2**31)
        require_range("share", self.share, least=0.0, most=1.0)

    def click_rule(self, k: int) -> ClickRule:
        propensities = rank_propensities(self.kind, self.propensities, self.power, k)
        return ClickRule(_ESTIMATORS[self.estimator], self.loss == "listwise", propensities, self.clip, self.reach)

    def propensities_of(self, k: int) -> Doubles | None:
        return self.click_rule(min(k, len(self.propensities) if self.propensities is not None else k)).propensities

    def check_logged(self) -> None:
        super().check_logged()
        sentence = f"share = {self.share} explores lists, and those of a log are as they were; leave it out"
        require(self.share == 0.0, "option.conflict", sentence, "share")
