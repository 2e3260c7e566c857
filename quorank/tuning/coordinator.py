"""The coordinator of a tuning: updates come in, an iteration closes, a new version of the weights goes out.

Hartmann et al. 2019, §5.5, with the changes that §6.4 asks for. A client fetches the model, computes one update per
search, and sends it with the version it was made for, a pseudonym that is good for this version only, and the number
of the search under that version. The coordinator adds it to running sums and forgets it; of who sent what it keeps the
pseudonyms and numbers of the versions that may still count, to refuse duplicates.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from quorank.arrays import Bytes, Doubles, Integers, Uint64s
from quorank.errors import require
from quorank.federation.servers import Memory
from quorank.tuning.closing import Closing, Count, Estimate
from quorank.tuning.heuristics.constraints import project
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.models import Model, check_model
from quorank.tuning.optimisers import Optimiser, Rprop
from quorank.tuning.releases import Gradient, Release

ENVELOPE = 4 + 8 + 4 + 4
"""Bytes that go with every update: version, pseudonym, number, loss."""

KEPT = ("kept.seen", "kept.total", "kept.squares")
"""Names under which a version's file holds the sums that undecided weights take along."""


class Updates(NamedTuple):
    """Updates as they arrive, one row each."""

    version: Integers
    client: Uint64s  # pseudonym
    number: Integers  # of the search, counted by the client from 0 for every version
    payload: Bytes  # (updates, bytes)
    loss: Doubles


class Receipt(NamedTuple):
    """What became of updates: every one is in exactly one of these."""

    counted: int  # also late ones that still count
    late: int  # made for a version that no longer counts
    duplicate: int
    refused: int  # a version that is not out yet, too many of one client, or no numbers at all


def pseudonym(secret: bytes, version: int) -> int:
    """64 bits by which one version knows a client, and no other version does; `secret` never leaves the client."""
    require(16 <= len(secret) <= 64, f"a secret must have 16 to 64 bytes, got {len(secret)}")
    return int.from_bytes(
        hashlib.blake2b(str(version).encode(), key=secret, digest_size=8).digest(), "little"
    )


