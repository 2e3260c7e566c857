"""The base class of attacks on a federation (thesis §5.2.1); the attacks themselves stand in `federation/attacks/`.

The attacker controls the first m clients of the federation, fewer than half.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Booleans, Doubles, Integers, Uint64s
from quorank.privacy import Mechanism
from quorank.users import ClickModel


class AttackedRule(NamedTuple):
    """The rule of the server as an attacker sees it that knows everything: it can try out what would become of updates."""

    combined: Callable[[Doubles], Doubles]  # what the server would make of the (n, d) updates of the cohort
    history: Doubles | None = None  # (n, d) what the rule remembers of each client
    beta: float = 0.0  # β: the rule remembers β·history + (1 − β)·update


@dataclass(frozen=True)
class Attack(ABC):
    """m malicious clients: they click as `users` says, or send what `malicious_updates` makes of honest updates."""

    kind: ClassVar[str]
    knows_rule: ClassVar[bool] = False  # True: `fitted_updates` is called, with the rule of the server

    clients: int = 1  # m, how many clients are malicious

    def __post_init__(self) -> None:
        sentence = f"must be at least 1, got {self.clients}; without an attack leave the section out"
        require(1 <= self.clients < 2**31, "attack.no-clients", sentence, "clients")

    def check(self, n: int) -> None:
        """Refuse a federation of n clients in which half or more would be malicious."""
        half = f"{self.clients} of {n} clients would be malicious, and with half or more any rule is theirs"
        require(2 * self.clients < n, "attack.too-many-clients", f"{half}; set clients below {n / 2:g}", "attack")

    @property
    def users(self) -> ClickModel | None:
        """How the malicious clients click; None if they click as everybody does."""
        return None

    def poison(
        self,
        updates: Doubles,
        malicious: Booleans,
        theta: Doubles,
        key: Uint64s,
        round_: int,
        rule: AttackedRule | None = None,
    ) -> Doubles:
        """Return what a cohort sends, (n, d), given the (n, d) updates that all of it learned honestly from θ (d,).

        `rule` is for attacks that know it; without one they take it for the mean.
        """
        fits = updates.ndim == 2 and malicious.shape == updates.shape[:1] and theta.shape == updates.shape[1:]
        shapes = f"{updates.shape} of the updates, {malicious.shape} of the mask and {theta.shape} of the ranker"
        require(fits, "attack.shape", f"the shapes {shapes} do not belong together", "attack")
        sent = np.array(updates, dtype=np.float64)
        if malicious.any() and self.knows_rule:
            known = rule or AttackedRule(lambda rows: np.asarray(rows.mean(axis=0), dtype=np.float64))
            sent[malicious] = self.fitted_updates(sent, malicious, known)
        elif malicious.any():
            sent[malicious] = self.malicious_updates(sent, malicious, theta, key, round_)
        return sent

    def lie(
        self, releases: Doubles, malicious: Booleans, clients: Integers, mechanism: Mechanism, key: Uint64s, round_: int
    ) -> Doubles | None:
        """Return what the malicious clients send in the place of their releases, a row each, whatever privacy made of them.

        `releases` (n, d) are those of the whole cohort, `clients` (n,) its numbers; None sends the releases as they are.
        """
        return None

    def malicious_updates(
        self, honest: Doubles, malicious: Booleans, theta: Doubles, key: Uint64s, round_: int
    ) -> Doubles:
        """Return what the malicious clients send, a row each, given the (n, d) honest updates of the whole cohort."""
        return honest[malicious]

    def fitted_updates(self, honest: Doubles, malicious: Booleans, rule: AttackedRule) -> Doubles:
        """Return what the malicious clients of an attack that knows the rule send, a row each."""
        raise NotImplementedError(f"{self.kind} does not know the rule")
