"""Parameters of searches over all parties: noise, answers, decoys and budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from quorank.errors import require, require_choice, require_range
from quorank.silos.count_sketch import MOST_COLUMNS
from quorank.silos.discrete_laplace import FINEST, occurrence_statement, scale_for
from quorank.text import FieldStatistics

FIELD = "search"  # context in which the group's key hashes terms for searches
MOST_TERMS = 128  # different terms of a question
MOST_AMONG, MOST_NAMED = 16, 100
LENGTH_SHARE = Fraction(1, 8)  # share of ε for the announced lengths; the cells have the rest
DISTINCT = 0.6  # largest assumed number of distinct terms per occurrence, by which pairs are estimated

HORIZON = "any number of questions by any number of parties; again for a document that is changed"


@dataclass(frozen=True)
class SearchTerms:
    """Parameters that the parties of a group agree on before they search each other's documents."""

    kind: ClassVar[str] = "search"

    perturbation: Literal["strict", "none"] = "strict"  # noise in every cell and length, or in none
    epsilon: float = 8.0  # ε of one occurrence of one term in one document, cells and length together
    k: int = 5  # documents that an owner names for one bundle
    among: int = 3  # M, bundles of a question, one of which is the query; 1 hides nothing
    share: float = 0.025  # largest share of an owner's (document, term) pairs disclosed to one asker in a period
    share_of_all: float = 0.10  # largest share disclosed to all askers in a period, each of whom has an equal part
    share_of_document: float = 0.25  # largest share of one document's pairs disclosed to one asker, in all periods
    least_of_document: int = 5  # entries of a document that may always be disclosed to an asker
    questions_a_day: int = 200  # questions of one asker per day, refused ones included
    renew_days: int = 0  # days of a period, after which shares may be disclosed again; 0: never
    columns: int = 1 << 20  # w, columns of a sketch

    def __post_init__(self) -> None:
        require_choice("perturbation", self.perturbation, ("strict", "none"))
        require_range("epsilon", self.epsilon, least=0.001, most=64.0)
        require_range("k", self.k, least=1, most=MOST_NAMED)
        require_range("among", self.among, least=1, most=MOST_AMONG)
        for name in ("share", "share_of_all", "share_of_document"):
            require_range(name, getattr(self, name), above=0.0, most=1.0)
        said = f"one asker may learn up to {self.share:g} and all together {self.share_of_all:g}; raise the latter"
        require(self.share <= self.share_of_all, "option.conflict", said, "share_of_all")
        require_range("least_of_document", self.least_of_document, least=1)
        require_range("questions_a_day", self.questions_a_day, least=1)
        require_range("renew_days", self.renew_days, least=0)
        require_range("columns", self.columns, least=2, most=MOST_COLUMNS)
        scale_for(1, self.length_epsilon)

    @property
    def length_epsilon(self) -> float:
        """ε_L = ε/8, budget of the announced length, rounded down to millionths."""
        return math.floor(Fraction(str(self.epsilon)) * LENGTH_SHARE * FINEST) / FINEST

    @property
    def cell_epsilon(self) -> float:
        """ε_c = ε − ε_L, budget of the cell that counts an occurrence, rounded down to millionths."""
        return math.floor((Fraction(str(self.epsilon)) - Fraction(str(self.length_epsilon))) * FINEST) / FINEST

    @property
    def has_noise(self) -> bool:
        """True if cells and lengths have noise before anything is computed from them."""
        return self.perturbation == "strict"

    @property
    def q(self) -> float:
        """q = e^(−ε_c): the noise X of a cell has P(X = x) ∝ q^|x|; 0 without noise."""
        return math.exp(-self.cell_epsilon) if self.has_noise else 0.0

    def entries(self, pairs: float, askers: int) -> int:
        """Return the entries that one of some askers may learn in a period, of an owner with this number of pairs."""
        return math.floor(min(self.share, self.share_of_all / askers) * pairs)

    def most_told(self, terms: int) -> int:
        """Return the most entries that an owner discloses in a search with this number of terms."""
        return self.among * self.k * terms

    @property
    def periods_a_year(self) -> int:
        """Return the most periods of budgets that begin within 365 days."""
        return -(-365 // self.renew_days) if self.renew_days else 1

    def budget(self, pairs: int, askers: int) -> dict[str, Any]:
        """Return what searches of some askers cost an owner with this number of pairs.

        `entries` and the `searches` of 3 terms that they allow at least are those of one asker in a period.
        """
        one, stated = self.entries(pairs, askers), self.statement()
        return {
            "pairs": pairs,
            "entries": one,
            "entries_of_all_a_year": min(self.periods_a_year * askers * one, pairs),
            "renew_days": self.renew_days,
            "searches": one // self.most_told(3),
            "epsilon": stated["epsilon"],
            "unit": stated["unit"],
        }

    def statement(self) -> dict[str, Any]:
        """Return the guarantee of an owner after one release of its documents."""
        horizon = HORIZON if self.has_noise else "cells and lengths are released as they are"
        return occurrence_statement(f"search, {self.perturbation}", self.epsilon if self.has_noise else None, horizon)


def distinct_share(body: FieldStatistics) -> float:
    """Return the distinct terms per occurrence by the group's statistics, at most 0.6.

    Long documents repeat more terms: with a fixed 0.6, a share of their pairs would exceed its name.
    """
    if body.distinct_total is None or body.collection_length <= 0:
        return DISTINCT
    return min(DISTINCT, max(body.distinct_total / body.collection_length, 0.01))
