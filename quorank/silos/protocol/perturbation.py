"""Noise on the cells that an owner releases (CS-F-LTR §IV-B step 3 and theorem 1), and what it promises.

Neighbouring documents differ in one occurrence of one term. It changes one cell in each of the z rows of the document's
sketch by one, so z released cells of one question can all change: their L1 sensitivity is z.

`OneSample` is eq. 5 *as published*: the same Laplace number on all z cells. Its differences between cells carry no noise
at all, so two neighbours whose cells differ in some rows and not in others are told apart with certainty. Theorem 1
holds for the median of the real rows, which moves by at most one, in one question. It is not the median that is sent,
and with the sample shared over questions the differences of their medians would be bare as well.

`EachAnswer` puts independent noise of scale z/ε on every cell of every answer: ε for a question and a document, added up
over questions. It needs answers about the same documents whatever is asked (NAIVE): which documents stand in a heap
tells something too, and no noise on their values takes that back.

`AtBuild` puts noise of scale (z + 1)/ε on every cell of a document's sketch, and on its length, before either is stored.
Everything after that is post-processing: any number of questions by any number of parties, and who stands in which heap.
It is ε for a document, once, and so dominates `EachAnswer` from the second question on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quorank.kernels.arrays import Int32s, Integers
from quorank.silos.protocol.discrete_laplace import Stream, draw_noise, scale_for
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES

UNIT = "one occurrence of one term in one document"


class Perturbation:
    """What an owner does to sketches, answers and lengths; this base releases all of them as they are."""

    kind: ClassVar[str]
    needs_all_documents: ClassVar[bool] = False  # answers must name the same documents whatever is asked
    perturbs_at_build: ClassVar[bool] = False  # sketches have noise before they are stored
    perturbs_lengths: ClassVar[bool] = False  # else they are public, as in the paper, and cost nothing

    def perturb_table(self, table: Int32s, stream: Stream) -> Int32s:
        """Return a document's (z, w) sketch as it is stored."""
        return table

    def perturb_answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """Return the values of documents `ids` in the cells of z rows as they are sent."""
        return values

    def perturb_lengths(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Return the lengths of documents as they are announced."""
        return lengths

    def length_price(self, rows: int, again: bool) -> float:
        """Return the ε of announcing the lengths, for the first time or again in another session."""
        return 0.0

    def spends(self, questions: int) -> float:
        """Return the ε that so many questions of one asker are charged with."""
        return 0.0

    def statement(self, questions: int) -> dict[str, Any]:
        """Return what is promised after so many questions: here nothing."""
        return self._statement(None, "cells are released as they are")

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
    """No noise: cells are released as they are."""

    kind: ClassVar[str] = "exact"


@dataclass(frozen=True)
class LaplaceNoise(Perturbation):
    """Discrete Laplace noise for a budget: the base of the three below."""

    epsilon: float = 0.5  # ε of one document: in one question, or (`AtBuild`) for good

    def __post_init__(self) -> None:
        scale_for(1, self.epsilon)

    def _noise(self, sensitivity: int, count: int, stream: Stream) -> Integers:
        """Draw `count` numbers of scale sensitivity/ε."""
        return draw_noise(stream, scale_for(sensitivity, self.epsilon), count)

    def spends(self, questions: int) -> float:
        """Return ε for each question: answers about the same document add up."""
        return self.epsilon * questions


@dataclass(frozen=True)
class OneSample(LaplaceNoise):
    """Eq. 5 *as published*: C̃(a, h_a) = C(a, h_a) + Ñ with one Ñ for all cells of a document in an answer.

    Ñ is discrete Laplace with the paper's scale 1/ε: cells are whole numbers, and their low-order bits stay whole.
    """

    kind: ClassVar[str] = "published"

    def perturb_answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """Add one number to all cells of a document."""
        documents, which = np.unique(ids, return_inverse=True)
        return np.asarray(values + self._noise(1, len(documents), stream)[which])

    def statement(self, questions: int) -> dict[str, Any]:
        """Return that nothing is promised for what is sent, and beside it the paper's ε."""
        horizon = "one sample for all cells hides none of their differences: the published ε covers their median only"
        return self._statement(None, horizon) | {"published_epsilon": self.spends(questions)}


@dataclass(frozen=True)
class EachAnswer(LaplaceNoise):
    """Independent discrete Laplace noise of scale z/ε on every released cell, anew in every answer."""

    kind: ClassVar[str] = "each-answer"
    needs_all_documents: ClassVar[bool] = True
    perturbs_lengths: ClassVar[bool] = True

    def perturb_answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """Add a number of its own to every cell."""
        return np.asarray(values + self._noise(rows, len(values), stream))

    def perturb_lengths(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Add noise of scale 1/ε: lengths change by one between neighbours, and count as one question more."""
        return np.asarray(lengths + self._noise(1, len(lengths), stream))

    def length_price(self, rows: int, again: bool) -> float:
        """Return ε, every time."""
        return self.epsilon

    def statement(self, questions: int) -> dict[str, Any]:
        """Return ε after so many questions; announced lengths count as one."""
        return self._statement(self.spends(questions), f"{questions:,} questions, by adding up")


@dataclass(frozen=True)
class AtBuild(LaplaceNoise):
    """Independent discrete Laplace noise of scale (z + 1)/ε on every cell of a document's sketch and on its length, once.

    A document that is changed and added again is released again: ε for each version.
    """

    kind: ClassVar[str] = "at-build"
    perturbs_at_build: ClassVar[bool] = True
    perturbs_lengths: ClassVar[bool] = True

    def perturb_table(self, table: Int32s, stream: Stream) -> Int32s:
        """Add noise to every cell of a document's (z, w) sketch, also where nothing was counted."""
        noise = self._noise(len(table) + 1, table.size, stream)
        noisy = np.clip(table + noise.reshape(table.shape), -MOST_OCCURRENCES, MOST_OCCURRENCES)
        return np.asarray(noisy, dtype=np.int32)

    def perturb_lengths(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Add the noise of a cell: lengths are within ε when they are announced for the first time."""
        return np.asarray(lengths + self._noise(rows + 1, len(lengths), stream))

    def length_price(self, rows: int, again: bool) -> float:
        """Return nothing the first time, then ε/(z + 1): the noise is drawn anew."""
        return self.epsilon / (rows + 1) if again else 0.0

    def spends(self, questions: int) -> float:
        """Return ε with the first question, and no more."""
        return self.epsilon if questions > 0 else 0.0

    def statement(self, questions: int) -> dict[str, Any]:
        """Return ε, whatever is asked."""
        return self._statement(self.epsilon, "any number of questions by any number of parties")
