"""Who has left a run, and the rebuilding of its ranker without them; how that is kept and played is the holder's.

From its request on a client is in no cohort, the open round's included. When that round is over, the ranker is built again
from its start without all who have left (`rebuilding_run`): the others learn again from the interactions that they hold,
in fewer and longer rounds, with the noise of the run. Where nobody can (noise that was planned for one release, nothing
kept), the ranker starts anew, which forgets all that was learned.

Each round of a rebuilding is one more release of the others' interactions. It is counted when it is made, also if the
rebuilding is given up because one more leaves (`rebuilding_ledger`). All together stay within the run's planned ε: a
rebuilding takes the place of so many rounds of the run, which ends earlier by them, unless a larger budget was stated as a
reserve (`total_epsilon`). One that fits into neither is refused before it begins, and the log says so; then too the ranker
starts anew, which releases nothing.

What the leaver did acts on in one way that no coordinator can undo: the lists that the others hold were shown by rankers
that it had a part in.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

from quorank.errors import BadInput, require, require_range
from quorank.federation.coordinator import Coordinator
from quorank.federation.kept.keeping import Keeping
from quorank.federation.leavers.rebuilding import can_replay, name_of
from quorank.federation.leavers.rebuilding_ledger import DOCUMENT, RebuildingLedger, RunPlan
from quorank.federation.leavers.rebuilding_run import Rebuilding, rebuilding_of, rebuilding_setting, without
from quorank.federation.rounds import Federation
from quorank.files.documents import Items, parse_json, shape_of
from quorank.kernels.arrays import Doubles
from quorank.privacy.composition import Loss

LEAVERS = "leavers"
"""The document of who has asked to leave."""
INTERVAL = 10  # Δt

Method = Literal["fresh", "anew"]
"""How a ranker was built without a leaver: from what the others hold, or from its beginning."""

Tell = Callable[..., None]
"""Notes an event and its numbers (`reports.live.event_log.EVENTS`)."""


@dataclass(frozen=True)
class Leaver:
    """One client that has asked to leave, as it is kept."""

    client: int
    digest: str  # of its request
    at: float
    number: int | None = None  # of the rebuilding without it
    done: bool = False
    method: Method | None = None
    rounds: int = 0  # of the rebuilding
    epsilon: float | None = None  # what the rebuilding has spent, beside what the run has
    refused: float | None = None  # the ε of all together that a rebuilding would have reached, beyond the budget
    shorter: int = 0  # rounds of the run whose place its rebuilding has taken


class Found(NamedTuple):
    """A ranker without those who have left."""

    theta: Doubles
    rounds: int = 0  # that it took; 0 where it started anew
    epsilon: float | None = None  # of those rounds
    refused: float | None = None  # the ε that a rebuilding would have reached, where it was refused
    shorter: int = 0  # rounds of the run whose place it has taken


@dataclass(eq=False)
class Departures(ABC):
    """The leavers of one coordinator; `attend` is called between two rounds.

    `start` is the ranker before the first round. Whoever holds the coordinator says how documents are kept and how a
    rebuilding is played, and calls `depart` for every request that it has checked.
    """

    coordinator: Coordinator
    start: Doubles
    interval: int = INTERVAL
    total_epsilon: float | None = None  # what run, reports and rebuildings may reach; the run's planned ε unless given
    reports: Loss = field(default_factory=Loss)  # what devices report beside their updates, over the whole run
    tell: Tell = lambda event, **numbers: None
    leavers: list[Leaver] = field(default_factory=list, init=False)
    ledger: RebuildingLedger = field(init=False)
    _federation: Federation = field(init=False)  # with all clients
    _rounds: int = field(init=False)  # that the run was planned for
    _current: Rebuilding | None = field(default=None, init=False)  # while the ranker is built again

    def __post_init__(self) -> None:
        require_range("interval", self.interval, least=1)
        self._federation, self._rounds = self.coordinator.federation, self.coordinator.rounds
        require(
            self._federation.aggregation.history == 0.0,
            "leaving.history",
            "rules that judge clients by their history need everyone in every round, so nobody can leave; take history out",
        )
        privacy = self._federation.privacy.with_noise_of(self.coordinator.mechanism)
        self.ledger = RebuildingLedger(privacy, self.document(DOCUMENT), partial(self.keep_document, DOCUMENT))
        content = self.document(LEAVERS)
        if content is not None:
            found = parse_json(content, Items(shape_of(Leaver)), LEAVERS, advice="; restore the store from a backup")
            self.leavers = [Leaver(**entry) for entry in found]
        self._dismiss()
        self._shorten()

    # what its holder does

    @abstractmethod
    def document(self, name: str) -> bytes | None:
        """What was kept under a name."""

    @abstractmethod
    def keep_document(self, name: str, content: bytes) -> None:
        """Keep a document, in the place of the one before."""

    @abstractmethod
    def keeping(self) -> Keeping:
        """Where an open rebuilding keeps its checkpoint."""

    @abstractmethod
    def play_round(self, rebuilding: Rebuilding) -> None:
        """Play its next round, and hear who has asked to leave meanwhile."""

    @abstractmethod
    def clear(self, run: str) -> None:
        """Drop the checkpoint and the replies of a rebuilding that is over or given up."""

    # who leaves

    @property
    def gone(self) -> tuple[int, ...]:
        """All who have asked to leave."""
        return tuple(sorted({leaver.client for leaver in self.leavers}))

    @property
    def pending(self) -> list[Leaver]:
        """Those who are not out yet."""
        return [leaver for leaver in self.leavers if not leaver.done]

    @property
    def rebuilding(self) -> bool:
        """Whether the ranker is being built again."""
        return self._current is not None

    @property
    def refused(self) -> float | None:
        """The ε that the last rebuilding which was refused would have reached; None where none was."""
        return next((one.refused for one in reversed(self.leavers) if one.refused is not None), None)

    def depart(self, client: int, digest: str, at: float) -> None:
        """Note that a client has asked to leave, by the digest of its request."""
        self._write([*self.leavers, Leaver(client, digest, at)])
        self._dismiss()
        self._note("member_left", client=client)

    def _dismiss(self) -> None:
        """No leaver is waited for, now or later."""
        if self.leavers:
            self.coordinator.dismiss(without(self._federation, self.gone), self.gone)
        if self._current is not None:
            self._current.dismiss(without(self._current.federation, self.gone, rebuilds=True), self.gone)

    # what is done about it

    def attend(self) -> None:
        """Build the ranker again for those who have asked to leave; between two rounds, else nothing is done yet."""
        while self.pending and not self.coordinator.open:
            if any(leaver.number is None for leaver in self.pending):
                number = 1 + max((leaver.number or 0 for leaver in self.leavers), default=0)
                self._clear(number - 1)
                self._write([one if one.done else replace(one, number=number) for one in self.leavers])
            number = self.pending[0].number or 1
            found = self._rebuilt(number)
            if found is None:
                continue
            theta, rounds, epsilon, refused, shorter = found
            self.coordinator.install(theta, self.gone)
            self.ledger.finish(number)
            method: Method = "fresh" if rounds else "anew"
            over = {"done": True, "method": method, "rounds": rounds, "epsilon": epsilon, "refused": refused}
            over["shorter"] = shorter
            self._write([replace(one, **over) if one.number == number else one for one in self.leavers])  # type: ignore[arg-type]
            self._shorten()
            if shorter:
                self._note("run_shortened", rounds=self.coordinator.rounds)
            self._clear(number)

    def _shorten(self) -> None:
        """The run ends earlier by the rounds whose place rebuildings have taken."""
        taken = {one.number: one.shorter for one in self.leavers if one.done}
        self.coordinator.rounds = self._rounds - sum(taken.values())

    def _rebuilt(self, number: int) -> Found | None:
        """The ranker without all who have left; None where one more has left meanwhile."""
        coordinator, gone = self.coordinator, self.gone
        done, remaining = coordinator.state.round, self._federation.clients - len(gone)
        rounds = math.ceil(done / self.interval)
        if rounds == 0 or remaining <= 0 or not can_replay(coordinator.mechanism):
            return Found(self.start.copy())
        try:
            rebuilding = rebuilding_of(
                coordinator,
                self._federation,
                self.start,
                rounds,
                name_of(coordinator.run, number, self.interval),
                self.gone,
                float(self.interval),
                self.keeping(),
            )
        except BadInput as error:  # within its budget of privacy nothing can be learned in so few rounds
            if not error.code.startswith("privacy."):
                raise
            self._note("rebuilding_refused")
            return Found(self.start.copy())
        plan = RunPlan(self._rounds, coordinator.rounds, done, rounds, self.reports)
        loss = rebuilding.mechanism.loss(rounds)
        room = self.ledger.room_for(number, loss, coordinator.mechanism, plan, self.total_epsilon)
        if not room.fits:
            self._note("rebuilding_refused", epsilon=room.reached, budget=room.budget, delta=room.delta)
            return Found(self.start.copy(), refused=room.reached)
        setting = rebuilding_setting(self._federation, rounds, len(self.start), len(gone))
        self.ledger.begin(number, gone, setting)
        if rebuilding.state.round == 0:
            self._note("rebuilding_begun", rounds=rounds)
        rebuilding.counted = partial(self.ledger.count, number)
        self._current = rebuilding
        try:
            while not rebuilding.done:
                self.play_round(rebuilding)
                if self.gone != gone:
                    self._note("rebuilding_given_up", rounds=rebuilding.state.round)
                    return None
        finally:
            self._current = None
        statement = rebuilding.mechanism.statement(rounds) or {}
        self._note("rebuilding_finished", rounds=rounds, epsilon=statement.get("epsilon"), delta=statement.get("delta"))
        return Found(rebuilding.ranker.copy(), rounds, statement.get("epsilon"), shorter=room.shorter)

    def _note(self, event: str, **numbers: object) -> None:
        self.tell(event, round=self.coordinator.state.round, **numbers)

    # what is kept

    def _clear(self, number: int) -> None:
        self.clear(name_of(self.coordinator.run, number, self.interval))

    def _write(self, leavers: list[Leaver]) -> None:
        text = json.dumps([asdict(leaver) for leaver in leavers])
        self.keep_document(LEAVERS, text.encode())
        self.leavers = leavers
