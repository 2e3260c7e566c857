"""Reader of collections with judgements per intent, in the layout of the TREC Web Track features (clueweb09-intents).

A folder holds fold1.txt to fold5.txt (LETOR text with document ids) and intent_labels.tsv, each plain or gzipped. The
table has the header `fold qid docid graded i0 i1 …`, separated by tabs, and one line for each row of the folds: the
graded label, which must be the row's, and for each intent 1 if the document is relevant to it, else 0.

The graded label is no union of the intents: documents occur that are relevant to an intent and graded 0. Merged data
are therefore made from the intents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quorank.data.layout import FOLDS, find_file
from quorank.data.letor.reader import read_letor
from quorank.data.ranking import Collection, RankingData, join_parts, rows_of_lists
from quorank.errors import BadInput, brief, printable, require, require_range
from quorank.files.untrusted import read_bounded
from quorank.kernels.arrays import Booleans, Int8s, Integers

TABLE = "intent_labels.tsv"
INTENTS = 4  # intents of a query that are read, as in the thesis; further ones have few relevant documents
_FIRST = ("fold", "qid", "docid", "graded")
_EXPECTED = f"fold1.txt to fold5.txt and {TABLE}"


@dataclass(frozen=True, eq=False)
class Intents:
    """Candidate lists and what is relevant to each intent."""

    data: RankingData  # with the graded labels
    labels: Int8s  # (intents, rows) 1 is relevant
    fold: Integers  # (queries,) from 1

    def complete(self) -> Intents:
        """Return the queries that have a relevant document for every intent."""
        query = self.data.query_of_rows()
        found = [np.bincount(query, labels, self.data.n_queries) > 0 for labels in self.labels]
        return self.select(np.all(found, axis=0))

    def select(self, wanted: Booleans) -> Intents:
        """Return the `wanted` (queries,) queries."""
        lists = np.flatnonzero(wanted)
        rows, _ = rows_of_lists(self.data.offsets, lists)
        return Intents(self.data.select_lists(lists), np.ascontiguousarray(self.labels[:, rows]), self.fold[lists])


@dataclass(frozen=True, eq=False)
class IntentCollection(Collection):
    """Collection with relevance judgements per intent of a query."""

    train_intents: Int8s = field(kw_only=True)  # (intents, rows) 1 is relevant
    test_intents: Int8s = field(kw_only=True)


def intent_collection(
    folder: Path, fold: int | None = None, read: Callable[[Path], RankingData] = read_letor
) -> IntentCollection:
    """Read the queries of a folder that have a relevant document for each of the four intents.

    Without a fold, rankers are tested on the training queries, as the thesis does; with one, they train on three parts
    and are tested on another as in `quorank.data.layout`.
    """
    intents = read_intents(folder, read).complete()
    sentence = f"has no query with a relevant document for each of {INTENTS} intents"
    require(intents.data.n_queries, "intents.no-queries", sentence, f"{folder}")
    train = test = intents
    if fold is not None:
        require_range("fold", fold, least=1, most=FOLDS)
        turn = (intents.fold - fold) % FOLDS
        train, test = intents.select(turn < FOLDS - 2), intents.select(turn == FOLDS - 1)
        sentence = f"fold {fold} is left without training or test queries that answer {INTENTS} intents"
        require(train.data.n_queries and test.data.n_queries, "intents.no-queries", sentence, f"{folder}")
    name, own, judged = f"intents:{folder}", train.labels, test.labels
    return IntentCollection(name, train.data, test.data, train_intents=own, test_intents=judged)


def read_intents(folder: Path, read: Callable[[Path], RankingData] = read_letor) -> Intents:
    """Read all queries of a folder with their first four intents; BadInput names the file and the line."""
    require(folder.is_dir(), "file.missing", f"is no folder; expected one with {_EXPECTED}", f"{folder}")
    parts = [read(find_file(folder, f"fold{fold}.txt")) for fold in range(1, FOLDS + 1)]
    data = join_parts(parts)
    fold = np.repeat(np.arange(1, FOLDS + 1), [part.n_queries for part in parts]).astype(np.int64)
    sentence = "has fold files without document ids; expected a comment `#docid = …` behind each row"
    require(data.document_ids is not None, "intents.no-document-ids", sentence, f"{folder}")
    return Intents(data, _read_table(find_file(folder, TABLE), data, fold), fold)


def _read_table(path: Path, data: RankingData, fold: Integers) -> Int8s:
    try:
        lines = read_bounded(path).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        sentence = f"is not UTF-8 text; expected a table with columns {', '.join(_FIRST)}, i0, …"
        raise BadInput("file.unreadable", sentence, f"{path}") from None
    header = lines[0].split("\t") if lines else []
    wanted = [*_FIRST, *(f"i{i}" for i in range(max(INTENTS, len(header) - len(_FIRST))))]

    def expect(condition: object, line: int, sentence: str) -> None:
        require(condition, "intents.malformed", sentence, f"{path}:{line}")

    found = f"found the header {brief(' '.join(header[:20]))}"
    expect(header == wanted, 1, f"{found}, expected {brief(' '.join(wanted))} with tabs between")
    rows = _rows_by_name(data, fold)
    labels = np.full((INTENTS, data.n_rows), -1, dtype=np.int8)
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if cells == [""]:
            continue
        sentence = f"found {len(cells)} columns, expected the {len(header)} of the header, with tabs between"
        expect(len(cells) == len(header), number, sentence)
        for name, cell in zip(header[4:], cells[4:], strict=True):
            expect(cell in ("0", "1"), number, f"found {name} = {brief(cell)}, expected 0 or 1")
        of_fold, query, name, graded = cells[:4]
        document, row = f"document {brief(name)} of query {brief(query)}", rows.get((of_fold, query, name), -1)
        expect(row >= 0, number, f"found {document}, which fold {printable(of_fold[:20])} does not have")
        expect(labels[0, row] < 0, number, f"{document} is judged twice")
        has = f"the document has label {data.labels[row]} in fold {of_fold}"
        expect(graded == str(data.labels[row]), number, f"found graded label {brief(graded)}, but {has}")
        labels[:, row] = [int(cell) for cell in cells[4 : 4 + INTENTS]]
    missing = np.flatnonzero(labels[0] < 0)
    if len(missing):
        (of_fold, query, name), _ = next(item for item in rows.items() if item[1] == missing[0])
        first = f"the first is document {name!r} of query {query!r} in fold {of_fold}"
        sentence = f"has no judgement for {len(missing)} of {data.n_rows} rows; {first}"
        raise BadInput("intents.not-judged", sentence, f"{path}")
    return labels


def _rows_by_name(data: RankingData, fold: Integers) -> dict[tuple[str, str, str], int]:
    assert data.document_ids is not None
    queries, folds = list(data.query_ids), [str(f) for f in fold]
    rows: dict[tuple[str, str, str], int] = {}
    for row, (query, document) in enumerate(zip(data.query_of_rows().tolist(), data.document_ids, strict=True)):
        name = (folds[query], queries[query], document)
        sentence = f"fold {name[0]} holds document {document!r} twice for query {name[1]!r}; expected it once"
        require(name not in rows, "intents.document-twice", sentence)
        rows[name] = row
    return rows
