"""Malicious clients that act together (thesis §5.2.1): who they are, and what they know of the others.

The attacker controls the first m clients of the federation, fewer than half. It sees what they would have sent had they
been honest (partial knowledge) or, for analysis only, what everybody sends (full knowledge).
"""

from __future__ import annotations

from typing import Literal

from quorank.arrays import Booleans, Doubles
from quorank.errors import require

Knowledge = Literal["partial", "full"]


def check_clients(clients: int) -> None:
    """The number m of malicious clients, when an attack is built."""
    require(
        1 <= clients < 2**31,
        f"clients must be at least 1, got {clients}; without an attack leave the section out",
    )


def check_share(kind: str, clients: int, n: int) -> None:
    """Refuse a federation in which half of the clients or more would be malicious."""
    require(
        clients < n,
        f"attack: all of the {n} clients would be malicious, and nobody would be left to attack; "
        f"{kind} needs fewer than half, set clients below {n / 2:g}",
    )
    require(
        2 * clients < n,
        f"attack: {clients} of {n} clients would be malicious, and with half of them or more any rule is theirs; "
        f"{kind} needs fewer than half, set clients below {n / 2:g}",
    )


def check_rows(updates: Doubles, malicious: Booleans, theta: Doubles) -> None:
    """A row of updates for each client, and an entry of the mask for each row."""
    require(
        updates.ndim == 2 and malicious.shape == updates.shape[:1] and theta.shape == updates.shape[1:],
        f"attack: the shapes {updates.shape} of the updates, {malicious.shape} of the mask and {theta.shape} of the "
        "ranker do not belong together",
    )


def honest_view(updates: Doubles, malicious: Booleans, knowledge: Knowledge) -> Doubles:
    """The honest updates from which the attacker estimates means: its own clients', or also everybody else's."""
    return updates if knowledge == "full" else updates[malicious]


def rivals(updates: Doubles, malicious: Booleans, knowledge: Knowledge) -> Doubles:
    """The honest updates that the malicious ones will stand beside, as far as the attacker knows.

    With full knowledge these are what the honest clients send. With partial knowledge the attacker's own honest updates
    stand for them.
    """
    others = updates[~malicious]
    return others if knowledge == "full" and len(others) > 0 else updates[malicious]
