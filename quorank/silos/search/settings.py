"""Settings of a search over all parties: noise, answers, decoys and budgets, with strict privacy unless told otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from quorank.errors import require, require_choice, require_range
from quorank.silos.discrete_laplace import FINEST, UNIT, scale_for
from quorank.silos.hashing import MOST_COLUMNS
from quorank.text import FieldStatistics

FIELD = "search"
"""Name of the field under which the group's key hashes terms for a search."""
MOST_TERMS = 128
"""Different terms of a question."""
MOST_AMONG, MOST_NAMED = 16, 100
LENGTH_SHARE = Fraction(1, 8)
"""Share of ε for the announced lengths; the cells have the rest."""
DISTINCT = 0.6
"""Distinct terms of a document for each of its occurrences that an owner supposes at most, to count from noisy lengths."""

HORIZON = "any number of questions by any number of parties; again for a document that is changed"


@dataclass(frozen=True)
class SearchTerms:
    """What the parties of a group settle on before they search each other's documents."""

    kind: ClassVar[str] = "search"

    perturbation: Literal["strict", "published", "none"] = "strict"  # noise in sketches, or on answers
    epsilon: float = 8.0  # ε of one occurrence of one term in one document, cells and length together
    k: int = 5  # documents that an owner names for one bundle
    among: int = 3  # M, bundles of a question, one of them meant; 1 hides nothing
    decoys: Literal["coherent", "random"] = "coherent"  # bundles of terms that go together, or any
    share: float = 0.05  # of an owner's pairs (document, term) that one asker is told at most
    share_of_all: float = 0.10  # that all askers together are told at most
    share_of_document: float = 0.25  # of one document's pairs that one asker is told at most
    least_of_document: int = 5  # entries of a document that an asker may be told however short it is
    questions_a_day: int = 200  # questions that an owner answers one asker
    columns: int = 1 << 20  # w, columns of a sketch

    def __post_init__(self) -> None:
        require_choice("perturbation", self.perturbation, ("strict", "published", "none"))
        require_choice("decoys", self.decoys, ("coherent", "random"))
        require_range("epsilon", self.epsilon, least=0.001, most=64.0)
        require_range("k", self.k, least=1, most=MOST_NAMED)
        require_range("among", self.among, least=1, most=MOST_AMONG)
        for name in ("share", "share_of_all", "share_of_document"):
            require_range(name, getattr(self, name), above=0.0, most=1.0)
        said = (
            f"one asker is told up to {self.share:g} and all together {self.share_of_all:g}; give all at least as much"
        )
        require(self.share <= self.share_of_all, "option.conflict", said, "share_of_all")
        require_range("least_of_document", self.least_of_document, least=1)
        require_range("questions_a_day", self.questions_a_day, least=1)
        require_range("columns", self.columns, least=2, most=MOST_COLUMNS)
        scale_for(1, self.length_epsilon)

    @property
    def length_epsilon(self) -> float:
        """ε_L = ε/8, of the announced length, rounded down to millionths."""
        return math.floor(Fraction(str(self.epsilon)) * LENGTH_SHARE * FINEST) / FINEST

    @property
    def cell_epsilon(self) -> float:
        """ε_c = ε − ε_L, of the cell that an occurrence is counted in, rounded down to millionths."""
        return math.floor((Fraction(str(self.epsilon)) - Fraction(str(self.length_epsilon))) * FINEST) / FINEST

    @property
    def has_noise(self) -> bool:
        """Cells and lengths have noise before anything is computed from them."""
        return self.perturbation == "strict"

    @property
    def q(self) -> float:
        """q = e^(−ε_c): the noise X of a cell has P(X = x) ∝ q^|x|; 0 without noise."""
        return math.exp(-self.cell_epsilon) if self.has_noise else 0.0

    def statement(self, releases: int = 1) -> dict[str, Any]:
        """Return what an owner promises after so many releases of its documents (one, unless its secret was changed)."""
        epsilon = self.epsilon * releases if self.has_noise else None
        return {
            "kind": f"search, {self.perturbation}",
            "unit": UNIT,
            "neighbouring": "add or remove the occurrence",
            "epsilon": epsilon,
            "delta": 0.0 if epsilon is not None else None,
            "horizon": HORIZON if epsilon is not None else "cells and lengths are released as they are",
        }


def distinct_share(body: FieldStatistics) -> float:
    """Return distinct terms for each occurrence by the group's statistics, which are released anyway; 0.6 at most.

    Long documents repeat more: with 0.6 for them, a share of pairs would be more than it says.
    """
    if body.distinct_total is None or body.collection_length <= 0:
        return DISTINCT
    return min(DISTINCT, max(body.distinct_total / body.collection_length, 0.01))
