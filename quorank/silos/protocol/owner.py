"""The owner's side of a question (CS-F-LTR algorithm 2): look the cells up, perturb them, keep count, or refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from quorank.arrays import Int32s, Integers
from quorank.errors import BadInput, require
from quorank.silos.protocol.budget import BudgetLedger, AnswerRelease
from quorank.silos.protocol.discrete_laplace import Stream
from quorank.silos.protocol.group import Group
from quorank.silos.protocol.messages import Kind
from quorank.silos.protocol.perturbation import EachAnswer, Exact, OneSample, Perturbation
from quorank.silos.protocol.questions import Answer, Ask, Catalogue, Refuse, most_vectors
from quorank.silos.sketch.ranking_cells import Cells

Streams = Callable[[str, int], Stream]
"""The noise of an answer by its asker and the number of the question, or of lengths by the owner and a field."""
ByQuestion = Callable[[int, Int32s], Stream]
"""The noise of one vector by its field and columns: whoever asks it, and however often, is told the same."""
_INT32 = np.iinfo(np.int32)


class Served(Protocol):
    """What a party answers from; `quorank.silos.protocol.serving` makes it of sketches."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def width(self) -> int: ...

    @property
    def fixed_documents(self) -> bool: ...

    @property
    def at_build(self) -> bool: ...

    def cells(self, columns: Int32s) -> Cells: ...


class Owner:
    """What a party serves, how it perturbs it, and what it has answered."""

    def __init__(
        self,
        group: Group,
        perturbation: Perturbation,
        ledger: BudgetLedger,
        streams: Streams,
        by_question: ByQuestion | None = None,
    ) -> None:
        self.group, self.perturbation, self.ledger = group, perturbation, ledger
        self._streams, self._by_question = streams, by_question
        self._served: dict[str, tuple[Served, str]] = {}
        self._catalogues: dict[str, Catalogue] = {}

    def serve(self, field: str, served: Served, build: str, fingerprint: str) -> None:
        """Answer questions about a field from these sketches, if they are the group's and fit the perturbation."""
        shape, kind = self.group.field(field), self.perturbation.kind
        require(
            served.fingerprint == fingerprint,
            f"the sketches of {field!r} were built with another key, rows or columns (checksum {served.fingerprint}, the "
            f"group's is {fingerprint}); build them with what hashing({field!r}) of this party gives",
        )
        self._check_width(field, served)
        require(
            served.fixed_documents or not self.perturbation.fixed_documents,
            f"perturbation {kind!r} needs answers about all documents, and who stands in a reverse top-K cell depends on "
            "what the documents say; use 'at-build', or serve NAIVE sketches",
        )
        require(
            served.at_build == self.perturbation.at_build,
            f"perturbation {kind!r} is set and the sketches of {field!r} were built "
            f"{'with' if served.at_build else 'without'} noise; build them again, or set what they have",
        )
        self._served[shape.name] = (served, build)

    def catalogue(
        self, field: str, documents: Sequence[int], lengths: Sequence[int], askers: Sequence[str]
    ) -> bytes:
        """The documents of a field and their lengths as all askers are told them: once in a session."""
        shape = self.group.field(field)
        ids, exact = np.asarray(documents, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
        require(
            field not in self._catalogues,
            f"the documents of {field!r} were described already in this session",
        )
        require(
            ids.shape == exact.shape == (len(ids),), f"{ids.size} documents cannot have {exact.size} lengths"
        )
        require(
            ids.min(initial=0) >= 0 and ids.max(initial=0) <= _INT32.max,
            "documents have numbers from 0 to 2^31 − 1",
        )
        order = np.argsort(ids, kind="stable")
        ids, exact = ids[order], exact[order]
        twice, empty = ids[1:][ids[1:] == ids[:-1]], ids[exact < 1]
        require(
            not len(twice),
            f"document {twice[:1].tolist()} stands twice in {field!r}; give each a number of its own",
        )
        require(
            not len(empty), f"document {empty[:1].tolist()} of {field!r} is empty; leave empty documents out"
        )
        self._charge_lengths(field, shape.rows, askers)
        index = self.group.fields.index(shape)
        told = self.perturbation.length(exact, shape.rows, self._streams(self.ledger.owner, index))
        self._catalogues[field] = Catalogue(index, ids.astype(np.int32), _as_int32(told))
        return self._catalogues[field].to_bytes()

    def answer(self, asker: str, number: int, text: bytes) -> tuple[Kind, bytes]:
        """The answer to a question, or why there is none; nothing is charged for a question that is refused."""
        try:
            ask = Ask.from_bytes(text, asker, self.group.fields)
            field = self.group.fields[ask.field].name
            require(
                field in self._served,
                f"{self.ledger.owner} does not serve the field {field!r} yet; ask later",
            )
            served, build = self._served[field]
            self._check_width(field, served)
            most = most_vectors(self.group.fields[ask.field])
            require(
                len(ask.columns) <= most,
                f"the answer would not fit into an envelope; ask for {most:,} vectors",
            )
            once = self.perturbation.at_build
            release = AnswerRelease(
                f"{field} {self.perturbation.kind} {build if once else ''}".strip(),
                self.perturbation.spends(1),
                once,
            )
            self.ledger.charge(asker, len(ask.columns), release)
        except BadInput as error:
            return Kind.REFUSE, Refuse(number, str(error)).to_bytes()
        of_all = self._streams(asker, number)

        def stream(columns: Int32s) -> Stream:
            return of_all if self._by_question is None else self._by_question(ask.field, columns)

        vectors = tuple(self._perturbed(served.cells(c), stream(c)) for c in ask.columns)
        return Kind.ANSWER, Answer(number, vectors, served.width).to_bytes()

    def _charge_lengths(self, field: str, rows: int, askers: Sequence[str]) -> None:
        """Lengths with noise of their own are paid for; those of a build are in its ε once, and again in each session."""
        part, name = self.perturbation, f"{field} lengths"
        if isinstance(part, Exact | OneSample):
            return
        for asker in askers:
            if isinstance(part, EachAnswer):
                price = part.spends(1)
            else:
                price = part.lengths_again(rows) if self.ledger.released(asker, name) else 0.0
            self.ledger.charge(asker, 1, AnswerRelease(name, price))

    def _perturbed(self, cells: Cells, stream: Stream) -> Cells:
        ids, values = cells.documents.astype(np.int64), cells.values.astype(np.int64)
        noisy = self.perturbation.answer(ids, values, len(cells.floors), stream)
        return cells if noisy is values else cells._replace(values=_as_int32(noisy))

    def _check_width(self, field: str, served: Served) -> None:
        entries = self.group.field(field).entries
        require(
            served.width <= entries,
            f"cells of {field!r} hold up to {served.width:,} documents and the group settled on {entries:,} entries; "
            "settle on more, or keep fewer",
        )


def _as_int32(values: Integers) -> Int32s:
    return np.asarray(np.clip(values, _INT32.min, _INT32.max), dtype=np.int32)
