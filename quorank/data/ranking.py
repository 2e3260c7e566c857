"""Ranking data in columns: features, labels and ids of the candidate documents of each query; collections of such data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.logs.records import LoggedSplits
from quorank.errors import BadInput, require
from quorank.kernels.arrays import Bytes, Floats, Int8s, Integers

LANES = 8  # float32 of a vector; rows are padded with zeros to a multiple, so that kernels read whole vectors


@dataclass(frozen=True, eq=False)
class RankingData:
    """Split of a collection: rows are (query, document) pairs, sorted by query.

    Row r holds the features of one document for its query; rows offsets[q] .. offsets[q+1] belong to query q. Build it with
    `from_rows` or `from_arrays`.

    Args:
        padded: (rows, stride) float32 features in C order, zeros behind n_features; the stride is a multiple of 8.
        labels: (rows,) graded relevance; 0 is not relevant.
        offsets: (queries + 1,) first row of each query, and the number of rows.
        n_features: Number of features.
        query_ids: (queries,) names of the queries.
        document_ids: (rows,) names of the documents; None if they have none.

    Raises:
        BadInput: `ranking-data.malformed` if the arrays do not fit together.

    >>> import quorank as qr
    >>> lists = qr.RankingData.from_rows([[0.1, 3.0], [0.9, 1.0], [0.5, 2.0]], labels=[0, 2, 1], group=["a", "b", "a"])
    >>> lists.n_queries, lists.query_ids, lists.labels.tolist()
    (2, ['a', 'b'], [0, 1, 2])
    >>> lists.features[lists.rows_of(0)].tolist()[1]
    [0.5, 2.0]
    """

    padded: Floats
    labels: Int8s
    offsets: Integers
    n_features: int
    query_ids: Sequence[str] = field(repr=False)
    document_ids: Sequence[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rows, stride = self.padded.shape
        for sound, sentence in (
            (self.padded.dtype == np.float32 and self.padded.flags.c_contiguous, "features must be float32 in C order"),
            (stride % LANES == 0 and stride >= self.n_features, f"row stride {stride} must be a multiple of {LANES}"),
            (self.labels.shape == (rows,) and self.labels.dtype == np.int8, "labels must be int8, one per row"),
            (self.offsets[0] == 0 and self.offsets[-1] == rows, "query offsets must run from 0 to the row count"),
            (len(self.query_ids) == len(self.offsets) - 1, "there must be one query id per query"),
        ):
            require(sound, "ranking-data.malformed", sentence)

    @classmethod
    def from_arrays(
        cls,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        offsets: npt.ArrayLike,
        query_ids: Sequence[str] | None = None,
        document_ids: Sequence[str] | None = None,
    ) -> RankingData:
        """Build from an array whose rows of one query are consecutive.

        Args:
            features: (rows, features) finite numbers.
            labels: (rows,) integers from 0 to 127.
            offsets: (queries + 1,) first row of each query, and the number of rows.
            query_ids: (queries,) names of the queries; default: "0", "1", …
            document_ids: (rows,) names of the documents.

        Returns:
            The lists, with features as float32.

        Raises:
            BadInput: An array is malformed; the error names the row, or the position in the offsets.
        """
        dense = _dense_features(features)
        labels_, offsets_ = _whole_labels(labels, len(dense)), _rising_offsets(offsets, len(dense))
        queries = len(offsets_) - 1
        ids = query_ids if query_ids is not None else [str(q) for q in range(queries)]
        for name, given, expected in (("query_ids", ids, queries), ("document_ids", document_ids, len(dense))):
            sentence = f"expected {expected:,}, got {len(given or ()):,}"
            require(given is None or len(given) == expected, "ranking-data.length", sentence, name)
        return cls(pad(dense), labels_, offsets_, dense.shape[1], ids, document_ids)

    @classmethod
    def from_rows(
        cls,
        features: npt.ArrayLike,
        labels: npt.ArrayLike | None = None,
        group: npt.ArrayLike | None = None,
        document_ids: Sequence[str] | None = None,
    ) -> RankingData:
        """Build from rows in any order and the query of each row; queries keep the order of their first rows.

        Args:
            features: (rows, features) finite numbers.
            labels: (rows,) integers from 0 to 127; default: all 0.
            group: (rows,) the query of each row, or the sizes of consecutive lists; default: one list.
            document_ids: (rows,) names of the documents.

        Returns:
            The lists, with features as float32.

        Raises:
            BadInput: An array is malformed; the error names the row.
        """
        dense = _dense_features(features)
        order, offsets, names = grouped_rows(group, len(dense))
        given = np.zeros(len(dense), dtype=np.int8) if labels is None else _whole_labels(labels, len(dense))
        sentence = f"expected {len(dense):,}, one per row, got {len(document_ids or ()):,}"
        fits = document_ids is None or len(document_ids) == len(dense)
        require(fits, "ranking-data.length", sentence, "document_ids")
        documents = None if document_ids is None else [str(document_ids[row]) for row in order.tolist()]
        return cls(pad(dense[order]), given[order], offsets, dense.shape[1], names, documents)

    @property
    def features(self) -> Floats:
        """(rows, n_features) view without the padding."""
        return self.padded[:, : self.n_features]

    @property
    def n_rows(self) -> int:
        """Number of documents."""
        return len(self.labels)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    @property
    def longest(self) -> int:
        """Number of documents of the longest candidate list."""
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def max_label(self) -> int:
        """Highest label."""
        return int(self.labels.max(initial=0))

    def resident(self) -> RankingData:
        """Return the same data with its features in memory instead of a mapped cache file.

        Reading random lists from a mapped file costs a page walk each; one copy is faster from the first rounds on.
        """
        return self if self.padded.flags.owndata else replace(self, padded=np.array(self.padded))

    def with_features(self, features: npt.ArrayLike) -> RankingData:
        """Return the same lists with other (rows, n) features."""
        dense = np.asarray(features, dtype=np.float32)
        sentence = f"expected features of shape ({self.n_rows}, n), got {dense.shape}"
        require(dense.ndim == 2 and len(dense) == self.n_rows, "ranking-data.shape", sentence)
        return replace(self, padded=pad(dense), n_features=dense.shape[1])

    def rows_of(self, query: int) -> slice:
        """Return the rows of a query."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    def query_of_rows(self) -> Integers:
        """Return the query of each row, (rows,)."""
        return np.repeat(np.arange(self.n_queries, dtype=np.int64), np.diff(self.offsets))

    def select_lists(self, lists: Integers) -> RankingData:
        """Return the data of these queries in this order, (lists,) numbers of queries."""
        return self.select_rows(*rows_of_lists(self.offsets, lists), [self.query_ids[q] for q in lists.tolist()])

    def select_rows(self, rows: Integers, offsets: Integers, query_ids: Sequence[str]) -> RankingData:
        """Return these rows in this order, in lists that `offsets` (lists + 1,) divides."""
        return replace(
            self,
            padded=self.padded[rows],
            labels=self.labels[rows],
            offsets=offsets.astype(np.int64),
            query_ids=query_ids,
            document_ids=None if self.document_ids is None else select_strings(self.document_ids, rows),
        )


