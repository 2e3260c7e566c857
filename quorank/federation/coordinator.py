"""The coordinator: `plan` a round, `receive` replies, `advance` to the next ranker. No engine is in it.

The in-process runner, the network and the tests drive this object. It believes no reply: version, run, round, client,
shape, numbers, norm and weight are checked, and a client counts once a round. An accepted reply is in the journal before
it counts, and is summed at once; after every round the checkpoint is replaced in one move, and only then the new ranker
is handed out. So a coordinator that is killed at any moment goes on to the same bits, and no ranker is ever seen of a
round that is repeated.

Asynchronous rounds (`Asynchronous`) end after so many replies, whichever round those began in; an update that began τ
rounds ago counts (1 + τ)^−power of a fresh one (Nguyen et al. 2022, FedBuff).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.federation import wire
from quorank.federation.checkpoint import BROKEN, read_arrays, state_arrays, state_from, write_arrays
from quorank.federation.journal import Journal
from quorank.federation.replies import Key, Replies
from quorank.federation.rounds import Federation, Gathered, Report, State
from quorank.privacy import Mechanism, Plain

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CHECKPOINT, JOURNAL = "coordinator.state", "coordinator.journal"

GROUP_BYTES = 1 << 24
"""So much of what came together is written to the journal at a time."""


@dataclass(frozen=True)
class Asynchronous:
    """A round ends after `replies` of them, however old."""

    replies: int = 10
    power: float = 0.5  # an update that began τ rounds ago counts (1 + τ)^−power
    most: int = 20  # rounds; what is older is refused

    def __post_init__(self) -> None:
        require(self.replies >= 1, f"replies must be at least 1, got {self.replies}")
        require(self.power >= 0.0, f"power must be at least 0, got {self.power}")
        require(self.most >= 0, f"most must be at least 0, got {self.most}")

    def weight(self, staleness: int) -> float:
        return float((1.0 + staleness) ** -self.power)


@dataclass(frozen=True)
class Rules:
    """When a round ends, and what a reply may be."""

    enough: float = 1.0  # share of the cohort whose replies end a round
    least: float = 0.5  # share of the cohort without which a round does not end, deadline or not
    deadline: float = math.inf  # seconds after which `least` are enough
    longest: float = 1e6  # L2 norm of a release, where privacy sets no bound of its own
    heaviest: int | None = None  # interactions that a client may claim; by default what the federation plans
    asynchronous: Asynchronous | None = None

    def __post_init__(self) -> None:
        require(0.0 < self.enough <= 1.0, f"enough must be above 0 and at most 1, got {self.enough}")
        require(0.0 < self.least <= 1.0, f"least must be above 0 and at most 1, got {self.least}")
        require(self.deadline > 0.0, f"deadline must be above 0 seconds, got {self.deadline}")
        require(0.0 < self.longest < math.inf, f"longest must be above 0 and finite, got {self.longest}")


class Verdict(NamedTuple):
    """What became of a reply."""

    accepted: bool
    client: int | None  # None where the reply does not say
    reason: str = ""  # why not: a sentence without anything of the reply's content


@dataclass(eq=False)
class Coordinator:
    """One run's server side."""

    federation: Federation
    mechanism: Mechanism
    state: State
    rounds: int
    run: str = "run"
    seed: int = 0
    rules: Rules = field(default_factory=Rules)
    folder: Path | None = None  # where checkpoint and journal lie; None keeps nothing
    clock: Callable[[], float] = time.monotonic
    reports: list[Report] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)  # how often, by reason
    _open: bool = field(default=False, init=False)
    _since: float = field(default=0.0, init=False)
    _cohort: frozenset[int] = field(default_factory=frozenset, init=False)
    _replies: Replies = field(init=False)
    _counted: set[Key] = field(default_factory=set, init=False)  # in rounds that are over, if late ones count

    def __post_init__(self) -> None:
        if self.rules.asynchronous is not None:
            require(
                isinstance(self.mechanism, Plain),
                "asynchronous rounds mix updates of several rankers, and no noise is accounted for that: leave privacy "
                "out, or asynchronous",
            )
        self._replies = self._empty()
        if self.folder is not None:
            self._restore(self.folder)

    @property
    def parameters(self) -> int:
        return len(self.state.theta)

    @property
    def done(self) -> bool:
        return self.state.round >= self.rounds

    @property
    def cohort(self) -> frozenset[int]:
        """Who is asked in the open round."""
        return self._cohort

    @property
    def waiting(self) -> frozenset[int]:
        """Who was asked in this round and has not answered."""
        return self._cohort - {client for client, round_ in self._replies if round_ == self.state.round}

    @property
    def ranker(self) -> Doubles:
        """The parameters that are handed out to searchers."""
        return self.federation.ranker(self.state)

    def plan(self) -> wire.Task:
        """Open the round, or say again what it is: the task for each client of the cohort."""
        require(not self.done, f"the run's {self.rounds} rounds are done")
        if not self._open:
            federation, round_ = self.federation, self.state.round
            members = federation.participation.members(federation.clients, round_, self.seed)
            everyone = range(federation.clients) if members is None else members.tolist()
            self._open, self._since, self._cohort = True, self.clock(), frozenset(everyone)
        return wire.Task(self.run, self.state.round, self.state.theta, self.state.private)

    def receive(self, content: bytes | wire.Reply) -> Verdict:
        """Check a reply; once it is accepted it is never lost and never counted twice."""
        return self.receive_many([content])[0]

    def receive_many(self, contents: Iterable[bytes | wire.Reply]) -> list[Verdict]:
        """The same for replies that came together, in their order; the disk is waited for once for many of them.

        When this raises, a full disk say, the replies of the last group are not accepted, and those before are.
        """
        verdicts, group, held = [], dict[Key, wire.Reply](), 0
        for content in contents:
            client = None
            try:
                reply = content if isinstance(content, wire.Reply) else wire.decode_reply(content)
                client = reply.client
                self._check(reply, group)
            except BadInput as error:
                reason = str(error)
                self.refused[reason] = self.refused.get(reason, 0) + 1
                verdicts.append(Verdict(False, client, reason))
                continue
            group[reply.client, reply.round] = reply
            verdicts.append(Verdict(True, client))
            held += reply.release.nbytes
            if held >= GROUP_BYTES:
                self._accept(group)
                group, held = {}, 0
        self._accept(group)
        return verdicts

    def _accept(self, group: dict[Key, wire.Reply]) -> None:
        """Replies count once all of them are on disk."""
        if self.folder is not None:
            Journal(self.folder / JOURNAL).append([wire.encode_reply(reply) for reply in group.values()])
        for reply in group.values():
            self._count(reply)

    def _count(self, reply: wire.Reply) -> None:
        rules = self.rules.asynchronous
        share = 1.0 if rules is None else rules.weight(self.state.round - reply.round)
        self._replies.add(self.state, reply, share)

    def _empty(self) -> Replies:
        return Replies(self.mechanism, self.parameters, self.federation.aggregation.single_updates)

    def _check(self, reply: wire.Reply, beside: Container[Key] = ()) -> None:
        """Refuse what does not belong to the open round, counted already or is what no honest client sends."""
        require(self._open, "there is no open round; ask for a task first")
        require(reply.run == self.run, "the reply belongs to another run; fetch a new task")
        late = self.state.round - reply.round
        rules, most = self.rules, 0
        if rules.asynchronous is not None:
            most = rules.asynchronous.most
        require(late >= 0, "the reply is of a round that has not begun; fetch a new task")
        require(late <= most, "the reply is of a round that is over; fetch a new task")
        require(reply.client in self._cohort, "this client is not in the round's cohort; wait for a task")
        key = reply.client, reply.round
        require(
            key not in self._replies and key not in self._counted and key not in beside,
            "this client has replied to this task already; one reply counts",
        )
        heaviest = rules.heaviest or self.federation.interactions
        self._replies.check(self.state, reply, heaviest, rules.longest, len(self._cohort) * (1 + most))

    def complete(self) -> bool:
        """Whether the round can end: enough replies, or the deadline and the least."""
        if not self._open:
            return False
        if self.rules.asynchronous is not None:
            return len(self._replies) >= self.rules.asynchronous.replies
        came, asked = len(self._replies), len(self._cohort)
        if came >= math.ceil(self.rules.enough * asked):
            return True
        late = self.clock() - self._since >= self.rules.deadline
        return late and came >= max(1, math.ceil(self.rules.least * asked))

    def advance(self) -> Report:
        """End the round: the next ranker and what the round looked like. On a full disk nothing has changed."""
        require(self.complete(), "the round is not complete")
        return self.close(self.gathered())

    def gathered(self) -> Gathered:
        """The accepted replies, summed."""
        return self._replies.gathered(self.state)

    def close(self, gathered: Gathered) -> Report:
        """End the round with what was gathered, here or by an in-process cohort."""
        state, report = self.federation.round(self.state, gathered)
        most = 0 if self.rules.asynchronous is None else self.rules.asynchronous.most
        counted = {key for key in self._counted | set(self._replies) if state.round - key[1] <= most}
        if self.folder is not None:
            self._save(self.folder, state, [*self.reports, report], counted)
            Journal(self.folder / JOURNAL).clear()
        self.state, self._open, self._counted = state, False, counted
        self.reports.append(report)
        self._replies = self._empty()
        return report

    def _save(self, folder: Path, state: State, reports: list[Report], counted: set[Key]) -> None:
        table = np.array([astuple(report) for report in reports], dtype=np.float64)
        arrays = state_arrays(state) | {"reports": table, "run": np.array(self.run)}
        arrays |= {"refused": np.array(list(self.refused)), "refusals": np.array([*self.refused.values()])}
        arrays["counted"] = np.array(sorted(counted), dtype=np.int64).reshape(-1, 2)
        write_arrays(folder / CHECKPOINT, arrays)

    def _restore(self, folder: Path) -> None:
        """Go on where the checkpoint and the journal of its open round stand."""
        path = folder / CHECKPOINT
        if path.is_file():
            try:
                arrays = read_arrays(path)
                state, run = state_from(arrays), str(arrays["run"])
                reports = [_report(row) for row in arrays["reports"].tolist()]
                counted = {(client, round_) for client, round_ in arrays["counted"].tolist()}
                refused = dict(
                    zip(arrays["refused"].tolist(), arrays["refusals"].astype(int).tolist(), strict=True)
                )
            except BROKEN as error:
                raise BadInput(f"{path}: damaged ({error}); restore it from a copy") from None
            same = run == self.run and state.theta.shape == self.state.theta.shape
            require(same, f"{path}: the checkpoint is of another run; choose another folder")
            self.state, self.reports, self.refused, self._counted = state, reports, refused, counted
        self._replay(folder)

    def _replay(self, folder: Path) -> None:
        """Take in again what was accepted; a journal of a round that is over was only not deleted yet."""
        journal = Journal(folder / JOURNAL)
        for record in () if self.done else journal.read():
            self.plan()
            reply = wire.decode_reply(record)
            try:
                self._check(reply)
            except BadInput:
                continue
            self._count(reply)
        if self._open and not self._replies:
            journal.clear()


def _report(row: list[float]) -> Report:
    whole = ("round", "interactions", "participants")
    values = dict(zip(Report.__dataclass_fields__, row, strict=True))
    return Report(**{name: int(v) if name in whole else v for name, v in values.items()})  # type: ignore[arg-type]
