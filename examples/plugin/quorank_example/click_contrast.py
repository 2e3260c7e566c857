"""A learner that moves θ towards what was clicked and away from what was seen and left (after Rocchio 1971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import BATCH, Address
from quorank.learning import Learner
from quorank.learning.client_loop import draw_query, list_ndcg
from quorank.learning.simulation import STATISTICS, Work
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
                address = Address(i, client, work.round)
                query, model = draw_query(world, address)
                start, stop = world.offsets[query], world.offsets[query + 1]
                features = world.padded[start:stop, :size].astype(np.float64)
                k = min(world.k, stop - start)
                shown[:k] = np.argsort(-(features @ theta), kind="stable")[:k]
                first = click_list(world.users, model, address, start, shown, k, clicked, draws)
                row[size] += list_ndcg(world, query, shown, k)
                if first >= 0:
                    row[size + 1] += 1.0 / (first + 1)
                    row[size + STATISTICS - 1] += clicked[:k].sum()
                chosen, left = features[shown[:k]][clicked[:k]], features[shown[:k]][~clicked[:k]]
                if len(chosen) and len(left):
                    theta += self.eta * (chosen.mean(axis=0) - left.mean(axis=0))
            row[:size] = theta - work.theta
