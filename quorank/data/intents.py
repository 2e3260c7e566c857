"""Collections with judgements per intent, in the layout of the TREC Web Track features (clueweb09-intents).

A folder holds fold1.txt to fold5.txt (LETOR text with document ids) and intent_labels.tsv, each plain or gzipped. The
table has the header `fold qid docid graded i0 i1 …`, separated by tabs, and one line for each row of the folds: the
graded label, which must be the row's, and for each intent 1 if the document is relevant to it, else 0.

The graded label is no union of the intents: documents occur that are relevant to an intent and graded 0. Merged data
are therefore made from the intents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from quorank.arrays import Int8s, Integers
from quorank.data.cache import load_letor
from quorank.data.letor.reader import read_bytes
from quorank.data.ranking import Collection, RankingData, documents_of
from quorank.data.source import FOLDS, join
from quorank.errors import BadInput, require

TABLE = "intent_labels.tsv"
INTENTS = 4
"""Intents of a query that the thesis uses; the further ones of the table have few relevant documents."""
_FIRST = ("fold", "qid", "docid", "graded")


@dataclass(frozen=True, eq=False)
class Intents:
    """Candidate lists and what is relevant to each intent."""

    data: RankingData  # with the graded labels
    labels: Int8s  # (intents, rows) 1 is relevant
    fold: Integers  # (queries,) from 1

    def __post_init__(self) -> None:
        _check("intents", self.data, self.labels)

    def complete(self) -> Intents:
        """Only the queries that have a relevant document for every intent."""
        sizes = np.diff(self.data.offsets)
        query = np.repeat(np.arange(self.data.n_queries), sizes)
        found = [np.bincount(query, labels, self.data.n_queries) > 0 for labels in self.labels]
        return self.only(np.all(found, axis=0))

    def only(self, wanted: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Intents:
        """Some of the queries."""
        data, sizes = self.data, np.diff(self.data.offsets)
        rows = np.flatnonzero(np.repeat(wanted, sizes)).astype(np.int64)
        kept = replace(
            data,
            padded=data.padded[rows],
            labels=data.labels[rows],
            offsets=np.append(0, np.cumsum(sizes[wanted])).astype(np.int64),
            query_ids=[name for name, keep in zip(data.query_ids, wanted, strict=True) if keep],
            document_ids=documents_of(data, rows),
        )
        return Intents(kept, np.ascontiguousarray(self.labels[:, rows]), self.fold[wanted])


@dataclass(frozen=True, eq=False)
class IntentCollection(Collection):
    """A collection that says of each document to which intents it is relevant."""

    train_intents: Int8s = field(kw_only=True)  # (intents, rows) 1 is relevant
    test_intents: Int8s = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(f"{self.name}: train", self.train, self.train_intents)
        _check(f"{self.name}: test", self.test, self.test_intents)
        require(
            len(self.train_intents) == len(self.test_intents),
            f"{self.name}: both splits must have the same intents, train has {len(self.train_intents)} and test "
            f"{len(self.test_intents)}",
        )


def intent_collection(
    folder: Path, fold: int | None = None, normalize: Literal["query", "none"] = "query"
) -> IntentCollection:
    """The queries of a folder that have a relevant document for each of the four intents.

    Without a fold, rankers are tested on the training queries, as the thesis does; with one, they train on three parts
    and are tested on another as in `quorank.data.source`.
    """
    intents = read_intents(folder, normalize=normalize).complete()
    require(
        intents.data.n_queries,
        f"{folder} has no query with a relevant document for each of {INTENTS} intents",
    )
    train = test = intents
    if fold is not None:
        require(1 <= fold <= FOLDS, f"fold must be from 1 to {FOLDS}, got {fold}")
        turn = (intents.fold - fold) % FOLDS
        train, test = intents.only(turn < FOLDS - 2), intents.only(turn == FOLDS - 1)
        require(
            train.data.n_queries and test.data.n_queries,
            f"{folder}: fold {fold} is left without training or test queries that answer {INTENTS} intents",
        )
    return IntentCollection(
        f"intents:{folder}", train.data, test.data, train_intents=train.labels, test_intents=test.labels
    )


def read_intents(
    folder: Path, intents: int = INTENTS, normalize: Literal["query", "none"] = "query"
) -> Intents:
    """All queries of a folder with their first `intents` intents; BadInput names the file and the line."""
    folder = Path(folder)
    require(folder.is_dir(), f"{folder} is no folder; expected one with fold1.txt to fold5.txt and {TABLE}")
    parts = [load_letor(_find(folder, f"fold{fold}.txt"), normalize) for fold in range(1, FOLDS + 1)]
    data = join(parts)
    fold = np.repeat(np.arange(1, FOLDS + 1), [part.n_queries for part in parts]).astype(np.int64)
    require(
        data.document_ids is not None,
        f"{folder} has fold files without document ids; expected a comment `#docid = …` behind each row",
    )
    table = _find(folder, TABLE)
    return Intents(data, _read_table(table, intents, data, fold), fold)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise BadInput(f"{folder} has no {name} or {name}.gz; expected fold1.txt to fold5.txt and {TABLE}")


def _read_table(path: Path, intents: int, data: RankingData, fold: Integers) -> Int8s:
    try:
        lines = bytes(read_bytes(path)).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadInput(
            f"{path} is not UTF-8 text; expected a table with columns {', '.join(_FIRST)}, i0, …"
        ) from None
    header = lines[0].split("\t") if lines else []
    wanted = [*_FIRST, *(f"i{i}" for i in range(max(intents, len(header) - len(_FIRST))))]
    require(
        header == wanted,
        f"{path}:1: found the header {' '.join(header)!r}, expected {' '.join(wanted)!r} with tabs between",
    )
    rows = _rows_by_name(data, fold)
    labels = np.full((intents, data.n_rows), -1, dtype=np.int8)
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if cells == [""]:
            continue
        _check_cells(f"{path}:{number}", cells, header)
        row = rows.get((cells[0], cells[1], cells[2]))
        if row is None:
            raise BadInput(
                f"{path}:{number}: found document {cells[2]!r} of query {cells[1]!r}, which fold {cells[0]} does not have"
            )
        require(
            labels[0, row] < 0,
            f"{path}:{number}: document {cells[2]!r} of query {cells[1]!r} is judged twice",
        )
        require(
            cells[3] == str(data.labels[row]),
            f"{path}:{number}: found graded label {cells[3]!r}, but the document has label {data.labels[row]} in "
            f"fold {cells[0]}",
        )
        labels[:, row] = [int(cell) for cell in cells[4 : 4 + intents]]
    missing = np.flatnonzero(labels[0] < 0)
    if len(missing):
        (of_fold, query, document), _ = next(item for item in rows.items() if item[1] == missing[0])
        raise BadInput(
            f"{path} has no judgement for {len(missing)} of {data.n_rows} rows; the first is document {document!r} of "
            f"query {query!r} in fold {of_fold}"
        )
    return labels


def _rows_by_name(data: RankingData, fold: Integers) -> dict[tuple[str, str, str], int]:
    assert data.document_ids is not None
    of_row = np.repeat(np.arange(data.n_queries), np.diff(data.offsets)).tolist()
    queries, folds = list(data.query_ids), [str(f) for f in fold]
    rows: dict[tuple[str, str, str], int] = {}
    for row, (query, document) in enumerate(zip(of_row, data.document_ids, strict=True)):
        name = (folds[query], queries[query], document)
        require(
            name not in rows,
            f"fold {name[0]} holds document {document!r} twice for query {name[1]!r}; expected it once",
        )
        rows[name] = row
    return rows


def _check_cells(where: str, cells: Sequence[str], header: Sequence[str]) -> None:
    require(
        len(cells) == len(header),
        f"{where}: found {len(cells)} columns, expected the {len(header)} of the header, with tabs between",
    )
    for name, cell in zip(header[4:], cells[4:], strict=True):
        require(cell in ("0", "1"), f"{where}: found {name} = {cell!r}, expected 0 or 1")


def _check(where: str, data: RankingData, labels: Int8s) -> None:
    require(
        labels.ndim == 2 and labels.shape[1] == data.n_rows and labels.dtype == np.int8 and len(labels) >= 1,
        f"{where}: intents must be int8, one row per intent and one column for each of {data.n_rows} documents, got "
        f"{labels.shape}",
    )
    require(
        not labels.size or (labels.min() >= 0 and labels.max() <= 1),
        f"{where}: intents must be judged 0 or 1",
    )
