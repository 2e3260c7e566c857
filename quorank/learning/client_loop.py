"""The loop over the interactions of a cohort's simulated clients: draw query → score → show → click → measure → learn.

`client_loop` compiles the loop around two kernels of a learner:

    show(rule, world, impression, theta, buffers) -> rest
    learn(rule, world, impression, rest, first, theta, buffers) -> bool

`show` fills buffers.shown and returns what `sample_list` does. `learn` moves the client's own `theta` in place and returns
True if it did; `first` is the rank of the first click from 0, or −1. `rule` is a named tuple of the learner's settings and
scratch arrays.

Lists of SIDE_BY_SIDE clients are scored together, and the next lists are prefetched in between: most of a list's time is
spent waiting for memory. Neither changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.kernels.arrays import Doubles, Floats, Integers, Uint64s
from quorank.kernels.compiled import Kernel, fixed_memory_kernel
from quorank.kernels.draws import Address, Purpose, key_of, uniform_pair
from quorank.learning.plackett_luce import LINE, Buffers, ask_ahead, buffers_for
from quorank.metrics.evaluator import ideal_dcg
from quorank.metrics.lists import discounts, gain
from quorank.rankers import Ranker
from quorank.rankers.scoring import add_gradients, ask_for, pack, packed_size, score_lists, width_of
from quorank.users import ClickModel
from quorank.users.click_model import ClickArrays, click_list, stack_tables

Privatise = Callable[[Doubles, int, Integers], Doubles]
"""Local privacy of the numbers that clients send: (measurements, round, clients) → what leaves them."""

STATISTICS = 3
"""Columns behind a client's update: Σ nDCG@10 of its lists, Σ MaxRR of its clicks, number of clicks."""

JUDGED = 10
"""Online nDCG is nDCG@10 of the list that was shown, however long that is."""


class World(NamedTuple):
    """Data, users and a ranker's shape, as compiled loops read them."""

    padded: Floats  # (documents, stride) features padded with zeros
    offsets: Integers  # (queries + 1,) first row of each query's candidates
    ideal: Doubles  # (queries,) DCG@10 of the best list, 0 where nothing is relevant
    discount: Doubles  # (k,)
    gain: Doubles  # (128,) by label
    users: ClickArrays
    group: Integers  # (clients,) group of queries that a client submits; of length 1 where all are alike
    first_query: Integers  # (groups,)
    query_count: Integers  # (groups,) below 0: a client's queries follow each other instead of being drawn
    click_model: Integers  # (clients,) or of length 1; −1 draws one of the first `drawn` for each interaction
    drawn: int
    query_key: Uint64s
    ranking_key: Uint64s
    n_features: int
    hidden: int  # the ranker's `layer`
    k: int  # documents shown
    longest: int  # documents of the longest list


