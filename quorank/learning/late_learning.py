"""Learning from lists that an older ranker has shown.

People do not search on the round's clock: when a task comes, its update is made of lists that earlier rankers drew. The
weight ρ of a pair (FPDGD eq. 6) makes up for the position bias of the distribution that the list was drawn from, so it is
that of the ranker which showed it; the gradient (the rest of eq. 5) is taken at the ranker that learns. Taking both where
the list was shown is a delayed gradient, which oversteps: `docs/devices.md` has the measurement.

Where the ranker that learns is the one that showed the list, all is as in `OnlineRanker`, to the bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quorank.learning import OnlineRanker, Shown


class LateRanker(OnlineRanker):
    """An `OnlineRanker` that also learns from lists which other rankers have shown."""

    def learn(self, shown: Shown, clicks: npt.ArrayLike) -> bool:
        """Follow the gradient of one clicked list; False if the clicks say nothing."""
        if np.array_equal(shown.packed_parameters, self._packed):
            return super().learn(shown, clicks)
        return self._follow(shown, clicks, self._packed, fast=False)
