"""The client's side of a privacy mechanism on a real device: its own entropy, its own limits, and what is really promised.

In a simulation noise is addressed by the run's seed, so that runs can be repeated; whoever knows the seed can take the
noise off again. A device therefore gives its mechanism a fresh secret of 32 bytes from the system for every release, which
is the key of a cipher (`privacy.streams`), and forgets it. Fresh for every release: two releases under the same noise
differ by the difference of the updates alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation import wire
from quorank.kernels.arrays import Doubles, Uint32s
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.gaussian import FARTHEST, UNIT, GaussianMechanism
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.mechanisms.mechanism import Memory
from quorank.privacy.mechanisms.published import PublishedMechanism
from quorank.privacy.mechanisms.signs import SignMechanism
from quorank.privacy.setting import Turns
from quorank.privacy.streams import SECRET_BYTES, Seed
from quorank.protocol.declined import Refusal
from quorank.protocol.terms import Terms

Entropy = Callable[[int], bytes]
M = TypeVar("M", bound=Mechanism)


def refreshed(mechanism: Mechanism, entropy: Entropy) -> Mechanism:
    """The same mechanism under a secret that nobody else knows and that is used for one release."""
    part: Any = mechanism
    if "seed" not in {field.name for field in fields(part)}:
        return mechanism
    return under(mechanism, entropy(SECRET_BYTES))


def under(mechanism: M, seed: Seed) -> M:
    """The same mechanism under another seed or secret."""
    part: Any = mechanism
    changed: M = replace(part, seed=seed)
    return changed


def check_memory(mechanism: Mechanism, memory: Memory) -> None:
    """Refuse a task whose privacy is not what was agreed: unknown names, or a clip far from where it started."""
    agreed = mechanism.start()
    same = agreed.keys() == memory.keys() and all(memory[name].shape == agreed[name].shape for name in agreed)
    require(same, "task.other-privacy", "the task's privacy is not the one that was agreed")
    for name, start in agreed.items():
        if name == UNIT:
            continue  # it follows from the clip
        value = memory[name]
        near = np.isfinite(value) & (value >= start / FARTHEST) & (value <= start * FARTHEST)
        require(bool(near.all()), "task.other-privacy", "the task's privacy is far from what was agreed")
    mechanism.check_memory(memory)


def check_task(terms: Terms, task: wire.Task) -> None:
    """Refuse a task for another client, after the last planned round, of another ranker, or with another privacy."""
    if task.clients not in ((), (terms.client,)):
        raise Refusal("client")
    if task.round >= terms.rounds:
        raise Refusal("over")
    try:
        require(task.theta.shape == (terms.parameters,), "task.shape", "another ranker")
        require(bool(np.isfinite(task.theta).all()), "task.not-finite", "not finite")
        check_memory(terms.client_mechanism, task.private)
    except BadInput:
        raise Refusal("task") from None


def check_turn(turns: Turns, times: int, last: int, round_: int) -> None:
    """Refuse to answer a round oftener than was agreed, after so many answers, the last of them in round `last`."""
    try:
        turns.check(times, last, round_)
    except BadInput as error:
        raise Refusal("often" if error.code == "reply.too-often" else "resting") from None


def words_of(mechanism: IntegerSums, update: Doubles, round_: int, client: int, seed: Seed) -> Uint32s:
    """The vector that a client masks for a secure sum: clipped, scaled, rounded, with its share of the noise, mod 2^32."""
    row, names = update.reshape(1, -1).copy(), np.array([client], dtype=np.int64)
    _, numbers = under(mechanism, seed).numbers(row, round_, names)
    return np.asarray(numbers.astype(np.uint32)[0])


def standing(mechanism: Mechanism) -> str:
    """Against whom a single release is protected, in a sentence for its owner."""
    if isinstance(mechanism, IntegerSums):
        if mechanism.variance == 0.0:
            return "masked: the coordinator sees the sum of a cohort and no single update; the sum itself has no noise"
        if mechanism.noise_by == "clients":
            return (
                "clipped, a share of the noise added here, masked: the coordinator sees a noisy sum and no single update; "
                f"the noise is complete if {mechanism.least} clients of the sum send their share"
            )
        return (
            "clipped and masked: the coordinator sees the sum of a cohort and no single update, and adds the noise to it; "
            "whoever sees the rankers is kept at ε, the coordinator is not"
        )
    if isinstance(mechanism, GaussianMechanism):
        return (
            "clipped here; the coordinator can read this update and adds noise to the sum: ε holds against whoever sees "
            "the rankers, not against the coordinator"
        )
    if isinstance(mechanism, PublishedMechanism):
        return (
            "a small share of noise added here: it protects the sum if all clients are honest and present; the "
            "coordinator can nearly read this update"
        )
    if isinstance(mechanism, SignMechanism):
        kept = "flipped at random here" if mechanism.part.p < 1.0 else "as they are"
        return f"only signs were sent, {kept}: what is promised holds against the coordinator too"
    return "not protected: the coordinator can read this update"
