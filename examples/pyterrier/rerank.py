"""A PyTerrier pipeline whose last stage is a ranker that a federation learned: `python rerank.py` (needs python-terrier).

PyTerrier's retrieval needs Java; transformers over data frames, as here, do not. The columns are PyTerrier's own: `qid` and
`query`, `docno`, and `features`, an array for each document, as `pt.terrier.FeaturesRetriever` or `**` make them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyterrier as pt

import quorank as qr


def reranker(ranker: qr.Ranker) -> pt.Transformer:
    """Return a transformer that scores each query's documents by their features and ranks them anew."""

    def rescored(documents: pd.DataFrame) -> pd.DataFrame:
        features = np.stack(documents["features"].to_list())
        return documents.assign(score=ranker.score(features, documents["qid"].to_numpy()).astype(float))

    return pt.apply.by_query(rescored, add_ranks=True)


def candidates(data: qr.RankingData) -> pd.DataFrame:
    """Return a collection's lists as PyTerrier has them."""
    query = data.query_of_rows()
    return pd.DataFrame(
        {
            "qid": [data.query_ids[q] for q in query],
            "query": [f"query {q}" for q in query],
            "docno": [f"d{row}" for row in range(data.n_rows)],
            "features": list(np.array(data.features)),
            "label": data.labels,
        }
    )


def main() -> None:
    collection = qr.load("synthetic:mq2007", queries=200)
    lists = candidates(collection.train)
    learned = qr.FederatedRanker(rounds=100).fit(
        np.stack(lists["features"].to_list()), lists["label"], group=lists["qid"], client=lists["qid"]
    )
    pipeline = reranker(learned.ranker_) % 10  # the ten best
    found = pipeline(candidates(collection.test))
    print(found[["qid", "docno", "rank", "score"]].head(10).to_string(index=False))


if __name__ == "__main__":
    main()