@dataclass(frozen=True, eq=False)
class Collection:
    """Collection of ranking data, split for an experiment.

    Args:
        name: Name in reports.
        train: Lists that clients search.
        test: Lists on which the ranker is evaluated.
        validation: Lists on which a choice between rankers is made, if any.
        feature_names: Names of all features in their order, if known.
        log: Users and times of the searches, if the collection was read from a click log.

    Raises:
        BadInput: The splits have different features, or the names do not fit them.

    >>> import quorank as qr
    >>> lists = qr.RankingData.from_rows([[0.2], [0.8]], labels=[0, 1])
    >>> mine = qr.Collection("mine", train=lists, test=lists, feature_names=("length",))
    >>> [*mine.splits], mine.grades
    (['train', 'test'], 2)
    """

    name: str
    train: RankingData
    test: RankingData
    validation: RankingData | None = None
    feature_names: tuple[str, ...] = ()
    log: LoggedSplits | None = None

    def __post_init__(self) -> None:
        own, count = len(self.feature_names), self.train.n_features
        sentence = f"expected a name for each of {count} features, got {own}"
        require(own in (0, count), "collection.feature-names", sentence, "feature_names")
        for split in self.splits.values():
            have = f"train has {self.train.n_features} and another split {split.n_features}"
            sentence = f"all splits must have the same features, {have}"
            require(split.n_features == self.train.n_features, "collection.features-differ", sentence, self.name)

    @property
    def splits(self) -> dict[str, RankingData]:
        """Existing splits by name."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in splits.items() if split is not None}

    def changed(self, change: Callable[[RankingData], RankingData]) -> Collection:
        """Return the same collection with each split changed by a function."""
        validation = None if self.validation is None else change(self.validation)
        return replace(self, train=change(self.train), test=change(self.test), validation=validation)

    def resident(self) -> Collection:
        """Return the same collection in memory (see `RankingData.resident`)."""
        return replace(self, train=self.train.resident(), test=self.test.resident())

    @property
    def grades(self) -> int:
        """Grades of relevance: 2 for labels 0/1, 3 for 0..2, 5 for 0..4, the scales with published click models."""
        highest = max(split.max_label for split in self.splits.values())
        sentence = f"label {highest} found; labels 0..1, 0..2 or 0..4 are supported"
        require(highest <= 4, "collection.label-too-high", sentence, self.name)
        return grades_of(highest)


def rows_of_lists(offsets: Integers, lists: Integers) -> tuple[Integers, Integers]:
    """Return the rows of these lists one behind the other, and the first row of each among them."""
    lengths = np.diff(offsets)[lists]
    new = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return np.repeat(offsets[lists] - new[:-1], lengths) + np.arange(new[-1]), new


def grades_of(highest: int) -> int:
    """Return the grades of the scale with this highest label: 2, 3 or 5."""
    return 2 if highest <= 1 else 3 if highest <= 2 else 5


def stride_of(n_features: int) -> int:
    """Return the length of a padded row."""
    return -(-n_features // LANES) * LANES


def pad(features: Floats, width: int = 0) -> Floats:
    """Pad (rows, n) to (rows, stride) with zeros behind the n-th column, where a row has n or `width` features."""
    rows, n = features.shape
    out = np.zeros((rows, stride_of(width or n)), dtype=np.float32)
    out[:, :n] = features
    return out


HIGHEST_LABEL = 127  # highest label that fits a byte


def _numbers(values: npt.ArrayLike, name: str, dimensions: int) -> npt.NDArray[Any]:
    """Return an array of numbers; reject other numbers of dimensions."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise BadInput("ranking-data.shape", "expected rows of the same length", name) from None
    sentence = f"expected an array with {dimensions} dimension{'s'[: dimensions > 1]}, got the shape {array.shape}"
    require(array.ndim == dimensions, "ranking-data.shape", sentence, name)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)  # an empty list says nothing about its type
    numeric = array.dtype.kind in "iufb"
    require(numeric, "ranking-data.not-numbers", f"expected numbers, got an array of {array.dtype}", name)
    return array


