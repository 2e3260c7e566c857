"""Estimator with scikit-learn's methods: `FederatedRanker().fit(X, y, group=…, client=…).predict(X)`.

It follows scikit-learn's protocol (parameters by name, `clone`, `GridSearchCV`, `pickle`) without importing scikit-learn.
`fit` is a run: each simulated client has its own rows, and its user searches and clicks as the experiment says (labels
determine the clicks). The same data, settings and seed give the bits of `quorank run`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from quorank.api.data_frames import FrameKind, columns_of, take_columns, to_frame, to_matrix
from quorank.api.running import Named, run
from quorank.data import Collection, RankingData
from quorank.data.partition import Assigned
from quorank.data.ranking import grouped_rows
from quorank.errors import BadInput, require, suggest
from quorank.kernels.arrays import Integers
from quorank.learning.client_loop import JUDGED
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

COLUMNS = {"group": "qid", "client": "client"}
"""Columns of a data frame that `fit`, `predict` and `score` take for these arguments."""


class BadArgument(BadInput, ValueError):
    """BadInput that is also a ValueError, as callers of estimators expect."""


@dataclass(eq=False, repr=False)
class FederatedRanker:
    """Ranker learned by a simulated federation from features, labels, queries and clients.

    Args:
        experiment: Name of a shipped experiment, path of a file, its tables, or an `Experiment`. The other parameters
            change it; None keeps its value.
        rounds: Number of rounds.
        clients: Number of clients that all search all queries, if `fit` gets no clients.
        eta: Step size of the clients.
        step: Step size of the server.
        normalize: "fixed" (constants that the clients learn together; {"kind": "fixed", "epsilon": 1.0} learns them
            privately), "query" (minima and maxima of each list; `predict` then needs `group`), or "none".
        settings: Further values by dotted key, such as {"privacy.epsilon": 2.0}.
        random_state: Seed.
        threads: Number of threads; default: all cores.
        out: Directory that keeps the run.

    >>> import numpy as np
    >>> import quorank as qr
    >>> features = np.random.default_rng(1).random((60, 3))
    >>> labels, queries = (features[:, 0] > 0.7).astype(int), np.repeat(np.arange(12), 5)
    >>> ranker = qr.FederatedRanker(rounds=5, clients=4).fit(features, labels, group=queries)
    >>> ranker.predict(features).shape, ranker.score(features, labels, group=queries) > 0.5
    ((60,), True)
    """

    experiment: Named = "recommended"
    _: KW_ONLY
    rounds: int | None = 100
    clients: int | None = 100
    eta: float | None = None
    step: float | None = None
    normalize: Any = "fixed"
    settings: Mapping[str, Any] | None = None
    random_state: int | None = 1
    threads: int | None = None
    out: str | Path | None = None

    def fit(
        self,
        X: Any,
        y: npt.ArrayLike,
        *,
        group: npt.ArrayLike | None = None,
        client: npt.ArrayLike | None = None,
        eval_set: tuple[Any, ...] | None = None,
    ) -> FederatedRanker:
        """Run the federation.

        Args:
            X: (rows, features) array or data frame.
            y: (rows,) labels, integers from 0 to 4.
            group: (rows,) the query of each row, or the sizes of consecutive lists; default: the data frame's column `qid`,
                or one list.
            client: (rows,) the client of each row, the same for all rows of a query; default: the data frame's column
                `client`.
            eval_set: (X, y) or (X, y, group) for the evaluation; default: the training data.

        Returns:
            This estimator.

        Raises:
            ValueError: The data or a parameter is invalid; also a `BadInput`.
        """
        with _as_value_errors():
            require(y is not None, "ranking-data.no-labels", "requires y to be passed, but the target y is None", "y")
            table, rows = self._split_columns(X, group=group, client=client)
            names = columns_of(table)
            features = _checked(table)
            train = RankingData.from_rows(features, _labels(y), rows["group"])
            sentence = f"no query has two documents (n_samples = {train.n_rows}); there is nothing to rank"
            require(train.longest > 1, "ranking-data.nothing-to-rank", sentence, "group")
            test = train
            if eval_set is not None:
                judged = self._split_columns(eval_set[0], group=eval_set[2] if len(eval_set) > 2 else None)
                test = RankingData.from_rows(_checked(judged[0]), _labels(eval_set[1]), judged[1]["group"])
            settings = self._settings(features, rows, every_round=eval_set is not None)
            collection = Collection("arrays", train, test, feature_names=tuple(names or ()))
            with nullcontext(self.out) if self.out else tempfile.TemporaryDirectory() as folder:
                result = run(
                    self.experiment,
                    data=collection,
                    set=settings,
                    seed=self._seed(),
                    out=Path(str(folder)) if self.out else Path(str(folder)) / "run",
                    overwrite=True,
                    threads=self.threads,
                    report=bool(self.out),
                )
                self.summary_, self.ledger_, self._columns = dict(result.summary), result.ledger, result.columns()
                self.ranker_ = result.ranker
        self.n_features_in_, self.one_list_ = features.shape[1], rows["group"] is None
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def predict(self, X: Any, *, group: npt.ArrayLike | None = None) -> npt.NDArray[np.floating[Any]]:
        """Score documents.

        Args:
            X: (rows, features) array or data frame.
            group: Lists as in `fit`, which "query" normalisation needs.

        Returns:
            (rows,) scores, higher for better documents.

        Raises:
            ValueError: The estimator is not fitted, or the features differ from those of `fit`.
        """
        self._check_fitted()
        with _as_value_errors():
            table, rows = self._split_columns(X, group=group)
            self._check_names(table)
            features = _checked(table)
            given, known = features.shape[1], self.n_features_in_
            sentence = f"X has {given} features, but {type(self).__name__} is expecting {known} features as input"
            require(given == known, "ranker.features-differ", sentence, "X")
            alone = rows["group"] is None and self.one_list_
            return self.ranker_.score(features, np.zeros(len(features), dtype=np.int64) if alone else rows["group"])

    def score(self, X: Any, y: npt.ArrayLike, *, group: npt.ArrayLike | None = None) -> float:
        """Compute the mean nDCG@10 of the lists that `predict` orders; equal scores count by the mean over their orders.

        Args:
            X: (rows, features) array or data frame.
            y: (rows,) labels, integers from 0 to 4.
            group: Lists as in `fit`.

        Returns:
            The mean over lists with a relevant document.

        Raises:
            ValueError: The data are invalid, or no list has a relevant document.
        """
        scores = self.predict(X, group=group)
        with _as_value_errors():
            labels = np.asarray(_labels(y))
            sentence = f"expected {len(scores):,}, one per row, got {labels.shape}"
            require(labels.shape == scores.shape, "ranking-data.length", sentence, "y")
            order, offsets, _ = grouped_rows(self._split_columns(X, group=group)[1]["group"], len(scores))
            lists = RankingData.from_arrays(np.zeros((len(order), 1)), labels[order], offsets)
            evaluator = Evaluator(lists, Linear(), JUDGED)
            sentence = "no query has a relevant document, so that nDCG is undefined"
            require(evaluator.counted().any(), "data.without-relevant", sentence, "y")
        return float(evaluator.score_means([scores[order].astype(np.float64)])[0, 0])

    @overload
    def history(self, frame: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...

    @overload
    def history(self, frame: Literal["polars"]) -> polars.DataFrame: ...

    @overload
    def history(self, frame: Literal["pyarrow"]) -> pyarrow.Table: ...

    def history(self, frame: FrameKind = "pandas") -> Any:
        """Return a data frame with a row for every round of `fit`; `RunResult.columns` lists its columns.

        Args:
            frame: Library of the data frame: "pandas", "polars" or "pyarrow".

        Returns:
            A `pandas.DataFrame`, `polars.DataFrame` or `pyarrow.Table`.

        Raises:
            ValueError: The estimator is not fitted; also a `BadInput`.
        """
        self._check_fitted()
        return to_frame(self._columns, frame)

    # ------------------------------------------------------------ scikit-learn's protocol

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}

    def set_params(self, **parameters: Any) -> FederatedRanker:
        """Change parameters by name."""
        known = [*self.get_params()]
        for name, value in parameters.items():
            if name not in known:
                sentence = f"invalid parameter {name!r}{suggest(name, known)}; known: {', '.join(known)}"
                raise BadArgument("estimator.unknown-parameter", sentence, "set_params")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        values = [(parameter, getattr(self, parameter.name)) for parameter in fields(self)]
        changed = [f"{parameter.name}={value!r}" for parameter, value in values if value is not parameter.default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        """Return True after `fit`."""
        return hasattr(self, "ranker_")

    def __sklearn_tags__(self) -> Any:
        """Return the tags by which scikit-learn treats the estimator."""
        tags = import_module("sklearn.utils")
        return tags.Tags(
            estimator_type=None, target_tags=tags.TargetTags(required=True), input_tags=tags.InputTags(sparse=False)
        )

    def _check_fitted(self) -> None:
        if self.__sklearn_is_fitted__():
            return
        sentence = f"this {type(self).__name__} is not fitted yet; call fit first"
        try:
            raise import_module("sklearn.exceptions").NotFittedError(sentence)
        except ImportError:
            raise BadArgument("estimator.not-fitted", sentence) from None

    # ------------------------------------------------------------ arguments of fit

    def _split_columns(self, table: Any, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Split X into features, and the group and client of its rows: arguments, else columns of a data frame."""
        rest, own = take_columns(table, [*COLUMNS.values()])
        rows = {key: own.get(name) if arguments.get(key) is None else arguments[key] for key, name in COLUMNS.items()}
        return rest, rows

    def _settings(self, features: npt.NDArray[Any], rows: Mapping[str, Any], *, every_round: bool) -> dict[str, Any]:
        """Return the dotted keys that parameters and clients set."""
        chosen = {
            "federation.rounds": self.rounds,
            "federation.clients": self.clients,
            "learner.eta": self.eta,
            "federation.server.step": self.step,
            "data.normalize": self.normalize,
        }
        settings = {key: value for key, value in chosen.items() if value is not None}
        if not every_round and self.rounds is not None:
            settings["evaluation.every"] = self.rounds
        if self.out is None:
            settings["federation.keep_every"] = 0  # no client can be unlearned from a directory that is gone
        if rows["client"] is not None:
            owners = clients_of_queries(rows["client"], rows["group"], len(features))
            settings["federation.clients"] = int(owners.max()) + 1
            settings["partition"] = Assigned(tuple(owners.tolist()))
        return settings | dict(self.settings or {})

    def _seed(self) -> int | None:
        seed = self.random_state
        valid = seed is None or (isinstance(seed, int | np.integer) and not isinstance(seed, bool))
        require(valid, "value.wrong-type", f"expected an integer, got {seed!r}", "random_state")
        return None if seed is None else int(seed)

    def _check_names(self, table: Any) -> None:
        """Raise BadInput for a data frame whose columns differ from those of `fit`, or their order."""
        names, known = columns_of(table), getattr(self, "feature_names_in_", None)
        if names is None or known is None or names == known.tolist():
            return
        sentence = (
            f"expected the columns of fit in their order ({', '.join(known[:5])}, …), got {', '.join(names[:5])}, …"
        )
        raise BadInput("ranker.features-differ", sentence, "X")


