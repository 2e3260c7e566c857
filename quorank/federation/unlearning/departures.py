"""Departures of clients from a running service, and the rebuilding of its ranker without them.

From its request on a client is in no cohort, the open round's included. After that round the ranker is rebuilt from its
start without all who have left by then (`rebuilding`): the others learn again from the interactions that they hold, in
fewer and longer rounds, with the noise of the run. Whoever leaves during a rebuilding waits for the next: one that started
over for each of them would never end where many leave, and spend ε each time. Where clients cannot release their
interactions again the ranker can only be reset to its start, which forgets all that was learned: the leavers wait until the
operator allows that (`may_reset`), since anybody who may enrol could otherwise wipe the ranker. A client without a counted
reply is let go at once.

Each round of a rebuilding is one more release of the others' interactions, counted when it is made. All releases together
stay within the run's planned ε: a rebuilding takes the place of rounds of the run, which ends earlier by them, unless a
larger budget was reserved (`total_epsilon`). A rebuilding that fits neither way is refused before it begins, and tried
again as a new rebuilding once `total_epsilon` is larger.

One influence of a leaver cannot be undone: the lists that the others hold were shown by rankers that it had a part in.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

from quorank.errors import BadInput, require, require_range
from quorank.federation.coordinator import Coordinator
from quorank.federation.storage import RoundStorage
from quorank.federation.unlearning import rebuilding_name
from quorank.federation.unlearning.rebuilding import (
    DOCUMENT,
    Rebuilding,
    RebuildingLedger,
    rebuilding_of,
    rebuilding_setting,
)
from quorank.files.documents import parse_json
from quorank.kernels.arrays import Doubles
from quorank.privacy.composition import Loss

LEAVERS = "leavers"  # name of the document of all requests to leave
INTERVAL = 10  # Δt


@dataclass(frozen=True)
class Leaver:
    """Stored request of a client to leave, and how it was met: rebuilt from what others hold, or reset to the start."""

    client: int
    digest: str  # of its request
    at: float
    number: int | None = None  # of the rebuilding without it; None before that
    done: bool = False
    method: Literal["fresh", "reset"] | None = None
    rounds: int = 0  # of the rebuilding; 0 after a reset
    epsilon: float | None = None  # spent by the rebuilding, in addition to the run
    refused: float | None = None  # total ε that a refused rebuilding would have reached
    budget: float = 0.0  # `total_epsilon` of that refusal; 0: the run's planned ε
    waits: bool = False  # for the operator: to allow a reset, or a larger budget after a refusal by ε
    shorter: int = 0  # rounds of the run that the rebuilding replaced


@dataclass(eq=False)
class Departures(ABC):
    """Leavers of one coordinator; `process_requests` is called between two rounds.

    A subclass stores documents, plays rounds and calls `add_leaver` for every verified request.

    Args:
        coordinator: The run's.
        start: Ranker before the first round, (parameters,).
        interval: Δt, rounds of the run per round of a rebuilding.
        total_epsilon: Budget of run, reports and rebuildings together; the run's planned ε by default.
        reports: Loss of the metrics that devices report over the whole run.
        may_reset: Reset the ranker to its start where it cannot be rebuilt.
        log: Logs an event with its numbers.
    """

    coordinator: Coordinator
    start: Doubles
    interval: int = INTERVAL
    total_epsilon: float | None = None
    reports: Loss = field(default_factory=Loss)
    may_reset: bool = False
    log: Callable[..., None] = lambda event, **numbers: None
    leavers: list[Leaver] = field(default_factory=list, init=False)
    ledger: RebuildingLedger = field(init=False)
    _rounds: int = field(init=False)  # planned rounds of the run
    _current: Rebuilding | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        require_range("interval", self.interval, least=1)
        federation, self._rounds = self.coordinator.federation, self.coordinator.rounds
        sentence = (
            "rules that judge clients by their history need everyone in every round, so nobody leaves; take history out"
        )
        require(federation.aggregation.history == 0.0, "leaving.history", sentence)
        privacy = federation.privacy.with_noise_of(self.coordinator.mechanism)
        self.ledger = RebuildingLedger(privacy, self.read_document(DOCUMENT), partial(self.write_document, DOCUMENT))
        if (content := self.read_document(LEAVERS)) is not None:
            self.leavers = parse_json(content, list[Leaver], LEAVERS, advice="; restore the store from a backup")
        self._exclude_leavers()
        self._shorten_run()

    @abstractmethod
    def read_document(self, name: str) -> bytes | None:
        """Return the document of this name, if there is one."""

    @abstractmethod
    def write_document(self, name: str, content: bytes) -> None:
        """Replace the document of this name."""

    @abstractmethod
    def storage(self) -> RoundStorage:
        """Return the storage of an open rebuilding."""

    @abstractmethod
    def play_round(self, rebuilding: Rebuilding) -> None:
        """Play the next round of a rebuilding, and add the leavers of the meantime."""

    @abstractmethod
    def clear(self, run: str) -> None:
        """Delete checkpoint and replies of a rebuilding that is over or abandoned."""

    def contributors(self, clients: Set[int]) -> Set[int]:
        """Return those of the clients with a reply that may have counted in a round."""
        return clients

    @property
    def left(self) -> tuple[int, ...]:
        """Clients that have asked to leave, ascending."""
        return tuple(sorted({leaver.client for leaver in self.leavers}))

    @property
    def pending(self) -> list[Leaver]:
        """Leavers whose influence is still in the ranker and can be removed."""
        return [leaver for leaver in self.leavers if not leaver.done and not self._is_blocked(leaver)]

    @property
    def blocked(self) -> int:
        """Number of leavers that wait for the operator to allow a reset of the ranker or a larger budget."""
        return sum(not leaver.done and self._is_blocked(leaver) for leaver in self.leavers)

    @property
    def rebuilding(self) -> bool:
        """True while the ranker is being rebuilt."""
        return self._current is not None

    @property
    def has_begun(self) -> bool:
        """True from the begin of a rebuilding until its ranker has replaced the run's, also after a restart in between."""
        return any(leaver.number is not None for leaver in self.pending)

    @property
    def refused(self) -> float | None:
        """Total ε that the last refused rebuilding would have reached; None if none was refused."""
        return next((one.refused for one in reversed(self.leavers) if one.refused is not None), None)

    def _is_blocked(self, leaver: Leaver) -> bool:
        enlarged = leaver.refused is not None and (self.total_epsilon or 0.0) > leaver.budget
        return leaver.waits and not self.may_reset and not enlarged

    def add_leaver(self, client: int, digest: str, at: float) -> None:
        """Record a verified request to leave, with its digest and time."""
        self._write([*self.leavers, Leaver(client, digest, at)])
        self._exclude_leavers()
        self._log("member_left", client=client)

    def process_requests(self) -> bool:
        """Rebuild the ranker once, for all pending leavers or those of a rebuilding that was interrupted.

        Returns False where nobody is pending or a round is open.
        """
        self.release_idle()
        if not self.pending or self.coordinator.open:
            return False
        if all(leaver.number is None for leaver in self.pending):
            used = [leaver.number or 0 for leaver in self.leavers] + [entry.number for entry in self.ledger.entries]
            number = 1 + max(used)
            self._clear(number - 1)
            self._write([one if one.done else replace(one, number=number) for one in self.leavers])
        number = max(leaver.number or 0 for leaver in self.pending)
        theta, outcome = self._rebuild(number)
        outcome = {"refused": None, "budget": 0.0} | outcome
        if theta is None:  # a later rebuilding has another number: its releases are counted beside those of this one
            outcome |= {"waits": True, "number": None}
        else:
            self.coordinator.replace_ranker(theta)
            self.ledger.finish(number)
            outcome |= {"done": True, "waits": False, "method": "fresh" if outcome.get("rounds") else "reset"}
        self._write([replace(one, **outcome) if one.number == number else one for one in self.leavers])
        self._shorten_run()
        if outcome.get("shorter"):
            self._log("run_shortened", rounds=self.coordinator.rounds)
        self._clear(number)
        return True

    def release_idle(self) -> None:
        """Let leavers go that have contributed nothing."""
        waiting = {one.client for one in self.pending if one.number is None}
        idle = waiting - self.contributors(waiting) if waiting else waiting
        if idle:
            self._write([replace(one, done=True) if one.client in idle else one for one in self.leavers])

    def _exclude_leavers(self) -> None:
        """Remove the leavers from all cohorts."""
        for coordinator in filter(None, (self.coordinator, self._current)):
            coordinator.remove_clients(self.left)

    def _shorten_run(self) -> None:
        """End the run earlier by the rounds that rebuildings have replaced."""
        replaced = {one.number: one.shorter for one in self.leavers if one.done}
        self.coordinator.rounds = self._rounds - sum(replaced.values())

    def _rebuild(self, number: int) -> tuple[Doubles | None, dict[str, Any]]:
        """Return the rebuilt or reset ranker and the fields of its leavers.

        The ranker is None where it can only be reset and the operator has not allowed that.
        """
        coordinator = self.coordinator
        left = tuple(sorted({one.client for one in self.leavers if one.number is not None}))
        done, remaining = coordinator.state.round, coordinator.federation.clients - len(left)
        rounds, start = math.ceil(done / self.interval), self.start.copy()
        if rounds == 0:
            return start, {}
        reset = start if self.may_reset or remaining <= 0 else None
        if remaining <= 0 or not coordinator.mechanism.can_release_again:
            if reset is None:
                self._log("rebuilding_refused")
            return reset, {}
        name, factor = rebuilding_name(coordinator.run, number, self.interval), float(self.interval)
        try:
            rebuilding = rebuilding_of(coordinator, start, rounds, name, left, factor, self.storage())
        except BadInput as error:  # too few rounds to learn anything within the privacy budget
            if not error.code.startswith("privacy."):
                raise
            self._log("rebuilding_refused")
            return reset, {}
        fit = self.ledger.fit(number, rebuilding, coordinator, self._rounds, self.reports, self.total_epsilon)
        if not fit.fits:
            self._log("rebuilding_refused", epsilon=fit.reached, budget=fit.budget, delta=fit.delta)
            return reset, {"refused": fit.reached, "budget": self.total_epsilon or 0.0}
        self.ledger.begin(number, left, rebuilding_setting(coordinator.federation, rounds, len(start), len(left)))
        if rebuilding.state.round == 0:
            self._log("rebuilding_begun", rounds=rounds)
        rebuilding.before_use = partial(self.ledger.count, number)
        self._current = rebuilding
        try:
            self._exclude_leavers()
            while not rebuilding.done:
                self.play_round(rebuilding)
        except BadInput as error:
            if error.code != "rebuilding.empty":
                raise
            self._log("rebuilding_refused")
            return reset, {}
        finally:
            self._current = None
        statement = rebuilding.mechanism.statement(rounds) or {}
        epsilon = statement.get("epsilon")
        self._log("rebuilding_finished", rounds=rounds, epsilon=epsilon, delta=statement.get("delta"))
        return rebuilding.ranker.copy(), {"rounds": rounds, "epsilon": epsilon, "shorter": fit.shorter}

    def _log(self, event: str, **numbers: object) -> None:
        self.log(event, round=self.coordinator.state.round, **numbers)

    def _clear(self, number: int) -> None:
        self.clear(rebuilding_name(self.coordinator.run, number, self.interval))

    def _write(self, leavers: list[Leaver]) -> None:
        self.write_document(LEAVERS, json.dumps([asdict(leaver) for leaver in leavers]).encode())
        self.leavers = leavers
