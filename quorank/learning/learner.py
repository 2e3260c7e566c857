"""The base class of learners: how the clients of a cohort turn their interactions into updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.learning.simulation import Work
from quorank.learning.trees.plan import TreePlan


class PDGDStep(NamedTuple):
    """What the compiled kernel of PDGD needs to play a learner."""

    eta: float  # η
    batched: bool  # one step after all interactions, instead of one after each
    pull: float  # η·μ, towards the θ of the round


@dataclass(frozen=True)
class Learner(ABC):
    """One way to learn from clicks. The class attributes say what a learner needs and gives."""

    kind: ClassVar[str]
    learns_on_client: ClassVar[bool] = True  # the client moves parameters of its own, and its update is how far
    needs_gradient: ClassVar[bool] = True  # it follows ∇f, so a ranker must have one at its start
    sends_metric: ClassVar[bool] = False  # all that leaves a client is a measured `metric` and a seed
    learns_late: ClassVar[bool] = False  # it can learn on a device, also from lists that an older ranker has shown
    estimates_gradient: ClassVar[bool] = False  # updates are gradient estimates, which the server's optimiser scales
    takes_any_list: ClassVar[bool] = False  # whoever ordered it: clicks are corrected by the ranks alone
    grows_trees: ClassVar[bool] = False  # it sends histograms of which the server grows trees, and no updates

    @property
    def trees_per_round(self) -> int:
        """Trees that a round adds, where it grows any."""
        return 0

    @property
    def metric(self) -> str:
        """Which metric is sent, if one is."""
        return ""

    @property
    def pdgd_step(self) -> PDGDStep | None:
        """How the compiled kernel of PDGD plays this learner; None if it has a kernel of its own."""
        return None

    @property
    def list_temperature(self) -> float:
        """τ: lists are drawn from the scores divided by it."""
        return 1.0

    def tree_plan(self, leaves: int, k: int) -> TreePlan:
        """Return how it grows trees of so many leaves, from lists of k documents where they were logged."""
        raise NotImplementedError(f"{self.kind} grows no trees")

    def check(self, interactions: int) -> None:
        """Refuse a number of interactions per client and round that the learner cannot use."""

    def check_logged(self) -> None:
        """Refuse to learn from a log of lists that others have shown, unless it takes any list."""
        own = f"{self.kind} learns from lists that it has drawn itself, and those of a log were drawn by others"
        sentence = f'{own}; use counterfactual, or users who click again on what was clicked (kind = "cascade")'
        require(self.takes_any_list, "learner.needs-own-lists", sentence)

    def propensities_of(self, k: int) -> Doubles | None:
        """Return how likely a user looks at ranks 1 to k, or fewer if no more are known, as it corrects clicks by it.

        None where it does not.
        """
        return None

    def check_list(self, k: int) -> None:
        """Refuse lists of k documents if the learner cannot use them."""

    @abstractmethod
    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i, :d] with the update of work.clients[i], and rows[i, d:] with its STATISTICS."""
