"""One convention for queries without a relevant document: evaluation.no_relevant, offline and online."""

from __future__ import annotations

import numpy as np
import pytest

import quorank as qr
from quorank.data import Collection, RankingData

LISTS = 40


def half_relevant(first: int) -> RankingData:
    """Lists whose documents are all relevant or none is, so that each order has nDCG 1 or counts by the convention."""
    random = np.random.default_rng(first)
    labels = np.repeat(np.arange(first, first + LISTS) % 4 == 0, 5).astype(int)  # a quarter of the lists is relevant
    return RankingData.from_arrays(random.normal(size=(5 * LISTS, 3)), labels, np.arange(0, 5 * LISTS + 1, 5))


DATA = Collection("lists", half_relevant(0), half_relevant(100))
SETTINGS = {
    "federation.clients": 12, "federation.interactions": 3, "federation.rounds": 6, "data.normalize": "none",
    "evaluation.every": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "federation",
    [
        {},
        {"federation.participation": {"kind": "sampled", "cohort": 5}},
        {"federation.participation": {"kind": "arrivals", "enough": 4, "least": 2, "most": 6, "rest": 1}},
        {"federation.server": "momentum", "learner.step": "batch"},
        {"partition": "quantity"},
        {"federation.aggregation": "median"},
    ],
    ids=str,
)
def test_one_setting_governs_offline_and_online_means(tmp_path, federation) -> None:
    found = {}
    for convention in ("skip", "zero", "published"):
        settings = SETTINGS | federation | {"evaluation.no_relevant": convention}
        result = qr.run({}, data=DATA, set=settings, out=tmp_path / convention, report=False)
        assert result.summary["evaluation"]["no_relevant"] == convention
        found[convention] = result
    offline = {name: result.summary["offline"]["ndcg@10"] for name, result in found.items()}
    assert offline == {"skip": 1.0, "zero": 0.25, "published": 1.0}
    online = {name: result.columns()["online_ndcg@10"] for name, result in found.items()}
    np.testing.assert_allclose(online["skip"], 1.0, rtol=1e-12)  # the mean of the judged lists, each of which has 1
    assert (online["zero"] < 0.7).all() and (online["zero"] > 0.0).all()
    assert online["published"].tolist() == online["zero"].tolist()
    means = {name: result.summary["online"] for name, result in found.items()}
    assert means["skip"]["ndcg@10"] == pytest.approx(1.0)
    assert means["skip"]["discounted"] == pytest.approx(sum(0.9995**t for t in range(6)))
    assert means["zero"]["ndcg@10"] < 0.5
    thetas = [result.ranker.theta.tobytes() for result in found.values()]
    assert thetas[0] == thetas[1] == thetas[2], "a convention changes no parameter"


def test_a_round_without_a_list_to_judge_has_no_online_ndcg(tmp_path) -> None:
    """One client with one search per round: three of four rounds show a list without a relevant document."""
    settings = SETTINGS | {"federation.clients": 1, "federation.interactions": 1, "federation.rounds": 30}
    result = qr.run({}, data=DATA, set=settings | {"evaluation.every": 1}, out=tmp_path / "run", report=False)
    online = result.columns()["online_ndcg@10"]
    assert 5 < np.isnan(online).sum() < 30 and set(online[~np.isnan(online)]) == {1.0}
    assert result.summary["online"]["ndcg@10"] == 1.0
    np.testing.assert_allclose(result.columns()["online_discounted"], np.cumsum(0.9995 ** np.arange(30)))


def test_figures_of_papers_use_the_published_convention() -> None:
    from quorank.reproduce.figure import read_figure, read_shipped

    cells = read_figure(read_shipped("fpdgd/table2"), quick=True, repetitions=1).cells
    assert {cell.experiment.evaluation.no_relevant for cell in cells} == {"published"}
