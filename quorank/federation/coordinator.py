"""The coordinator: `plan` a round, `receive` replies, `advance` to the next ranker. No engine is in it.

The in-process runner, the network and the tests drive this object. It believes no reply: version, run, round, client,
shape, numbers, norm and weight are checked, and a client counts once a round. An accepted reply is in the journal before
it counts, and is summed at once; after every round the checkpoint is replaced in one move, and only then the new ranker
is handed out. So a coordinator that is killed at any moment goes on to the same bits, and no ranker is ever seen of a
round that is repeated.

Asynchronous rounds end after so many replies, whichever round those began in (`asynchronous`).

A round that takes whoever comes (`participation.Arrivals`) has no cohort: whoever is `enrolled` may answer, until K have.
The noise on its sum is planned for at most K updates, so the next reply is refused (`reply.round-full`); so is a client
that rests (`reply.resting`) or has taken part as often as it may (`reply.too-often`). Who took part how often is in the
state, as two whole numbers a client, and so in the checkpoint. Without `enrolled` those whom the simulator draws are asked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from quorank.errors import BadInput, require, require_range
from quorank.federation import wire
from quorank.federation.asynchronous import Asynchronous, check_asynchronous
from quorank.federation.kept.checkpoint import Saved, taken_fault
from quorank.federation.kept.keeping import Keeping
from quorank.federation.leavers.unlearning import stretched
from quorank.federation.participation import TurnsTaken
from quorank.federation.replies import Key, OpenRound, Replies, ReplyLimits
from quorank.federation.rounds import CohortSum, Federation, Report, State
from quorank.federation.server_optimisers import AVERAGE
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import memory_bytes
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.figure_response import FigureResponse

GROUP_BYTES = 1 << 24
"""So much of what came together is written to the journal at a time."""


@dataclass(frozen=True)
class RoundLimits:
    """When a round ends, and what a reply may be. A round that takes whoever comes knows itself how many are enough."""

    enough: float = 1.0  # share of the cohort whose replies end a round
    least: float = 0.5  # share of the cohort without which a round does not end, deadline or not
    deadline: float = math.inf  # seconds after which `least` are enough
    longest: float = 1e6  # L2 norm of a release, where privacy sets no bound of its own
    heaviest: int | None = None  # interactions that a client may claim; by default what the federation plans
    asynchronous: Asynchronous | None = None
    fewest: int = 1  # replies without which a round with a cohort never ends: what noise in shares counts on

    def __post_init__(self) -> None:
        require_range("fewest", self.fewest, least=1)
        require_range("enough", self.enough, above=0.0, most=1.0)
        require_range("least", self.least, above=0.0, most=1.0)
        require(self.deadline > 0.0, "value.out-of-range", f"must be above 0 seconds, got {self.deadline}", "deadline")
        require_range("longest", self.longest, above=0.0)

    @property
    def latest(self) -> int:
        """How many rounds late a reply may come."""
        return 0 if self.asynchronous is None else self.asynchronous.most


class RoundEnding(NamedTuple):
    """When a round ends: after `enough` replies, or after `deadline` seconds with `least`."""

    enough: int
    least: int
    deadline: float


class Verdict(NamedTuple):
    """What became of a reply."""

    accepted: bool
    client: int | None  # None where the reply does not say
    code: str = ""  # of the error that it was refused with
    reason: str = ""  # the error's sentence, without anything of the reply's content


@dataclass(eq=False)
class Coordinator:
    """Server side of one run: `plan`, `receive`, `advance`."""

    federation: Federation
    mechanism: Mechanism
    state: State
    rounds: int
    run: str = "run"
    seed: int = 0
    rules: RoundLimits = field(default_factory=RoundLimits)
    keeping: Keeping | None = None  # where checkpoint and accepted replies are; None keeps nothing
    clock: Callable[[], float] = time.monotonic
    reports: list[Report] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)  # how often, by code
    figure: FigureResponse | None = None  # how clients report a figure of themselves with each release, if they do
    enrolled: Container[int] | None = None  # who may answer rounds that take whoever comes; it may grow while they go
    _open: bool = field(default=False, init=False)
    _since: float = field(default=0.0, init=False)
    _cohort: frozenset[int] = field(default_factory=frozenset, init=False)
    _excused: set[int] = field(default_factory=set, init=False)  # of the cohort, without a reply: not waited for
    _replies: Replies = field(init=False)
    _counted: set[Key] = field(default_factory=set, init=False)  # in rounds that are over, if late ones count

    def __post_init__(self) -> None:
        if self.rules.asynchronous is not None:
            check_asynchronous(self.federation, self.mechanism)
        self.federation.check_room(memory_bytes())
        sentence = "who is enrolled matters to rounds that take whoever comes, and this run draws its cohorts"
        require(self.enrolled is None or self._takes_whoever_comes, "option.conflict", sentence, "enrolled")
        self._replies = self._empty()
        if self.keeping is not None:
            self._restore(self.keeping)

    @property
    def parameters(self) -> int:
        return len(self.state.theta)

    @property
    def done(self) -> bool:
        return self.state.round >= self.rounds

    @property
    def open(self) -> bool:
        """Whether a round has begun and not ended."""
        return self._open

    @property
    def cohort(self) -> frozenset[int]:
        """Who is asked in the open round; nobody in particular where it takes whoever of the enrolled comes."""
        return self._cohort

    @property
    def waiting(self) -> frozenset[int]:
        """Who was asked in this round, has not answered and can."""
        return self._cohort.difference(self._replies.senders(self.state.round).tolist(), self._excused)

    @property
    def came(self) -> int:
        """How many replies of the open round were accepted."""
        return len(self._replies)

    @property
    def _takes_whoever_comes(self) -> bool:
        return self.federation.participation.takes_whoever_comes

    @property
    def ranker(self) -> Doubles:
        """The parameters that are handed out to searchers."""
        return self.federation.ranker(self.state)

    def plan(self, ago: float = 0.0) -> wire.Task:
        """Open the round, or say again what it is: the task for each client of the cohort.

        `ago` are the seconds since another coordinator opened it, where this one takes over.
        """
        require(not self.done, "run.done", f"the run's {self.rounds} rounds are done")
        if not self._open:
            self._cohort, self._excused = self.members(self.state.round), set()
            self._open, self._since = True, self.clock() - ago
        return wire.Task(self.run, self.state.round, self.state.theta, self.state.private)

    def excuse(self, clients: Iterable[int]) -> None:
        """These and no others of the open round's cohort are not waited for: they cannot come. If one does, it counts."""
        done = self.state.round
        self._excused = {one for one in self._cohort.intersection(clients) if (one, done) not in self._replies}

    def members(self, round_: int, taken: TurnsTaken | None = None) -> frozenset[int]:
        """The cohort of a round, where clients have taken these turns before it."""
        if self.enrolled is not None:
            return frozenset()
        federation = self.federation
        members = federation.participation.members(federation.clients, round_, self.seed, taken or self.state.taken)
        return frozenset(range(federation.clients) if members is None else members.tolist())

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
                reply = content if isinstance(content, wire.Reply) else wire.decode_reply(content, self.parameters)
                client = reply.client
                self._check(reply, group)
            except BadInput as error:
                verdicts.append(self.refuse(error, client))
                continue
            group[reply.client, reply.round] = reply
            verdicts.append(Verdict(True, client))
            held += reply.release.nbytes
            if held >= GROUP_BYTES:
                self._accept(group)
                group, held = {}, 0
        self._accept(group)
        return verdicts

    def refuse(self, error: BadInput, client: int | None = None) -> Verdict:
        """Count a refusal by its code, here or by whoever hands replies in."""
        self.refused[error.code] = self.refused.get(error.code, 0) + 1
        return Verdict(False, client, error.code, str(error))

    def _accept(self, group: dict[Key, wire.Reply]) -> None:
        """Replies count once all of them are on disk."""
        if self.keeping is not None and group:
            self.keeping.append(list(group.values()))
        for reply in group.values():
            self._count(reply)

    def _count(self, reply: wire.Reply) -> None:
        rules = self.rules.asynchronous
        share = 1.0 if rules is None else rules.weight(self.state.round - reply.round)
        self._replies.add(self.state, reply, share)
        self._excused.discard(reply.client)

    def _empty(self) -> Replies:
        single = self.federation.aggregation.needs_single_updates
        return Replies(self.mechanism, self.parameters, single, self.figure)

    def _check(self, reply: wire.Reply, beside: Collection[Key] = ()) -> None:
        """Refuse a reply that must not count; `replies` has what is checked."""
        require(self._open, "reply.no-open-round", "there is no open round; ask for a task first")
        self._replies.check(self.state, reply, self._judged_by(len(beside)), beside)

    def limits(self, state: State) -> ReplyLimits:
        """What the numbers of a reply to the round after this state are judged by, for whoever takes replies in."""
        judged_by = self._judged_by()
        if state is not self.state or not self._open:
            most = self._most if self._takes_whoever_comes else len(self.members(state.round, state.taken))
            judged_by = judged_by._replace(most=most * (1 + self.rules.latest))
        return self._replies.limits(state, judged_by)

    def _judged_by(self, beside: int = 0) -> OpenRound:
        limits, latest = self.rules, self.rules.latest
        heaviest, count = limits.heaviest or self.federation.interactions, len(self._cohort) * (1 + latest)
        if self._takes_whoever_comes:
            count = self._most
        numbers = heaviest, limits.longest, count
        return OpenRound(self.run, latest, self._asked, self._counted, *numbers, partial(self._turn, beside))

    @property
    def _most(self) -> int:
        """K: so many replies a round takes that takes whoever comes."""
        return self.federation.participation.size(self.federation.clients)

    def _turn(self, beside: int, client: int) -> None:
        """Refuse a client whose turn it is not, in a round that takes whoever comes; so many came together with it.

        The sum is of K updates at most: its noise, its unit and its divisor are planned for that.
        """
        taken = self.state.taken
        if taken is None:
            return
        full = self.came + beside >= self._most
        require(not full, "reply.round-full", f"the round has its {self._most} replies; fetch a new task later")
        self.federation.participation.turns.check(*taken.of(client), self.state.round)

    def _asked(self, round_: int) -> Container[int]:
        """The clients that may answer in a round."""
        if self.enrolled is not None:
            return self.enrolled
        return self._cohort if round_ == self.state.round else self.members(round_)

    @property
    def ending(self) -> RoundEnding:
        """When the open round ends."""
        rules, asked, federation = self.rules, len(self._cohort) - len(self._excused), self.federation
        enough, least, deadline = math.ceil(rules.enough * asked), math.ceil(rules.least * asked), rules.deadline
        if rules.asynchronous is not None:
            enough = rules.asynchronous.replies
            least = math.ceil(rules.least * enough)
        if self.enrolled is not None:
            enough, least = self._most, federation.participation.fewest(federation.clients)
            deadline = min(deadline, federation.participation.seconds)
        if self._cohort or self.enrolled is not None:
            enough, least = max(rules.fewest, enough), max(rules.fewest, least)
        return RoundEnding(enough, max(1, least), deadline)

    def complete(self) -> bool:
        """Whether the round can end: enough replies, or the deadline and the least."""
        if not self._open:
            return False
        enough, least, deadline = self.ending
        late = self.clock() - self._since >= deadline
        return self.came >= enough or (late and self.came >= least)

    def advance(self) -> Report:
        """End the round: the next ranker and what the round looked like. On a full disk nothing has changed."""
        require(self.complete(), "round.not-complete", "the round is not complete")
        return self.close(self.gathered())

    def gathered(self) -> CohortSum:
        """Return the sum of the accepted replies.

        Where clients report a figure, its unbiased mean over the cohort stands where a simulated round has the true one
        (`online_ndcg`): so it is in the checkpoint, and a coordinator that is killed goes on to the same figure.
        """
        found, rules = self._replies.gathered(self.state), self.rules.asynchronous
        if rules is not None:
            ages = [self.state.round - round_ for _, round_ in self._replies]
            found = stretched(found, rules.stretch(ages, len(self._cohort)))
        if self.state.taken is not None:
            found = found._replace(came=self._replies.senders(self.state.round))
        if self.figure is not None and found.clients > 0:
            mean = self.figure.unbiased(found.ndcg, found.clients)
            found = found._replace(ndcg=mean * found.interactions)
        return found

    def close(self, gathered: CohortSum) -> Report:
        """End the round with what was gathered, here or by an in-process cohort."""
        state, report = self.federation.round(self.state, gathered)
        for code in gathered.dropped:
            self.refuse(BadInput(code, "a secure sum was beyond what honest clients reach; it is not used"))
        latest = self.rules.latest
        counted = set[Key]()
        if latest > 0:
            counted = {key for key in self._counted | set(self._replies) if state.round - key[1] <= latest}
        self._save(state, [*self.reports, report], counted)
        self.state, self._open, self._counted = state, False, counted
        self.reports.append(report)
        if len(self._replies):
            self._replies = self._empty()
        return report

    def dismiss(self, federation: Federation, clients: Iterable[int]) -> None:
        """From now on play with this federation, in which these clients are in no cohort; nor are they waited for now."""
        self.federation, self._cohort = federation, self._cohort.difference(clients)

    def install(self, theta: Doubles, forget: Container[int] = ()) -> None:
        """Go on from another ranker, with nothing that the old one left behind; between two rounds.

        What these clients have sent is not remembered either. On a full disk nothing has changed.
        """
        require(not self._open, "round.open", "a ranker is installed between two rounds; this one is open")
        require(theta.shape == self.state.theta.shape, "ranker.shape", "the ranker to install is of another shape")
        memory = self.federation.server.start(len(theta))
        if AVERAGE in memory:
            memory[AVERAGE] = theta.copy()
        state = replace(self.state, theta=theta, memory=memory, history=None, rule={})
        counted = {key for key in self._counted if key[0] not in forget}
        self._save(state, self.reports, counted)
        self.state, self._counted = state, counted

    def _save(self, state: State, reports: list[Report], counted: set[Key]) -> None:
        if self.keeping is not None:
            self.keeping.save(Saved(state, self.run, reports, counted, self.refused))

    def _restore(self, keeping: Keeping) -> None:
        """Go on where the checkpoint and the accepted replies of its open round stand."""
        saved = keeping.load()
        if saved is not None:
            same = saved.run == self.run and saved.state.theta.shape == self.state.theta.shape
            sentence = "the checkpoint is of another run; choose another folder"
            require(same, "checkpoint.other-run", sentence, keeping.where)
            fault = "" if saved.state.taken is None else taken_fault(saved.state.taken, saved.state.round)
            whole = not fault and (saved.state.taken is None) == (self.state.taken is None)
            sentence = f"damaged ({fault or 'turns missing'}); restore it from a copy"
            require(whole, "file.damaged", sentence, keeping.where)
            self.mechanism.check_memory(saved.state.private)
            self.state, self.reports, self.refused = saved.state, saved.reports, saved.refused
            self._counted = saved.counted
        self._replay(keeping)

    def _replay(self, keeping: Keeping) -> None:
        """Take in again what was accepted; replies of a round that is over were only not deleted yet."""
        for record in () if self.done else keeping.accepted():
            self.plan()
            reply = wire.decode_reply(record)
            try:
                self._check(reply)
            except BadInput:
                continue
            self._count(reply)
        if self._open and not self._replies:
            keeping.clear()
