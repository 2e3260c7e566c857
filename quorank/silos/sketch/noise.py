"""Noise on the cells that an owner releases (CS-F-LTR §IV-B step 3 and theorem 1), and its guarantee.

Neighbouring documents differ in one occurrence of one term. It changes one cell in each of the z rows of the document's
sketch by one, so z released cells of one question can all change: their L1 sensitivity is z.

`OneSample` is eq. 5 *as published*: the same Laplace number on all z cells. Differences between its cells carry no noise,
so two neighbours whose cells differ in some rows only are told apart with certainty. Theorem 1 holds for the median of
the real rows, which moves by at most one, in one question. The median is not what is sent, and with the sample shared over
questions the differences of their medians would carry no noise either.

`AtBuild` adds noise of scale (z + 1)/ε to every cell of a document's sketch, and to its length, before either is stored.
Everything after that is post-processing: any number of questions by any number of parties, and the selection of documents
by a cell. It is ε for a document, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quorank.kernels.arrays import Int32s, Integers
from quorank.silos.discrete_laplace import UNIT, Stream, draw_noise, scale_for
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES


class Perturbation:
    """Treatment of sketches, answers and lengths; this base class releases them unchanged."""

    kind: ClassVar[str]
    perturbs_at_build: ClassVar[bool] = False  # sketches have noise before they are stored

    def perturb_table(self, table: Int32s, stream: Stream) -> Int32s:
        """Return a document's (z, w) sketch as it is stored."""
        return table

    def perturb_answer(self, ids: Integers, values: Integers, stream: Stream) -> Integers:
        """Return the values of documents `ids` in the cells of an answer as they are sent."""
        return values

    def perturb_lengths(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Return the lengths of documents as they are announced."""
        return lengths

    def spends(self, questions: int) -> float:
        """Return the ε of a number of questions of one asker about one field."""
        return 0.0

    def statement(self, questions: int) -> dict[str, Any]:
        """Return the guarantee after a number of questions."""
        return self._statement(None, "cells are released unchanged")

    def _statement(self, epsilon: float | None, horizon: str) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "unit": UNIT,
            "neighbouring": "add or remove the occurrence",
            "epsilon": epsilon,
            "delta": 0.0 if epsilon is not None else None,
            "horizon": horizon,
        }


@dataclass(frozen=True)
class Exact(Perturbation):
    """No noise."""

    kind: ClassVar[str] = "exact"


@dataclass(frozen=True)
class OneSample(Perturbation):
    """Eq. 5 *as published*: C̃(a, h_a) = C(a, h_a) + Ñ with one Ñ for all cells of a document in an answer.

    Ñ is discrete Laplace with the paper's scale 1/ε, so that cells stay integers.
    """

    kind: ClassVar[str] = "published"

    epsilon: float = 0.5  # ε of one question

    def __post_init__(self) -> None:
        scale_for(1, self.epsilon)

    def perturb_answer(self, ids: Integers, values: Integers, stream: Stream) -> Integers:
        """Add one number to all cells of a document."""
        documents, which = np.unique(ids, return_inverse=True)
        return np.asarray(values + draw_noise(stream, scale_for(1, self.epsilon), len(documents))[which])

    def spends(self, questions: int) -> float:
        """Return ε for each question, as the paper counts."""
        return self.epsilon * questions

    def statement(self, questions: int) -> dict[str, Any]:
        """Return that nothing is guaranteed for what is sent, and the paper's ε."""
        horizon = "one sample for all cells hides none of their differences: the published ε covers their median only"
        return self._statement(None, horizon) | {"published_epsilon": self.spends(questions)}


@dataclass(frozen=True)
class AtBuild(Perturbation):
    """Discrete Laplace noise of scale (z + 1)/ε on every cell of a document's sketch and on its length, once."""

    kind: ClassVar[str] = "at-build"
    perturbs_at_build: ClassVar[bool] = True

    epsilon: float = 8.0  # ε of one document, for good

    def __post_init__(self) -> None:
        scale_for(1, self.epsilon)

    def perturb_table(self, table: Int32s, stream: Stream) -> Int32s:
        """Add noise to every cell of a document's (z, w) sketch, empty ones included."""
        noise = draw_noise(stream, scale_for(len(table) + 1, self.epsilon), table.size)
        noisy = np.clip(table + noise.reshape(table.shape), -MOST_OCCURRENCES, MOST_OCCURRENCES)
        return np.asarray(noisy, dtype=np.int32)

    def perturb_lengths(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Add the noise of a cell to each length."""
        return np.asarray(lengths + draw_noise(stream, scale_for(rows + 1, self.epsilon), len(lengths)))

    def spends(self, questions: int) -> float:
        """Return ε with the first question, and no more."""
        return self.epsilon if questions > 0 else 0.0

    def statement(self, questions: int) -> dict[str, Any]:
        """Return ε, for any number of questions."""
        return self._statement(self.epsilon, "any number of questions by any number of parties")
