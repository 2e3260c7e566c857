"""What the malicious clients know of the honest ones (thesis §5.2.1).

They see what they would have sent had they been honest (partial knowledge) or, for analysis only, what everybody sends
(full knowledge).
"""

from __future__ import annotations

from typing import Literal

from quorank.kernels.arrays import Booleans, Doubles

Knowledge = Literal["partial", "full"]


def honest_view(updates: Doubles, malicious: Booleans, knowledge: Knowledge) -> Doubles:
    """Return the honest updates from which the attacker estimates means: its own clients', or also everybody else's."""
    return updates if knowledge == "full" else updates[malicious]


def rivals(updates: Doubles, malicious: Booleans, knowledge: Knowledge) -> Doubles:
    """Return the honest updates that the malicious ones will stand beside, as far as the attacker knows.

    With full knowledge these are what the honest clients send. With partial knowledge the attacker's own honest updates
    stand for them.
    """
    others = updates[~malicious]
    return others if knowledge == "full" and len(others) > 0 else updates[malicious]
