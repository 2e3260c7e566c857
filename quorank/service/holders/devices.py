"""Holder of a coordinator of devices: the rounds of a run, and the members that leave it.

`python -m quorank.service.holders.devices DIR [--exit-when-done]`. After every round the store holds the checkpoint,
`ranker.json` and the next task in one transaction; ledger and status follow, and copies of ranker and ledger are files of
the folder. After the last round the members read that the run is over, and can still leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

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
from quorank.privacy.ledger import WITHHELD
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.protocol.messages import check_leaving_request, leaving_receipt
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.dashboard.event_log import add_refusals
from quorank.service.dashboard.status import MemberStatus, Problem, Quality, RoundFigures, State, Status, listed
from quorank.service.holders.holder_process import Held, main
from quorank.service.holders.rounds import Holder, KeptInStore
from quorank.service.home import LEDGER, RANKER, Home

REBUILDING = "rebuilding"  # document with the checkpoint of an open rebuilding
REQUEST_SECONDS = 1.0  # minimum seconds between two looks for requests to leave
LEAST_DEVICES = 4  # minimum number of reports in a round whose metric is shown
DECAY, REMEMBERED = 0.9, 400  # weight of a report one round later, and rounds after which it is left out
WAITING_SECONDS = 60.0  # seconds after which a round without enough members reports a problem


@dataclass(eq=False, kw_only=True)
class LeavingDesk(Departures):
    """Members that leave a holder's coordinator: requests are checked, clients excluded, the ranker rebuilt.

    Once the rebuilt ranker is in the checkpoint, the optimiser's memory, the replies and the rebuilding's own documents are
    deleted, and the store holds the confirmation for the member. Of a leaver only its number is kept, so that it stays out,
    and the digest of its request. A desk that is killed at any point continues there.
    """

    holder: Holder
    pause: float = 0.0  # minimum seconds between two rebuildings; members that leave in between are let go together
    _rebuilt: float = field(default=-math.inf, init=False)  # when the last rebuilding ended
    _looked: float = field(default=-math.inf, init=False)
    _refused: set[tuple[int, bytes]] = field(default_factory=set, init=False)  # invalid requests

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder.busy = self.busy

    def busy(self) -> bool:
        """Return whether members must be let go before the next round."""
        self.read_requests()
        self.release_idle()
        return bool(self.pending) and self.holder.clock() - self._rebuilt >= self.pause

    def contributors(self, clients: Set[int]) -> Set[int]:
        return self.holder.contributors(clients)

    def look(self) -> None:
        """Read requests to leave, at most once per interval."""
        now = self.holder.clock()
        if now - self._looked >= REQUEST_SECONDS:
            self._looked = now
            self.read_requests()
            self.release_idle()

    def read_requests(self) -> None:
        """Read the requests in the store; confirm those that an earlier desk completed without confirmation."""
        known, store = {leaver.client: leaver for leaver in self.leavers}, self.holder.store
        for member, request, receipt in store.leavers():
            if member in known:
                if known[member].done and receipt is None:
                    store.let_go(member, leaving_receipt(self.holder.key, request))
            elif (member, request) not in self._refused:
                try:
                    found = store.member(member)
                    keys = {} if found is None or found.key is None else {member: found.key}
                    leaving = check_leaving_request(request, self.coordinator.run, keys)
                    self.add_leaver(leaving.client, leaving.digest, leaving.at)
                except BadInput as error:
                    self._refused.add((member, request))
                    self.coordinator.count_refusal(error, member)

    def process_requests(self) -> bool:
        """Rebuild the ranker once without the members that have left, and confirm it to them."""
        tried = super().process_requests()
        self._rebuilt = self.holder.clock() if tried else self._rebuilt
        self.read_requests()
        return tried

    def read_document(self, name: str) -> bytes | None:
        return self.holder.store.document(name)

    def write_document(self, name: str, content: bytes) -> None:
        self.holder.store.keep({name: content})

    def storage(self) -> KeptInStore:
        return KeptInStore(self.holder.store, REBUILDING)

    def play_round(self, rebuilding: Rebuilding) -> None:
        self.holder.round(rebuilding, "rebuilding")
        self.read_requests()

    def clear(self, run: str) -> None:
        self.storage().remove(run)


def coordinator_of(home: Home, holder: Holder) -> Coordinator:
    """Return the coordinator of a folder at its checkpoint."""
    settings = home.settings
    planned = setting_of(home.experiment, settings.n_features)  # the others are fractions of those who have enrolled
    fewest = settings.minimum_members or (1 if planned.open_arrivals else math.ceil(settings.least * planned.cohort))
    rules = RoundLimits(settings.enough, settings.least, settings.deadline, minimum_replies=fewest)
    return deployed_coordinator(
        home.experiment, settings.n_features, home.run_secret(holder.store), run=settings.run, rules=rules,
        keeping=KeptInStore(holder.store), clock=holder.clock, figure=home.terms(0).metric_response, enrolled=holder,
    )  # fmt: skip


class Service(Held[Home]):
    """Folder's coordinator, held by this process."""

    status_seconds = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder = Holder(
            self.store, self.home.key, self.stop, self.tend, self._record_refusals, documents=self._documents,
            soonest=self.soonest, clock=self.clock, sleep=self.sleep,
        )  # fmt: skip
        self.coordinator = coordinator = coordinator_of(self.home, self.holder)
        settings, experiment = self.home.settings, self.home.experiment
        self.refused = dict(coordinator.refused)  # reported by an earlier holder
        self.privacy = DeployedPrivacy(
            experiment, coordinator, setting_of(experiment, settings.n_features),
            settings.report_epsilon, settings.total_epsilon,
        )  # fmt: skip
        self.desk: LeavingDesk | None = None
        if coordinator.federation.aggregation.history == 0.0:
            self.desk = LeavingDesk(
                coordinator, start_of(experiment, settings.n_features), total_epsilon=settings.total_epsilon or None,
                reports=self.privacy.reports(coordinator.rounds), may_reset=settings.may_reset, log=self.record,
                holder=self.holder, pause=settings.leaving_pause,
            )  # fmt: skip
            self.privacy.rebuilt = self.desk.ledger
        self._count_privacy()

    @property
    def done(self) -> bool:
        return self.coordinator.done

    @property
    def progress(self) -> tuple[int, int]:
        return self.coordinator.state.round, self.coordinator.rounds

    # ------------------------------------------------------------ rounds

    def begin(self) -> None:
        if self.coordinator.state.round > 0:
            self._write_outputs()
        else:
            self.publish()

    def look(self) -> bool:
        """Play a round to its end, unless rebuildings took the place of the last ones."""
        self._process_leavers()
        if not self.done:
            self.closed(self.holder.round(self.coordinator))
        self.retry(self._write_outputs)
        return True

    def finish(self) -> None:
        self.release_leavers()
        self.holder.declare_over(self.coordinator)
        self.publish()

    def release_leavers(self) -> None:
        self.tend()
        if self._process_leavers():
            self.holder.declare_over(self.coordinator)
            self._write_outputs()

    def _process_leavers(self) -> bool:
        """Release members that have asked to leave; return True if there were any.

        A round that is published already, by an earlier holder or just before somebody left, is played to its end first:
        devices answer a round once, and by its ranker.
        """
        desk = self.desk
        if desk is None or not desk.busy() or (not desk.has_begun and self.holder.has_open_round(self.coordinator)):
            return False
        desk.process_requests()
        self._count_privacy()
        return True

    def tend(self) -> None:
        """Read requests to leave and publish the status; called several times a second."""
        if self.desk is not None:
            self.desk.look()
        self.publish_in_time()

    def _count_privacy(self) -> None:
        """Count the releases; exceeding the budget is reported."""
        if self.privacy.count() and self.privacy.spent is not None:
            spent, budget = self.privacy.spent, self.privacy.budget
            self.record(
                "budget_exceeded", round=self.progress[0], epsilon=spent.epsilon, budget=budget, delta=spent.delta
            )

    def closed(self, report: Report) -> None:
        """Report a closed round, without numbers that depend on a secret cohort."""
        self._count_privacy()
        planned, count = self.privacy.shown_cohort, report.participants
        figures = RoundFigures(
            report.round, self.clock() - self.opened, None if planned is not None else count,
            *reported_quality(report, self.coordinator.metric_response, planned),
            None if self.privacy.spent is None else self.privacy.spent.epsilon,
        )  # fmt: skip
        self.end_round(figures)
        open_ = {"replies": count, "cohort": len(self.coordinator.cohort), "received_bytes": self.holder.received_bytes}
        reported = {"reported_ndcg": figures.quality, "reported_error": figures.error}
        self.record(
            "round_closed", round=report.round, seconds=figures.seconds, update_norm=float(report.update_norm),
            noise=float(report.noise), **(open_ if planned is None else {}),
            **(reported if figures.quality is not None else {}),
        )  # fmt: skip

    def _record_refusals(self, coordinator: Coordinator) -> None:
        if coordinator is self.coordinator:
            self.record_refused(coordinator.refused)

    # ------------------------------------------------------------ documents

    def _documents(self, coordinator: Coordinator, state: RoundState) -> Mapping[str, bytes | None]:
        return {RANKER: self._ranker(coordinator.federation.ranker(state), state.round)}

    def _ranker(self, theta: Doubles, rounds: int) -> bytes:
        experiment, features = self.home.experiment, self.home.settings.n_features
        stated = self.privacy.of_ranker
        return ranker_bytes(saved_ranker(experiment, theta, features, stated, rounds=rounds, by="coordinator"))

    def _write_outputs(self) -> None:
        """Write ranker, ledger and status; a ledger that takes long to count only at the start and the end."""
        self.write_file(RANKER, self._ranker(self.coordinator.ranker, self.coordinator.state.round))
        book = self.privacy.book()
        if book is not None:
            content = json_bytes(book)
            self.store.keep({LEDGER: content})
            self.write_file(LEDGER, content)
        self.publish()

    def status(self, state: State | None = None) -> Status:
        rebuilding, refused = (False, None) if self.desk is None else (self.desk.rebuilding, self.desk.refused)
        base = self.base_status("devices", state or ("rebuilding" if rebuilding else None))
        found = coordinator_status(
            base, self.coordinator, k=self.home.experiment.evaluation.k, planned=self.privacy.shown_cohort,
            received_bytes=self.holder.received_bytes,
        )  # fmt: skip
        return privacy_status(found, self.privacy, refused, 0 if self.desk is None else self.desk.blocked)


