"""Calls of the compiled sampler, of pair weights and of a learner's loop."""

from __future__ import annotations

from dataclasses import dataclass

import equations
import numpy as np

from quorank.data.ranking import RankingData
from quorank.kernels.draws import Address, Purpose, key_of, uniforms
from quorank.learning import Learner, Simulation
from quorank.learning.client_loop import STATISTICS, Work
from quorank.learning.exploration import draw_list
from quorank.learning.pdgd import pair_coefficients
from quorank.learning.plackett_luce import buffers_for, sample_list
from quorank.rankers import Linear

NO_FEATURES = np.zeros((0, 8), dtype=np.float32)


class Sampler:
    """Draws lists of k for fixed scores, one for each client; by a dial if there is one."""

    def __init__(self, scores, k, seed=1, dial=None) -> None:
        self.scores, self.k, self.rest, self.dial = np.asarray(scores, dtype=np.float32), k, 0.0, dial
        n = len(self.scores)
        self.key, self.buffers = key_of(seed, Purpose.RANKING), buffers_for(n, 0, NO_FEATURES, n)

    @property
    def shown(self) -> np.ndarray:
        return self.buffers.shown[: self.k]

    @property
    def shown_weights(self) -> np.ndarray:
        return self.buffers.shown_weights[: self.k]

    def draw(self, client, interaction=0, round_=0) -> tuple[int, ...]:
        address = Address(interaction, client, round_)
        arguments = self.scores, len(self.scores), self.k, self.key, address, self.buffers
        self.rest = sample_list(*arguments) if self.dial is None else draw_list(self.dial, *arguments)
        return tuple(self.shown.tolist())

    def many(self, count) -> list[tuple[int, ...]]:
        return [self.draw(client) for client in range(count)]

    def coefficients(self, clicked, rest=None) -> tuple[bool, np.ndarray]:
        """Of the list that was drawn last; rest = −1 asks for the path in logarithms."""
        self.buffers.clicked[: self.k] = clicked
        self.buffers.coefficients[:] = np.nan
        rest = self.rest if rest is None else rest
        then, n = self.scores if self.dial is None else self.buffers.tempered, len(self.scores)
        learns = pair_coefficients(then, self.scores, self.dial is None, n, self.k, rest, self.buffers)
        return bool(learns), self.buffers.coefficients[: self.k].copy()


def one_query(labels, users, k=10) -> Simulation:
    """One query whose document j has the features e_j: θ are scores, an update's coordinates are coefficients."""
    data = RankingData.from_arrays(np.eye(len(labels)), labels, [0, len(labels)])
    return Simulation(data, Linear(), users, 3, 3, k)


def simulate(simulation, learner, theta, clients, interactions, round_=0, privatise=None) -> np.ndarray:
    """(clients, parameters + STATISTICS): updates and statistics of these clients."""
    clients = np.asarray(clients, dtype=np.int64)
    rows = np.full((len(clients), simulation.parameters + STATISTICS), np.nan)
    counts = np.broadcast_to(np.asarray(interactions, dtype=np.int64), clients.shape).copy()
    learner.updates(Work(simulation.world(), simulation.seed, theta, round_, clients, counts, privatise), rows)
    return rows


def reference_update(simulation, theta, client, interactions, round_, show, learn) -> np.ndarray:
    """The client loop in plain Python, float64: the update and the statistics of one client.

    `show(local, x, k, address)` returns a list and whatever `learn(local, x, shown, kept, clicked, address)` needs of it.
    """
    data, seed = simulation.data, simulation.seed
    tables = simulation.users.tables(simulation.grades, simulation.k)
    local, statistics = theta.copy(), np.zeros(STATISTICS)
    for i in range(interactions):
        address = {"round_": round_, "client": client, "interaction": i}
        query = int(uniforms(seed, Purpose.QUERY, 1, **address)[0] * data.n_queries)
        rows = data.rows_of(query)
        x, labels = data.features[rows].astype(np.float64), [int(y) for y in data.labels[rows]]
        k = min(simulation.k, len(x))
        shown, kept = show(local, x, k, address)
        seen = [labels[d] for d in shown]
        clicked = equations.click_walk(
            seen, tables.examine.tolist(), tables.click.tolist(), tables.stop.tolist(),
            uniforms(seed, Purpose.CLICK, 2 * k, **address).tolist(),
        )  # fmt: skip
        local = learn(local, x, shown, kept, clicked, address)
        statistics += equations.ndcg(seen, labels, 10), equations.reciprocal_rank(clicked), sum(clicked)
    return np.concatenate([local - theta, statistics])


@dataclass(frozen=True)
class Contrast(Learner):
    """A learner in plain NumPy: towards the clicked documents, away from the others."""

    kind = "contrast"
    eta: float = 0.1

    def learn(self, theta, shown):
        if shown.clicks.any() and not shown.clicks.all():
            theta = theta + self.eta * (shown.features[shown.clicks].mean(0) - shown.features[~shown.clicks].mean(0))
        return theta
