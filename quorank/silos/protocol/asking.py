"""The asker's side of a question (CS-F-LTR algorithm 1): hide terms, cut them into envelopes, read what came back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from quorank.arrays import Int8s, Integers
from quorank.errors import require
from quorank.silos.protocol.group import Field, Group
from quorank.silos.protocol.obfuscation import Hidden, Obfuscation, RememberedPlaces
from quorank.silos.protocol.questions import Answer, Ask, most_vectors
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.ranking_cells import Cells


@dataclass(frozen=True)
class Answered:
    """What an owner said about a term, with what `rank(cells, signs, rows, k, shape)` needs to read it."""

    term: str
    owner: str
    field: str
    cells: Cells
    signs: Int8s  # (z,): g(t)
    rows: Integers  # PV, the rows that are the term's


@dataclass(frozen=True)
class Question:
    """Terms of one envelope as they were hidden: what only the asker knows, and needs to read the answer."""

    terms: tuple[str, ...]
    field: Field
    index: int  # of the field
    hidden: list[Hidden]

    def to_bytes(self) -> bytes:
        """All that the owner sees of it."""
        return Ask(self.index, np.concatenate([each.columns for each in self.hidden])).to_bytes()

    def read(self, text: bytes, owner: str) -> list[Answered]:
        """An owner's answer, one for each term."""
        each = len(self.hidden[0].columns)
        answer = Answer.from_bytes(text, owner, each * len(self.hidden), self.field)
        return [
            Answered(
                term,
                owner,
                self.field.name,
                answer.vectors[at * each + hidden.vector],
                hidden.signs,
                hidden.rows,
            )
            for at, (term, hidden) in enumerate(zip(self.terms, self.hidden, strict=True))
        ]


class Asker:
    """Makes questions of a group's fields."""

    def __init__(
        self, group: Group, obfuscation: Obfuscation, hashing: Callable[[str], Hashing], asked: int = 0
    ) -> None:
        self.group, self.obfuscation, self._hashing = group, obfuscation, hashing
        self._asked = asked
        self._places: dict[str, RememberedPlaces] = {}

    def most_terms(self, field: str) -> int:
        """How many terms one envelope may ask about."""
        shape = self.group.field(field)
        most = most_vectors(shape) // self.obfuscation.vectors(shape.rows)
        require(
            most >= 1, f"one question about {field!r} does not fit into an envelope; settle on fewer entries"
        )
        return most

    def batches(self, terms: Sequence[str], field: str) -> list[tuple[str, ...]]:
        """The terms cut into as many envelopes as they need."""
        most = self.most_terms(field)
        return [tuple(terms[at : at + most]) for at in range(0, len(terms), most)]

    def question(self, terms: Sequence[str], field: str) -> Question:
        """The question about terms that fit into one envelope."""
        words = tuple(terms)
        require(
            words and all(isinstance(term, str) and term for term in words),
            "a question is about one term or more, and none of them is empty",
        )
        require(
            len(words) <= self.most_terms(field),
            f"{len(words):,} terms are too many for one envelope; ask about {self.most_terms(field):,} at a time",
        )
        shape = self.group.field(field)
        places = self._places.setdefault(field, RememberedPlaces(self._hashing(field)))
        hidden = []
        for term in words:
            hidden.append(self.obfuscation.hide(term, places, self._asked))
            self._asked += 1
        return Question(words, shape, self.group.fields.index(shape), hidden)