def reported_quality(
    report: Report, response: MetricResponse | None, planned: int | None = None
) -> tuple[float | None, float | None]:
    """Return the mean metric that devices reported in a round and its standard error, if there are enough."""
    if response is None or report.participants < LEAST_DEVICES:
        return None, None
    return report.online_ndcg, response.error(planned or report.participants)


def quality_of(
    reports: Sequence[Report], response: MetricResponse | None, name: str, planned: int | None = None
) -> Quality | None:
    """Return the newest round's mean report and the smoothed one: Σ w·n·x / Σ w·n with w = DECAY^age.

    The standard errors are those of the reports' noise, at most √(Σ w²·n·variance) / Σ w·n. Rounds with fewer than
    LEAST_DEVICES reports are left out: a mean of one or two is those devices' own reports. None without reports.
    """
    if response is None:
        return None
    rounds = [report for report in reports[-REMEMBERED:] if report.participants >= LEAST_DEVICES]
    if not rounds:
        return Quality(name, least_devices=LEAST_DEVICES)
    last = rounds[-1]
    weights = np.array([DECAY ** (last.round - report.round) for report in rounds])
    counts = np.array([report.participants for report in rounds], dtype=np.float64)
    total, devices = float(weights @ counts), planned or last.participants
    smoothed = float((weights * counts) @ np.array([report.online_ndcg for report in rounds])) / total
    error = math.sqrt(response.variance * float(weights**2 @ counts)) / total
    newest = *reported_quality(last, response, planned), last.round, devices
    return Quality(name, *newest, smoothed, error, LEAST_DEVICES)


