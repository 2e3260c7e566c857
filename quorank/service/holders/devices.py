"""Holder of a coordinator of devices: the rounds of a run, and the members that leave it.

`python -m quorank.service.holders.devices DIR [--exit-when-done]`. After every round the store holds the checkpoint,
`ranker.json` and the next task in one transaction; ledger and status follow, and copies of ranker and ledger are files of
the folder. After the last round the members read that the run is over, and can still leave.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from quorank.errors import BadInput
from quorank.experiments.deployment import DeployedPrivacy, deployed_coordinator, setting_of, start_of
from quorank.experiments.progress import saved_ranker
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.rounds import Report
from quorank.federation.rounds import State as RoundState
from quorank.federation.unlearning.departures import Departures
from quorank.federation.unlearning.rebuilding import Rebuilding
from quorank.files.documents import json_bytes
from quorank.kernels.arrays import Doubles
from quorank.privacy.composition import Loss
from quorank.protocol.messages import check_leaving_request, leaving_receipt
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.dashboard.status import State, Status, with_round
from quorank.service.dashboard.status_sources import coordinator_status, privacy_status, round_facts, round_figures
from quorank.service.holders.holder_process import Held, main
from quorank.service.holders.rounds import Holder, KeptInStore
from quorank.service.home import LEDGER, RANKER, Home
from quorank.service.store.sql_store import Finished

REBUILDING = "rebuilding"
"""Document with the checkpoint of an open rebuilding."""
REQUEST_SECONDS = 1.0
"""Minimum seconds between two looks for requests to leave."""


@dataclass(eq=False, kw_only=True)
class LeavingDesk(Departures):
    """Members that leave a holder's coordinator: requests are checked, clients excluded, the ranker rebuilt.

    Once the rebuilt ranker is in the checkpoint, the optimiser's memory, the replies and the rebuilding's own documents are
    deleted, and the store holds the confirmation for the member. Of a leaver only its number is kept, so that it stays out,
    and the digest of its request. A desk that is killed at any point continues there.
    """

    holder: Holder
    _looked: float = field(default=-math.inf, init=False)
    _refused: set[tuple[int, bytes]] = field(default_factory=set, init=False)  # invalid requests

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder.busy = self.busy

    def busy(self) -> bool:
        """Return whether members must be let go before the next round."""
        self.read_requests()
        return bool(self.pending)

    def look(self) -> None:
        """Read requests to leave, at most once per interval."""
        now = self.holder.clock()
        if now - self._looked >= REQUEST_SECONDS:
            self._looked = now
            self.read_requests()

    def read_requests(self) -> None:
        """Read the requests in the store; confirm those that an earlier desk completed without confirmation."""
        known = {leaver.client: leaver for leaver in self.leavers}
        for member, request, receipt in self.holder.store.leavers(waiting=True):
            if member in known:
                if known[member].done and receipt is None:
                    self.holder.store.let_go(self.holder.epoch, member, leaving_receipt(request))
                continue
            if (member, request) in self._refused:
                continue
            try:
                found = self.holder.store.member(member)
                keys = {} if found is None or found.key is None else {member: found.key}
                leaving = check_leaving_request(request, self.coordinator.run, keys)
                self.add_leaver(leaving.client, leaving.digest, leaving.at)
            except BadInput as error:
                self._refused.add((member, request))
                self.coordinator.count_refusal(error, member)

    def process_requests(self) -> None:
        """Release all members that have asked to leave, and confirm it."""
        while self.pending and not self.coordinator.open:
            super().process_requests()
            self.read_requests()

    def read_document(self, name: str) -> bytes | None:
        return self.holder.store.document(name)

    def write_document(self, name: str, content: bytes) -> None:
        self.holder.store.keep(self.holder.epoch, {name: content})

    def storage(self) -> KeptInStore:
        return self.holder.keeping(REBUILDING)

    def play_round(self, rebuilding: Rebuilding) -> None:
        self.holder.round(rebuilding, "rebuilding")
        self.read_requests()

    def clear(self, run: str) -> None:
        self.storage().remove()
        self.holder.store.keep(self.holder.epoch, {}, Finished(run, 2**31))


def coordinator_of(home: Home, holder: Holder) -> Coordinator:
    """Return the coordinator of a folder at its checkpoint."""
    settings = home.settings
    rules = RoundLimits(settings.enough, settings.least, settings.deadline)
    return deployed_coordinator(
        home.experiment, settings.n_features, home.secret, run=settings.run, seed=home.seed, rules=rules,
        keeping=holder.keeping(), clock=holder.clock, figure=home.terms(0).figure, enrolled=holder,
    )  # fmt: skip


@dataclass(eq=False)
class Service(Held[Home]):
    """Folder's coordinator, held by this process."""

    status_seconds = 2.0

    coordinator: Coordinator = field(init=False)
    holder: Holder = field(init=False)
    privacy: DeployedPrivacy = field(init=False)
    desk: LeavingDesk | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder = Holder(
            self.store, self.epoch, self.home.key, self.stop, self.tend, self._seen, beside=self._documents,
            soonest=self.soonest, clock=self.clock, sleep=self.sleep,
        )  # fmt: skip
        self.coordinator = coordinator = coordinator_of(self.home, self.holder)
        self._saved, settings, experiment = self.clock(), self.home.settings, self.home.experiment
        self.refused = dict(coordinator.refused)  # reported by an earlier holder
        if coordinator.federation.aggregation.history == 0.0:
            self.desk = LeavingDesk(
                coordinator, start_of(experiment, settings.n_features), total_epsilon=settings.total_epsilon or None,
                reports=Loss(pure=settings.report_epsilon * coordinator.rounds), log=self.tell, holder=self.holder,
            )  # fmt: skip
        self.privacy = DeployedPrivacy(
            experiment, coordinator, setting_of(experiment, settings.n_features),
            settings.report_epsilon, settings.total_epsilon, None if self.desk is None else self.desk.ledger,
        )  # fmt: skip
        self._count_privacy()

    @property
    def done(self) -> bool:
        return self.coordinator.done

    @property
    def place(self) -> tuple[int, int]:
        return self.coordinator.state.round, self.coordinator.rounds

    # ------------------------------------------------------------ rounds

    def begin(self) -> None:
        if self.coordinator.state.round > 0:
            self._write_down()
        else:
            self.publish()

    def look(self) -> bool:
        """Play a round to its end."""
        self._let_go()
        self.closed(self.holder.round(self.coordinator))
        self.again(self._write_down)
        return True

    def finish(self) -> None:
        self.attend()
        self.holder.declare_over(self.coordinator)
        self.publish()

    def attend(self) -> None:
        self.tend()
        if self._let_go():
            self.holder.declare_over(self.coordinator)
            self._write_down()

    def _let_go(self) -> bool:
        """Release members that have asked to leave; return True if there were any."""
        busy = self.desk is not None and self.desk.busy()
        if self.desk is not None and busy:
            self.desk.process_requests()
            self._count_privacy()
        return busy

    def tend(self) -> None:
        """Read requests to leave and publish the status; called several times a second."""
        if self.desk is not None:
            self.desk.look()
        self.publish_in_time()

    def _count_privacy(self) -> None:
        """Count the releases; exceeding the budget is reported."""
        if self.privacy.count() and self.privacy.spent is not None:
            spent, budget = self.privacy.spent, self.privacy.budget
            self.tell("budget_exceeded", round=self.place[0], epsilon=spent.epsilon, budget=budget, delta=spent.delta)

    def closed(self, report: Report) -> None:
        """Report a closed round."""
        now, planned, cohort = self.clock(), self.privacy.shown_cohort, len(self.coordinator.cohort)
        seconds, self.opened, self._saved = now - self.opened, now, now
        self._count_privacy()
        epsilon = None if self.privacy.spent is None else self.privacy.spent.epsilon
        figures = round_figures(
            report, seconds, figure=self.coordinator.metric_response, epsilon=epsilon, planned=planned
        )
        self.history = with_round(self.history, figures)
        hidden, received = planned is not None, self.holder.received_bytes
        self.tell("round_closed", **round_facts(report, figures, cohort, received, hidden=hidden))
        if report.participants < self.coordinator.limits.close_fraction * cohort:
            seen = self._seen_members(seconds)
            numbers = {} if hidden else {"replies": report.participants, "cohort": cohort, "seen": seen}
            self.tell("round_short", round=report.round, **numbers)

    def _seen_members(self, seconds: float) -> int | None:
        """Return the number of members seen within these seconds."""
        with contextlib.suppress(OSError):
            return self.store.counts(self.store.now() - seconds)["seen"]
        return None

    def _seen(self, coordinator: Coordinator) -> None:
        if coordinator is self.coordinator:
            self.tell_refused(coordinator.refused)

    # ------------------------------------------------------------ documents

    def _documents(self, coordinator: Coordinator, state: RoundState) -> Mapping[str, bytes | None]:
        return {RANKER: self._ranker(coordinator.federation.ranker(state), state.round)}

    def _ranker(self, theta: Doubles, rounds: int) -> bytes:
        experiment, features = self.home.experiment, self.home.settings.n_features
        stated = self.privacy.of_ranker
        return ranker_bytes(saved_ranker(experiment, theta, features, stated, rounds=rounds, by="coordinator"))

    def _write_down(self) -> None:
        """Write ranker, ledger and status; a ledger that takes long to count only at the start and the end."""
        self.write_file(RANKER, self._ranker(self.coordinator.ranker, self.coordinator.state.round))
        book = self.privacy.book()
        if book is not None:
            content = json_bytes(book)
            self.store.keep(self.epoch, {LEDGER: content})
            self.write_file(LEDGER, content)
        self.publish()

    def status(self, state: State | None = None) -> Status:
        coordinator, now = self.coordinator, self.clock()
        rebuilding, refused = (False, None) if self.desk is None else (self.desk.rebuilding, self.desk.refused)
        base = self.base_status(
            "devices", state or ("rebuilding" if rebuilding else None), received_bytes=self.holder.received_bytes,
            checkpoint_age_seconds=now - self._saved,
        )  # fmt: skip
        base = privacy_status(base, self.privacy, refused)
        k, cohort = self.home.experiment.evaluation.k, self.privacy.shown_cohort
        return coordinator_status(base, coordinator, self.history, k=k, open_seconds=now - self.opened, planned=cohort)


if __name__ == "__main__":
    main(Home.open, Service)