def clients_of_queries(client: npt.ArrayLike, group: npt.ArrayLike | None, rows: int) -> Integers:
    """Number the clients in the order of first occurrence, and return the client of each query, (queries,).

    Args:
        client: (rows,) name or number of each row's client.
        group: (rows,) the query of each row, or the sizes of consecutive lists.
        rows: Number of rows.

    Raises:
        BadInput: `ranking-data.length`, or `partition.query-divided` for a query whose rows have several clients.
    """
    order, offsets, names = grouped_rows(group, rows)
    given = np.asarray(client)
    sentence = f"expected {rows:,}, the client of each row; got the shape {given.shape}"
    require(given.shape == (rows,), "ranking-data.length", sentence, "client")
    by_client, ends, _ = grouped_rows(given, rows)
    number = np.empty(rows, dtype=np.int64)
    number[by_client] = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    ordered = number[order]
    owner = ordered[offsets[:-1]]
    strays = np.flatnonzero(ordered != np.repeat(owner, np.diff(offsets)))
    if len(strays):
        query = int(np.searchsorted(offsets, strays[0], side="right")) - 1
        sentence = f"the rows of query {names[query]} belong to several clients; expected one client for a list"
        raise BadInput("partition.query-divided", sentence, f"client row {order[strays[0]]}")
    return owner


