"""Counterfactual evaluation: value of a ranker estimated from the clicks on lists that others had ranked.

A log shows documents at ranks r, and under position-based clicks P(click on d at r) = p_r·P(d is relevant). A ranking that
puts the document at rank ρ has the value Σ_d λ(ρ(d))·P(d is relevant), λ the discount of a rank. Two λ are computed:

    dcg      λ(ρ) = 1 / log2(1 + ρ) up to rank k, and 0 behind
    clicks   λ(ρ) = p_ρ up to rank k: how many clicks a list would have got

With w = c/max(p_r, clip) for each shown document, x = Σ_d w·λ(ρ(d)) of a search, and W = Σ_d w of it:

- IPS, mean x: unbiased where no propensity is below `clip` (Joachims, Swaminathan and Schnabel 2017, "Unbiased
  learning-to-rank with biased feedback"; Agarwal et al. 2019, "A general framework for counterfactual learning-to-rank",
  for any λ), else too low (Strehl et al. 2010).
- SNIPS, Σ x / Σ W over all searches: the mean λ of a relevant document (Swaminathan and Joachims 2015, "The
  self-normalized estimator for counterfactual learning"): a common factor of the propensities falls out; it varies less.

A user's searches are not independent, so standard errors are those of means over users: with X, W, N the sums over the
searches of each of U users, Var(IPS) = U/(U−1)·Σ_u (X_u − N_u·IPS)² / (Σ N)², and
Var(SNIPS) = U/(U−1)·Σ_u (X_u − W_u·SNIPS)² / (Σ W)², the linearised variance of a ratio. Without users, each search counts
as a user. Documents outside a list cannot be judged: a ranker is compared by its order of the shown ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.logs.records import SearchRecords
from quorank.data.ranking import RankingData
from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.metrics.lists import discounts

NORMAL = 1.96  # standard errors on each side of a 95 % interval


@dataclass(frozen=True)
class CounterfactualEstimate:
    """Estimate with its standard error.

    >>> CounterfactualEstimate(value=2.0, error=0.5).figures()["low"]  # 2 − 1.96/2
    1.02
    """

    value: float
    error: float  # NaN for a single user

    def figures(self) -> dict[str, float | None]:
        """Return the value, its standard error and the ends of its 95 % interval, for JSON."""
        known = math.isfinite(self.error)
        low, high = self.value - NORMAL * self.error, self.value + NORMAL * self.error
        ends = {"error": self.error, "low": low, "high": high}
        return {"value": self.value} | {name: end if known else None for name, end in ends.items()}


@dataclass(frozen=True, eq=False)
class LoggedClickEvaluator:
    """Evaluator of rankers by the clicks of a log whose lists are in the order in which they were shown.

    Args:
        data: Lists of the log; labels are clicks.
        records: Users and ranks of the lists.
        propensities: (ranks,) p_1, p_2, …, at least k; clicks below the last rank are left out.
        k: Number of ranks of a ranking that count.
        clip: Smallest propensity by which a click is divided, in [0, 1].

    Raises:
        BadInput: `log.no-ranks` for lists without order; `value.out-of-range` if a field is outside its range.
    """

    data: RankingData
    records: SearchRecords
    propensities: Doubles
    k: int = 10
    clip: float = 0.1

    def __post_init__(self) -> None:
        require_range("clip", self.clip, least=0.0, most=1.0)
        require_range("k", self.k, least=1, most=len(self.propensities))
        sentence = "the lists of this log are in no order that was shown; clicks cannot be corrected by ranks"
        require(self.records.has_ranks, "log.no-ranks", sentence)

    @cached_property
    def _list_of_row(self) -> Integers:
        return self.data.query_of_rows()

    @cached_property
    def weights(self) -> Doubles:
        """Weights w, (rows,): the inverse propensity of clicked documents, 0 of the others."""
        ranks, last = self.records.ranks.astype(np.int64), len(self.propensities)
        looks = np.maximum(self.propensities[np.minimum(ranks, last) - 1], self.clip)
        return np.where((self.data.labels > 0) & (ranks <= last), 1.0 / looks, 0.0)

    @cached_property
    def _user(self) -> Integers | None:
        """User of each search, (searches,); None if the log names no users."""
        user = self.records.user
        return user if len(user) > 0 and int(user[0]) >= 0 else None

    def ranks_of(self, scores: Floats | Doubles) -> Integers:
        """Return the rank (rows,) of each document in its list by these scores (rows,), ties in the order of the list."""
        order = np.lexsort((np.arange(len(scores)), -np.asarray(scores, dtype=np.float64), self._list_of_row))
        ranks = np.empty(len(scores), dtype=np.int64)
        ranks[order] = np.arange(len(scores)) - self.data.offsets[self._list_of_row[order]] + 1
        return ranks

    def values(self, ranks: npt.NDArray[np.integer[Any]], metric: str) -> Doubles:
        """Return x (searches,) of a ranking that gives documents these ranks (rows,), for λ = "dcg" or "clicks"."""
        table = np.append(discounts(self.k) if metric == "dcg" else self.propensities[: self.k], 0.0)
        return self._summed(self.weights * table[np.minimum(ranks, self.k + 1) - 1])

    def ips(self, values: Doubles) -> CounterfactualEstimate:
        """Estimate IPS, the mean of x (searches,)."""
        return self._ratio(values, np.ones(len(values)))

    def snips(self, values: Doubles) -> CounterfactualEstimate:
        """Estimate SNIPS, Σ x / Σ W, from x (searches,)."""
        return self._ratio(values, self._summed(self.weights))

    def _summed(self, per_row: Doubles) -> Doubles:
        """Return the sums (searches,) over the documents of each list."""
        return np.asarray(np.bincount(self._list_of_row, per_row, self.data.n_queries), dtype=np.float64)

    def _ratio(self, values: Doubles, sizes: Doubles) -> CounterfactualEstimate:
        """Estimate Σ values / Σ sizes, with the standard error of a ratio of sums over users."""
        user = np.arange(len(values)) if self._user is None else np.unique(self._user, return_inverse=True)[1]
        x, n = (np.bincount(user, weights=each) for each in (values, sizes))
        total, users = n.sum(), len(x)
        if total == 0.0:
            return CounterfactualEstimate(0.0, math.nan)
        mean = float(x.sum() / total)
        if users < 2:
            return CounterfactualEstimate(mean, math.nan)
        variance = users / (users - 1) * float(((x - mean * n) ** 2).sum()) / total**2
        return CounterfactualEstimate(mean, math.sqrt(variance))

    def figures(self, scores: Floats | Doubles) -> dict[str, Any]:
        """Return all estimates of a ranker with these scores (rows,), of the shown lists, and of the gain."""
        by_ranker, as_shown = self.ranks_of(scores), self.records.ranks.astype(np.int64)
        estimates: dict[str, Any] = {}
        for metric in ("dcg", "clicks"):
            new, old = self.values(by_ranker, metric), self.values(as_shown, metric)
            estimates[f"{metric}@{self.k}"] = {
                name: {
                    "ranker": estimate(new).figures(),
                    "shown": estimate(old).figures(),
                    "gain": estimate(new - old).figures(),
                }
                for name, estimate in (("ips", self.ips), ("snips", self.snips))
            }
        clicked = self.weights > 0.0
        squares = float((self.weights**2).sum())
        return {
            "estimates": estimates,
            "propensities": [float(p) for p in self.propensities],
            "clip": self.clip,
            "clicks": int(clicked.sum()),
            "clipped_clicks": int((self.propensities[self.records.ranks[clicked] - 1] < self.clip).sum()),
            "effective_clicks": float(self.weights.sum() ** 2 / squares) if squares else 0.0,
            "searches": self.data.n_queries,
            "users": None if self._user is None else len(np.unique(self._user)),
        }
