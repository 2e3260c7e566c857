"""Server-side state machine of a run, independent of any transport.

`plan()` publishes a task, `receive()` validates one reply, `advance()` aggregates the accepted replies into the next
ranker. The in-process engine, the HTTPS service and the tests all drive this class.

Crash safety: the checkpoint is replaced atomically before the new ranker is published. A restarted coordinator opens its
unfinished round again, gets the replies again from their senders or the service's store, and continues to the same bits.

Open participation (`Arrivals`) has no fixed cohort: any enrolled client may reply until K replies are accepted. Later
replies are rejected with `reply.round-full`, resting clients with `reply.resting`, exhausted ones with `reply.too-often`.
Without `enrolled` the cohort of such a round is simulated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from quorank.errors import BadInput, require, require_range
from quorank.federation.participation import TurnsTaken
from quorank.federation.reply import Reply, ReplyLimits, Task, decode_reply
from quorank.federation.rounds import AcceptedReplies, CohortSum, Federation, Report, State
from quorank.federation.server_optimisers import AVERAGE
from quorank.federation.storage import CoordinatorCheckpoint, RoundStorage, turns_fault
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.process import memory_bytes
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.privacy.streams import Seed


@dataclass(frozen=True)
class RoundLimits:
    """Closing conditions of a round and bounds on a reply.

    Args:
        close_fraction: Fraction of the cohort whose replies close the round immediately, in (0, 1].
        minimum_fraction: Fraction of the cohort required to close the round at the deadline, in (0, 1].
        deadline: Seconds after which `minimum_fraction` suffices.
        max_norm: Upper bound on the L2 norm of a release when the privacy mechanism has none.
        max_interactions: Upper bound on the interactions a client may report; defaults to the planned number.
        simulated: Accept the statistics of simulated users; else a reply holds no number but its release and metric.
        minimum_replies: Replies without which no round closes, at any time; noise drawn in shares needs them.

    >>> RoundLimits(minimum_fraction=0.8, deadline=60.0).closes(replies=80, cohort=100, elapsed=61.0)
    True
    """

    close_fraction: float = 1.0
    minimum_fraction: float = 0.5
    deadline: float = math.inf
    max_norm: float = 1e6
    max_interactions: int | None = None
    minimum_replies: int = 1
    simulated: bool = True

    def __post_init__(self) -> None:
        require_range("minimum_replies", self.minimum_replies, least=1)
        require_range("close_fraction", self.close_fraction, above=0.0, most=1.0)
        require_range("minimum_fraction", self.minimum_fraction, above=0.0, most=1.0)
        require(self.deadline > 0.0, "value.out-of-range", f"must be above 0 seconds, got {self.deadline}", "deadline")
        require_range("max_norm", self.max_norm, above=0.0)

    def closing(self, cohort: int) -> RoundClosing:
        """Return the closing conditions for a cohort of this size, as numbers of replies."""
        replies, minimum = math.ceil(self.close_fraction * cohort), math.ceil(self.minimum_fraction * cohort)
        return RoundClosing(max(self.minimum_replies, replies), max(self.minimum_replies, minimum), self.deadline)

    def closes(self, replies: int, cohort: int, elapsed: float) -> bool:
        """Return whether a round of `cohort` clients closes with these replies after `elapsed` seconds."""
        return self.closing(cohort).closes(replies, elapsed)


class RoundClosing(NamedTuple):
    """Closing conditions of one round: `replies` at any time, or `minimum` after `deadline` seconds."""

    replies: int
    minimum: int
    deadline: float

    def closes(self, replies: int, elapsed: float) -> bool:
        """Return whether the round closes with these replies after `elapsed` seconds."""
        return replies >= self.replies or (elapsed >= self.deadline and replies >= self.minimum)


class Verdict(NamedTuple):
    """Outcome of one reply."""

    accepted: bool
    client: int | None  # None if the reply could not be decoded
    code: str = ""  # of the error it was refused with
    reason: str = ""  # the error's sentence, without any content of the reply


@dataclass(eq=False)
class Coordinator:
    """Server side of one run: `plan`, `receive`, `advance`.

    Args:
        federation: Parts of the federation.
        mechanism: Calibrated privacy mechanism of the run.
        state: State before the next round; replaced by the checkpoint in `storage`, if there is one.
        rounds: Planned number of rounds.
        run: Name of the run, which every reply must carry.
        seed: Seed of the cohorts; of a deployment, a secret.
        limits: Closing conditions and bounds on replies.
        storage: Storage of the checkpoint; without it a restart begins at round 0.
        clock: Monotonic seconds.
        reports: Reports of the rounds done.
        refused: Number of refused replies by error code.
        metric_response: Randomised metric that each device reports with its release.
        enrolled: Clients that may reply in open participation; may grow during the run.
        absent: Clients that have left, in no cohort.
    """

    federation: Federation
    mechanism: Mechanism
    state: State
    rounds: int
    run: str = "run"
    seed: Seed = 0
    limits: RoundLimits = field(default_factory=RoundLimits)
    storage: RoundStorage | None = None
    clock: Callable[[], float] = time.monotonic
    reports: list[Report] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    metric_response: MetricResponse | None = None
    enrolled: Container[int] | None = None
    absent: frozenset[int] = frozenset()
    _open: bool = field(default=False, init=False)
    _since: float = field(default=0.0, init=False)
    _cohort: frozenset[int] = field(default_factory=frozenset, init=False)
    _unavailable: set[int] = field(default_factory=set, init=False)  # of the cohort, without a reply
    _replies: AcceptedReplies = field(init=False)

    def __post_init__(self) -> None:
        self.federation.check_pair_memory(memory_bytes())
        sentence = "enrolled clients matter to open participation only, and this run draws its cohorts"
        require(self.enrolled is None or self._open_arrivals, "option.conflict", sentence, "enrolled")
        self._replies = self._no_replies()
        saved = None if self.storage is None else self.storage.load()
        if self.storage is not None and saved is not None:
            self._restore(saved, self.storage.where)

    @property
    def parameters(self) -> int:
        """Number of parameters of the ranker."""
        return len(self.state.theta)

    @property
    def done(self) -> bool:
        """True after the last round."""
        return self.state.round >= self.rounds

    @property
    def open(self) -> bool:
        """True while a round is open."""
        return self._open

    @property
    def cohort(self) -> frozenset[int]:
        """Clients of the open round; empty for open participation of enrolled clients."""
        return self._cohort

    @property
    def waiting(self) -> frozenset[int]:
        """Available clients of the cohort without an accepted reply."""
        return self._cohort.difference(self._replies.clients().tolist(), self._unavailable)

    @property
    def accepted_count(self) -> int:
        """Number of accepted replies of the open round."""
        return len(self._replies)

    @property
    def accepted(self) -> Integers:
        """Clients with an accepted reply to the open round, or to the last one until the next is planned."""
        return self._replies.clients()

    @property
    def ranker(self) -> Doubles:
        """Published parameters, (parameters,)."""
        return self.federation.ranker(self.state)

    @property
    def fewest_arrivals(self) -> int:
        """Replies without which a round of enrolled clients does not close."""
        return self.federation.participation.fewest(self.federation.clients)

    @property
    def closing(self) -> RoundClosing:
        """Closing conditions of the open round."""
        if self.enrolled is None:
            available = len(self._cohort) - len(self._unavailable)
            return self.limits.closing(available) if self._cohort else RoundClosing(0, 1, self.limits.deadline)
        fewest, deadline = self.limits.minimum_replies, self.federation.participation.seconds
        minimum = max(fewest, self.fewest_arrivals)
        return RoundClosing(max(fewest, self._capacity), minimum, min(self.limits.deadline, deadline))

    def plan(self, elapsed: float = 0.0) -> Task:
        """Open the next round, unless it is open, and return its task.

        Args:
            elapsed: Seconds since another coordinator opened the round, when this one takes over.
        """
        require(not self.done, "run.done", f"the run's {self.rounds} rounds are done")
        if not self._open:
            self._cohort, self._unavailable = self.members(self.state.round), set()
            self._open, self._since = True, self.clock() - elapsed
        return Task(self.run, self.state.round, self.state.theta, self.state.private)

    def set_unavailable(self, clients: Iterable[int]) -> None:
        """Wait for none of these clients and for all others; a reply of one of them still counts."""
        self._unavailable = {one for one in self._cohort.intersection(clients) if one not in self._replies}

    def members(self, round_: int, turns: TurnsTaken | None = None) -> frozenset[int]:
        """Return the cohort of a round, given the turns that clients took before it."""
        if self.enrolled is not None:
            return frozenset()
        federation = self.federation
        members = federation.participation.members(federation.clients, round_, self.seed, turns or self.state.turns)
        return frozenset(range(federation.clients) if members is None else members.tolist()) - self.absent

    def receive(self, content: bytes | Reply) -> Verdict:
        """Check one reply and count it if it is accepted."""
        client = None
        try:
            reply = content if isinstance(content, Reply) else decode_reply(content, self.parameters)
            client = reply.client
            self._check(reply)
        except BadInput as error:
            return self.count_refusal(error, client)
        self._replies.add(reply)
        self._unavailable.discard(client)
        return Verdict(True, client)

    def count_refusal(self, error: BadInput, client: int | None = None) -> Verdict:
        """Count a refusal by its code and return it as a verdict."""
        self.refused[error.code] = self.refused.get(error.code, 0) + 1
        return Verdict(False, client, error.code, str(error))

    def reply_limits(self, state: State) -> ReplyLimits:
        """Return the bounds on replies to the round after this state, for an intake without the coordinator's state."""
        if self._open_arrivals:
            replies = self._capacity
        elif state is self.state and self._open:
            replies = len(self._cohort)
        else:
            replies = len(self.members(state.round, state.turns))
        mechanism, size, metric = self.mechanism, len(state.theta), self.metric_response
        bound = mechanism.bound_of(state.private, size)
        numbers = self.limits.max_interactions or self.federation.interactions, self.limits.max_norm, replies
        sent = mechanism.unit_of(state.private), mechanism.weighted
        clip = (None, False) if bound is None else (bound.clip, bound.integers)
        steps = metric.steps if metric is not None else None if self.limits.simulated else 0
        return replace(ReplyLimits(self.run, state.round, size, *numbers, *sent, *clip), metric_steps=steps)

    def is_complete(self) -> bool:
        """Return whether the open round can close."""
        return self._open and self.closing.closes(self.accepted_count, self.clock() - self._since)

    def check_answerable(self) -> None:
        """Raise BadInput where no member can ever answer the open round; a round of a run waits for new members."""

    def advance(self) -> Report:
        """Close the complete round; on an OSError nothing has changed."""
        require(self.is_complete(), "round.not-complete", "the round is not complete")
        return self.close(self.cohort_sum())

    def cohort_sum(self) -> CohortSum:
        """Return the sum of the accepted replies.

        A reported metric takes the place of the simulated `ndcg`, as its unbiased mean over the cohort; so the checkpoint
        holds it.
        """
        found = self._replies.cohort_sum(self.state)
        if self.state.turns is not None:
            found = found._replace(members=self._replies.clients())
        if self.metric_response is not None and found.clients > 0:
            mean = self.metric_response.unbiased(found.ndcg, found.clients)
            found = found._replace(ndcg=mean * found.interactions)
        return found

    def close(self, cohort_sum: CohortSum) -> Report:
        """Close the round with a cohort's sum, of replies or of an in-process cohort."""
        state, report = self.federation.round(self.state, cohort_sum)
        for code in cohort_sum.dropped:
            self.count_refusal(BadInput(code, "a secure sum exceeds the bound of honest clients and is not used"))
        self._save(state, [*self.reports, report])
        self.state, self._open = state, False
        self.reports.append(report)
        if len(self._replies):
            self._replies = self._no_replies()
        return report

    def skip_rounds(self, rounds: int) -> None:
        """Count the next rounds as spent, without a step: they were published, and a restored backup does not hold them.

        The ledger counts each like the last known round, or as planned before the first.
        """
        left = self.rounds - self.state.round
        require(0 < rounds <= left, "value.out-of-range", f"{left} rounds of the run are left", "--skip")
        cohort = self.federation.participation.size(self.federation.clients)
        clip = self.federation.privacy.longest_update or math.nan
        noise = self.mechanism.least_multiplier * clip if clip > 0.0 else 0.0
        known = self.reports[-1][-3:] if self.reports else (cohort, clip, noise)
        unknown = 0, math.nan, math.nan, math.nan, math.nan
        spent = [Report(self.state.round + n, *unknown, *known) for n in range(1, rounds + 1)]
        state = replace(self.state, round=self.state.round + rounds)
        self._save(state, [*self.reports, *spent])
        self.state, self.reports = state, [*self.reports, *spent]

    def remove_clients(self, clients: Iterable[int]) -> None:
        """Continue without these clients, also in the open round, except for replies that it has accepted."""
        self.absent = self.absent.union(clients)
        self._cohort -= self.absent.difference(self._replies.clients().tolist())

    def replace_ranker(self, theta: Doubles) -> None:
        """Continue from another ranker between two rounds, forgetting all memory of optimiser and rule.

        On an OSError nothing has changed.
        """
        require(not self._open, "round.open", "a ranker is installed between two rounds; this one is open")
        require(theta.shape == self.state.theta.shape, "ranker.shape", "the ranker to install is of another shape")
        memory = self.federation.server.start(len(theta))
        if AVERAGE in memory:
            memory[AVERAGE] = theta.copy()
        state = replace(self.state, theta=theta, memory=memory, history=None, rule={})
        self._save(state, self.reports)
        self.state = state

    @property
    def _open_arrivals(self) -> bool:
        return self.federation.participation.open_arrivals

    @property
    def _capacity(self) -> int:
        """K, the most replies of a round of open participation."""
        return self.federation.participation.size(self.federation.clients)

    def _no_replies(self) -> AcceptedReplies:
        rule = self.federation.aggregation
        return AcceptedReplies(self.mechanism, self.parameters, keep_updates=rule.needs_single_updates)

    def _check(self, reply: Reply) -> None:
        """Refuse a reply that does not belong to the round, counts already, or is out of bounds."""
        require(self._open, "reply.no-open-round", "there is no open round; ask for a task first")
        require(reply.run == self.run, "reply.other-run", "the reply belongs to another run; fetch a new task")
        ahead = reply.round - self.state.round
        require(ahead <= 0, "reply.round-not-begun", "the reply is of a round that has not begun; fetch a new task")
        require(ahead == 0, "reply.round-over", "the reply is of a round that is over; fetch a new task")
        allowed = self._cohort if self.enrolled is None else self.enrolled
        member = reply.client in allowed and reply.client not in self.absent
        require(member, "reply.not-in-cohort", "this client is not in the round's cohort; wait for a task")
        fresh = reply.client not in self._replies
        require(fresh, "reply.replayed", "this client has replied to this task already; one reply counts")
        if self.state.turns is not None:
            # noise, unit and divisor of the sum are planned for at most K updates
            full = self.accepted_count >= self._capacity
            sentence = f"the round has its {self._capacity} replies; fetch a new task later"
            require(not full, "reply.round-full", sentence)
            self.federation.participation.turns.check(*self.state.turns.of(reply.client), self.state.round)
        self.reply_limits(self.state).check(reply)

    def _save(self, state: State, reports: list[Report]) -> None:
        if self.storage is not None:
            self.storage.save(CoordinatorCheckpoint(state, self.run, reports, self.refused))

    def _restore(self, saved: CoordinatorCheckpoint, where: str) -> None:
        """Continue from a checkpoint, which `where` names."""
        same = saved.run == self.run and saved.state.theta.shape == self.state.theta.shape
        sentence = "the checkpoint is of another run; choose another folder"
        require(same, "checkpoint.other-run", sentence, where)
        turns = saved.state.turns
        fault = "" if turns is None else turns_fault(turns, saved.state.round)
        if (turns is None) != (self.state.turns is None):
            fault = fault or "turns missing"
        require(not fault, "file.damaged", f"damaged ({fault}); restore it from a copy", where)
        self.mechanism.check_memory(saved.state.private)
        self.state, self.reports, self.refused = saved.state, saved.reports, saved.refused
