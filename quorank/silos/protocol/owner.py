"""Owner's side of a question (CS-F-LTR algorithm 2): look the cells up, perturb them, charge the asker, or refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Int32s, Integers
from quorank.silos.protocol.budget import AnswerRelease, BudgetLedger
from quorank.silos.protocol.discrete_laplace import Stream, SystemStream
from quorank.silos.protocol.group import Group
from quorank.silos.protocol.messages import Answer, Ask, Catalogue, Kind, Refuse, most_vectors
from quorank.silos.protocol.perturbation import Exact, Perturbation
from quorank.silos.sketch.naive import Naive
from quorank.silos.sketch.ranking import Cells
from quorank.silos.sketch.reverse_top_k import ReverseTopK

Streams = Callable[[str, int], Stream]
"""Noise of an answer by its asker and the number of the question, or of lengths by the owner and a field."""
ByQuestion = Callable[[int, Int32s], Stream]
"""Noise of one vector by its field and columns: the same question has the same noise for every asker, every time."""
_INT32 = np.iinfo(np.int32)


class Served(Protocol):
    """Sketches of one field that a party answers from.

    `fingerprint` is that of their hash functions, `width` the most documents in a cell of an answer; an answer may name
    all documents, and the stored cells may have noise.
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def names_all_documents(self) -> bool: ...
    @property
    def has_noise(self) -> bool: ...

    def cells(self, columns: Int32s) -> Cells: ...


class ServedTopK:
    """RTK-Sketch that is served, built exactly or, with a perturbation at build, with noise in every cell.

    With such noise, documents enter the sketch through `add` of this class and no other way. A sketch that was saved with
    noise in it is served by `ServedTopK(loaded, perturbation)` again: what is in it stays. `streams` gives the random
    words of a document's noise, for simulation; else they are the system's.
    """

    names_all_documents = False

    def __init__(
        self,
        structure: ReverseTopK,
        perturbation: Perturbation | None = None,
        streams: Callable[[int], Stream] | None = None,
    ) -> None:
        self.structure, self.perturbation = structure, perturbation or Exact()
        self.fingerprint, self.has_noise = structure.hashing.fingerprint(), self.perturbation.perturbs_at_build
        system = SystemStream()
        self._streams = streams or (lambda document: system)

    @property
    def width(self) -> int:
        """The most documents that a cell of an answer can hold."""
        return min(self.structure.shape.capacity, max(len(self.structure), 1))

    def add(self, document: int, terms: Sequence[str], counts: Sequence[int] | npt.ArrayLike) -> None:
        """Add a document; with noise, in every cell of its sketch, also in those where nothing is counted."""
        if not self.has_noise:
            self.structure.add(document, terms, counts)
            return
        exact = self.structure.document_table(document, terms, counts)
        self.structure.add_sketch(document, self.perturbation.perturb_table(exact, self._streams(document)))

    def remove(self, *documents: int) -> None:
        """Remove documents; answers that were given about them cannot be taken back."""
        self.structure.remove(*documents)

    def cells(self, columns: Int32s) -> Cells:
        """Return the cells of one vector."""
        return self.structure.cells(columns)


class ServedNaive:
    """NAIVE sketches that are served: every answer is about all documents, in whatever cells."""

    names_all_documents = True
    has_noise = False

    def __init__(self, sketches: Naive) -> None:
        self.sketches, self.fingerprint = sketches, sketches.hashing.fingerprint()

    @property
    def width(self) -> int:
        """The number of documents."""
        return max(len(self.sketches), 1)

    def cells(self, columns: Int32s) -> Cells:
        """Return the cell of every document in every row; no document is absent."""
        found, documents = self.sketches.cells(columns), self.sketches.documents
        n, z = found.shape
        return Cells(
            np.arange(z + 1, dtype=np.int64) * n,
            np.tile(documents.astype(np.int32), z),
            np.ascontiguousarray(found.T, dtype=np.int32).ravel(),
            np.zeros(z, dtype=np.int32),
        )