@dataclass(frozen=True, eq=False)
class ClientDifferences:
    """Differences between clients: their queries and their click models."""

    group: Integers  # (clients,)
    first_query: Integers  # (groups,)
    query_count: Integers  # (groups,)
    click_model: Integers  # (clients,) an index into the models, or −1 for one drawn per interaction
    click_models: tuple[ClickModel, ...]
    drawn: int = 1  # number of models that −1 draws from


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated clients that submit random queries of `data` and click like `users`; draws are addressed by `seed`.

    Args:
        data: Lists that clients search.
        ranker: Scoring function.
        users: Click model.
        grades: Grades of relevance: 2, 3 or 5.
        seed: Seed of the draws.
        k: Number of shown documents.
        who: Differences between clients; None if all are alike.
        ranks: (rows,) rank of each document, if lists and clicks are replayed.

    >>> from quorank.rankers import Linear
    >>> from quorank.users import Cascade
    >>> lists = RankingData.from_rows([[0.2], [0.8]], labels=[0, 1])
    >>> Simulation(lists, Linear(), Cascade("perfect"), grades=2, seed=1).world().n_features
    1
    """

    data: RankingData
    ranker: Ranker
    users: ClickModel
    grades: int
    seed: int
    k: int = 10
    who: ClientDifferences | None = None
    ranks: npt.NDArray[np.int16] | None = None

    @cached_property
    def inputs(self) -> RankingData:
        """The lists as the ranker scores them."""
        return self.ranker.prepared(self.data)

    def world(self) -> World:
        """Return the arrays that cohort kernels read."""
        data = self.inputs
        require(data.n_queries >= 1, "simulation.no-query", "there is no query to search for")
        alike = np.zeros(1, dtype=np.int64)
        who = self.who or ClientDifferences(alike, alike, np.array([data.n_queries]), alike, (self.users,))
        tables = [model.tables(self.grades, self.k) for model in who.click_models]
        lowest, highest = int(data.labels.min(initial=0)), data.max_label
        grades = min(table.click.shape[-1] for table in tables)
        outside = f"labels must lie in 0..{grades - 1} for these users, got {lowest}..{highest}"
        require(lowest >= 0 and highest < grades, "simulation.label-out-of-range", outside)
        require((who.query_count >= 1).all(), "simulation.no-query", "a client has no query to search for")
        return World(
            data.padded,
            data.offsets,
            ideal_dcg(data, JUDGED),
            discounts(self.k),
            gain(np.arange(128)),
            ClickArrays(data.labels, *stack_tables(tables), key_of(self.seed, Purpose.CLICK)),
            np.asarray(who.group, dtype=np.int64),
            np.asarray(who.first_query, dtype=np.int64),
            np.asarray(who.query_count, dtype=np.int64),
            np.asarray(who.click_model, dtype=np.int64),
            who.drawn,
            key_of(self.seed, Purpose.QUERY),
            key_of(self.seed, Purpose.RANKING),
            data.n_features,
            self.ranker.layer,
            self.k,
            data.longest,
        )

    @cached_property
    def parameters(self) -> int:
        return self.ranker.size(self.data.n_features)

    @cached_property
    def microseconds(self) -> float:
        """Estimated microseconds per interaction: drawing and learning, and scoring the candidates."""
        documents = self.data.n_rows / max(1, self.data.n_queries)
        return 1.0 + documents * self.parameters / 10_000


class Work(NamedTuple):
    """Work of some clients of a cohort in one round, all starting from the same θ."""

    world: World
    seed: int
    theta: Doubles
    round: int
    clients: Integers
    interactions: Integers  # n_c, one per client
    privatise: Privatise | None = None
    bound: float = math.inf  # clients clip their parameters to this L2 norm after each local step
    offsets: Doubles | None = None  # (clients, parameters) each client's personal addition to θ
    ranks: npt.NDArray[np.int16] | None = None  # (rows,) rank of each document, if lists and clicks are replayed


SIDE_BY_SIDE = 4
"""Clients whose lists are scored together."""

LINES_PER_STEP = 20
"""Cache lines of a client's next list that are prefetched before each step on its present one."""

NO_OFFSETS = np.zeros((0, 0))


class Cohort(NamedTuple):
    """Clients of one call and how their parameters move."""

    theta: Doubles  # θ of the round
    round: int
    clients: Integers
    interactions: Integers  # (clients,)
    offsets: Doubles  # (clients, parameters) added to θ for each client, or of length 0
    bound: float  # L2 norm to which parameters are clipped after each interaction (FPDGD eq. 13)
    batched: bool  # lists are scored by the θ that the client began with
    pull: float  # η·μ: each interaction moves θ so far towards where the client began


class LoopPlan(NamedTuple):
    """Compiled loop of a learner and its arguments, which are the same in every round but for θ and the round's number."""

    loop: Callable[..., None]
    cohort: Cohort
    rule: Any


class Impression(NamedTuple):
    """Query of one client, with the candidates' scores."""

    at: int  # index of the client in its cohort
    address: Address
    start: int  # row of the first candidate
    n: int  # candidates
    k: int  # documents shown
    scores: Floats  # (≥ n,)
    packed: Floats  # parameters that scored the list


class Layout(NamedTuple):
    """Candidates' features and the shape of the ranker that scores them."""

    padded: Floats  # (documents, stride)
    n_features: int
    hidden: int  # the ranker's `layer`


class _Lists(NamedTuple):
    """Lists of some clients side by side; a length of 0 where a client is done."""

    queries: Integers
    models: Integers  # click model of each user
    starts: Integers
    lengths: Integers


class Memory(NamedTuple):
    """Arrays of one call of a loop, allocated before it."""

    start_packed: Floats  # (packed,) θ of the round
    packed: Floats  # (SIDE_BY_SIDE, packed)
    scores: Floats  # (SIDE_BY_SIDE, longest)
    lists: _Lists
    following: _Lists
    buffers: Buffers


def memory_for(world: World) -> Memory:
    """Allocate the arrays of a call."""
    size, lists = packed_size(world.hidden, world.padded.shape[1]), np.zeros((8, SIDE_BY_SIDE), dtype=np.int64)
    return Memory(
        np.zeros(size, dtype=np.float32),
        np.zeros((SIDE_BY_SIDE, size), dtype=np.float32),
        np.zeros((SIDE_BY_SIDE, world.longest), dtype=np.float32),
        _Lists(*lists[:4]),
        _Lists(*lists[4:]),
        buffers_for(world.longest, width_of(world.hidden), world.padded, min(world.k, world.longest)),
    )


