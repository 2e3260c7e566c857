"""What an owner does to the cells that it releases (CS-F-LTR §IV-B step 3 and theorem 1), and what that promises.

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

from quorank.arrays import Int32s, Integers
from quorank.parts import Family
from quorank.silos.protocol.discrete_laplace import Stream, draw, scale_for
from quorank.silos.sketch.count_sketch import MOST_OCCURRENCES

UNIT = "one occurrence of one term in one document"


@dataclass(frozen=True)
class Exact:
    """Cells are released as they are."""

    kind: ClassVar[str] = "exact"
    fixed_documents: ClassVar[bool] = False
    at_build: ClassVar[bool] = False

    def answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """The values as they are."""
        return values

    def length(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """The lengths as they are: the paper takes them for public."""
        return lengths

    def spends(self, questions: int) -> float:
        """Nothing is promised, so nothing is spent."""
        return 0.0

    def statement(self, questions: int) -> dict[str, Any]:
        """What is promised: nothing."""
        return _statement(self.kind, None, "cells are released as they are")


@dataclass(frozen=True)
class OneSample:
    """Eq. 5 *as published*: C̃(a, h_a) = C(a, h_a) + Ñ with one Ñ for all cells of a document in an answer.

    Ñ is discrete Laplace with the paper's scale 1/ε: cells are whole numbers, and their low-order bits stay whole.
    """

    kind: ClassVar[str] = "published"
    fixed_documents: ClassVar[bool] = False
    at_build: ClassVar[bool] = False

    epsilon: float = 0.5  # ε

    def __post_init__(self) -> None:
        scale_for(1, self.epsilon)

    def answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """One number for each document."""
        documents, which = np.unique(ids, return_inverse=True)
        return np.asarray(values + draw(stream, scale_for(1, self.epsilon), len(documents))[which])

    def length(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """The lengths as they are: the paper takes them for public."""
        return lengths

    def spends(self, questions: int) -> float:
        """As the paper counts: ε for each question."""
        return self.epsilon * questions

    def statement(self, questions: int) -> dict[str, Any]:
        """What is promised for what is sent: nothing; the paper's ε is told beside it."""
        told = "one sample for all cells hides none of their differences: the published ε covers their median only"
        return _statement(self.kind, None, told) | {"published_epsilon": self.spends(questions)}


@dataclass(frozen=True)
class EachAnswer:
    """Independent discrete Laplace noise of scale z/ε on every released cell, anew in every answer."""

    kind: ClassVar[str] = "each-answer"
    fixed_documents: ClassVar[bool] = True
    at_build: ClassVar[bool] = False

    epsilon: float = 0.5  # of one document and one question

    def __post_init__(self) -> None:
        scale_for(1, self.epsilon)

    def answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """Every cell with a number of its own."""
        return np.asarray(values + draw(stream, scale_for(rows, self.epsilon), len(values)))

    def length(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Lengths change by one between neighbours: scale 1/ε, counted as one question more."""
        return np.asarray(lengths + draw(stream, scale_for(1, self.epsilon), len(lengths)))

    def spends(self, questions: int) -> float:
        """ε for each question: answers about the same document add up."""
        return self.epsilon * questions

    def statement(self, questions: int) -> dict[str, Any]:
        """ε after so many questions; the lengths, where they are told, count as one."""
        return _statement(self.kind, self.spends(questions), f"{questions:,} questions, by adding up")


@dataclass(frozen=True)
class AtBuild:
    """Independent discrete Laplace noise of scale (z + 1)/ε on every cell of a document's sketch and on its length, once.

    A document that is changed and added again is released again: ε for each version.
    """

    kind: ClassVar[str] = "at-build"
    fixed_documents: ClassVar[bool] = False
    at_build: ClassVar[bool] = True

    epsilon: float = 0.5  # of one document, for good

    def __post_init__(self) -> None:
        scale_for(1, self.epsilon)

    def table(self, table: Int32s, stream: Stream) -> Int32s:
        """A document's (z, w) sketch with noise in every cell, also where nothing was counted."""
        noise = draw(stream, scale_for(len(table) + 1, self.epsilon), table.size)
        noisy = np.clip(table + noise.reshape(table.shape), -MOST_OCCURRENCES, MOST_OCCURRENCES)
        return np.asarray(noisy, dtype=np.int32)

    def answer(self, ids: Integers, values: Integers, rows: int, stream: Stream) -> Integers:
        """The values as they are: what is stored is noisy already."""
        return values

    def length(self, lengths: Integers, rows: int, stream: Stream) -> Integers:
        """Lengths with the noise of a cell: within ε when they are told for the first time."""
        return np.asarray(lengths + draw(stream, scale_for(rows + 1, self.epsilon), len(lengths)))

    def lengths_again(self, rows: int) -> float:
        """What it costs to draw and tell the lengths once more, in another session: ε/(z + 1)."""
        return self.epsilon / (rows + 1)

    def spends(self, questions: int) -> float:
        """ε with the first question, and no more."""
        return self.epsilon if questions > 0 else 0.0

    def statement(self, questions: int) -> dict[str, Any]:
        """ε, whatever is asked."""
        return _statement(self.kind, self.epsilon, "any number of questions by any number of parties")


Perturbation = Exact | OneSample | EachAnswer | AtBuild
PERTURBATIONS: Family[Perturbation] = Family("perturbation", AtBuild, EachAnswer, OneSample, Exact)


def _statement(kind: str, epsilon: float | None, horizon: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "unit": UNIT,
        "neighbouring": "add or remove the occurrence",
        "epsilon": epsilon,
        "delta": 0.0 if epsilon is not None else None,
        "horizon": horizon,
    }
