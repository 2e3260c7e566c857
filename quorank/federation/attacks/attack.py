"""Base class of attacks on a federation, and the attacker's knowledge of honest updates (thesis §5.2.1).

The attacker controls the first m clients of the federation, fewer than half. It knows what its clients would have sent had
they been honest (partial knowledge) or, for analysis only, what all clients send (full knowledge).
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint64s
from quorank.privacy import Mechanism
from quorank.users import ClickModel

Knowledge = Literal["partial", "full"]


def mean_rule(rows: Doubles) -> Doubles:
    """Return the mean of (n, d) updates."""
    return np.asarray(rows.mean(axis=0), dtype=np.float64)


class AttackedRule(NamedTuple):
    """Aggregation rule and its memory, for an attacker with full knowledge that tries out updates."""

    combined: Callable[[Doubles], Doubles] = mean_rule  # combined update of (n, d) updates
    history: Doubles | None = None  # (n, d) the rule's memory of each client
    beta: float = 0.0  # β: the rule remembers β·history + (1 − β)·update

    def before(self, n: int, d: int) -> Doubles:
        """Return the (n, d) memory of the clients; zeros in the first round and for a rule without memory."""
        return np.zeros((n, d)) if self.history is None else self.history


class AttackedCohort(NamedTuple):
    """Honest updates of a cohort, of which an attack replaces some."""

    updates: Doubles  # (n, d)
    malicious: Booleans  # (n,)
    theta: Doubles  # θ, (d,)
    key: Uint64s  # of the attack's draws
    round: int  # from 0
    rule: AttackedRule  # of the server

    @property
    def own(self) -> Doubles:
        """Honest updates of the malicious clients, (m, d)."""
        return self.updates[self.malicious]

    def view(self, knowledge: Knowledge) -> Doubles:
        """Return the honest updates from which the attacker estimates means: its own clients' or all clients'."""
        return self.updates if knowledge == "full" else self.own

    def rivals(self, knowledge: Knowledge) -> Doubles:
        """Return the known honest updates that compete with the malicious ones: others', or the attacker's own."""
        others = self.updates[~self.malicious]
        return others if knowledge == "full" and len(others) > 0 else self.own


@dataclass(frozen=True)
class Attack(ABC):
    """Base class of attacks by m malicious clients, which click by `users`, send `malicious_updates` or `lie`.

    Args:
        clients: Number of malicious clients m, the first of the federation; at least 1 and fewer than half of all.

    Raises:
        BadInput: `attack.no-clients` if `clients` is below 1.

    >>> from quorank.federation.attacks import SignFlip
    >>> SignFlip(clients=5).check(n=10)
    Traceback (most recent call last):
    quorank.errors.BadInput: attack: 5 of 10 clients would be malicious, and with half or more any rule is theirs; set ...
    """

    kind: ClassVar[str]
    knows_rule: ClassVar[bool] = False  # needs the server's rule

    clients: int = 1

    def __post_init__(self) -> None:
        sentence = f"must be at least 1, got {self.clients}; without an attack leave the section out"
        require(1 <= self.clients < 2**31, "attack.no-clients", sentence, "clients")

    def check(self, n: int) -> None:
        """Refuse a federation of n clients in which half or more would be malicious."""
        half = f"{self.clients} of {n} clients would be malicious, and with half or more any rule is theirs"
        require(2 * self.clients < n, "attack.too-many-clients", f"{half}; set clients below {n / 2:g}", "attack")

    @property
    def users(self) -> ClickModel | None:
        """Click model of the malicious clients; None if it is that of all."""
        return None

    def poison(
        self,
        updates: Doubles,
        malicious: Booleans,
        theta: Doubles,
        key: Uint64s,
        round_: int,
        rule: AttackedRule = AttackedRule(),  # noqa: B008
    ) -> Doubles:
        """Return the updates that a cohort sends.

        Args:
            updates: (n, d) honest updates of the cohort.
            malicious: (n,) mask of the malicious clients.
            theta: (d,) θ before the round.
            key: Key of the attack's draws.
            round_: Round, from 0.
            rule: Rule of the server, for attacks that know it.

        Returns:
            (n, d) updates; the rows of honest clients are unchanged.

        Raises:
            BadInput: `attack.shape` if the shapes do not belong together.
        """
        fits = updates.ndim == 2 and malicious.shape == updates.shape[:1] and theta.shape == updates.shape[1:]
        shapes = f"{updates.shape} of the updates, {malicious.shape} of the mask and {theta.shape} of the ranker"
        require(fits, "attack.shape", f"the shapes {shapes} do not belong together", "attack")
        sent = np.array(updates, dtype=np.float64)
        if malicious.any():
            sent[malicious] = self.malicious_updates(AttackedCohort(sent, malicious, theta, key, round_, rule))
        return sent

    def lie(
        self, releases: Doubles, malicious: Booleans, clients: Integers, mechanism: Mechanism, key: Uint64s, round_: int
    ) -> Doubles | None:
        """Return the rows that malicious clients send instead of their releases; None leaves the releases unchanged.

        `releases` (n, d) are those of the whole cohort, `clients` (n,) its numbers.
        """
        return None

    def malicious_updates(self, cohort: AttackedCohort) -> Doubles:
        """Return the malicious clients' rows."""
        return cohort.own


@dataclass(frozen=True)
class InformedAttack(Attack):
    """Base class of attacks that depend on the known honest updates.

    Args:
        knowledge: Honest updates that the attacker knows: "partial", those of its own clients; "full", all.
    """

    knowledge: Knowledge = "full"


def opposite(vector: Doubles) -> Doubles:
    """Return −v/‖v‖; zero for a zero vector."""
    length = float(np.sqrt(vector @ vector))
    return np.asarray(-vector / length if length > 0.0 else np.zeros_like(vector), dtype=np.float64)
