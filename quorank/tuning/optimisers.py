"""Server optimisers for heuristics: those of a federation, on weights counted in their declared steps.

So one number serves weights of any size, and Rprop's `most` = 1 is the largest change that the constraints allow. An
update points downhill, against the gradient.
"""

from __future__ import annotations

from quorank.federation.servers import Adam, Add, Momentum, Rprop, adapt
from quorank.parts import Family

__all__ = ["OPTIMISERS", "SUITED", "Optimiser", "Rprop", "adapt"]

Optimiser = Rprop | Add | Momentum | Adam
OPTIMISERS: Family[Optimiser] = Family("server optimiser", Rprop, Add, Momentum, Adam)
SUITED: dict[str, Optimiser] = {
    "rprop": Rprop(),
    "adam": Adam(step=0.3),
    "momentum": Momentum(step=4.0),
    "add": Add(step=40.0),
}
"""What a bare word stands for here: steps that suit the slopes of the relative loss, per declared step."""
