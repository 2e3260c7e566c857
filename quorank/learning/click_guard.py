"""Guard of one client, which accepts a new ranker unless its own user's clicks contradict it.

After RankGuard, arXiv 2606.12246.

A malicious server, or a cohort that poisoned the ranker, cannot change what a client's own user clicked. Every
clicked list prefers documents to others (the pairs of PDGD), and each pair weighs ρ (FPDGD eq. 6), which makes up for the
positions at which the ranker that drew the list had put the two. A ranker agrees with a pair by tanh of the difference of
the two scores, in standard deviations of the scores shown, so that its scale does not matter. A list's evidence is the mean
over its pairs, weighted by ρ, of the new ranker's agreement minus that of the ranker which showed the list: between −2 and
2, and 0 for rankers that are alike. As older lists were shown by older rankers, one that is led astray step by step is held
against what there was before. The new one is refused if the evidence is negative beyond chance: mean + t·s/√n < −margin
over n lists, with t of a one-sided test at `error`. Rankers that differ little are within the margin and always taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.learning.exploration import IN_BLOCKS
from quorank.learning.online import Shown
from quorank.learning.pdgd import last_included, prepare_odds, swap_odds
from quorank.learning.plackett_luce import buffers_for
from quorank.rankers import Ranker
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of


class GuardVerdict(NamedTuple):
    """Decision on a new ranker, with its evidence."""

    accepted: bool
    lists: int  # whose clicks express a preference
    evidence: float  # mean over them; below 0 the rankers that showed the lists fit better
    bound: float  # the most that the evidence may be by chance; refused if it is below −margin


@dataclass(frozen=True)
class ClickGuard:
    """Compares a new ranker with those that showed a client's own lists, by what was clicked on them."""

    error: float = 0.05  # how often a ranker is refused whose evidence is −margin in truth
    margin: float = 0.02  # agreement that a new ranker may lose
    least: int = 8  # lists that say anything, below which every ranker is taken

    def __post_init__(self) -> None:
        require_range("error", self.error, above=0.0, below=0.5)
        require_range("margin", self.margin, least=0.0)
        require_range("least", self.least, least=2)

    def judge(self, ranker: Ranker, new: Doubles, interactions: Iterable[tuple[Shown, Booleans]]) -> GuardVerdict:
        """Judge parameters `new` (d,) by lists as they were shown, and what was clicked on each."""
        if not np.isfinite(new).all():
            return GuardVerdict(False, 0, -math.inf, -math.inf)
        return self.decide([list_evidence(ranker, new, shown, clicks) for shown, clicks in interactions])

    def decide(self, found: Sequence[float | None]) -> GuardVerdict:
        """Accept or refuse by the evidence of single lists, of which those that say nothing are None."""
        from scipy.special import stdtrit

        evidence = np.array([value for value in found if value is not None])
        n = len(evidence)
        if n < self.least:
            return GuardVerdict(True, n, float(evidence.mean()) if n else 0.0, math.inf)
        mean, deviation = float(evidence.mean()), float(evidence.std(ddof=1))
        bound = mean + float(stdtrit(n - 1, 1.0 - self.error)) * deviation / math.sqrt(n)
        return GuardVerdict(not bound < -self.margin, n, mean, bound)


def list_evidence(ranker: Ranker, new: Doubles, shown: Shown, clicks: Booleans) -> float | None:
    """Σ ρ·(agreement of new − agreement of what showed the list) / Σ ρ over its pairs; None if its clicks express none."""
    better, worse, rho = weighted_pairs(shown, np.asarray(clicks).astype(np.bool_))
    if len(better) == 0 or not rho.sum() > 0.0:
        return None
    then = shown.scores[shown.order].astype(np.float64)
    gain = agreement(_scores(ranker, new, shown), better, worse) - agreement(then, better, worse)
    return float(rho @ gain / rho.sum())


def agreement(scores: Doubles, better: Integers, worse: Integers) -> Doubles:
    """tanh((f(preferred) − f(other)) / s) of every pair, s being the deviation of the scores shown; 0 for s = 0."""
    spread = float(scores.std())
    margins = scores[better] - scores[worse]
    return np.asarray(np.tanh(margins / spread) if spread > 0.0 else np.zeros(len(margins)), dtype=np.float64)


def weighted_pairs(shown: Shown, clicked: Booleans) -> tuple[Integers, Integers, Doubles]:
    """(preferred, other, ρ): the pairs of positions that a clicked list expresses, as in PDGD, and their weights."""
    n, k, last = len(shown.scores), len(clicked), int(last_included(clicked, len(clicked)))
    buffers = buffers_for(n, 0, shown.padded_features, k)
    buffers.shown[:k], buffers.shown_weights[:k] = shown.order, shown.weights
    prepare_odds(shown.scores, n, k, shown.rest, last, buffers)
    first, second = np.triu_indices(last + 1, 1)
    pairs = clicked[first] != clicked[second]
    if shown.rest <= IN_BLOCKS:
        pairs &= shown.weights[first] == shown.weights[second]
    first, second = first[pairs], second[pairs]
    odds = [swap_odds(shown.scores, int(a), int(b), shown.rest, buffers) for a, b in zip(first, second, strict=True)]
    rho, above = 1.0 / (1.0 + np.array(odds, dtype=np.float64)), clicked[first]
    return np.where(above, first, second), np.where(above, second, first), rho


def _scores(ranker: Ranker, theta: Doubles, shown: Shown) -> Doubles:
    """Of the shown documents, in their order."""
    padded = shown.padded_features
    stride, hidden = padded.shape[1], ranker.layer
    inputs = theta.size if ranker.hidden == 0 else theta.size // ranker.hidden - 2
    packed = np.zeros(packed_size(hidden, stride), dtype=np.float32)
    pack(np.ascontiguousarray(theta, dtype=np.float64), hidden, inputs, stride, packed)
    out = np.empty(len(padded), dtype=np.float32)
    score_rows(packed, hidden, padded, 0, len(padded), out, np.zeros(width_of(hidden), dtype=np.float32))
    return out[shown.order].astype(np.float64)
