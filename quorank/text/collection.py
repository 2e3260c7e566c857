"""Text collection: documents, queries, and which documents answer which query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat

from quorank.errors import BadInput
from quorank.foreign import excerpt


@dataclass(frozen=True, slots=True)
class Document:
    """A text that may be found. Where a format has no titles, its reader says what stands for one."""

    id: str
    title: str
    body: str

    @property
    def is_empty(self) -> bool:
        """Nothing but white space in title and body."""
        return not (self.title.strip() or self.body.strip())


@dataclass(frozen=True, slots=True)
class Query:
    """What somebody searched for."""

    id: str
    text: str


@dataclass(frozen=True)
class TextCollection:
    """Documents and queries in the order of their files. A collection may have no queries and no judgements."""

    name: str
    documents: tuple[Document, ...] = field(repr=False)
    queries: tuple[Query, ...] = field(default=(), repr=False)
    # query id → document id → grade; 0 is judged and not relevant, higher is better
    judgements: Mapping[str, Mapping[str, int]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        refuse_twice(self.name, "document", (document.id for document in self.documents))
        refuse_twice(self.name, "query", (query.id for query in self.queries))

    def without_empty(self) -> TextCollection:
        """Return the collection without documents that hold no text, and without judgements of them."""
        empty = {document.id for document in self.documents if document.is_empty}
        if not empty:
            return self
        left = {
            query: {document: grade for document, grade in grades.items() if document not in empty}
            for query, grades in self.judgements.items()
        }
        documents = tuple(document for document in self.documents if document.id not in empty)
        return replace(self, documents=documents, judgements={q: grades for q, grades in left.items() if grades})


def refuse_twice(where: str, what: str, ids: Iterable[str], lines: Iterable[int] | None = None) -> None:
    """Refuse an id that stands twice; `lines` are those of a file where the ids stand."""
    seen: set[str] = set()
    for id_, line in zip(ids, repeat(0) if lines is None else lines, strict=False):
        if id_ in seen:
            sentence = f"the {what} id {excerpt(id_)} stands twice; expected a different id for each {what}"
            raise BadInput("text.id-twice", sentence, f"{where}, line {line}" if line else where)
        seen.add(id_)
