"""Setting of a run for its privacy accounting: participation and size of the releases."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from quorank.errors import BadInput, require, require_range


@dataclass(frozen=True)
class Turns:
    """Limits on the participation of one client: at most `most` rounds, with at least `rest` rounds in between.

    Devices and coordinator both enforce them, each from its own record of replies.

    >>> Turns(most=3, rest=1).may_answer(times=1, last=4, round_=5)
    False
    """

    most: int | None = None  # m; unlimited by default
    rest: int = 0  # s

    def __post_init__(self) -> None:
        if self.most is not None:
            require_range("most", self.most, least=1, below=2**31)
        require_range("rest", self.rest, least=0, below=2**31)

    def check(self, times: int, last: int, round_: int) -> None:
        """Refuse a client with `times` participations, the last in round `last`, that may not take part in this round."""
        if self.most is not None and times >= self.most:
            sentence = f"this client has taken part in {self.most} rounds, as many as it may in this run"
            raise BadInput("reply.too-often", sentence)
        if times > 0 and round_ - last <= self.rest:
            sentence = f"this client sits out {self.rest} rounds after each that it takes part in; come again later"
            raise BadInput("reply.resting", sentence)

    def may_answer(self, times: int, last: int, round_: int) -> bool:
        """Return whether `check` accepts such a client."""
        try:
            self.check(times, last, round_)
        except BadInput:
            return False
        return True

    def busiest(self, rounds: int) -> range:
        """Return the rounds, min(m, ⌈rounds/(s + 1)⌉), of a client that participates as often as allowed."""
        return range(0, rounds, self.rest + 1)[: self.most]


@dataclass(frozen=True)
class Setting:
    """Releases of a whole run.

    >>> Setting(clients=100, cohort=10, rounds=50, participation="sampled").rate
    0.1
    """

    clients: int
    cohort: int  # clients of a round: the mean of Poisson samples, the maximum of open arrivals
    rounds: int
    participation: Literal["full", "sampled", "poisson", "arrivals"] = "full"
    interactions: int = 4  # B
    parameters: int = 1  # numbers in an update
    values: int = 11  # possible values of the metric of evolution strategies
    most_rounds: int | None = None  # m, rounds of one client; unlimited by default
    rest: int = 0  # s, rounds of rest in between

    def __post_init__(self) -> None:
        require_range("clients", self.clients, least=1)
        require_range("cohort", self.cohort, least=1, most=self.clients)
        require_range("rounds", self.rounds, least=1, below=2**31)
        for name in ("interactions", "parameters", "values"):
            require_range(name, getattr(self, name), least=1)
        require(
            self.participation != "full" or self.cohort == self.clients,
            "value.out-of-range",
            f"with full participation the cohort is everyone ({self.clients}), got {self.cohort}",
            "cohort",
        )
        limited = self.turns != Turns()  # raises for limits out of range
        sentence = "needs open participation: use participation arrivals"
        where = "rest" if self.most_rounds is None else "most_rounds"
        require(not limited or self.open_arrivals, "option.conflict", sentence, where)

    @property
    def turns(self) -> Turns:
        """Limits on the participation of one client."""
        return Turns(self.most_rounds, self.rest)

    @property
    def draws_cohorts(self) -> bool:
        """True if cohorts are drawn, so that ε may rely on their secrecy."""
        return self.participation in ("sampled", "poisson")

    @property
    def open_arrivals(self) -> bool:
        """True for open participation, whose cohorts are no secret."""
        return self.participation == "arrivals"

    @property
    def known_size(self) -> bool:
        """True if every cohort has the planned size."""
        return self.participation in ("full", "sampled")

    @property
    def rate(self) -> float:
        """Share of the clients in a cohort."""
        return self.cohort / self.clients

    @property
    def neighbouring(self) -> str:
        """Neighbouring relation of the guarantee."""
        if self.participation == "sampled":
            return "replace one client by another"
        if self.open_arrivals:
            return "one client's replies count as zero; its participation is not hidden"
        return "add or remove one client"

    def participations(self, rounds: int | None = None) -> int:
        """Return the largest number of participations of one client in the first `rounds` rounds (all by default).

        For drawn cohorts that is all of them; the accountant counts the sampling.
        """
        return len(self.turns.busiest(self.rounds if rounds is None else rounds))

    def table(self) -> dict[str, Any]:
        """Return the fields by name, with the limits of one client only for open participation."""
        found = asdict(self)
        unlimited = [name for name in ("most_rounds", "rest") if not self.open_arrivals or found[name] is None]
        return {name: value for name, value in found.items() if name not in unlimited}

    def horizon(self, rounds: int | None = None) -> str:
        """Return the horizon of the first `rounds` rounds (all by default), as statements and reports print it."""
        done = self.rounds if rounds is None else rounds
        whole = f"whole run of {done} round{'s' if done != 1 else ''}"
        times = f", of which a client is in at most {self.participations(done)}"
        return whole + times if self.open_arrivals else whole

    def stated(
        self, kind: str, model: str, done: int, epsilon: float | None, delta: float = 0.0, by: str = "", pairs: str = ""
    ) -> dict[str, Any]:
        """Return the ε of a statement of `done` rounds, computed `by` a method for neighbouring `pairs`."""
        neighbouring = {"neighbouring": pairs} if pairs else {}
        budget = {"epsilon": epsilon, "delta": delta, "horizon": self.horizon(done) + by, "rounds": done}
        return {"kind": kind, "model": model, "unit": "client"} | neighbouring | budget
