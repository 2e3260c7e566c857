"""Device's side of a privacy mechanism: fresh entropy, checks of tasks, and private reports.

In a simulation the run's seed addresses the noise so that runs are reproducible; the seed suffices to remove it. A
device therefore gives its mechanism 32 fresh secret bytes for every release, the key of a cipher (`privacy.streams`), and
discards them. They are never reused: two releases under the same noise differ by the difference of their updates.

A report is nDCG@k of the shown lists by their clicks, under local differential privacy with a separate secret
(`privacy.mechanisms.randomised_response`). Its value is the mean over the B interactions of an update of nDCG@k, where a
click counts as relevance 1. A list without a click counts 0, so that the number of lists in the mean reveals nothing
about the user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from quorank.errors import BadInput
from quorank.federation.reply import Task
from quorank.kernels.arrays import Booleans, Doubles, Uint32s
from quorank.metrics.lists import ndcg
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.gaussian import FARTHEST, UNIT
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.mechanisms.mechanism import Memory
from quorank.privacy.streams import SECRET_BYTES, Seed
from quorank.protocol.messages import Refusal
from quorank.protocol.terms import Terms

Entropy = Callable[[int], bytes]


def with_fresh_secret(mechanism: Mechanism, entropy: Entropy) -> Mechanism:
    """Return the mechanism under a new secret, for one release; one without noise is returned unchanged."""
    part: Any = mechanism
    return replace(part, seed=entropy(SECRET_BYTES)) if "seed" in {field.name for field in fields(part)} else mechanism


def check_task(terms: Terms, task: Task) -> None:
    """Raise Refusal for a task of another client, ranker or privacy, or after the last planned round."""
    if task.clients not in ((), (terms.client,)):
        raise Refusal("client")
    if task.round >= terms.rounds:
        raise Refusal("over")
    check_ranker(terms, task)
    if not _is_agreed(terms.client_mechanism, task.private):
        raise Refusal("task")


def check_ranker(terms: Terms, task: Task) -> None:
    """Raise Refusal for a ranker of another size, or with a parameter that is not finite."""
    if task.theta.shape != (terms.parameters,) or not np.isfinite(task.theta).all():
        raise Refusal("task")


def _is_agreed(mechanism: Mechanism, memory: Memory) -> bool:
    """Return whether a task's privacy state has the agreed names and shapes, and clips near the agreed start."""
    agreed = mechanism.start()
    if {name: value.shape for name, value in agreed.items()} != {name: value.shape for name, value in memory.items()}:
        return False
    for name, start in agreed.items():
        value = memory[name]  # the unit follows from the clip
        if name != UNIT and not ((value >= start / FARTHEST) & (value <= start * FARTHEST) & np.isfinite(value)).all():
            return False
    try:
        mechanism.check_memory(memory)
    except BadInput:
        return False
    return True


def masked_vector(mechanism: IntegerSums, update: Doubles, round_: int, client: int, seed: Seed) -> Uint32s:
    """Return the vector that a client masks for a secure sum: clipped, scaled, rounded, with its noise, modulo 2^32."""
    part: Any = mechanism
    _, numbers = replace(part, seed=seed).numbers(update.reshape(1, -1).copy(), round_, np.array([client], np.int64))
    return np.asarray(numbers.astype(np.uint32)[0])


def mean_ndcg(lists: Sequence[Booleans], k: int) -> float:
    """Return the mean nDCG@k of the shown lists with their clicks as relevance; 0 for a list without a click."""
    relevances = [clicks[:k].astype(np.float64) for clicks in lists]
    return float(np.mean([ndcg(relevance, relevance, k) for relevance in relevances]))


def private_report(
    terms: Terms, lists: Sequence[Booleans], entropy: Entropy, round_: int
) -> tuple[tuple[float, float, float], dict[str, Any]]:
    """Return (statistics of the reply, entry of the log); zeros and nothing where no report was agreed."""
    response = terms.metric_response
    if response is None:
        return (0.0, 0.0, 0.0), {}
    steps = response.respond(mean_ndcg(lists, terms.k), entropy(SECRET_BYTES), round_, terms.client)
    return (float(steps), 0.0, 0.0), {"report": {"value": response.unbiased(steps), **(terms.reports or {})}}