def cohort_of(work: Work, *, batched: bool = False, pull: float = 0.0) -> Cohort:
    """Return the arrays of a cohort's work."""
    offsets = NO_OFFSETS if work.offsets is None else work.offsets
    return Cohort(work.theta, work.round, work.clients, work.interactions, offsets, work.bound, batched, pull)


@fixed_memory_kernel
def draw_query(world: World, address: Address) -> tuple[int, int]:
    """Draw (query, click model) of an interaction."""
    u, v = uniform_pair(world.query_key, 0, address.interaction, address.client, address.round)
    group = world.group[address.client if len(world.group) > 1 else 0]
    model = world.click_model[address.client if len(world.click_model) > 1 else 0]
    if model < 0:
        model = int(v * world.drawn)
    count = world.query_count[group]
    return world.first_query[group] + (address.interaction if count < 0 else int(u * count)), model


@fixed_memory_kernel
def count_judged(world: World, first: int, clients: Integers, interactions: Integers, counts: Doubles) -> None:
    """Count into zeros (rounds,) the interactions of the rounds from `first` whose query has a relevant document."""
    for t in range(len(counts)):
        for c in range(len(clients)):
            for i in range(interactions[c]):
                query, _ = draw_query(world, Address(i, clients[c], first + t))
                counts[t] += world.ideal[query] > 0.0


@fixed_memory_kernel
def list_ndcg(world: World, query: int, shown: Integers, k: int) -> float:
    """nDCG@10 of the list shown, 0 where nothing is relevant (SPEC §1, online)."""
    ideal, start, total = world.ideal[query], world.offsets[query], 0.0
    if ideal <= 0.0:
        return 0.0
    for p in range(min(k, JUDGED, len(world.discount))):
        total += world.gain[world.users.labels[start + shown[p]]] * world.discount[p]
    return float(total / ideal)


@fixed_memory_kernel
def keep_within(theta: Doubles, bound: float) -> bool:
    """θ ← θ·min(1, bound/‖θ‖) (FPDGD eq. 13); True if that changed it."""
    total = 0.0
    for j in range(len(theta)):
        total += theta[j] * theta[j]
    length = math.sqrt(total)
    if length <= bound:
        return False
    for j in range(len(theta)):
        theta[j] *= bound / length
    return True


@fixed_memory_kernel
def follow_gradients(
    eta: float, layout: Layout, shown: Impression, count: int, theta: Doubles, buffers: Buffers
) -> None:
    """θ += η·Σ_p coefficients[p]·∇f(document at p) over the first `count` ranks of buffers.shown."""
    for p in range(count):
        buffers.coefficients[p] *= eta
    add_gradients(
        theta, shown.packed, layout.hidden, layout.n_features, layout.padded, shown.start, buffers.shown,
        buffers.coefficients, count, buffers.activation,
    )  # fmt: skip


@fixed_memory_kernel
def count_shown(rule: Any, world: World, start: int, n: int) -> int:
    """Return the number of documents shown: k, or all candidates of a shorter list."""
    return min(world.k, n)


@fixed_memory_kernel
def click_as_user(rule: Any, world: World, shown: Impression, model: int, buffers: Buffers) -> int:
    """Fill buffers.clicked by the user's click model; return the rank of the first click from 0, or −1."""
    return click_list(
        world.users, model, shown.address, shown.start, buffers.shown, shown.k, buffers.clicked, buffers.draws
    )  # fmt: skip


@fixed_memory_kernel
def _draw_lists(world: World, cohort: Cohort, base: int, i: int, lists: _Lists) -> None:
    """Draw the lists of interaction i of the clients from `base` on and prefetch their labels."""
    for g in range(SIDE_BY_SIDE):
        lists.lengths[g] = 0
        if base + g < len(cohort.clients) and i < cohort.interactions[base + g]:
            address = Address(i, cohort.clients[base + g], cohort.round)
            lists.queries[g], lists.models[g] = draw_query(world, address)
            start, stop = world.offsets[lists.queries[g]], world.offsets[lists.queries[g] + 1]
            lists.starts[g], lists.lengths[g] = start, stop - start
            ask_for(world.ideal, lists.queries[g])
            for at in range(start, stop, 4 * LINE):
                ask_for(world.users.labels, at)


@fixed_memory_kernel
def _prefetch_next(buffers: Buffers, lists: _Lists, g: int, stride: int) -> None:
    """Set list g as the range that `ask_ahead` prefetches."""
    buffers.wanted[0] = lists.starts[g] * stride
    buffers.wanted[1] = (lists.starts[g] + lists.lengths[g]) * stride


