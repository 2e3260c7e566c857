"""FederatedRanker: the bits of `quorank run`, scikit-learn's protocol, data frames, refusals."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process
from quick_runs import leave_pages_out
from refusals import refused

import quorank as qr
from quorank.api.estimator import clients_of_queries
from quorank.data import Collection, RankingData, write_letor
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear

QUICK: dict[str, Any] = {"rounds": 6, "settings": {"federation.interactions": 2}, "threads": 1, "random_state": 7}


def rows_of(data: RankingData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and the query of each row."""
    return np.array(data.features), np.array(data.labels), np.array(data.query_ids)[data.query_of_rows()]


def fitted(collection: Collection, **parameters: Any) -> qr.FederatedRanker:
    x, y, query = rows_of(collection.train)
    return qr.FederatedRanker(**{**QUICK, **parameters}).fit(x, y, group=query, client=query)


@pytest.mark.parametrize("normalize", ["query", "fixed"])
def test_fit_gives_the_bits_of_a_run_of_the_command_line(
    tiny_collection: Collection, normalize: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One client for each query; the same data as LETOR files, the same clients as an experiment's partition."""
    leave_pages_out(monkeypatch)
    for name, split in tiny_collection.splits.items():
        write_letor(split, Path(f"data/{name}.txt"))
    queries = tiny_collection.train.n_queries
    words = [
        "run", "recommended", "--set", "data.source=data", "--set", "partition.kind=assigned", "--set",
        f"partition.clients={[*range(queries)]}", "--set", f"federation.clients={queries}", "--set", "federation.rounds=6",
        "--set", "federation.interactions=2", "--set", f"data.normalize={normalize}", "--seed", 7, "--out", "run", "--json",
    ]  # fmt: skip
    assert in_process(monkeypatch, capfd, *words).code == 0
    x, y, query = rows_of(tiny_collection.train)
    test = rows_of(tiny_collection.test)
    found = qr.FederatedRanker(**QUICK, normalize=normalize).fit(x, y, group=query, client=query, eval_set=test)
    run = qr.open_run("run")
    assert np.array_equal(found.ranker_.theta, run.ranker.theta)
    assert np.array_equal(found.predict(test[0], group=test[2]), run.ranker.score(test[0], test[2]))
    assert found.summary_["offline"] == run.summary["offline"] and found.summary_["online"] == run.summary["online"]
    assert found.score(test[0], test[1], group=test[2]) == pytest.approx(run.summary["offline"]["ndcg@10"], rel=1e-12)


def test_rows_may_stand_in_any_order(tiny_collection: Collection) -> None:
    """The rows of queries are dealt out between each other; each list keeps its order."""
    x, y, query = rows_of(tiny_collection.train)
    place = np.concatenate([np.arange(n) for n in np.diff(tiny_collection.train.offsets)])
    order = np.lexsort((np.unique(query, return_inverse=True)[1], place))
    first = list(dict.fromkeys(query[order]))
    sorted_ = np.argsort([first.index(name) for name in query], kind="stable")  # queries as they occur there
    one = qr.FederatedRanker(**QUICK).fit(x[order], y[order], group=query[order], client=query[order])
    two = qr.FederatedRanker(**QUICK).fit(x[sorted_], y[sorted_], group=query[sorted_], client=query[sorted_])
    assert np.array_equal(one.ranker_.theta, two.ranker_.theta)
    assert np.array_equal(one.predict(x, group=query)[order], one.predict(x[order], group=query[order]))


@pytest.mark.parametrize("normalize", ["query", "none", "fixed"])
def test_the_score_is_the_ndcg_of_the_evaluator(tiny_graded: Collection, normalize: str) -> None:
    found = fitted(tiny_graded, normalize=normalize)
    x, y, query = rows_of(tiny_graded.test)
    offsets = tiny_graded.test.offsets
    scores = found.predict(x, group=query)
    judged = Evaluator(RankingData.from_arrays(scores[:, None], y, offsets), Linear())
    ndcg = judged.per_query([np.ones(1)])[0][0][judged.counted()]
    assert found.score(x, y, group=query) == pytest.approx(float(ndcg.mean()), rel=1e-12)


def test_clients_are_numbered_as_they_occur() -> None:
    group, client = list("aabbccdd"), ["z", "z", "y", "y", "z", "z", "x", "x"]
    assert clients_of_queries(client, group, 8).tolist() == [0, 1, 0, 2]
    assert clients_of_queries([5] * 3, None, 3).tolist() == [0]
    assert clients_of_queries(list("bbaaab"), [2, 3, 1], 6).tolist() == [0, 1, 0]
    with refused("partition.query-divided", "client row 3"):
        clients_of_queries(["z", "z", "y", "x", "z", "z", "x", "x"], group, 8)
    with refused("ranking-data.length", "client"):
        clients_of_queries([1, 2], group, 8)


def test_a_fitted_ranker_is_pickled_and_saved(tiny_collection: Collection) -> None:
    found = fitted(tiny_collection)
    x, _, query = rows_of(tiny_collection.test)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.predict(x, group=query), found.predict(x, group=query))
    assert again.get_params() == found.get_params()
    found.ranker_.save("mine.json")
    assert np.array_equal(qr.Ranker.load("mine.json").score(x, query), found.predict(x, group=query))


