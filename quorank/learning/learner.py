"""Base classes of learners: parts that turn the interactions of a cohort's clients into updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from quorank.errors import require
from quorank.kernels.arrays import Doubles
from quorank.learning.own_learner import ClickedList, play_own_learner
from quorank.learning.simulation import Work
from quorank.learning.trees.growth import TreePlan


@dataclass(frozen=True)
class Learner(ABC):
    """A way to learn from clicks: a frozen dataclass with a `kind` and a method `learn`, in NumPy or as a kernel.

    Declare it in a notebook, in a module that an experiment file names (`kind = "my_module:ClickContrast"`), or behind an
    entry point `learner.KIND` of the group `quorank.parts`. Every engine, grid, ledger and report knows it then.

    Methods decorated with `quorank.kernel` run at the speed of the built-in learners. Of `self` they see the fields that
    are numbers.

    >>> from dataclasses import dataclass
    >>> import quorank as qr
    >>> @dataclass(frozen=True)
    ... class ClickContrast(qr.Learner):
    ...     kind = "click-contrast"
    ...     eta: float = 0.1  # η
    ...
    ...     def learn(self, theta, shown):
    ...         if shown.clicks.any() and not shown.clicks.all():
    ...             chosen, skipped = shown.features[shown.clicks], shown.features[~shown.clicks]
    ...             theta = theta + self.eta * (chosen.mean(0) - skipped.mean(0))
    ...         return theta
    >>> settings = {"learner": ClickContrast(eta=0.2), "data.queries": 60, "federation.rounds": 2}
    >>> qr.run("fpdgd", set=settings, out="runs/contrast").config["learner"]
    {'kind': 'click-contrast', 'eta': 0.2}

    The class attributes declare what a learner needs and provides.
    """

    METHODS: ClassVar[tuple[str, ...]] = ("learn or updates",)  # each learner overrides one of them

    kind: ClassVar[str]
    learns_on_client: ClassVar[bool] = True  # an update is the distance that the client's own parameters moved
    needs_gradient: ClassVar[bool] = False  # follows ∇f, so a ranker must have one at its start
    sends_metric: ClassVar[bool] = False  # sends a measured `metric` and a seed only
    learns_late: ClassVar[bool] = False  # runs on a device, and learns from lists that an older ranker has shown
    estimates_gradient: ClassVar[bool] = False  # updates are gradient estimates, which the server's optimiser scales
    takes_any_list: ClassVar[bool] = False  # corrects clicks by ranks alone, so any order of a list will do
    grows_trees: ClassVar[bool] = False  # sends histograms from which the server grows trees

    def learn(self, theta: Doubles, shown: ClickedList) -> Doubles:
        """Return the parameters after one clicked list.

        Args:
            theta: (d,) the client's own parameters.
            shown: The list, its features, clicks, scores, propensities and ranks.
        """
        raise NotImplementedError(f"{self.kind} has no method learn")

    def show(self, scores: Doubles, draws: Doubles) -> npt.ArrayLike:
        """Return the positions of candidates to show, best first, at least as many as are shown.

        Lists are drawn by Plackett-Luce (FPDGD eqs 1 and 2) unless a learner overrides this method.

        Args:
            scores: (n,) f_θ of the candidates.
            draws: (n,) uniform random numbers in [0, 1), the same in every engine.
        """
        raise NotImplementedError(f"{self.kind} has no method show")

    @property
    def trees_per_round(self) -> int:
        """Trees that a round adds."""
        return 0

    @property
    def metric(self) -> str:
        """Metric that is sent, "" if none is."""
        return ""

    @property
    def pdgd_eta(self) -> float | None:
        """η of PDGD as published; None for every other learner."""
        return None

    @property
    def list_temperature(self) -> float:
        """τ: lists are drawn from the scores divided by it."""
        return 1.0

    def tree_plan(self, leaves: int, k: int) -> TreePlan:
        """Return the plan of trees with `leaves` leaves; logged lists have k documents."""
        raise NotImplementedError(f"{self.kind} grows no trees")

    def list_plan(self, work: Work) -> tuple[Any, Any] | None:
        """Return the cohort and rule with which `play_lists` plays the learner; None if it has another loop."""
        return None

    def check(self, interactions: int) -> None:
        """Refuse a number of interactions per client and round that the learner cannot use."""

    def check_logged(self) -> None:
        """Refuse to learn from a log of lists shown by others, unless the learner takes any list."""
        own = f"{self.kind} learns from lists that it has drawn itself, and those of a log were drawn by others"
        sentence = f'{own}; use counterfactual, or users who click again on what was clicked (kind = "cascade")'
        require(self.takes_any_list, "learner.needs-own-lists", sentence)

    def propensities_of(self, k: int) -> Doubles | None:
        """Return the propensities of ranks 1 to k by which clicks are corrected, or of fewer; None without correction."""
        return None

    def check_list(self, k: int) -> None:
        """Refuse lists of k documents if the learner cannot use them."""

    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i, :d] with the update of work.clients[i], and rows[i, d:] with its STATISTICS."""
        play_own_learner(self, type(self).show is not Learner.show, work, rows)


class CompiledLearner(Learner):
    """Base class of learners with a compiled loop of their own kernels (`client_loop`)."""

    @abstractmethod
    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill rows[i, :d] with the update of work.clients[i], and rows[i, d:] with its STATISTICS."""
