"""One call of the compiled sampler and pair weights, with their scratch."""

from __future__ import annotations

import numpy as np

from quorank.kernels.draws import Purpose, key_of
from quorank.learning.pair_weights import pair_coefficients
from quorank.learning.plackett_luce import sample_list, scratch_for


class Sampler:
    """Draws lists of k for fixed scores, one for each client."""

    def __init__(self, scores, k, seed=1) -> None:
        self.scores = np.asarray(scores, dtype=np.float32)
        self.k, n = k, len(self.scores)
        self.key = key_of(seed, Purpose.RANKING)
        self.shown, self.shown_weights = np.zeros(k, dtype=np.int64), np.empty(k)
        self.scratch = scratch_for(n, np.zeros((0, 8), dtype=np.float32))
        self.rest = 0.0

    def draw(self, client, interaction=0, round_=0) -> tuple[int, ...]:
        self.rest = sample_list(
            self.scores, len(self.scores), self.k, self.key, interaction, client, round_, self.scratch,
            self.shown, self.shown_weights,
        )  # fmt: skip
        return tuple(self.shown.tolist())

    def many(self, count) -> list[tuple[int, ...]]:
        return [self.draw(client) for client in range(count)]

    def coefficients(self, clicked, rest=None) -> tuple[bool, np.ndarray]:
        """Of the list that was drawn last; rest = −1 asks for the path in logarithms."""
        k, out = self.k, np.full(self.k, np.nan)
        found = pair_coefficients(
            self.scores, self.scores, True, len(self.scores), self.shown, self.shown_weights,
            self.rest if rest is None else rest,
            np.asarray(clicked, dtype=np.bool_), k, out, np.empty(k + 1), np.empty(k + 1),
        )  # fmt: skip
        return bool(found), out
