"""A learner that moves θ towards what was clicked and away from what was seen and left (after Rocchio 1971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import BATCH
from quorank.learning import Learner
from quorank.learning.simulation import STATISTICS, Work, draw_query, list_ndcg
from quorank.users.click_model import click_list


@dataclass(frozen=True)
class ClickContrast(Learner):
    """θ ← θ + η·(mean features of clicked documents − mean features of the others that were shown)."""

    kind: ClassVar[str] = "click-contrast"
    needs_gradient: ClassVar[bool] = False

    eta: float = 0.1  # η

    def __post_init__(self) -> None:
        require_range("eta", self.eta, above=0.0)

    def updates(self, work: Work, rows: Doubles) -> None:
        """Fill a row for each client; every draw is addressed, so the result depends on no order."""
        world, size = work.world, len(work.theta)
        shown, clicked, draws = np.zeros(world.k, np.int64), np.zeros(world.k, np.bool_), np.empty(BATCH)
        for row, client, interactions in zip(rows, work.clients, work.interactions, strict=True):
            theta = work.theta.copy()
            row[size:] = 0.0
            for i in range(interactions):
                query, model = draw_query(
                    world.query_key, world.group, world.first_query, world.query_count, world.click_model, world.drawn,
                    i, client, work.round,
                )  # fmt: skip
                start, stop = world.offsets[query], world.offsets[query + 1]
                features = world.padded[start:stop, :size].astype(np.float64)
                k = min(world.k, stop - start)
                shown[:k] = np.argsort(-(features @ theta), kind="stable")[:k]
                first = click_list(
                    world.labels, start, shown, k, world.examine, world.click, world.stop, model, world.click_key,
                    i, client, work.round, clicked, draws,
                )  # fmt: skip
                row[size] += list_ndcg(world.labels, start, world.ideal[query], world.gain, world.discount, shown, k)
                if first >= 0:
                    row[size + 1] += 1.0 / (first + 1)
                    row[size + STATISTICS - 1] += clicked[:k].sum()
                chosen, left = features[shown[:k]][clicked[:k]], features[shown[:k]][~clicked[:k]]
                if len(chosen) and len(left):
                    theta += self.eta * (chosen.mean(axis=0) - left.mean(axis=0))
            row[:size] = theta - work.theta
