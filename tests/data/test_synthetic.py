"""The generated collections have the shape, the statistics and the difficulty that they claim."""

import numpy as np
import pytest

from quorank.data import synthetic
from quorank.data.normalisation import normalize_queries
from quorank.data.synthetic import generate
from quorank.errors import BadInput


@pytest.fixture(scope="module")
def collections():
    return {"mq2007": generate("mq2007"), "mslr": generate("mslr", 600)}


def best(data):
    return np.maximum.reduceat(data.labels, data.offsets[:-1])


def ndcg(scores, data, k=10):
    """Mean of DCG@k / ideal DCG@k over the queries with a relevant document, gain 2^label - 1."""
    discount = 1 / np.log2(np.arange(2, k + 2))
    values = []
    for q in np.flatnonzero(best(data)):
        rows = data.rows_of(q)
        gain = 2.0 ** data.labels[rows] - 1
        shown, ideal = gain[np.argsort(-scores[rows], kind="stable")][:k], np.sort(gain)[::-1][:k]
        values.append(shown @ discount[: len(shown)] / (ideal @ discount[: len(ideal)]))
    return np.mean(values)


@pytest.mark.parametrize(
    ("name", "features", "documents", "shares", "without"),
    [
        ("mq2007", 46, 41, [0.74, 0.20, 0.06], (0.13, 0.22)),
        ("mslr", 136, 120, [0.52, 0.32, 0.13, 0.02, 0.01], (0.005, 0.05)),
    ],
)
def test_shape_and_statistics(collections, name, features, documents, shares, without):
    train = collections[name].train
    assert train.n_features == features
    assert np.diff(train.offsets).mean() == pytest.approx(documents, rel=0.08)
    assert np.diff(train.offsets).std() > 0.25 * documents
    assert np.bincount(train.labels) / train.n_rows == pytest.approx(shares, abs=0.03)
    assert without[0] < np.mean(best(train) == 0) < without[1]
    assert np.isfinite(train.padded).all() and not train.padded[:, features:].any()
    assert collections[name].grades == len(shares)


def test_a_linear_ranker_learns_much_but_not_all(collections):
    train, test = (normalize_queries(s) for s in (collections["mq2007"].train, collections["mq2007"].test))

    def add_one(data):
        return np.hstack([data.features, np.ones((data.n_rows, 1), np.float32)])

    weights, *_ = np.linalg.lstsq(add_one(train).astype(float), train.labels.astype(float), rcond=1e-6)
    linear = ndcg(add_one(test) @ weights, test)
    random = ndcg(np.random.default_rng(0).random(test.n_rows), test)
    assert 0.63 < linear < 0.76
    assert random < 0.35


def test_the_same_seed_gives_the_same_bits_in_any_number_of_threads(monkeypatch):
    one = generate("mq2007", 300, 7)
    monkeypatch.setattr(synthetic.os, "cpu_count", lambda: 1)
    two = generate("mq2007", 300, 7)
    for split in ("train", "validation", "test"):
        assert np.array_equal(getattr(one, split).padded, getattr(two, split).padded)
        assert np.array_equal(getattr(one, split).labels, getattr(two, split).labels)
    other = generate("mq2007", 300, 8)
    assert not np.array_equal(one.train.labels[:500], other.train.labels[:500])
    assert not np.array_equal(one.train.padded[:500], one.test.padded[:500])


def test_more_queries_keep_the_blocks_of_fewer():
    few, many = generate("mq2007", 128, 3).train, generate("mq2007", 200, 3).train
    assert np.array_equal(few.padded, many.padded[: few.n_rows])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("mslr", 6_001), "queries: must be at least 1 and at most 6000, got 6001"),
        (("mq2007", 10, -1), "seed"),
        (("mq", 10), "there is no generated collection 'synthetic:mq'"),
    ],
)
def test_what_cannot_be_generated(arguments, sentence):
    with pytest.raises(BadInput, match=sentence):
        generate(*arguments)
