"""The PyTerrier example: its transformer ranks as the ranker does, and no Java is started."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from quorank.data import Collection

pt = pytest.importorskip("pyterrier", reason="python-terrier is not installed")
FILE = Path(__file__).parents[2] / "examples" / "pyterrier" / "rerank.py"


def test_a_learned_ranker_is_the_last_stage_of_a_pipeline(tiny_collection: Collection) -> None:
    import quorank as qr

    spec = importlib.util.spec_from_file_location("rerank", FILE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    train, test = tiny_collection.train, tiny_collection.test
    learned = qr.FederatedRanker(rounds=5, clients=5, threads=1, normalize="query")
    learned.fit(np.array(train.features), train.labels, group=train.query_of_rows())
    found = (example.reranker(learned.ranker_) % 10)(example.candidates(test))
    assert {"qid", "query", "docno", "features", "score", "rank"} <= {*found.columns}
    scores = learned.predict(np.array(test.features), group=test.query_of_rows())
    for query in range(test.n_queries):
        rows = test.rows_of(query)
        best = rows.start + np.argsort(-scores[rows], kind="stable")[:10]
        mine = found[found["qid"] == test.query_ids[query]].sort_values("rank")
        assert mine["docno"].tolist() == [f"d{row}" for row in best]
        assert np.array_equal(mine["score"].to_numpy(), scores[best].astype(float))
        assert mine["rank"].tolist() == list(range(len(best)))
    assert not pt.java.started()