def _checked(table: Any) -> npt.NDArray[Any]:
    """Return (rows, features) finite real numbers."""
    features = to_matrix(table)
    if features.dtype == object:
        try:
            features = features.astype(np.float64)
        except (TypeError, ValueError):
            raise BadInput("ranking-data.not-numbers", "expected numbers, got an array of objects", "X") from None
    require(features.dtype.kind != "c", "ranking-data.not-numbers", "Complex data not supported", "X")
    shape = f"Expected 2D array, got the shape {features.shape}. Reshape your data"
    require(features.ndim == 2, "ranking-data.shape", shape, "X")
    for count, what in zip(features.shape, ("sample(s)", "feature(s)"), strict=True):
        sentence = f"0 {what} (shape={features.shape}) while a minimum of 1 is required."
        require(count > 0, "ranking-data.empty", sentence, "X")
    if features.dtype.kind == "f" and not np.isfinite(features.sum(dtype=np.float64)):
        rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
        if len(rows):
            sentence = "contains NaN or infinity; fill or remove it first"
            raise BadInput("ranking-data.not-finite", sentence, f"X row {rows[0]}")
    return features


def _labels(y: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return (rows,) labels, from a vector or a column."""
    labels = np.asarray(y)
    if labels.dtype == object:
        try:
            labels = labels.astype(np.float64)
        except (TypeError, ValueError):
            sentence = "Unknown label type; expected integers from 0 to 4"
            raise BadInput("ranking-data.not-numbers", sentence, "y") from None
    return labels.ravel() if labels.ndim == 2 and labels.shape[1] == 1 else labels


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """Raise BadInput as BadArgument."""
    try:
        yield
    except BadArgument:
        raise
    except BadInput as error:
        raise BadArgument(error.code, error.sentence, error.where) from None
