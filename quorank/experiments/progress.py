"""The figures of a run while it goes on: one number per round, saved with it and restored on resume."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles
from quorank.federation import Report
from quorank.metrics.lists import discounted_sum

COLUMNS = ("offline_ndcg@10", "offline_maxrr", "online_ndcg@10", "online_maxrr", "clicks", "update_norm")
LEDGER = ("participants", "sensitivity", "noise")  # of every round's release, for the ledger
DISCOUNT = 0.9995  # γ of the online measure, over rounds


@dataclass(eq=False)
class Progress:
    """`values[name][t]` is the figure of round t + 1; offline ones are NaN where the ranker was not evaluated."""

    rounds: int
    values: dict[str, Doubles]
    interactions: int = 0  # so far
    per_round: int = 0
    done: int = 0  # rounds
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0

    @classmethod
    def empty(cls, rounds: int) -> Progress:
        return cls(rounds, {name: np.full(rounds, np.nan) for name in (*COLUMNS, *LEDGER)})

    def record(self, report: Report) -> None:
        at = report.round - 1
        self.values["online_ndcg@10"][at] = report.online_ndcg
        self.values["online_maxrr"][at] = report.online_maxrr
        self.values["clicks"][at] = report.clicks
        self.values["update_norm"][at] = report.update_norm
        for name in LEDGER:
            self.values[name][at] = getattr(report, name)
        self.per_round = report.interactions
        self.interactions += report.interactions
        self.done = report.round

    def record_offline(self, rounds: list[int], ndcg: Doubles, maxrr: Doubles) -> None:
        for round_, x, y in zip(rounds, ndcg, maxrr, strict=True):
            self.values["offline_ndcg@10"][round_ - 1] = x
            self.values["offline_maxrr"][round_ - 1] = y

    def last(self, name: str) -> float:
        """The newest figure of a column, NaN if there is none."""
        known = self.values[name][np.isfinite(self.values[name])]
        return float(known[-1]) if len(known) else float("nan")

    def online_mean(self) -> float:
        return float(self.values["online_ndcg@10"][: self.done].mean())

    def online_discounted(self) -> float:
        """Σ_t γ^(t−1) · (mean nDCG of round t)."""
        return discounted_sum(self.values["online_ndcg@10"][: self.done], DISCOUNT)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The history, a row per evaluated round."""
        count = self.done
        rows = np.flatnonzero(np.isfinite(self.values["offline_ndcg@10"][:count]))
        online = self.values["online_ndcg@10"][:count]
        running = np.cumsum(online * DISCOUNT ** np.arange(count))
        table: dict[str, npt.NDArray[np.generic]] = {
            "round": rows + 1,
            "interactions": (rows + 1) * self.per_round,
        }
        for name in COLUMNS:
            table[name] = self.values[name][rows]
        table["online_discounted"] = running[rows]
        return table
