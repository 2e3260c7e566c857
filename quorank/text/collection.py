"""Text collection: documents, queries, relevance judgements, and a record of skipped content."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

from quorank.errors import BadInput, brief
from quorank.text.tokens import normalised_words

_NAME = 32  # characters of a name that are shown
NAMED_FORMATS = "BEIR, JSON lines, SMART, TREC, Reuters SGML, folder of text files or mbox"
"""Names of the readable formats, as `TextCollection.format` has them, for an option's help."""
LAYOUTS = (
    "a folder with corpus.jsonl (BEIR) or its zip file, a .jsonl file, SMART records (.I .T .W), "
    "TREC text (<DOC>), Reuters SGML (<REUTERS>), a folder of .txt or .md files, or an mbox file"
)
"""Layouts of the formats, for errors."""


@dataclass(frozen=True, slots=True)
class Document:
    """Document; a reader of a format without titles chooses one."""

    id: str
    title: str
    body: str

    @property
    def is_empty(self) -> bool:
        """Nothing but white space in title and body."""
        return not (self.title.strip() or self.body.strip())


@dataclass(frozen=True, slots=True)
class Query:
    """Query with its id."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Number of items that were skipped for one reason, and the name of the first."""

    count: int
    example: str


SkipRecord = Mapping[str, Skipped]  # reason, as `judgements_of_unknown_queries`, → skipped items


@dataclass(frozen=True)
class TextCollection:
    """Documents and queries in the order of their files. A collection may have no queries and no judgements."""

    name: str
    documents: tuple[Document, ...] = field(repr=False)
    queries: tuple[Query, ...] = field(default=(), repr=False)
    # query id → document id → grade; 0 is judged and not relevant, higher is better
    judgements: Mapping[str, Mapping[str, int]] = field(default_factory=dict, repr=False)
    skipped: SkipRecord = field(default_factory=dict, repr=False)
    format: str = ""  # of its files: SMART, TREC, …

    def __post_init__(self) -> None:
        refuse_twice(self.name, "document", (document.id for document in self.documents))
        refuse_twice(self.name, "query", (query.id for query in self.queries))

    def without_empty(self) -> TextCollection:
        """Return the collection without documents and queries that hold no text, and without judgements of them."""
        empty = {document.id: None for document in self.documents if document.is_empty}
        silent = {query.id: None for query in self.queries if not normalised_words(query.text).strip()}
        if not (empty or silent):
            return self
        of_silent, of_empty = list[str](), list[str]()
        judgements: dict[str, dict[str, int]] = {}
        for query, grades in self.judgements.items():
            if query in silent:
                of_silent += [query] * len(grades)
                continue
            of_empty += [document for document in grades if document in empty]
            if kept := {document: grade for document, grade in grades.items() if document not in empty}:
                judgements[query] = kept
        return replace(
            self,
            documents=tuple(document for document in self.documents if document.id not in empty),
            queries=tuple(query for query in self.queries if query.id not in silent),
            judgements=judgements,
            skipped=add_skipped(
                self.skipped,
                empty_documents=list(empty),
                queries_without_a_word=list(silent),
                judgements_of_empty_documents=of_empty,
                judgements_of_queries_without_a_word=of_silent,
            ),
        )


def add_skipped(before: SkipRecord, **reasons: Sequence[str]) -> SkipRecord:
    """Return the record with further skipped names by reason; reasons without names are omitted."""
    after = dict(before)
    for reason, names in reasons.items():
        if names:
            known = after.get(reason, Skipped(0, names[0]))
            after[reason] = Skipped(known.count + len(names), known.example)
    return after


def describe_skipped(skipped: SkipRecord, name: str = "") -> str:
    """Describe the skipped content in lines of at most 80 columns; empty for an empty record.

    >>> describe_skipped({"empty_documents": Skipped(2, "471")}, "cranfield")
    "cranfield: left out 2 × empty documents ('471', …)"
    """
    if not skipped:
        return ""
    reasons = [
        f"{left_out.count:,} × {reason.replace('_', ' ')} ({brief(left_out.example, _NAME)}{', …' * (left_out.count > 1)})"
        for reason, left_out in skipped.items()
    ]
    beginning = f"{brief(name, _NAME)[1:-1]}: left out " if name else "left out "
    return textwrap.fill(beginning + ", ".join(reasons), 80, subsequent_indent="  ", break_on_hyphens=False)


def refuse_twice(where: str, what: str, ids: Iterable[str], lines: Iterable[int] | None = None) -> None:
    """Reject a repeated id; `lines` are the line numbers of the ids in their file."""
    seen: set[str] = set()
    for id_, line in zip(ids, repeat(0) if lines is None else lines, strict=False):
        if id_ in seen:
            sentence = f"the {what} id {brief(id_)} stands twice; expected a different id for each {what}"
            raise BadInput("text.id-twice", sentence, f"{where}, line {line}" if line else where)
        seen.add(id_)
