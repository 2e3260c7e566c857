"""Requests to leave, on the service's side: each is checked, the client is left out, the ranker is rebuilt.

A request is committed to the store as everything that members send. From then on the client is in no cohort, the open
round's included. When that round is over, the ranker is built again from its start without all who have left
(`rebuilding_run`): the others learn again from the interactions that they hold, in fewer and longer rounds, with the noise
of the run. Where nobody can (noise that was planned for one release, nothing kept), the ranker starts anew, which forgets
all that was learned.

Each round of a rebuilding is one more release of the others' interactions. It is counted when it is made, also if the
rebuilding is given up because one more leaves (`rebuilding_ledger`). All together stay within the run's planned ε: a
rebuilding takes the place of so many rounds of the run, which ends earlier by them, unless a larger budget was stated as a
reserve (`total_epsilon`). One that fits into neither is refused before it begins, and the log says so; then too the ranker
starts anew, which releases nothing.

Then the rebuilt ranker is in the checkpoint, the optimiser's memory, the replies and the rebuilding's own documents are
gone, and the confirmation is in the store, where the member finds it. What is kept of a leaver is its number, so that it
stays out, and the digest of its request. A desk that is killed anywhere goes on there.

What the leaver did acts on in one way that no coordinator can undo: the lists that the others hold were shown by rankers
that it had a part in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

from quorank.arrays import Doubles
from quorank.documents import Items, parse_json, shape_of
from quorank.errors import BadInput, require, require_range
from quorank.federation.coordinator import Coordinator
from quorank.federation.leaving import check_request, receipt_of
from quorank.federation.rebuilding import can_replay, name_of
from quorank.federation.rebuilding_run import Rebuilding, rebuilding_of, rebuilding_setting, without
from quorank.federation.rounds import Federation
from quorank.privacy.composition import Loss, compose, total_loss
from quorank.service.holder import Holder
from quorank.service.rebuilding_ledger import RebuildingLedger
from quorank.service.store.sql_store import Finished

LEAVERS, REBUILDING = "leavers", "rebuilding"
"""Documents of the store: who has asked to leave, and the checkpoint of an open rebuilding."""
INTERVAL = 10  # Δt
HEAR_SECONDS = 1.0
"""Requests are looked for so often at most."""

Method = Literal["fresh", "anew"]
"""How a ranker was built without a leaver: from what the others hold, or from its beginning."""

Tell = Callable[..., None]
"""Notes an event and its numbers (`observe.EVENTS`)."""


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
class LeavingDesk:
    """The leavers of one coordinator; `attend` is called between two rounds, `look` all the time.

    `start` is the ranker before the first round.
    """

    coordinator: Coordinator
    holder: Holder
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
    _heard: float = field(default=-math.inf, init=False)
    _refused: set[tuple[int, bytes]] = field(default_factory=set, init=False)  # requests that cannot be

    def __post_init__(self) -> None:
        require_range("interval", self.interval, least=1)
        self._federation, self._rounds = self.coordinator.federation, self.coordinator.rounds
        require(
            self._federation.aggregation.history == 0.0,
            "leaving.history",
            "rules that judge clients by their history need everyone in every round, so nobody can leave; take history out",
        )
        store, epoch = self.holder.store, self.holder.epoch
        privacy = self._federation.privacy.with_noise_of(self.coordinator.mechanism)
        self.ledger = RebuildingLedger(store, epoch, privacy)
        content = store.document(LEAVERS)
        if content is not None:
            found = parse_json(content, Items(shape_of(Leaver)), LEAVERS, advice="; restore the store from a backup")
            self.leavers = [Leaver(**entry) for entry in found]
        self.holder.busy = self.busy
        self._dismiss()
        self._shorten()

    @property
    def gone(self) -> tuple[int, ...]:
        """All who have asked to leave."""
        return tuple(sorted({leaver.client for leaver in self.leavers}))

    @property
    def pending(self) -> list[Leaver]:
        return [leaver for leaver in self.leavers if not leaver.done]

    @property
    def rebuilding(self) -> bool:
        """Whether the ranker is being built again."""
        return self._current is not None

    def busy(self) -> bool:
        """Whether somebody must be let go before the next round."""
        self.hear()
        return bool(self.pending)

    # what members ask for

    def look(self) -> None:
        """Hear who wants to leave, now and then."""
        now = self.holder.clock()
        if now - self._heard >= HEAR_SECONDS:
            self._heard = now
            self.hear()

    def hear(self) -> None:
        """Take the requests that are in the store; confirm what a desk before has done and not confirmed."""
        known = {leaver.client: leaver for leaver in self.leavers}
        for member, request, receipt in self.holder.store.leavers(waiting=True):
            if member in known:
                if known[member].done and receipt is None:
                    self.holder.store.let_go(self.holder.epoch, member, receipt_of(request))
                continue
            if (member, request) in self._refused:
                continue
            try:
                self._take(member, request)
            except BadInput as error:
                self._refused.add((member, request))
                self.coordinator.refuse(error, member)

    def _take(self, member: int, request: bytes) -> None:
        found = self.holder.store.member(member)
        keys = {} if found is None or found.key is None else {member: found.key}
        leaving = check_request(request, self.coordinator.run, keys)
        self._write([*self.leavers, Leaver(leaving.client, leaving.digest, leaving.at)])
        self._dismiss()
        self.tell("member_left", client=member, round=self.coordinator.state.round)

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
            self.hear()

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
                self.holder.keeping(REBUILDING),
            )
        except BadInput as error:  # within its budget of privacy nothing can be learned in so few rounds
            if not error.code.startswith("privacy."):
                raise
            self._note("rebuilding_refused")
            return Found(self.start.copy())
        refused, shorter = self._beyond(number, rounds, rebuilding.mechanism.loss(rounds))
        if refused is not None:
            return Found(self.start.copy(), refused=refused)
        setting = rebuilding_setting(self._federation, rounds, len(self.start), len(gone))
        self.ledger.begin(number, gone, setting)
        if rebuilding.state.round == 0:
            self._note("rebuilding_begun", rounds=rounds)
        rebuilding.counted = partial(self.ledger.count, number)
        self._current = rebuilding
        try:
            while not rebuilding.done:
                self.holder.round(rebuilding, "rebuilding")
                self.hear()
                if self.gone != gone:
                    self._note("rebuilding_given_up", rounds=rebuilding.state.round)
                    return None
        finally:
            self._current = None
        statement = rebuilding.mechanism.statement(rounds) or {}
        self._note("rebuilding_finished", rounds=rounds, epsilon=statement.get("epsilon"), delta=statement.get("delta"))
        return Found(rebuilding.ranker.copy(), rounds, statement.get("epsilon"), shorter=shorter)

    def _beyond(self, number: int, rounds: int, loss: Loss | None) -> tuple[float | None, int]:
        """Whether a rebuilding of so many rounds fits into the budget, and by how many rounds the run ends earlier for it.

        (None, rounds) where it does; else (ε of the whole run and all rebuildings with this one, 0).
        """
        mechanism, left = self.coordinator.mechanism, self.coordinator.rounds - self.coordinator.state.round
        planned = mechanism.loss(self._rounds)
        if planned is None or loss is None:
            return None, 0
        delta = float((mechanism.statement(1) or {})["delta"])
        budget = self.total_epsilon or compose(planned + self.reports, delta).epsilon
        others = [self.reports, *self.ledger.losses(but=number), loss]
        reached = math.inf
        for shorter in (0, rounds, rounds + 1, math.ceil(1.2 * rounds) + 1, 2 * rounds):
            run = mechanism.loss(self.coordinator.rounds - shorter) if shorter <= left else None
            if run is None:
                continue
            found = compose(total_loss([run, *others]), delta).epsilon
            reached = found if math.isinf(reached) else reached
            if found <= budget * (1.0 + 1e-9):
                return None, shorter
        self._note("rebuilding_refused", epsilon=reached, budget=budget, delta=delta)
        return reached, 0

    def _note(self, event: str, **numbers: object) -> None:
        self.tell(event, round=self.coordinator.state.round, **numbers)

    # what is kept

    def _clear(self, number: int) -> None:
        """Nothing is left of a rebuilding that is over or given up."""
        self.holder.keeping(REBUILDING).remove()
        run = name_of(self.coordinator.run, number, self.interval)
        self.holder.store.keep(self.holder.epoch, {}, Finished(run, 2**31))

    def _write(self, leavers: list[Leaver]) -> None:
        text = json.dumps([asdict(leaver) for leaver in leavers])
        self.holder.store.keep(self.holder.epoch, {LEAVERS: text.encode()})
        self.leavers = leavers