def test_data_frames_bring_queries_clients_and_names(tiny_collection: Collection) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    polars = pytest.importorskip("polars", reason="polars is not installed")
    x, y, query = rows_of(tiny_collection.train)
    names = [f"bm25 of field {number}" for number in range(x.shape[1])]
    frame = pandas.DataFrame(x, columns=names).assign(qid=query, client=query)
    bare, one = fitted(tiny_collection), qr.FederatedRanker(**QUICK).fit(frame, pandas.Series(y))
    two = qr.FederatedRanker(**QUICK).fit(polars.from_pandas(frame), polars.Series(y))
    for found in (one, two):
        assert np.array_equal(found.ranker_.theta, bare.ranker_.theta)
        assert [*found.ranker_.feature_names] == names == found.feature_names_in_.tolist()
    assert np.array_equal(one.predict(frame.drop(columns="client")), bare.predict(x, group=query))
    assert np.array_equal(two.predict(polars.from_pandas(frame)), bare.predict(x, group=query))
    assert one.score(frame, y) == bare.score(x, y, group=query)
    with pytest.raises(ValueError, match="in their order"):
        one.predict(frame[[*reversed(names), "qid"]])
    assert one.history()["round"].tolist() == two.history("polars")["round"].to_list() == [1, 2, 3, 4, 5, 6]


# ------------------------------------------------------------ scikit-learn's protocol


def test_clone_and_grid_search_over_two_steps(tiny_collection: Collection) -> None:
    base = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
    selection = pytest.importorskip("sklearn.model_selection")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y, query = rows_of(tiny_collection.train)
    frame = pandas.DataFrame(x).rename(columns=str).assign(qid=query, client=query)
    folds = selection.GroupKFold(2)
    search = selection.GridSearchCV(qr.FederatedRanker(**QUICK), {"step": [0.01, 1.0]}, cv=folds, error_score="raise")
    search.fit(frame, y, groups=query)
    expected = []
    for train, test in folds.split(frame, y, query):
        by_hand = base.clone(search.estimator).set_params(step=1.0).fit(frame.iloc[train], y[train])
        expected.append(by_hand.score(frame.iloc[test], y[test]))
    assert search.cv_results_["mean_test_score"][1] == np.mean(expected)
    assert search.best_params_["step"] in (0.01, 1.0)
    assert np.array_equal(search.predict(frame), search.best_estimator_.predict(frame))


OTHER_LISTS = "predict ranks a list: features are normalised within what it is given"
NOT_NUMBERS = "what is no number is refused with a ValueError, not a TypeError"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("normalize", "failing"), [("fixed", {}), ("query", {"check_methods_subset_invariance": OTHER_LISTS})]
)
def test_estimator_checks_of_scikit_learn(normalize: str, failing: dict[str, str]) -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="scikit-learn is not installed")
    ranker = qr.FederatedRanker(rounds=1, clients=2, threads=1, normalize=normalize)
    found = checks.check_estimator(
        ranker, on_fail=None, on_skip=None, expected_failed_checks={**failing, "check_dtype_object": NOT_NUMBERS}
    )
    assert len(found) > 30
    assert [each["check_name"] for each in found if each["status"] == "failed"] == []
    assert {each["check_name"] for each in found if each["status"] == "xfail"} == {*failing, "check_dtype_object"}


@pytest.mark.slow
def test_scikit_learn_is_not_imported() -> None:
    program = """
import sys
sys.modules.update({"sklearn": None, "sklearn.exceptions": None, "polars": None})
import numpy as np, quorank as qr
found = qr.FederatedRanker(rounds=1, clients=2, threads=1)
try:
    found.predict(np.ones((2, 2)))
except ValueError as error:
    print(error.code)
print(found.fit(np.eye(4), [0, 1, 2, 0]).predict(np.eye(4)).shape)
try:
    found.history("polars")
except qr.BadInput as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split("\n")[:3] == ["estimator.not-fitted", "(4,)", "package.missing"], done.stderr


@pytest.mark.parametrize(
    ("x", "y", "more", "code", "where"),
    [
        ([[1.0, np.nan]], [1], {}, "ranking-data.not-finite", "X row 0"),
        ([[1.0, 2.0]], [1.5], {}, "ranking-data.label-fractional", "labels row 0"),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 7], {}, "collection.label-too-high", None),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 0], {}, "data.without-relevant", None),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 1], {"group": [1, 2]}, "ranking-data.nothing-to-rank", "group"),
        ([[1.0, 2.0]], None, {}, "ranking-data.no-labels", "y"),
        ([[1.0, 2.0]], [1, 2], {}, "ranking-data.length", "labels"),
        ([1.0, 2.0], [1, 2], {}, "ranking-data.shape", "X"),
        ([["a", "b"]], [1], {}, "ranking-data.not-numbers", None),
        ([[1.0, 2.0]], [1], {"group": [1, 2, 3]}, "ranking-data.length", "group"),
        ([[1.0, 2.0], [3.0, 4.0]], [0, 1], {"client": [1, 2, 3]}, "ranking-data.length", "client"),
        (np.empty((0, 3)), [], {}, "ranking-data.empty", "X"),
    ],
)
def test_bad_arguments_are_value_errors_with_a_code(x: Any, y: Any, more: dict, code: str, where: str | None) -> None:
    with pytest.raises(ValueError) as caught:
        qr.FederatedRanker(rounds=1, clients=2, threads=1).fit(x, y, **more)
    with refused(code, where):
        raise caught.value


def test_lists_that_are_not_told_apart_are_refused(tiny_collection: Collection) -> None:
    found = fitted(tiny_collection, normalize="query")
    x, _, query = rows_of(tiny_collection.test)
    with refused("features.no-group", "group"):
        found.predict(x)
    alone = fitted(tiny_collection)
    assert np.array_equal(alone.predict(x), alone.predict(x, group=query))
    with refused("normalisation.without-epsilon"):
        fitted(tiny_collection, experiment="private")
    with refused("value.wrong-type", "random_state"):
        fitted(tiny_collection, random_state=np.random.default_rng(1))
