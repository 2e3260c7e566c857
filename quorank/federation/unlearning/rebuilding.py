"""One rebuilding of a coordinator's ranker, and the ledger of all its rebuildings.

A rebuilding is a separate run from the first ranker, without the clients that have left. Each of its rounds stands for
several rounds of the run, so its steps are as many times longer, and the published ranker is a mean (`methods`, fresh). Its
noise is that of the run's rounds, drawn from another seed.

It releases a sum in each of its rounds, as the next task's ranker. A round is written to the ledger before its
checkpoint, and stays when the rebuilding is abandoned or the coordinator is killed: a kill between the two writes counts
one release too many, never one too few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, NamedTuple, cast

import numpy as np

from quorank.errors import require
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import CohortSum, Federation, Report
from quorank.federation.server_optimisers import Add
from quorank.federation.storage import RoundStorage
from quorank.federation.unlearning.methods import fresh_seed, scale_sum
from quorank.files.codec import Range
from quorank.files.documents import parse_json
from quorank.kernels.arrays import Doubles
from quorank.parts import to_table
from quorank.privacy import Privacy, Setting
from quorank.privacy.composition import Loss, compose, total_loss
from quorank.privacy.ledger import ledger

GAMMA = 3.0  # γ of the published mean of rankers
DOCUMENT = "rebuildings"  # name of the ledger's stored document


@dataclass(eq=False)
class Rebuilding(Coordinator):
    """Coordinator whose steps are `step_factor` times longer; `before_use` gets each round's sum before it is used.

    Any number of arrivals closes a round: the noise is that of K clients.
    """

    step_factor: float = 1.0
    before_use: Callable[[int, CohortSum], None] = lambda round_, cohort_sum: None

    @property
    def fewest_arrivals(self) -> int:
        return 1

    def check_answerable(self) -> None:
        empty = self.enrolled is None and not self.waiting and self.accepted_count == 0
        require(not empty, "rebuilding.empty", "no member holds anything to rebuild the ranker from")

    def cohort_sum(self) -> CohortSum:
        return scale_sum(super().cohort_sum(), self.step_factor)

    def close(self, cohort_sum: CohortSum) -> Report:
        self.before_use(self.state.round, cohort_sum)
        return super().close(cohort_sum)


def rebuilding_setting(federation: Federation, rounds: int, parameters: int, left: int) -> Setting:
    """Return the privacy setting of a rebuilding without `left` clients."""
    setting, remaining = federation.setting(rounds, parameters), federation.clients - left
    if setting.open_arrivals:
        return setting  # noise is planned for K, however many are enrolled
    return replace(setting, clients=remaining, cohort=min(setting.cohort, remaining))


def rebuilding_of(
    coordinator: Coordinator,
    start: Doubles,
    rounds: int,
    name: str,
    left: tuple[int, ...],
    step_factor: float,
    storage: RoundStorage | None,
) -> Rebuilding:
    """Return the rebuilding of a coordinator's run, continued from the checkpoint in `storage`.

    Args:
        coordinator: The run's.
        start: Ranker before the first round of the run, (parameters,).
        rounds: Rounds of the rebuilding.
        name: `rebuilding_name`.
        left: Clients that have left.
        step_factor: Factor of each step.
        storage: Where the rebuilding keeps its checkpoint.
    """
    federation, server = coordinator.federation, coordinator.federation.server
    if getattr(server, "average", GAMMA) is None:
        federation = replace(federation, server=replace(cast("Add", server), average=GAMMA))
    setting = rebuilding_setting(federation, rounds, len(start), len(left))
    seed = fresh_seed(coordinator.seed, name, left)
    mechanism = federation.privacy.with_noise_of(coordinator.mechanism).mechanism(setting, seed)
    state = replace(federation.start(start), private=mechanism.start())
    shared = {"enrolled": coordinator.enrolled, "absent": frozenset(left), "step_factor": step_factor}
    limits = replace(coordinator.limits, minimum_replies=1)  # some hold nothing to release again
    how = name, seed, limits, storage, coordinator.clock
    return Rebuilding(federation, mechanism, state, rounds, *how, **shared)  # type: ignore[arg-type]


@dataclass(frozen=True)
class CountedRebuilding:
    """Releases of one rebuilding."""

    number: Annotated[int, Range(1)]
    without: tuple[Annotated[int, Range(0)], ...]  # clients that have left
    setting: Setting  # planned
    releases: tuple[tuple[float, float | None, float], ...] = ()  # (participants, sensitivity, noise) of each round
    finished: bool = False

    @property
    def rounds(self) -> int:
        """Number of released sums."""
        return len(self.releases)

    def loss(self, privacy: Privacy) -> Loss | None:
        """Return the privacy loss of the releases; None if no ε is stated."""
        return privacy.mechanism(self.setting, 0).loss(self.rounds)

    def entry(self, privacy: Privacy, *, withhold: bool) -> dict[str, Any]:
        """Return the rebuilding as a ledger entry; `withhold` hides the participants."""
        columns = np.array(self.releases, dtype=np.float64).reshape(self.rounds, 3).T  # NaN for no sensitivity
        mechanism = privacy.mechanism(self.setting, 0)
        book = ledger(to_table(privacy), mechanism, self.setting, *columns, withhold=withhold, curve=False)
        kept = {key: book[key] for key in ("mechanism", "setting", "releases", "privacy")}
        return {"without": list(self.without), "finished": self.finished, **kept}


class BudgetFit(NamedTuple):
    """Outcome of fitting a rebuilding into the run's budget of ε."""

    fits: bool
    shorter: int = 0  # rounds of the run that it replaces
    reached: float = 0.0  # ε of run, reports and all rebuildings with this one, at the run's whole length
    budget: float = 0.0
    delta: float = 0.0


