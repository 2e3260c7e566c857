"""Requests to leave, on the coordinator's side: each is checked, the client is left out, the ranker is rebuilt.

A request comes as a device's answer to whatever it is asked (`notices`). From then on the client is in no cohort, the open
round's included. When that round is over, the ranker is built again from its start without all who have left
(`federation.unlearning`, method `fresh`): in one round for every `interval` that were done, each `interval` times as long,
from what the remaining devices still hold (`rebuilding`). Where devices may not release the same interactions again, the
ranker starts anew from its beginning; that too holds nothing of the leaver, and costs what was learned.

Each round of a rebuilding is one more release of the others' interactions. It is counted when it is made, also if the
rebuilding is given up because one more leaves (`rebuilding_ledger`). A rebuilding that would bring what the whole run and
all rebuildings give away beyond the run's planned ε, or beyond `total_epsilon`, is refused before it begins; then too the
ranker starts anew, which releases nothing.

Then the rebuilt ranker is in the checkpoint, the optimiser's memory, the journal and the rebuilding's own files are gone,
and the confirmation is sent until the device has heard it. What is kept of a leaver is its number, so that it stays out,
and the digest of its request. A desk that is killed anywhere goes on there.

What the leaver did acts on in one way that no coordinator can undo: the lists that the others hold were shown by rankers
that it had a part in.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from quorank.arrays import Doubles
from quorank.documents import Items, read_json, shape_of
from quorank.errors import BadInput, require, require_range
from quorank.federation import notices
from quorank.federation.coordinator import Coordinator
from quorank.federation.leaving import check_request
from quorank.federation.rebuilding import can_replay, name_of
from quorank.federation.rounds import Federation, Report
from quorank.files import write_whole
from quorank.flower.driver import Driver, Own
from quorank.privacy.composition import Loss, compose, total_loss
from quorank.service.observe import EventLog
from quorank.service.rebuilding_ledger import CountedRebuilding, RebuildingLedger
from quorank.service.rebuilding_run import Rebuilding, rebuilding_of, rebuilding_setting, without

FILE, FOLDER = "leaving.json", "rebuilding"
INTERVAL = 10  # Δt

Method = Literal["fresh", "anew"]
"""How a ranker was built without a leaver: from what the others hold, or from its beginning."""

GREET_SECONDS, RECEIPT_SECONDS = 300.0, 10.0
"""A device that is asked nothing else is greeted so often; a confirmation is repeated so often."""


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


class Found(NamedTuple):
    """A ranker without those who have left."""

    theta: Doubles
    rounds: int = 0  # that it took; 0 where it started anew
    epsilon: float | None = None  # of those rounds
    refused: float | None = None  # the ε that a rebuilding would have reached, where it was refused


@dataclass(eq=False)
class LeavingDesk:
    """The leavers of one coordinator. `round` takes the place of the driver's; `look` is called while nothing else is done.

    `keys` are the public keys that clients are known by; `start` is the ranker before the first round.
    """

    coordinator: Coordinator
    driver: Driver
    keys: Callable[[], Mapping[int, bytes]]
    start: Doubles
    interval: int = INTERVAL
    total_epsilon: float | None = None  # what run, reports and rebuildings may reach; the run's planned ε unless given
    reports: Loss = field(default_factory=Loss)  # what devices report beside their updates, over the whole run
    counted: RebuildingLedger | None = None
    log: EventLog | None = None
    leavers: list[Leaver] = field(default_factory=list, init=False)
    _federation: Federation = field(init=False)  # with all clients
    _ledger: RebuildingLedger = field(init=False)
    _greeted: dict[str, float] = field(default_factory=dict, init=False)
    _current: Rebuilding | None = field(default=None, init=False)  # while the ranker is built again
    _empty: set[int] = field(default_factory=set, init=False)  # clients who hold nothing to learn from again
    _confirmed: dict[int, float] = field(default_factory=dict, init=False)  # when the confirmation was sent last

    def __post_init__(self) -> None:
        require_range("interval", self.interval, least=1)
        require(
            isinstance(self.driver.assignment, Own),
            "leaving.simulated",
            "simulated clients leave by quorank unlearn; a desk is for devices",
        )
        self._federation = self.coordinator.federation
        require(
            self._federation.aggregation.history == 0.0,
            "leaving.history",
            "rules that judge clients by their history need everyone in every round, so nobody can leave; take history out",
        )
        self.driver.notice = self.notice
        self._ledger = self.counted or RebuildingLedger(self.coordinator.folder)
        self._read()
        self._adopt()
        self._dismiss()

    @property
    def gone(self) -> tuple[int, ...]:
        """All who have asked to leave."""
        return tuple(sorted({leaver.client for leaver in self.leavers}))

    @property
    def pending(self) -> list[Leaver]:
        return [leaver for leaver in self.leavers if not leaver.done]

    # what devices say

    def notice(self, node: str, part: bytes) -> bool:
        """For the driver: take what is no reply."""
        if part == notices.HEARD:
            return True
        if part == notices.NOTHING:
            self._empty.update(client for client, name in self._nodes.items() if name == node)
            self._dismiss()
            return True
        if not part.startswith(notices.REQUEST):
            return False
        try:
            self._take(node, part)
        except BadInput as error:
            self.coordinator.refuse(error)
        return True

    def _take(self, node: str, request: bytes) -> None:
        leaving = check_request(request, self.coordinator.run, dict(self.keys()))
        require(
            self._nodes.get(leaving.client) == node,
            "leaving.other-client",
            "the request to leave came over another client's line; it is refused",
        )
        if leaving.client not in self.gone:
            self._write([*self.leavers, Leaver(leaving.client, leaving.digest, leaving.at)])
            self._dismiss()
        elif leaving.digest not in {leaver.digest for leaver in self.leavers}:
            raise BadInput(
                "leaving.repeated", "the client has asked to leave already, with another request; it is refused"
            )

    def _dismiss(self) -> None:
        """No leaver is waited for, now or later; nor in a rebuilding whoever has nothing for it."""
        coordinator, rebuilding = self.coordinator, self._current
        if self.leavers:
            coordinator.dismiss(without(self._federation, self.gone), self.gone)
        if rebuilding is not None:
            absent = tuple(sorted({*self.gone, *self._empty}))
            rebuilding.dismiss(without(rebuilding.federation, absent), absent)

    @property
    def _nodes(self) -> Mapping[int, str]:
        assert isinstance(self.driver.assignment, Own)
        return self.driver.assignment.names

    # what is done about it

    def round(self, coordinator: Coordinator) -> Report:
        """Play a round, and afterwards whatever the leavers of meanwhile ask for."""
        self.attend()
        report = self.driver.round(coordinator)
        self.attend()
        return report

    def look(self) -> None:
        """Greet devices, so that they can say that they want to leave, and repeat confirmations."""
        now, present = self.driver.clock(), set(self.driver.transport.nodes())
        asked = self.driver.asked_nodes()
        self._greeted = {node: at for node, at in self._greeted.items() if node in present}
        self._greeted |= dict.fromkeys(asked, now)  # a task is as good an occasion
        over = {leaver.client: leaver.digest for leaver in self.leavers if leaver.done}
        for client, node in self._nodes.items():
            if node not in present:
                continue
            if client in over:
                if now - self._confirmed.get(client, -math.inf) >= RECEIPT_SECONDS:
                    self._confirmed[client] = now
                    self.driver.transport.push(node, notices.RECEIPT + over[client].encode())
            elif now - self._greeted.get(node, -math.inf) >= GREET_SECONDS:
                self._greeted[node] = now
                self.driver.transport.push(node, notices.GREETING)

    def attend(self) -> None:
        """Build the ranker again for those who have asked to leave; between two rounds, else nothing is done yet."""
        while self.pending and not self.coordinator.open:
            if any(leaver.number is None for leaver in self.pending):
                number = 1 + max((leaver.number or 0 for leaver in self.leavers), default=0)
                self._clear()
                self._write([one if one.done else replace(one, number=number) for one in self.leavers])
            number = self.pending[0].number or 1
            found = self._rebuilt(number)
            if found is None:
                continue
            theta, rounds, epsilon, refused = found
            self.coordinator.install(theta, self.gone)
            self._ledger.finish(number)
            method: Method = "fresh" if rounds else "anew"
            over = {"done": True, "method": method, "rounds": rounds, "epsilon": epsilon, "refused": refused}
            self._write([replace(one, **over) if one.number == number else one for one in self.leavers])  # type: ignore[arg-type]
            self._clear()
            self.look()

    def _rebuilt(self, number: int) -> Found | None:
        """The ranker without all who have left; None where one more has left meanwhile."""
        coordinator, gone = self.coordinator, self.gone
        done, remaining = coordinator.state.round, self._federation.clients - len(gone)
        rounds = math.ceil(done / self.interval)
        if rounds == 0 or remaining == 0 or not can_replay(coordinator.mechanism):
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
                self._folder,
            )
        except BadInput:  # within its budget of privacy nothing can be learned in so few rounds
            return Found(self.start.copy())
        refused = self._beyond(number, rebuilding.mechanism.loss(rounds))
        if refused is not None:
            return Found(self.start.copy(), refused=refused)
        setting = rebuilding_setting(self._federation, rounds, len(self.start), len(gone))
        self._ledger.begin(number, gone, setting)
        rebuilding.counted = partial(self._ledger.count, number)
        driver, self._current = replace(self.driver), rebuilding
        try:
            while not rebuilding.done:
                driver.round(rebuilding)
                if self.gone != gone:
                    self._note("rebuilding_given_up", rounds=rebuilding.state.round)
                    return None
        finally:
            self._current = None
            self._empty.clear()
        statement = rebuilding.mechanism.statement(rounds) or {}
        self._note("rebuilding_finished", rounds=rounds, epsilon=statement.get("epsilon"), delta=statement.get("delta"))
        return Found(rebuilding.ranker.copy(), rounds, statement.get("epsilon"))

    def _beyond(self, number: int, loss: Loss | None) -> float | None:
        """ε of the whole run and all rebuildings with this one, where that is beyond the budget; else nothing."""
        planned = self.coordinator.mechanism.loss(self.coordinator.rounds)
        if planned is None or loss is None:
            return None
        delta = float((self.coordinator.mechanism.statement(1) or {})["delta"])
        budget = self.total_epsilon or compose(planned + self.reports, delta).epsilon
        before = self._ledger.losses(self._federation.privacy, but=number)
        reached = compose(total_loss([planned, self.reports, *before, loss]), delta).epsilon
        if reached <= budget * (1.0 + 1e-9):
            return None
        self._note("rebuilding_refused", epsilon=reached, budget=budget, delta=delta)
        return reached

    def _note(self, event: str, **numbers: object) -> None:
        if self.log is not None:
            self.log.write(event, round=self.coordinator.state.round, **numbers)

    def _adopt(self) -> None:
        """Count rebuildings of a version that kept their rounds and ε with the leavers only."""
        known = {entry.number for entry in self._ledger.entries}
        for number in sorted({one.number for one in self.leavers if one.done and one.rounds and one.number} - known):
            rounds = next(one.rounds for one in self.leavers if one.number == number)
            gone = tuple(
                sorted({one.client for one in self.leavers if one.number is not None and one.number <= number})
            )
            setting = rebuilding_setting(self._federation, rounds, len(self.start), len(gone))
            mechanism = self._federation.privacy.mechanism(setting, 0)
            clip = self._federation.privacy.longest_update
            noise = 0.0 if clip is None else clip * mechanism.least_multiplier
            releases = ((float(setting.cohort), clip, noise),) * rounds
            self._ledger.adopt(CountedRebuilding(number, gone, setting, releases, True))

    # what is kept

    @property
    def _folder(self) -> Path | None:
        folder = self.coordinator.folder
        return None if folder is None else folder / FOLDER

    def _clear(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, leavers: list[Leaver]) -> None:
        folder = self.coordinator.folder
        if folder is not None:
            text = json.dumps([asdict(leaver) for leaver in leavers], indent=1)
            write_whole(folder / FILE, text, durable=True)
        self.leavers = leavers

    def _read(self) -> None:
        folder = self.coordinator.folder
        path = None if folder is None else folder / FILE
        if path is None or not path.exists():
            return
        found = read_json(path, Items(shape_of(Leaver)), advice="; restore it from a copy")
        self.leavers = [Leaver(**entry) for entry in found]
