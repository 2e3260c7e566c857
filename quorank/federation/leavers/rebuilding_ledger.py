"""Ledger of a coordinator's rebuildings: every noisy sum of theirs is counted before it can leave, finished or not.

A rebuilding releases a sum in each of its rounds: the next round's task holds a ranker that was made of it. So a round is
kept here before its checkpoint is, and stays when the rebuilding is given up because one more client leaves, or when
the coordinator is killed. A kill between the two counts one release too many, never one too few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from quorank.federation.rounds import CohortSum
from quorank.files.documents import Flag, Items, Maybe, Number, Table, Whole, parse_json, shape_of
from quorank.parts import to_table
from quorank.privacy import Mechanism, Privacy, Setting
from quorank.privacy.composition import Loss, compose, total_loss
from quorank.privacy.ledger import ledger

DOCUMENT = "rebuildings"
"""The name under which it is kept."""


@dataclass(frozen=True)
class CountedRebuilding:
    """What one rebuilding has released."""

    number: int
    without: tuple[int, ...]  # who has left
    setting: Setting  # its plan
    releases: tuple[tuple[float, float | None, float], ...] = ()  # (participants, sensitivity, noise) of each round
    finished: bool = False

    @property
    def rounds(self) -> int:
        """Rounds whose sum was made."""
        return len(self.releases)

    def loss(self, privacy: Privacy) -> Loss | None:
        """Return what the releases give away; None where no ε is stated."""
        return privacy.mechanism(self.setting, 0).loss(self.rounds)

    def entry(self, privacy: Privacy, *, withhold: bool) -> dict[str, Any]:
        """Return the rebuilding as an entry of a ledger."""
        part = to_table(privacy)
        shape = (self.rounds, 3)
        rows = [
            (there, math.nan if sensitivity is None else sensitivity, noise)
            for there, sensitivity, noise in self.releases
        ]
        columns = np.array(rows, dtype=np.float64).reshape(shape).T
        mechanism = privacy.mechanism(self.setting, 0)
        book = ledger(part, mechanism, self.setting, *columns, withhold=withhold, curve=False)
        kept = {key: book[key] for key in ("mechanism", "setting", "releases", "privacy")}
        return {"without": list(self.without), "finished": self.finished, **kept}


_REBUILDINGS = Items(
    Table(
        {
            "number": Whole(1),
            "without": Items(Whole(0)),
            "setting": shape_of(Setting),
            "releases": Items(Items(Maybe(Number()))),
            "finished": Flag(),
        }
    )
)


class RunPlan(NamedTuple):
    """Rounds of a run and of a rebuilding of it, and what devices report beside their updates over the whole run."""

    rounds: int  # that the run was planned for
    ends: int  # after which it ends by now
    done: int
    rebuilding: int
    reports: Loss


class RebuildingRoom(NamedTuple):
    """Whether a rebuilding fits into the run's budget of ε, and at which price."""

    fits: bool
    shorter: int = 0  # rounds of the run whose place it takes
    reached: float = 0.0  # ε of run, reports and all rebuildings with this one, at the run's whole length
    budget: float = 0.0
    delta: float = 0.0


@dataclass(eq=False)
class RebuildingLedger:
    """The rebuildings of one coordinator; `privacy` is the run's with the run's noise.

    `content` is what was kept before, and `keep` is handed what must survive from now on.
    """

    privacy: Privacy
    content: bytes | None = None
    keep: Callable[[bytes], None] = lambda content: None
    entries: list[CountedRebuilding] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.content is not None:
            found = parse_json(self.content, _REBUILDINGS, DOCUMENT, advice="; restore the store from a backup")
            self.entries = [_read(entry) for entry in found]

    def room_for(
        self, number: int, loss: Loss | None, mechanism: Mechanism, plan: RunPlan, budget: float | None
    ) -> RebuildingRoom:
        """Whether a rebuilding that gives `loss` away fits in beside the run of this `mechanism`.

        The run ends earlier by as many rounds as that takes. `budget` is the ε of all together, by default what the whole
        run and its reports were planned for.
        """
        planned = mechanism.loss(plan.rounds)
        if planned is None or loss is None:
            return RebuildingRoom(True)
        delta = float((mechanism.statement(1) or {})["delta"])
        budget = budget or compose(planned + plan.reports, delta).epsilon
        others = [plan.reports, *self.losses(but=number), loss]
        reached, rounds = math.inf, plan.rebuilding
        for shorter in (0, rounds, rounds + 1, math.ceil(1.2 * rounds) + 1, 2 * rounds):
            run = mechanism.loss(plan.ends - shorter) if shorter <= plan.ends - plan.done else None
            if run is None:
                continue
            found = compose(total_loss([run, *others]), delta).epsilon
            reached = found if math.isinf(reached) else reached
            if found <= budget * (1.0 + 1e-9):
                return RebuildingRoom(True, shorter)
        return RebuildingRoom(False, 0, reached, budget, delta)

    def begin(self, number: int, without: tuple[int, ...], setting: Setting) -> None:
        """Note a rebuilding before its first round; one that goes on is noted already."""
        if all(entry.number != number for entry in self.entries):
            self._write([*self.entries, CountedRebuilding(number, without, setting)])

    def count(self, number: int, round_: int, gathered: CohortSum) -> None:
        """Count the sum of a round (from 0) of a rebuilding; a round that is closed again counts once."""
        sensitivity = gathered.sensitivity if math.isfinite(gathered.sensitivity) else None
        release = (float(gathered.clients), sensitivity, float(gathered.noise))
        self._change(number, lambda entry: replace(entry, releases=(*entry.releases[:round_], release)))

    def finish(self, number: int) -> None:
        """Note that the rebuilt ranker was taken over."""
        self._change(number, lambda entry: replace(entry, finished=True))

    def losses(self, but: int | None = None) -> list[Loss]:
        """Return what all rebuildings, but one, have given away; those without an ε are left out."""
        found = [entry.loss(self.privacy) for entry in self.entries if entry.number != but]
        return [loss for loss in found if loss is not None]

    def table(self, *, withhold: bool) -> list[dict[str, Any]]:
        """Return the rebuildings as entries of a ledger."""
        return [entry.entry(self.privacy, withhold=withhold) for entry in self.entries]

    def _change(self, number: int, change: Callable[[CountedRebuilding], CountedRebuilding]) -> None:
        self._write([change(entry) if entry.number == number else entry for entry in self.entries])

    def _write(self, entries: list[CountedRebuilding]) -> None:
        if entries != self.entries:
            text = json.dumps([asdict(entry) for entry in entries], allow_nan=False)
            self.keep(text.encode())
        self.entries = entries


def _read(entry: Any) -> CountedRebuilding:
    releases = tuple(
        (float(there), None if length is None else float(length), float(noise))
        for there, length, noise in entry["releases"]
    )
    without = tuple(int(client) for client in entry["without"])
    return CountedRebuilding(
        int(entry["number"]), without, Setting(**entry["setting"]), releases, bool(entry["finished"])
    )
