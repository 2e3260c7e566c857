"""In-process engine: plays cohorts on all cores, in memory that does not grow with the number of clients.

Small cohorts play several rounds in one compiled call, because ten clients learn faster than Python closes a round. The
updates of a cohort depend on θ and the round alone; if only a mean and a server step lie between two rounds, the next θ can
be predicted. `play` closes the rounds up to the next evaluation together, on arrays. A predicted round counts only if its θ
equals the predicted one bit by bit, and is played again otherwise. No result changes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from threading import local
from typing import Any, NamedTuple

import numpy as np

from quorank.data.partition.shares import LogReplay
from quorank.errors import BadInput, require, require_range
from quorank.federation.attacks.attack import AttackedRule
from quorank.federation.combinations import check_equal_shares, check_no_shares_missing
from quorank.federation.participation import TurnsTaken
from quorank.federation.personal import Split
from quorank.federation.reply import Reply, Task
from quorank.federation.rounds import CohortSum, Federation, PlayedRounds, Report, Reports, RunningSum, State
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.kernels.compiled import Kernel
from quorank.kernels.draws import Purpose, key_of
from quorank.kernels.exact_sums import LARGEST_SUM, add_rows, join
from quorank.learning.client_loop import (
    STATISTICS,
    Cohort,
    LoopPlan,
    Memory,
    Privatise,
    Simulation,
    Work,
    World,
    count_judged,
    memory_for,
)
from quorank.privacy import Mechanism, Setting
from quorank.privacy.mechanisms.randomised_response import metric_values

Sent = Callable[[Integers, Doubles], None]
"""Observer of the updates of a cohort, (clients, parameters), before privacy; it may change them."""

ROWS_BYTES = 1 << 19
"""Bytes of a chunk's updates, which are summed while still in cache."""

THREAD_MICROSECONDS = 140.0
"""Work below which a thread is not woken."""

MOST_AHEAD, MOST_AHEAD_BYTES = 2048, 1 << 19
"""Limits on interactions and result bytes of one call for several rounds: milliseconds, and the size of the cache."""


class _Play(NamedTuple):
    """State shared by the clients of a round."""

    state: State
    members: Integers | None
    personal: Doubles | None  # of all clients, for the next round; each writes its own row
    carried: Doubles | None  # the same of their momentum
    rows: Doubles | None  # of the whole cohort, where updates are looked at one by one
    sent: Sent | None = None