def _first(wrong: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(wrong))


def _dense_features(values: npt.ArrayLike) -> Floats:
    """(rows, features) float32, all of them finite."""
    array = _numbers(values, "features", 2)
    with np.errstate(over="ignore"):  # what is too large for float32 is refused with the others
        dense = np.asarray(array, dtype=np.float32)
    wrong = np.asarray(~np.isfinite(dense).all(axis=1))
    if wrong.any():
        row = _first(wrong)
        column = int(np.argmin(np.isfinite(dense[row])))
        sentence = f"feature {column + 1} is {array[row, column]}; expected finite numbers within ±3.4e38"
        raise BadInput("ranking-data.not-finite", sentence, f"features row {row}")
    return dense


def _whole_labels(values: npt.ArrayLike, rows: int) -> Int8s:
    """(rows,) int8 from 0 on."""
    array = _numbers(values, "labels", 1)
    require(len(array) == rows, "ranking-data.length", f"expected {rows:,}, one per row, got {len(array):,}", "labels")
    for wrong, code, expected in (
        (~np.isfinite(array), "ranking-data.not-finite", "a number"),
        (array != np.floor(array), "ranking-data.label-fractional", "an integer"),
        (array < 0, "ranking-data.label-negative", "at least 0, which is not relevant"),
        (array > HIGHEST_LABEL, "ranking-data.label-too-high", f"at most {HIGHEST_LABEL}"),
    ):
        if wrong.any():
            row = _first(wrong)
            raise BadInput(code, f"label {array[row]}; expected {expected}", f"labels row {row}")
    return np.ascontiguousarray(array, dtype=np.int8)


def grouped_rows(group: npt.ArrayLike | None, rows: int) -> tuple[Integers, Integers, list[str]]:
    """Return (rows,) an order in which the rows of a query stand together, (queries + 1,) offsets, and the queries' names.

    group: an id for each row, or fewer numbers: the sizes of lists that stand consecutive. Queries stand
    as they first occur, and the rows of each as they were.
    """
    if group is None:
        ends = [0, rows] if rows else [0]
        return np.arange(rows, dtype=np.int64), np.array(ends, dtype=np.int64), ["0"] * (rows > 0)
    try:
        given = np.asarray(group)
    except ValueError:
        raise BadInput("ranking-data.shape", "expected the query of each row", "group") from None
    whole = given.ndim == 1 and len(given) < rows and given.dtype.kind in "iu"
    if whole and (given >= 0).all() and given.sum() == rows:
        given = np.repeat(np.arange(len(given)), given)
    sentence = f"expected {rows:,}, the query of each row, or sizes that add up to it; got the shape {given.shape}"
    require(given.shape == (rows,), "ranking-data.length", sentence, "group")
    if given.dtype == object:
        given = given.astype(str)
    plain = given.dtype.kind in "iufUbS" and not (given.dtype.kind == "f" and np.isnan(given).any())
    require(plain, "ranking-data.not-names", f"expected numbers or texts, got an array of {given.dtype}", "group")
    values, first, number = np.unique(given, return_index=True, return_inverse=True)
    appeared = np.argsort(first)  # values in the order of their first rows
    query = np.argsort(appeared)[number]
    order = np.argsort(query, kind="stable").astype(np.int64)
    offsets = np.append(0, np.cumsum(np.bincount(query, minlength=len(values)))).astype(np.int64)
    return order, offsets, [str(value) for value in values[appeared].tolist()]