@dataclass(frozen=True)
class Protocol:
    """The rules of a tuning."""

    heuristic: Heuristic
    optimiser: Optimiser = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=Gradient)
    sure: float | None = (
        None  # standard errors from 0 at which a weight moves, see `threshold`; 0: always, as published
    )
    keep: float = 0.9  # share of its sums that a coordinate which sat out takes into the next iteration
    late: int = 0  # updates for a version so many iterations old still count, as if made for the current one
    per_client: int = 1000  # updates that count of one client and version

    def __post_init__(self) -> None:
        require(
            self.sure is None or 0.0 <= self.sure < np.inf,
            f"sure must be at least 0 standard errors, got {self.sure}",
        )
        require(0.0 <= self.keep < 1.0, f"keep must be a share below 1, got {self.keep}")
        require(self.late >= 0, f"late must be 0 or more versions, got {self.late}")
        require(self.per_client >= 1, f"per_client must be at least 1, got {self.per_client}")

    @property
    def threshold(self) -> float:
        """`sure`; by default so that of d weights whose slopes are all 0, two move by chance, and at least 1.

        That is z with 1 − Φ(z) = 1/d: 1.22 standard errors for 9 weights, 1.69 for 22. More weights, more caution: what
        moves by chance costs rank accuracy together.
        """
        if self.sure is not None:
            return self.sure
        return max(1.0, NormalDist().inv_cdf(1.0 - 1.0 / max(2, len(self.heuristic.weights))))

    def start(self, weights: Doubles | None = None, now: float = 0.0) -> State:
        """Version 0: the shipped weights, or others that are allowed."""
        first = self.heuristic.shipped if weights is None else weights
        model = Model(self.heuristic.name, 0, self.heuristic.named(first), optimiser=str(self.optimiser))
        return self.resume(model, now)

    def resume(self, model: Model, now: float = 0.0) -> State:
        """Go on from a version; the updates of its unfinished iteration are asked for again."""
        check_model(model, self.heuristic, f"version {model.version}")
        weights = self.heuristic.vector(model.weights)
        memory = {name: np.array(values) for name, values in model.memory.items()}
        kept = [memory.pop(name, np.zeros(len(weights))) for name in KEPT]
        require(
            not memory or model.optimiser == str(self.optimiser),
            f"version {model.version} was made by {model.optimiser}, this protocol has {self.optimiser}; "
            "go on with that optimiser, or start anew from its weights",
        )
        return State(
            model.version,
            weights,
            memory or self.optimiser.start(len(weights)),
            Estimate(0, kept[0], kept[1], kept[2], 0.0),
            now,
            {model.version: set()},
        )

    def receive(self, state: State, updates: Updates) -> tuple[State, Receipt]:
        """Count what may be counted. `state` is replaced, and its record of senders goes on in the new one."""
        size = len(state.weights)
        values = self.release.unpack(updates.payload, size)
        finite = np.isfinite(values).all(axis=1) & np.isfinite(updates.loss)
        keep = np.zeros(len(values), dtype=np.bool_)
        late = duplicate = refused = 0
        rows = zip(
            updates.version.tolist(),
            updates.client.tolist(),
            updates.number.tolist(),
            finite.tolist(),
            strict=True,
        )
        for row, (version, client, number, usable) in enumerate(rows):
            if version > state.version or not usable or not 0 <= number < self.per_client:
                refused += 1
            elif version not in state.senders:
                late += 1
            elif (client, number) in state.senders[version]:
                duplicate += 1
            else:
                state.senders[version].add((client, number))
                keep[row] = True
        counted = self.release.per_step(values[keep], self.heuristic.steps(state.weights))
        estimate = state.estimate.add(counted, updates.loss[keep])
        return replace(state, estimate=estimate), Receipt(int(keep.sum()), late, duplicate, refused)

    def closes(self, state: State, now: float) -> bool:
        """Is it time for a new version?"""
        return self.closing.closes(state.estimate, now - state.since)

    def advance(self, state: State, now: float) -> tuple[State, Model]:
        """Close the iteration: the optimiser's step in units of the declared steps, projected onto the constraints.

        A coordinate that is not known sits the iteration out: its weight and the optimiser's memory of it stay, and it
        takes what is known of it along, so that each weight waits for as many updates as its slope needs.
        """
        require(
            state.estimate.count > 0,
            f"iteration {state.version + 1} has no updates yet: nothing to learn from",
        )
        estimate, unit = state.estimate, self.heuristic.steps(state.weights)
        slope = self.release.direction(estimate.total, estimate.squares, estimate.seen)
        moved, memory = self.optimiser.advance(state.weights / unit, -slope, state.memory)
        unsure = np.abs(estimate.mean()) < self.threshold * estimate.standard_error()
        weights = project(self.heuristic, np.where(unsure, state.weights, moved * unit), state.weights)
        memory = {
            name: np.where(unsure, state.memory[name], values) if values.shape == unsure.shape else values
            for name, values in memory.items()
        }
        version = state.version + 1
        known = {v: senders for v, senders in state.senders.items() if version - v <= self.late}
        left = estimate.left(unsure, self.keep)
        after = State(version, weights, memory, left, now, known | {version: set()})
        stored = memory | dict(zip(KEPT, (left.seen, left.total, left.squares), strict=True))
        model = Model(
            self.heuristic.name,
            version,
            self.heuristic.named(weights),
            estimate.count,
            estimate.loss / estimate.count,
            str(self.optimiser),
            {name: values.tolist() for name, values in stored.items()},
        )
        return after, model


@dataclass(frozen=True)
class State:
    """Where a tuning stands. Explicit, and small: no update is in it."""

    version: int
    weights: Doubles
    memory: Memory
    estimate: Estimate
    since: float  # when the iteration began
    senders: dict[int, set[tuple[int, int]]]  # (pseudonym, number) of each version that still counts