class Owner:
    """Owner of documents: the sketches that it serves, their perturbation, and the ledger of its answers."""

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
        shape, noise = self.group.field(field), self.perturbation
        said = f"the sketches of {field!r} were built with another key, rows or columns; build them with hashing({field!r})"
        require(served.fingerprint == fingerprint, "sketch.other-hashing", said)
        self._check_width(field, served)
        why = "who stands in a reverse top-K cell depends on what the documents say"
        said = f"{noise.kind!r} needs answers about all documents, and {why}; use 'at-build', or serve NAIVE sketches"
        require(served.names_all_documents or not noise.needs_all_documents, "option.conflict", said)
        built = f"the sketches of {field!r} were built {'with' if served.has_noise else 'without'} noise"
        said = f"perturbation {noise.kind!r} is set and {built}; build them again, or set what they have"
        require(served.has_noise == noise.perturbs_at_build, "option.conflict", said)
        self._served[shape.name] = (served, build)

    def catalogue(self, field: str, documents: Sequence[int], lengths: Sequence[int], askers: Sequence[str]) -> bytes:
        """Return the catalogue of a field for all askers, once in a session: documents and their perturbed lengths."""
        shape = self.group.field(field)
        ids, exact = np.asarray(documents, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
        said = f"the documents of {field!r} were described already in this session"
        require(field not in self._catalogues, "silo-catalogue.repeated", said)
        said = f"{ids.size} documents cannot have {exact.size} lengths"
        require(ids.shape == exact.shape == (len(ids),), "silo-catalogue.bad-lengths", said)
        is_inside = ids.min(initial=0) >= 0 and ids.max(initial=0) <= _INT32.max
        require(is_inside, "value.out-of-range", "documents have numbers from 0 to 2^31 − 1")
        order = np.argsort(ids, kind="stable")
        ids, exact = ids[order], exact[order]
        twice, empty = ids[1:][ids[1:] == ids[:-1]], ids[exact < 1]
        said = f"document {twice[:1].tolist()} stands twice in {field!r}; give each a number of its own"
        require(not len(twice), "silo-catalogue.repeated-document", said)
        said = f"document {empty[:1].tolist()} of {field!r} is empty; leave empty documents out"
        require(not len(empty), "silo-catalogue.empty-document", said)
        self._charge_lengths(field, shape.rows, askers)
        index = self.group.fields.index(shape)
        noisy = self.perturbation.perturb_lengths(exact, shape.rows, self._streams(self.ledger.owner, index))
        self._catalogues[field] = Catalogue(index, ids.astype(np.int32), _as_int32(noisy))
        return self._catalogues[field].to_bytes()

    def answer(self, asker: str, number: int, text: bytes) -> tuple[Kind, bytes]:
        """Return the answer to a question, or why there is none; a question that is refused is not charged."""
        try:
            ask = Ask.from_bytes(text, asker, self.group.fields)
            field = self.group.fields[ask.field].name
            said = f"{self.ledger.owner} does not serve the field {field!r} yet; ask later"
            require(field in self._served, "silo-question.not-served", said)
            served, build = self._served[field]
            self._check_width(field, served)
            most = most_vectors(self.group.fields[ask.field])
            said = f"the answer would not fit into an envelope; ask for {most:,} vectors"
            require(len(ask.columns) <= most, "silo-answer.too-large", said)
            once = self.perturbation.perturbs_at_build
            name = f"{field} {self.perturbation.kind} {build if once else ''}".strip()
            self.ledger.charge(asker, len(ask.columns), AnswerRelease(name, self.perturbation.spends(1), once))
        except BadInput as error:
            return Kind.REFUSE, Refuse(number, str(error)).to_bytes()
        of_all = self._streams(asker, number)

        def stream(columns: Int32s) -> Stream:
            return of_all if self._by_question is None else self._by_question(ask.field, columns)

        vectors = tuple(self._perturbed(served.cells(c), stream(c)) for c in ask.columns)
        return Kind.ANSWER, Answer(number, vectors, served.width).to_bytes()

    def _charge_lengths(self, field: str, rows: int, askers: Sequence[str]) -> None:
        """Charge lengths that have noise; those of a build are in its ε once, and cost again in each later session."""
        if not self.perturbation.perturbs_lengths:
            return
        name = f"{field} lengths"
        for asker in askers:
            again = self.ledger.released(asker, name) > 0
            self.ledger.charge(asker, 1, AnswerRelease(name, self.perturbation.length_price(rows, again)))

    def _perturbed(self, cells: Cells, stream: Stream) -> Cells:
        ids, values = cells.documents.astype(np.int64), cells.values.astype(np.int64)
        noisy = self.perturbation.perturb_answer(ids, values, len(cells.floors), stream)
        return cells if noisy is values else cells._replace(values=_as_int32(noisy))

    def _check_width(self, field: str, served: Served) -> None:
        entries, width = self.group.field(field).entries, served.width
        said = f"cells of {field!r} hold up to {width:,} documents and the group settled on {entries:,} entries; keep fewer"
        require(width <= entries, "silo-answer.too-large", said)


def _as_int32(values: Integers) -> Int32s:
    return np.asarray(np.clip(values, _INT32.min, _INT32.max), dtype=np.int32)
