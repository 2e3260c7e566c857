"""Obfuscation as CS-F-LTR publishes it (eq. 4), and the owner's attack that reads the term from it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence

import numpy as np

from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.sketch.questions import HiddenTerm


class FreshDecoys:
    """z1 random rows are real, in each other row stands another random term, anew for each question.

    With a `seed` the draws are addressed by the question's number; else they come from the system.
    """

    def __init__(self, vocabulary: Sequence[str], real: int = 15, seed: int | None = None) -> None:
        self.vocabulary, self.real, self.seed = vocabulary, real, seed
        self._questions = itertools.count()

    def vectors(self, rows: int) -> int:
        return 1

    def hide(self, term: str, hashing) -> HiddenTerm:
        """h_a(t) for a in PV, h_a(t') elsewhere."""
        z = hashing.rows
        if self.seed is None:
            system = secrets.SystemRandom()
            u = np.array([system.random() for _ in range(2 * z)])
        else:
            u = uniforms(self.seed, Purpose.OBFUSCATION, 2 * z, interaction=next(self._questions))
        rows = np.sort(np.argsort(u[:z], kind="stable")[: self.real])
        decoys = [self.vocabulary[int(x * len(self.vocabulary))] for x in u[z:]]
        columns, signs = hashing.places([term, *decoys])
        sent = columns[np.arange(1, z + 1), np.arange(z)].copy()
        sent[rows] = columns[0, rows]
        return HiddenTerm(sent[np.newaxis], 0, rows, signs[0])


def owner_guess(places: np.ndarray, questions: Sequence[np.ndarray]) -> np.ndarray:
    """For each term of a dictionary, in how many rows it fits the question that it fits worst.

    `places` are the (terms, z) columns of the dictionary. The `questions`, (vectors, z) each, are about the same term,
    which therefore has a high count: that is the owner's guess.
    """
    fits = [np.max([(places == vector).sum(axis=1) for vector in question], axis=0) for question in questions]
    return np.asarray(np.min(fits, axis=0), dtype=np.int64)