def coordinator_status(
    base: Status, coordinator: Coordinator, *, k: int = 10, planned: int | None = None, received_bytes: int = 0
) -> Status:
    """Complete a status from a coordinator; `planned` is the cohort size to show where the true one is secret."""
    done, ending, seconds = coordinator.done, coordinator.closing, base.open_seconds or 0.0
    waiting = frozenset[int]() if done else coordinator.waiting
    replies = 0 if done else coordinator.accepted_count
    cohort = len(waiting) + replies if coordinator.enrolled is None or done else ending.replies
    found = replace(
        base,
        deadline_seconds=max(0.0, ending.deadline - seconds) if math.isfinite(ending.deadline) and not done else None,
        cohort=cohort,
        needed=0 if done else ending.minimum,
        replies=replies,
        accepted=replies + sum(report.participants for report in coordinator.reports),
        refused=add_refusals(coordinator.refused),
        received_bytes=received_bytes,
        counts=replace(base.counts, waiting=len(waiting)),
        members=listed(MemberStatus(client, None, "away", waiting=True) for client in waiting),
        quality=quality_of(coordinator.reports, coordinator.metric_response, f"nDCG@{k} by clicks", planned),
    )
    fewest = coordinator.limits.minimum_replies
    available = len(waiting) + replies
    if coordinator.open and available < fewest and seconds > WAITING_SECONDS:
        sentence = f"the round waits: {available} members of its cohort are available, and it needs {fewest}"
        found = replace(found, problems=(*found.problems, Problem("round.too-few", sentence)))
    if planned is None:
        return found
    return replace(
        found,
        cohort=0 if done else planned,
        needed=0 if done else coordinator.limits.closing(planned).minimum,
        replies=None,
        accepted=None,
        received_bytes=None,
        counts=replace(found.counts, waiting=None),
        members=(),
        withheld=WITHHELD,
    )


