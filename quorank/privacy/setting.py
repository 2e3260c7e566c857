"""Setting of a run as its privacy accounting sees it: who takes part, how often, and how much is sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from quorank.errors import BadInput, require, require_range


@dataclass(frozen=True)
class Turns:
    """How often one client may take part: at most `most` rounds of a run, with at least `rest` rounds in between.

    Devices and coordinator judge by the same method, each from its own memory of what was answered.
    """

    most: int | None = None  # m; None: as often as it rests in between
    rest: int = 0  # s

    def __post_init__(self) -> None:
        if self.most is not None:
            require_range("most", self.most, least=1, below=2**31)
        require_range("rest", self.rest, least=0, below=2**31)

    def check(self, times: int, last: int, round_: int) -> None:
        """Refuse a client that has taken part `times` times, the last time in round `last`, where its turn is not yet."""
        if self.most is not None and times >= self.most:
            sentence = f"this client has taken part in {self.most} rounds, as many as it may in this run"
            raise BadInput("reply.too-often", sentence)
        if times > 0 and round_ - last <= self.rest:
            sentence = f"this client sits out {self.rest} rounds after each that it takes part in; come again later"
            raise BadInput("reply.resting", sentence)

    def may_answer(self, times: int, last: int, round_: int) -> bool:
        """Return whether `check` lets such a client take part."""
        try:
            self.check(times, last, round_)
        except BadInput:
            return False
        return True

    def busiest(self, rounds: int) -> range:
        """Return those of the first rounds, min(m, ⌈rounds/(s + 1)⌉), of a client that takes part as often as it may."""
        return range(0, rounds, self.rest + 1)[: self.most]


@dataclass(frozen=True)
class Setting:
    """The releases of a whole run."""

    clients: int
    cohort: (
        int  # clients of a round; on average, where everyone decides by a coin; at most, where a round takes who comes
    )
    rounds: int
    participation: Literal["full", "sampled", "poisson", "arrivals"] = "full"
    interactions: int = 4  # B
    parameters: int = 1  # numbers in an update
    values: int = 11  # that a metric of evolution strategies may take
    most_rounds: int | None = None  # m, that a client may take part in; None: all that it does not rest in
    rest: int = 0  # s, rounds that a client sits out in between

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
        limited = self.turns != Turns()  # which refuses limits out of range
        sentence = "is kept by rounds that take whoever comes: use participation arrivals"
        where = "rest" if self.most_rounds is None else "most_rounds"
        require(not limited or self.open_arrivals, "option.conflict", sentence, where)

    @property
    def turns(self) -> Turns:
        """How often one client may take part."""
        return Turns(self.most_rounds, self.rest)

    @property
    def draws_cohorts(self) -> bool:
        """Whether cohorts are drawn by lot, so that ε may count on nobody knowing who was in them."""
        return self.participation in ("sampled", "poisson")

    @property
    def open_arrivals(self) -> bool:
        """Whether a round is of those who come, which is no secret."""
        return self.participation == "arrivals"

    @property
    def known_size(self) -> bool:
        """Whether every cohort is as large as planned."""
        return self.participation in ("full", "sampled")

    @property
    def rate(self) -> float:
        """The share of clients that takes part in a round."""
        return self.cohort / self.clients

    @property
    def neighbouring(self) -> str:
        """Which two federations a guarantee holds between."""
        if self.participation == "sampled":
            return "replace one client by another"
        if self.open_arrivals:
            return "one client's replies count as nothing; that it came is not hidden"
        return "add or remove one client"

    def participations(self, rounds: int | None = None) -> int:
        """Return in how many of the first `rounds` rounds (all by default) one client can have taken part at most.

        Where cohorts are drawn that is all of them: how seldom a client is drawn is the accountant's to count.
        """
        return len(self.turns.busiest(self.rounds if rounds is None else rounds))

    def table(self) -> dict[str, Any]:
        """Return the fields by name; limits of one client only where there may be any."""
        found = asdict(self)
        unlimited = [name for name in ("most_rounds", "rest") if not self.open_arrivals or found[name] is None]
        return {name: value for name, value in found.items() if name not in unlimited}

    def horizon(self, rounds: int | None = None) -> str:
        """Return the words for the first `rounds` rounds (all by default), as statements and reports print them."""
        done = self.rounds if rounds is None else rounds
        whole = f"whole run of {done} round{'s' if done != 1 else ''}"
        times = f", of which a client is in at most {self.participations(done)}"
        return whole + times if self.open_arrivals else whole

    def stated(
        self, kind: str, model: str, done: int, epsilon: float | None, delta: float = 0.0, by: str = "", pairs: str = ""
    ) -> dict[str, Any]:
        """Return what a statement of `done` rounds says of ε: `by` how it was counted, for which `pairs` of federations."""
        neighbouring = {"neighbouring": pairs} if pairs else {}
        budget = {"epsilon": epsilon, "delta": delta, "horizon": self.horizon(done) + by, "rounds": done}
        return {"kind": kind, "model": model, "unit": "client"} | neighbouring | budget