@dataclass(eq=False)
class RebuildingLedger:
    """Rebuildings of one coordinator.

    Args:
        privacy: The run's privacy with the run's noise.
        content: The stored document, if there is one.
        write: Replaces the stored document.
    """

    privacy: Privacy
    content: bytes | None = None
    write: Callable[[bytes], None] = lambda content: None
    entries: list[CountedRebuilding] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.content is not None:
            advice = "; restore the store from a backup"
            self.entries = parse_json(self.content, list[CountedRebuilding], DOCUMENT, advice=advice)

    def fit(
        self,
        number: int,
        rebuilding: Rebuilding,
        coordinator: Coordinator,
        planned_rounds: int,
        reports: Loss,
        budget: float | None,
    ) -> BudgetFit:
        """Fit a rebuilding into the budget by shortening the coordinator's run, of which `planned_rounds` were planned.

        `budget` is the ε of run, reports and rebuildings together; by default the planned ε of run and reports.
        """
        mechanism, rounds = coordinator.mechanism, rebuilding.rounds
        planned, loss = mechanism.loss(planned_rounds), rebuilding.mechanism.loss(rounds)
        if planned is None or loss is None:
            return BudgetFit(True)
        delta = float((mechanism.statement(1) or {})["delta"])
        budget = budget or compose(planned + reports, delta).epsilon
        others, reached = [reports, *self.losses(but=number), loss], math.inf
        left = coordinator.rounds - coordinator.state.round
        for shorter in (0, rounds, rounds + 1, math.ceil(1.2 * rounds) + 1, 2 * rounds):
            run = mechanism.loss(coordinator.rounds - shorter) if shorter <= left else None
            if run is None:
                continue
            found = compose(total_loss([run, *others]), delta).epsilon
            reached = found if math.isinf(reached) else reached
            if found <= budget * (1.0 + 1e-9):
                return BudgetFit(True, shorter)
        return BudgetFit(False, 0, reached, budget, delta)

    def begin(self, number: int, without: tuple[int, ...], setting: Setting) -> None:
        """Record a rebuilding before its first round; a continued one is recorded already."""
        if all(entry.number != number for entry in self.entries):
            self._write([*self.entries, CountedRebuilding(number, without, setting)])

    def count(self, number: int, round_: int, cohort_sum: CohortSum) -> None:
        """Count the sum of a round, from 0; a repeated round counts once."""
        sensitivity = cohort_sum.sensitivity if math.isfinite(cohort_sum.sensitivity) else None
        release = (float(cohort_sum.clients), sensitivity, float(cohort_sum.noise))
        self._change(number, lambda entry: replace(entry, releases=(*entry.releases[:round_], release)))

    def finish(self, number: int) -> None:
        """Record that the rebuilt ranker has replaced the run's."""
        self._change(number, lambda entry: replace(entry, finished=True))

    def losses(self, but: int | None = None) -> list[Loss]:
        """Return the losses of all rebuildings but one, as far as an ε is stated."""
        found = [entry.loss(self.privacy) for entry in self.entries if entry.number != but]
        return [loss for loss in found if loss is not None]

    def table(self, *, withhold: bool) -> list[dict[str, Any]]:
        """Return the rebuildings as ledger entries."""
        return [entry.entry(self.privacy, withhold=withhold) for entry in self.entries]

    def _change(self, number: int, change: Callable[[CountedRebuilding], CountedRebuilding]) -> None:
        self._write([change(entry) if entry.number == number else entry for entry in self.entries])

    def _write(self, entries: list[CountedRebuilding]) -> None:
        if entries != self.entries:
            text = json.dumps([asdict(entry) for entry in entries], allow_nan=False)
            self.write(text.encode())
        self.entries = entries
