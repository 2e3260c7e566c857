"""Setting of a run as its privacy accounting sees it: who takes part, how often, and how much is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from quorank.errors import require, require_range


@dataclass(frozen=True)
class Setting:
    """The releases of a whole run."""

    clients: int
    cohort: int  # clients of a round; on average, where everyone decides by a coin
    rounds: int
    participation: Literal["full", "sampled", "poisson"] = "full"
    interactions: int = 4  # B
    parameters: int = 1  # numbers in an update
    values: int = 11  # that a metric of evolution strategies may take

    def __post_init__(self) -> None:
        require_range("clients", self.clients, least=1)
        require_range("cohort", self.cohort, least=1, most=self.clients)
        for name in ("rounds", "interactions", "parameters", "values"):
            require_range(name, getattr(self, name), least=1)
        require(
            self.participation != "full" or self.cohort == self.clients,
            "value.out-of-range",
            f"with full participation the cohort is everyone ({self.clients}), got {self.cohort}",
            "cohort",
        )

    @property
    def rate(self) -> float:
        """The share of clients that takes part in a round."""
        return self.cohort / self.clients

    @property
    def neighbouring(self) -> str:
        """Which two federations a guarantee holds between."""
        if self.participation == "sampled":
            return "replace one client by another"
        return "add or remove one client"

    def horizon(self, rounds: int | None = None) -> str:
        """Return the words for the first `rounds` rounds (all by default), as statements and reports print them."""
        done = self.rounds if rounds is None else rounds
        return f"whole run of {done} round{'s' if done != 1 else ''}"

    def stated(
        self, kind: str, model: str, done: int, epsilon: float | None, delta: float = 0.0, by: str = "", pairs: str = ""
    ) -> dict[str, Any]:
        """Return what a statement of `done` rounds says of ε: `by` how it was counted, for which `pairs` of federations."""
        neighbouring = {"neighbouring": pairs} if pairs else {}
        budget = {"epsilon": epsilon, "delta": delta, "horizon": self.horizon(done) + by, "rounds": done}
        return {"kind": kind, "model": model, "unit": "client"} | neighbouring | budget