@dataclass(eq=False)
class Simulator:
    """Engine that plays the cohorts of a federation in this process; neither `threads` nor `chunk` changes a bit."""

    federation: Federation
    simulation: Simulation
    threads: int = 1
    chunk: int | None = None  # clients per call of the kernel; by default what fits the cache
    rounds: int | None = None  # rounds of the whole run, for which privacy is planned
    interactions: Integers | None = None  # (clients,) per round, if clients differ in their number of searches
    replay: LogReplay | None = None  # schedule of a replayed log
    absent: tuple[int, ...] = ()  # clients that have left; the others keep their numbers and draws
    _pool: ThreadPoolExecutor | None = field(default=None, init=False, repr=False)
    _own: local = field(default_factory=local, init=False, repr=False)
    _judged: tuple[int, Doubles] = field(default=(0, np.empty(0)), init=False, repr=False)  # shares from a round on

    def __post_init__(self) -> None:
        require_range("threads", self.threads, least=1)
        if self.chunk is not None:
            require_range("chunk", self.chunk, least=1)
        privacy, federation = self.federation.privacy, self.federation
        unequal = self.interactions is not None and len(set(self.interactions.tolist())) > 1
        unequal |= self.replay is not None
        missing = bool(self.absent) and not federation.everyone
        check_equal_shares(privacy, unequal)
        check_no_shares_missing(privacy, missing)

    @cached_property
    def world(self) -> World:
        return self.simulation.world()

    @cached_property
    def setting(self) -> Setting:
        """Privacy setting of the run; if clients differ in their number of searches, the busiest counts."""
        federation, simulation = self.federation, self.simulation
        setting = federation.setting(self.rounds or 1, simulation.parameters, simulation.k + 1)
        present = setting.clients - len(self.absent)
        busiest = federation.interactions if self.interactions is None else int(self.interactions.max())
        busiest = busiest if self.replay is None else self.replay.busiest
        if setting.open_arrivals:
            return replace(setting, interactions=busiest)  # its noise is planned for K replies
        return replace(setting, clients=present, cohort=min(setting.cohort, present), interactions=busiest)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Privacy mechanism, calibrated for all rounds."""
        return self.federation.privacy.mechanism(self.setting, self.simulation.seed)

    def initial(self) -> State:
        """The state before the first round."""
        simulation = self.simulation
        theta = simulation.ranker.initial(simulation.data.n_features, simulation.seed)
        personal = None if self._split is None else np.zeros((self.federation.clients, len(theta)))
        carried = None if self.federation.client_momentum == 0.0 else np.zeros((self.federation.clients, len(theta)))
        first = self.federation.start(theta)
        return replace(first, private=self.mechanism.start(), personal=personal, carried=carried)

    @cached_property
    def _split(self) -> Split | None:
        """Division of an update between the shared ranker and the client's offset; None if clients keep nothing."""
        personal, simulation = self.federation.personal, self.simulation
        return personal.split(simulation.ranker, simulation.data.n_features) if personal.keeps_parameters else None

    def warm(self, state: State) -> None:
        """Compile or load the kernels of a round, so that the first round is timed like the others."""
        if self._ahead is not None:
            self._ahead.warm(state)
            return
        nobody = np.empty(0, dtype=np.int64)
        self._play(_Play(state, nobody, None, None, None), (0, 0), self.gathering())

    def members(self, round_: int, taken: TurnsTaken | None = None) -> Integers | None:
        """Return the cohort of a round (from 0) without clients that have left; None means all clients."""
        return self._present(self._drawn(round_, taken))

    def _drawn(self, round_: int, taken: TurnsTaken | None) -> Integers | None:
        """Return the cohort of a round, including clients that have left."""
        federation = self.federation
        if self.replay is not None:
            return self.replay.turns(round_)[0]
        return federation.participation.members(federation.clients, round_, self.simulation.seed, taken)

    def _present(self, members: Integers | None) -> Integers | None:
        if not self.absent:
            return members
        everyone = np.arange(self.federation.clients) if members is None else members
        return everyone[~np.isin(everyone, self.absent)]

    def play(self, state: State, most: int = 1, sent: Sent | None = None) -> tuple[State, Report | Reports]:
        """Play the round after this state, or up to `most` rounds if only a mean and a server step lie between them."""
        if most > 1 and sent is None and self._ahead is not None and self._ahead.stacks:
            self._check(state)
            closed = self.federation.rounds(state, self._ahead.play_rounds(state, most))
            if closed is not None:
                return closed
        return self.federation.round(state, self.gather(state, sent=sent))

    def gather(
        self, state: State, beside: Doubles | None = None, sent: Sent | None = None, members: Integers | None = None
    ) -> CohortSum:
        """Play the round's cohort from state.theta and sum up its releases.

        `beside` is what the canary clients of an audit add to the sum, before the coordinator adds its noise; `sent` is
        shown what each client sends; `members` is a cohort to take instead of the round's own.
        """
        federation, size = self.federation, self.simulation.parameters
        self._check(state)
        ahead = self._ahead if beside is None and members is None else None
        played = None if ahead is None else ahead.play(state)
        if played is not None and sent is None:
            return played.gathered
        came = members
        if members is None:
            came = self._drawn(state.round, state.turns)  # leavers too: who else comes does not change when they go
            members = self._present(came)
        count = federation.clients if members is None else len(members)
        step = self._step(count)
        spans = [(start, min(start + step, count)) for start in range(0, count, step)]
        personal = None if state.personal is None else state.personal.copy()
        carried = None if state.carried is None else state.carried.copy()
        alone = federation.aggregation.needs_single_updates or federation.attack is not None or sent is not None
        rows = np.empty((count, size + STATISTICS)) if alone else None
        if played is not None:
            rows, spans = played.rows, []
        play = _Play(state, members, personal, carried, rows, sent)
        if self.threads == 1 or len(spans) <= 1:
            gathering = self.gathering()
            for span in spans:
                self._play(play, span, gathering)
        else:
            gathering = self._gather_in_threads(play, spans)
        weights = None
        if rows is not None:
            clients = np.arange(count) if members is None else members
            interactions = self._interactions(clients, state.round)
            weights = interactions.astype(np.float64)
            self._send(play, clients, rows, interactions, gathering)
        updates = None if rows is None else rows[:, :size]
        gathered = gathering.close(state, canaries=beside, updates=updates, weights=weights, personal=personal)
        gathered = gathered._replace(carried=carried)
        return gathered if state.turns is None else gathered._replace(members=came)

    def _check(self, state: State) -> None:
        """Refuse a ranker of another size and rounds beyond those that privacy is planned for."""
        size = self.simulation.parameters
        if state.theta.shape != (size,):
            raise BadInput("ranker.wrong-size", f"this ranker has {size} parameters, got {state.theta.shape}")
        if state.round >= (self.rounds or 1) and not self.mechanism.sums_as_sent:
            sentence = f"privacy is planned for {self.rounds or 1} rounds, and they are done; plan a longer run"
            raise BadInput("privacy.rounds-exceeded", sentence)

    def _step(self, count: int) -> int:
        """Clients per kernel call: a share for each busy thread, within ROWS_BYTES."""
        fitting = ROWS_BYTES // (8 * (self.simulation.parameters + STATISTICS))
        work = count * self.federation.interactions * self.simulation.microseconds
        busy = max(1, min(self.threads, int(work / THREAD_MICROSECONDS)))
        return self.chunk or max(1, min(fitting, -(-count // busy)))

    @cached_property
    def _ahead(self) -> _RoundsAhead | None:
        """Player of several rounds in one call, for small cohorts with a plain mean."""
        federation, count = self.federation, self.federation.clients
        if count > self._step(count) or not self.mechanism.sums_as_sent or not _can_play_ahead(federation):
            return None
        if self.replay is not None:
            return None
        clients = np.setdiff1d(np.arange(count), self.absent)
        given = federation, self.simulation, self.world, clients, self._interactions(clients, 0)
        found = _RoundsAhead(*given, self.rounds)
        return None if found.loop_plan(self.initial()) is None else found

    def replies(
        self,
        task: Task,
        clients: Integers,
        carried: Doubles | None = None,
        sent: Callable[[Doubles], object] | None = None,
    ) -> list[Reply]:
        """Return these clients' replies to a task: the clients' side of a round, for any transport.

        `carried` (clients, parameters), with `client_momentum` only, is what each carries on of its updates before the
        round; it is changed in place to what each carries on after it. `sent` is shown the updates before privacy.
        """
        sentence = "attackers collude, so they are simulated in process only"
        require(self.federation.attack is None, "simulator.attack-on-network", sentence)
        sentence = "a log is replayed in process only"
        require(self.replay is None, "simulator.replay-on-network", sentence, "partition.order")
        sentence = "personal parameters are kept by simulated clients in process only"
        require(self._split is None, "simulator.personal-on-network", sentence)
        sentence = "with client_momentum a reply depends on what its client has sent before, which is not given here"
        given = carried is not None or self.federation.client_momentum == 0.0
        require(given, "simulator.momentum-missing", sentence, "client_momentum")
        state = State(task.round, task.theta, {}, task.private)
        rows = np.empty((len(clients), self.simulation.parameters + STATISTICS))
        self._play(_Play(state, clients, None, None, rows), (0, len(clients)), self.gathering())
        updates, interactions = rows[:, : self.simulation.parameters], self._interactions(clients, task.round)
        if carried is not None:
            updates += self.federation.client_momentum * carried
            carried[:] = updates
        if sent is not None:
            sent(updates)
        found = []
        for at, client in enumerate(clients):
            one = slice(at, at + 1)
            within = self.mechanism.release(updates[one], task.theta, task.round, clients[one], task.private)
            first, second, third = rows[at, -STATISTICS:].tolist()
            release = updates[at].copy(), int(interactions[at]), bool(within), (first, second, third)
            found.append(Reply(task.run, task.round, int(client), *release))
        return found

    @cached_property
    def _all_judged(self) -> bool:
        return bool((self.world.ideal > 0.0).all())

    def judged_shares(self, state: State, rounds: int) -> Doubles | None:
        """Return (rounds,) the share of interactions whose query has a relevant document; None if each query has one.

        Several rounds after a state have the same cohort.
        """
        if self._all_judged:
            return None
        first, known = self._judged
        if not first <= state.round <= first + len(known) - rounds:
            members = self.members(state.round, state.turns)
            clients = np.arange(self.federation.clients) if members is None else members
            first, interactions = state.round, self._interactions(clients, state.round)
            searches = max(1, int(interactions.sum()))
            same = self.replay is None and self.federation.participation.everyone  # in every round
            known = np.zeros(max(rounds, MOST_AHEAD // searches if same else 0))
            count_judged(self._world_of(first), first, clients, interactions, known)
            known /= searches
            if same:
                self._judged = first, known
        return known[state.round - first : state.round - first + rounds].copy()

    def gathering(self) -> RunningSum:
        """Return an empty sum of a round's releases."""
        return RunningSum(self.mechanism, self.simulation.parameters)

    def _gather_in_threads(self, play: _Play, spans: list[tuple[int, int]]) -> RunningSum:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1)
        waiting = iter(spans)  # a list iterator yields each span once, also to several threads

        def work() -> RunningSum:
            mine = self.gathering()
            for span in waiting:
                self._play(play, span, mine)
            return mine

        others = [self._pool.submit(work) for _ in range(min(self.threads, len(spans)) - 1)]
        gathering = work()  # this thread works too: it need not be woken
        for other in others:
            gathering.merge(other.result())
        return gathering

    def _play(self, play: _Play, span: tuple[int, int], gathering: RunningSum) -> None:
        """Play the clients of a span and add their releases, unless updates are needed one by one."""
        state, members = play.state, play.members
        clients = np.arange(*span) if members is None else members[span[0] : span[1]]
        own = slice(*span) if members is None else clients  # rows of an array of all clients
        rows, interactions = self._chunk_arrays(clients, state.round)
        if play.rows is not None:
            rows = play.rows[span[0] : span[1]]
        updates = rows[:, : self.simulation.parameters]
        work = Work(
            self._world_of(state.round), self.simulation.seed, state.theta, state.round, clients, interactions,
            self._privatise, self.mechanism.bound, None if state.personal is None else state.personal[own],
            self.simulation.ranks,
        )  # fmt: skip
        self.federation.learner.updates(work, rows)
        if play.personal is not None and self._split is not None:
            split = self._split
            play.personal[own] = (1.0 - split.decay) * play.personal[own] + split.keep * updates
            updates *= split.send
        if play.carried is not None:
            updates += self.federation.client_momentum * play.carried[own]
            play.carried[own] = updates
        if play.rows is None:
            self._release(state, clients, rows, interactions, gathering)

    def _send(
        self, play: _Play, clients: Integers, rows: Doubles, interactions: Integers, gathering: RunningSum
    ) -> None:
        """Release the updates of a whole cohort, attackers included."""
        attack, size, state = self.federation.attack, self.simulation.parameters, play.state
        malicious = clients < (0 if attack is None else attack.clients)
        if attack is not None and malicious.any():
            key = key_of(self.simulation.seed, Purpose.ATTACK)
            rule = self._attacked_rule(state, interactions) if attack.knows_rule else AttackedRule()
            rows[:, :size] = attack.poison(rows[:, :size].copy(), malicious, state.theta, key, state.round, rule)
        if play.sent is not None:
            play.sent(clients, rows[:, :size])
        self._release(state, clients, rows, interactions, gathering, malicious if malicious.any() else None)

    def _attacked_rule(self, state: State, interactions: Integers) -> AttackedRule:
        """Return the aggregation rule as seen by attackers, without privacy."""
        federation, weights = self.federation, interactions.astype(np.float64)
        if not federation.aggregation.needs_single_updates:
            combine = federation.aggregation.combine
            return AttackedRule(lambda rows: combine(weights @ rows, float(weights.sum())))
        combined = partial(federation.combined, state, weights=weights)
        return AttackedRule(combined, state.history, federation.aggregation.history)

    def _release(
        self,
        state: State,
        clients: Integers,
        rows: Doubles,
        interactions: Integers,
        gathering: RunningSum,
        malicious: Booleans | None = None,
    ) -> None:
        """Turn updates into releases and add them; malicious clients may replace theirs."""
        updates = rows[:, : self.simulation.parameters]
        within = self.mechanism.release(updates, state.theta, state.round, clients, state.private)
        if malicious is not None and self.federation.attack is not None:
            key = key_of(self.simulation.seed, Purpose.ATTACK)
            lies = self.federation.attack.lie(updates, malicious, clients, self.mechanism, key, state.round)
            if lies is not None:
                self.mechanism.resend(lies, state.round, clients[malicious])
                self.mechanism.check(lies, clients[malicious], state.private)
                updates[malicious] = lies
        gathering.add(clients, rows, interactions, within)

    def _world_of(self, round_: int) -> World:
        """Return the world of a round; in a replayed log each client's queries continue where it stopped."""
        if self.replay is None or round_ >= self.replay.rounds:
            return self.world
        clients, first, _ = self.replay.turns(round_)
        each = np.arange(self.federation.clients, dtype=np.int64)
        begins = np.zeros_like(each)
        begins[clients] = first
        return self.world._replace(group=each, first_query=begins, query_count=np.full_like(each, -1))

    def _interactions(self, clients: Integers, round_: int) -> Integers:
        """Return the number of interactions of each client in a round."""
        if self.replay is not None:
            turns, _, counts = self.replay.turns(round_)
            return counts[np.searchsorted(turns, clients)]
        if self.interactions is None:
            return np.full(len(clients), self.federation.interactions)
        return self.interactions[clients]

    def _chunk_arrays(self, clients: Integers, round_: int) -> tuple[Doubles, Integers]:
        """Return arrays for updates and interactions of a chunk, reused by this thread."""
        own, count = self._own, len(clients)
        if getattr(own, "count", -1) < count:
            own.count = count
            own.rows = np.empty((count, self.simulation.parameters + STATISTICS))
            own.alike = np.full(count, self.federation.interactions)
        if self.replay is not None:
            return own.rows[:count], self._interactions(clients, round_)
        searched = own.alike[:count] if self.interactions is None else self.interactions[clients]
        return own.rows[:count], searched

    @cached_property
    def _privatise(self) -> Privatise | None:
        privacy, learner, seed = self.federation.privacy, self.federation.learner, self.simulation.seed
        if not privacy.protects_metric:
            return None
        values = metric_values(learner.metric, self.simulation.k)
        return lambda measured, round_, clients: privacy.privatise(measured, values, seed, round_, clients)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


# ---------------------------------------------------------------- several rounds in one call


def _can_play_ahead(federation: Federation) -> bool:
    """Tell if only a mean and a step lie between rounds, and a call holds at least two of them."""
    return (
        2 * federation.clients * federation.interactions <= MOST_AHEAD
        and federation.server.recursion(1, federation.server.start(1)) is not None
        and federation.participation.everyone
        and federation.aggregation.divides_sums
        and not federation.personal.keeps_parameters
        and federation.client_momentum == 0.0
        and federation.attack is None
    )


class _RoundsPlan(NamedTuple):
    """Server step, θ ← θ + step·m with m ← β·m + mean, and the results of the rounds."""

    step: float
    beta: float
    momentum: Doubles
    weights: Doubles  # (clients,)
    thetas: Doubles  # (rounds, parameters) θ before each round
    momenta: Doubles  # (rounds, parameters) m before each round
    sums: Doubles  # (rounds, parameters + STATISTICS)
    rows: Doubles  # (rounds, clients, parameters + STATISTICS)
    memory: Memory


@cache
def _rounds_loop(loop: Callable[..., None]) -> Callable[[World, Cohort, Any, _RoundsPlan], int]:
    """Return the compiled loop over rounds around the loop of a learner."""

    def play_rounds(world: World, cohort: Cohort, rule: Any, plan: _RoundsPlan) -> int:
        """Play rounds from `cohort.round` on; stop before one whose sum would not be exact, return the number played."""
        theta, size, width, weight = cohort.theta, len(cohort.theta), plan.sums.shape[1], plan.weights.sum()
        coarse = np.empty(width, dtype=np.int64)
        fine = np.empty(width, dtype=np.int64)
        for t in range(len(plan.sums)):
            for j in range(size):
                plan.thetas[t, j] = theta[j]
                plan.momenta[t, j] = plan.momentum[j]
            this = Cohort(
                theta, cohort.round + t, cohort.clients, cohort.interactions, cohort.offsets, np.inf, cohort.batched,
                cohort.pull,
            )  # fmt: skip
            loop(world, this, rule, plan.memory, plan.rows[t])
            for j in range(width):
                coarse[j] = 0
                fine[j] = 0
            bad, reach = add_rows(plan.rows[t], plan.weights, size, coarse, fine)
            if bad >= 0 or reach >= LARGEST_SUM:
                return t
            for j in range(width):
                plan.sums[t, j] = join(coarse[j], fine[j])
            for j in range(size):
                plan.momentum[j] = plan.beta * plan.momentum[j] + plan.sums[t, j] / weight
                theta[j] += plan.step * plan.momentum[j]
        return len(plan.sums)

    return Kernel(play_rounds)


class _Call(NamedTuple):
    """Rounds of one call, played from predicted θ."""

    first: int
    played: PlayedRounds
    rows: Doubles  # (rounds, clients, parameters + STATISTICS)


class _PlayedRound(NamedTuple):
    """Round that was played from a predicted θ."""

    gathered: CohortSum
    rows: Doubles  # (clients, parameters + STATISTICS)


@dataclass(eq=False)
class _RoundsAhead:
    """Player of a cohort that is the same in every round; plays further ahead while rounds come in order."""

    federation: Federation
    simulation: Simulation
    world: World
    clients: Integers
    interactions: Integers
    rounds: int | None = None  # of the whole run
    _call: _Call | None = field(default=None, init=False, repr=False)
    _used: int = field(default=0, init=False, repr=False)  # rounds of the call that were returned, each once

    @cached_property
    def stacks(self) -> bool:
        """True if rounds can be closed together."""
        recursion = self.federation.server.recursion(1, self.federation.server.start(1))
        return recursion is not None and recursion.stacks

    def play(self, state: State) -> _PlayedRound | None:
        """Return the round of this state; None if its sum would not be exact, so that playing it alone reports why."""
        call, at = self._next(state, 1)
        if at == len(call.rows):
            return None
        played, size = call.played, len(state.theta)
        sums, weight = played.sums[at], float(played.interactions)
        ndcg, reciprocal, clicks = sums[size:].tolist()
        statistics = played.interactions, ndcg, reciprocal, clicks
        return _PlayedRound(CohortSum(sums[:size], weight, played.clients, *statistics, state.private), call.rows[at])

    def play_rounds(self, state: State, most: int) -> PlayedRounds:
        """Return up to `most` rounds from this state on; none if the first sum would not be exact."""
        call, at = self._next(state, most)
        thetas, momenta, sums, *counts = call.played
        taken = slice(at, self._used)
        return PlayedRounds(thetas[taken], momenta[taken], sums[taken], *counts)

    def _next(self, state: State, most: int) -> tuple[_Call, int]:
        """Return a call and the index of this state's round in it; up to `most` rounds from it on count as used."""
        call, at = self._call, self._used
        is_next = call is not None and state.round == call.first + at
        if call is None or not is_next or at == len(call.rows) or not _same_bits(call.played.thetas[at], state.theta):
            doubled = 2 * at if call is not None and is_next and at == len(call.rows) else 1
            call, at = self._play(state, doubled), 0
        self._call, self._used = call, min(at + most, len(call.rows))
        return call, at

    def _play(self, state: State, count: int) -> _Call:
        """Play this round and those after it, `count` in all if there are so many."""
        first, width, clients = state.round, len(state.theta) + STATISTICS, len(self.clients)
        searches = int(self.interactions.sum())
        most = min(MOST_AHEAD // max(1, searches), MOST_AHEAD_BYTES // (8 * width * clients))
        if self.rounds is not None:
            most = min(most, self.rounds - first)
        thetas, momenta, sums, rows = self._run(state, max(1, min(count, most)))
        return _Call(first, PlayedRounds(thetas, momenta, sums, clients, searches), rows)

    def warm(self, state: State) -> None:
        """Compile, or load from the cache."""
        self._run(state, 0)

    def loop_plan(self, state: State) -> LoopPlan | None:
        """Return the learner's loop over the clients from a copy of θ."""
        given = self.simulation.seed, state.theta.copy(), state.round, self.clients, self.interactions
        return self.federation.learner.loop_plan(Work(self.world, *given, ranks=self.simulation.ranks))

    def _run(self, state: State, count: int) -> tuple[Doubles, ...]:
        size, world = len(state.theta), self.world
        learner, recursion = self.loop_plan(state), self.federation.server.recursion(size, state.memory)
        assert learner is not None and recursion is not None
        thetas, momenta, sums = (np.empty((count, width)) for width in (size, size, size + STATISTICS))
        rows, weights = np.empty((count, len(self.clients), size + STATISTICS)), self.interactions.astype(np.float64)
        plan = _RoundsPlan(*recursion[:3], weights, thetas, momenta, sums, rows, memory_for(world))
        done = _rounds_loop(learner.loop)(world, learner.cohort, learner.rule, plan)
        return thetas[:done], momenta[:done], sums[:done], rows[:done]


def _same_bits(a: Doubles, b: Doubles) -> bool:
    return a.tobytes() == b.tobytes()
