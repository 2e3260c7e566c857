"""Made-up people for a heuristic: what they are shown, and what they take (Hartmann et al. 2019, §6.1).

People take the item with the highest true score after noise. The true weights are the shipped ones as in the paper, or
others: where they are the shipped ones there is nothing to find, and a simulation can only show that nothing breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.errors import BadInput
from quorank.parts import suggest
from quorank.tuning.heuristics.firefox import FIREFOX, aged
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.heuristics.mail import MAIL, generate_mails
from quorank.tuning.histories.generated import SIGMA, Candidates, choose, generate

Show = Callable[[int, int, int], Any]
"""show(seed, searches, first) → items of these searches, nothing chosen."""


@dataclass(frozen=True, eq=False)
class World:
    """A heuristic, and a generator of what its people see."""

    heuristic: Heuristic
    show: Show
    margin: float  # Δ that suits the size of its scores
    share: float = 0.2  # δ, the margin of the relative loss

    def searches(self, seed: int, count: int, first: int, truth: Doubles, sigma: float = SIGMA) -> Any:
        """Searches `first` to `first + count` of people who follow the weights `truth`."""
        items = self.show(seed, count, first)
        scores = np.ascontiguousarray(self.heuristic.score(truth[None, :], items)[0])
        return items._replace(chosen=_choices(seed, items.offsets, scores, sigma, first))


def _choices(seed: int, offsets: Integers, scores: Doubles, sigma: float, first: int) -> Integers:
    """`choose` for items of any kind: it looks at nothing but the offsets and the scores."""
    n = len(scores)
    none = np.empty((n, 0), np.int8)
    blank = Candidates(
        offsets, np.empty(n, np.int32), np.empty(n, np.int8), none, none, np.empty(0, np.int64)
    )
    return choose(seed, blank, scores, sigma=sigma, first=first).chosen


WORLDS = {
    "frecency": World(FRECENCY, lambda seed, count, first: generate(seed, count, first=first), 30.0),
    "mail": World(MAIL, lambda seed, count, first: generate_mails(seed, count, first=first), 5.0),
    "firefox": World(
        FIREFOX, lambda seed, count, first: aged(seed, generate(seed, count, first=first), first=first), 30.0
    ),
}


def world(name: str) -> World:
    """A world by the name of its heuristic."""
    if name not in WORLDS:
        raise BadInput(f"unknown heuristic {name!r}{suggest(name, WORLDS)}; known: {', '.join(WORLDS)}")
    return WORLDS[name]