def _rising_offsets(values: npt.ArrayLike, rows: int) -> Integers:
    """(queries + 1,) int64 that run from 0 to the number of rows."""
    array = _numbers(values, "offsets", 1)
    sentence = f"expected integers that rise from 0 to {rows}, the first row of each query and the number of rows"
    rising = len(array) >= 1 and array[0] == 0 and array[-1] == rows and (np.diff(array) >= 0).all()
    require(rising and (array == np.floor(array)).all(), "ranking-data.offsets", sentence, "offsets")
    return np.ascontiguousarray(array, dtype=np.int64)


def widen(data: RankingData, n_features: int) -> RankingData:
    """Return the same data with more features, all 0: a sparse file does not say how many there are."""
    wide_enough = stride_of(n_features) == data.padded.shape[1]
    return replace(data, padded=data.padded if wide_enough else pad(data.features, n_features), n_features=n_features)


def join_parts(parts: Sequence[RankingData]) -> RankingData:
    """Join several files into one split; a query that stands in two of them is refused: its list is one list."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.n_features for part in parts)
    wide = [widen(part, width) for part in parts]
    names = [name for part in parts for name in part.query_ids]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            sentence = f"query {name} stands in two of the parts that make up one split; expected whole queries"
            raise BadInput("collection.query-twice", sentence)
        seen.add(name)
    starts = np.cumsum([0] + [part.n_rows for part in parts])
    offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
    documents = None
    if any(part.document_ids is not None for part in parts):
        documents = concatenate_strings([part.document_ids or [""] * part.n_rows for part in parts])
    return RankingData(
        np.concatenate([part.padded for part in wide]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([*offsets, starts[-1:]]).astype(np.int64),
        width,
        names,
        documents,
    )


def describe_collection(collection: Collection) -> dict[str, Any]:
    """Return the numbers of each split as `quorank data stats --json` prints them."""
    splits = {name: _describe_split(split) for name, split in collection.splits.items()}
    log = {} if collection.log is None else {"log": collection.log.describe()}
    return {"name": collection.name, "features": collection.train.n_features, "splits": splits} | log


def _describe_split(data: RankingData) -> dict[str, Any]:
    lengths = np.diff(data.offsets)
    grades, counts = np.unique(data.labels, return_counts=True)
    best = np.maximum.reduceat(data.labels, data.offsets[:-1])
    constant = data.features.min(axis=0) == data.features.max(axis=0)
    mean = round(float(lengths.mean()), 2)
    return {
        "queries": data.n_queries,
        "rows": data.n_rows,
        "documents_per_query": {"min": int(lengths.min()), "mean": mean, "max": int(lengths.max())},
        "labels": {str(grade): int(count) for grade, count in zip(grades, counts, strict=True)},
        "queries_without_relevant": int(np.count_nonzero(best == 0)),
        "constant_features": (np.flatnonzero(constant) + 1).tolist(),
        "document_ids": data.document_ids is not None,
    }


# ------------------------------------------------------------ ids


class Strings(Sequence[str]):
    """Strings in one Arrow array, such as document ids; each access makes one Python string."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Strings(self.array[place])
        return self.array[int(place)].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), 4096):
            yield from self.array[start : start + 4096].to_pylist()


def strings_from_bytes(data: Bytes, offsets: Integers) -> Strings:
    """Return the UTF-8 strings data[offsets[i] : offsets[i + 1]]; raise UnicodeDecodeError for other bytes."""
    import pyarrow as pa

    array = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        bytes(data).decode("utf-8")
        raise
    return Strings(array)


def to_arrow(strings: Sequence[str]) -> Any:
    """Return strings as an Arrow array."""
    import pyarrow as pa

    return strings.array if isinstance(strings, Strings) else pa.array(list(strings), type=pa.large_string())


def select_strings(strings: Sequence[str], rows: Integers) -> Strings:
    """Return the strings of these rows, in their order."""
    return Strings(to_arrow(strings).take(rows))


def concatenate_strings(parts: Sequence[Sequence[str]]) -> Strings:
    """Return the strings of all parts in order."""
    import pyarrow as pa

    return Strings(pa.concat_arrays([to_arrow(part) for part in parts]))