def privacy_status(base: Status, privacy: DeployedPrivacy, refused: float | None = None, blocked: int = 0) -> Status:
    """Add spent and planned privacy to a status.

    Args:
        base: Status without privacy.
        privacy: Privacy of the run and its rebuildings.
        refused: ε of a refused rebuilding.
        blocked: Leavers without whom the ranker can only be reset.
    """
    spent, planned, budget, problems = privacy.spent, privacy.planned, privacy.budget, []
    excess = "" if refused is None else f" (it would bring ε to {refused:.3g}, beyond {budget or 0.0:.3g})"
    if blocked:
        larger = ""
        if refused is not None and math.isfinite(refused):
            larger = f"; to rebuild it with a larger budget, start it with --set total_epsilon={math.ceil(refused)}"
        sentence = (
            f"{blocked} members left and their part is still in the ranker, which cannot be rebuilt without them{excess}; "
            "to reset it to its start and confirm their leaving, stop the service and start it with --set may_reset=true"
            f"{larger}"
        )
        problems.append(Problem("rebuilding.refused", sentence))
    elif refused is not None:
        problems.append(Problem("rebuilding.refused", f"the ranker was reset: it could not be rebuilt{excess}"))
    if privacy.exceeded:
        problems.append(Problem("budget.exceeded", "the releases exceed the run's planned ε"))
    return replace(
        base,
        epsilon_spent=None if spent is None else spent.epsilon,
        epsilon_planned=None if planned is None else budget,
        epsilon_delta=privacy.delta,
        epsilon_unit=privacy.unit,
        epsilon_horizon=None if planned is None else f"whole run of {privacy.experiment.rounds} rounds",
        report_epsilon=privacy.report_epsilon or None,
        rebuilding_rounds=0 if privacy.rebuilt is None else sum(entry.rounds for entry in privacy.rebuilt.entries),
        problems=(*base.problems, *problems),
    )


if __name__ == "__main__":
    main(Home.open, Service)