def client_loop(
    show: Callable[..., Any],
    learn: Callable[..., Any],
    click: Callable[..., Any] = click_as_user,
    count: Callable[..., Any] = count_shown,
    *,
    scored: bool = True,
    cached: bool = True,
) -> Callable[[World, Cohort, Any, Memory, Doubles], None]:
    """Return the compiled loop of a learner.

    Args:
        show: Kernel that draws a list, see the module.
        learn: Kernel that learns from a clicked list, see the module.
        click: Kernel `(rule, world, impression, model, buffers) -> first` that fills buffers.clicked.
        count: Kernel `(rule, world, start, n) -> k`.
        scored: Lists are scored before `show`; False for learners that score by rankers of their own.
        cached: The loop may be kept on disk; False for kernels of other packages, whose changes are not noticed.

    Returns:
        `play(world, cohort, rule, memory, rows)`, which fills rows[i, :d] with the update of each client, its distance from
        where it began, and rows[i, d:] with its STATISTICS.
    """

    def play_clients(world: World, cohort: Cohort, rule: Any, memory: Memory, rows: Doubles) -> None:
        size, hidden, n_features, stride = len(cohort.theta), world.hidden, world.n_features, world.padded.shape[1]
        clients, interactions, personal = cohort.clients, cohort.interactions, cohort.offsets.shape[0] > 0
        start_packed, packed, scores, buffers = memory.start_packed, memory.packed, memory.scores, memory.buffers
        lists, following = memory.lists, memory.following
        pack(cohort.theta, hidden, n_features, stride, start_packed)
        _draw_lists(world, cohort, 0, 0, following)
        for base in range(0, len(clients), SIDE_BY_SIDE):
            side, most = min(SIDE_BY_SIDE, len(clients) - base), 0
            for g in range(side):
                most = max(most, interactions[base + g])
                for j in range(size):
                    rows[base + g, j] = cohort.theta[j]  # the client's own θ while it learns, its update at the end
                for j in range(size, size + STATISTICS):
                    rows[base + g, j] = 0.0
                for j in range(len(start_packed)):
                    packed[g, j] = start_packed[j]
                if personal:
                    for j in range(size):
                        rows[base + g, j] += cohort.offsets[base + g, j]
                    pack(rows[base + g, :size], hidden, n_features, stride, packed[g])
            if most == 0:
                _draw_lists(world, cohort, base + SIDE_BY_SIDE, 0, following)
            for i in range(most):
                lists, following = following, lists
                next_base, next_i = (base, i + 1) if i + 1 < most else (base + SIDE_BY_SIDE, 0)
                _draw_lists(world, cohort, next_base, next_i, following)
                if scored:
                    score_lists(packed, hidden, world.padded, lists.starts, lists.lengths, scores, buffers.activation)
                for g in range(side):
                    at, start, n = base + g, lists.starts[g], lists.lengths[g]
                    if n == 0:
                        continue
                    k = count(rule, world, start, n)
                    impression = Impression(
                        at, Address(i, clients[at], cohort.round), start, n, k, scores[g], packed[g]
                    )
                    local = rows[at, :size]
                    _prefetch_next(buffers, following, g, stride)
                    ask_ahead(buffers, LINES_PER_STEP)
                    rest = show(rule, world, impression, local, buffers)
                    ask_ahead(buffers, LINES_PER_STEP)
                    first = click(rule, world, impression, lists.models[g], buffers)
                    ask_ahead(buffers, LINES_PER_STEP)
                    rows[at, size] += list_ndcg(world, lists.queries[g], buffers.shown, k)
                    if first >= 0:
                        rows[at, size + 1] += 1.0 / (first + 1)
                        for p in range(k):
                            rows[at, size + STATISTICS - 1] += buffers.clicked[p]
                    moved = cohort.pull > 0.0
                    if moved:
                        for j in range(size):
                            began = cohort.theta[j] + (cohort.offsets[at, j] if personal else 0.0)
                            local[j] -= cohort.pull * (local[j] - began)
                    moved |= learn(rule, world, impression, rest, first, local, buffers)
                    ask_ahead(buffers, LINES_PER_STEP)
                    if cohort.bound < np.inf:
                        moved |= keep_within(local, cohort.bound)
                    if scored and moved and not cohort.batched:
                        pack(local, hidden, n_features, stride, packed[g])
            for at in range(base, base + side):
                for j in range(size):
                    offset = cohort.offsets[at, j] if personal else 0.0
                    if scored:
                        rows[at, j] = (rows[at, j] - cohort.theta[j]) - offset
                    else:
                        rows[at, j] -= cohort.theta[j] + offset

    return Kernel(play_clients, allocates=False, cached=cached)


def play(loop: Callable[..., None], work: Work, rule: Any, rows: Doubles) -> None:
    """Play a cohort's work by a learner's loop."""
    loop(work.world, cohort_of(work), rule, memory_for(work.world), rows)
