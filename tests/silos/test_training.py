"""CS-F-LTR's training: both ways agree with closed forms, and a weight is chosen as it is said to be."""

from __future__ import annotations

import numpy as np
import pytest

from quorank.data.ranking import RankingData, join_parts
from quorank.errors import BadInput
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear
from quorank.silos.sketch.instances import Instances
from quorank.silos.sketch.published import RoundRobin, best_weight

DIRECTION = np.array([2.0, -1.0, 0.5, 0.0])


def lists(seed: int, queries: int = 30, length: int = 20, flip: float = 0.0) -> Instances:
    """Labels along DIRECTION; with `flip`, along its opposite in that share of the queries."""
    random = np.random.default_rng(seed)
    x = random.random((queries * length, 4)).astype(np.float32)
    side = np.repeat(np.where(random.random(queries) < flip, -1.0, 1.0), length)
    hidden = side * (x @ DIRECTION) + 0.1 * random.normal(size=len(x))
    labels = np.searchsorted(np.quantile(hidden, [0.7, 0.9]), hidden)
    names = [f"{seed}:{query}" for query in range(queries)]
    data = RankingData.from_arrays(x, labels, np.arange(0, len(x) + 1, length), names)
    return Instances(data, np.ones(len(x)))


def least_squares(instances: Instances) -> np.ndarray:
    x = np.column_stack([instances.data.features, np.ones(instances.n_rows)]).astype(np.float64)
    root = np.sqrt(instances.weights)[:, None]
    return np.linalg.lstsq(root * x, root[:, 0] * instances.data.labels / 2, rcond=None)[0][:-1]


def test_parties_together_end_where_all_data_would() -> None:
    parties = [lists(seed) for seed in range(4)]
    theta = RoundRobin(decay=0.0).train(parties, seed=2)
    together = join_parts([party.data for party in parties])
    assert np.abs(theta - least_squares(Instances(together, np.ones(together.n_rows)))).max() < 0.05


def test_one_party_alone_is_plain_sgd() -> None:
    own = lists(5)
    theta = RoundRobin(decay=0.0).train([own], seed=2)
    assert np.abs(theta - least_squares(own)).max() < 0.05


def test_weights_decide() -> None:
    """Two sources that contradict each other: the heavier one wins, as in weighted least squares."""
    good, bad = lists(1), lists(2, flip=1.0)
    for weight in (0.2, 5.0):
        both = good.with_augmented(bad, weight)
        assert both.weights[good.n_rows :].sum() == pytest.approx(weight * good.n_rows)
        theta = RoundRobin(decay=0.0).train([both], seed=2)
        assert np.abs(theta - least_squares(both)).max() < 0.05
        assert np.sign(theta[0]) == (1 if weight < 1 else -1)
    assert (good.with_augmented(bad, None).weights == 1.0).all()
    assert good.with_augmented(bad, 0.0) is good


def test_training_is_a_function_of_its_seed() -> None:
    parties, training = [lists(1), lists(2)], RoundRobin(turns=20)
    assert training.train(parties, 7).tobytes() == training.train(parties, 7).tobytes()
    assert training.train(parties, 7).tobytes() != training.train(parties, 8).tobytes()


def test_parties_without_instances_do_not_count() -> None:
    nothing, _ = lists(1).split(0, 1)
    own = lists(2)
    alone = RoundRobin(turns=20).train([own], 1)
    assert RoundRobin(turns=20).train([nothing, own], 1).tobytes() == alone.tobytes()
    with pytest.raises(BadInput, match="no party has an instance"):
        RoundRobin().train([nothing], 1)


def test_validation_takes_good_instances_and_leaves_bad_ones() -> None:
    few = [lists(seed, queries=5) for seed in range(3)]
    good, bad = [lists(10 + s) for s in range(3)], [lists(20 + s, flip=1.0) for s in range(3)]
    weights = (1.0, 0.0, 3.0)
    training = RoundRobin(turns=100)
    assert best_weight(training, few, bad, weights, seed=1) == 0.0
    chosen = best_weight(training, few, good, (0.0, 3.0), seed=1)
    test = Evaluator(lists(99, queries=100).data, Linear())
    scores = [
        test.all_means([training.train([o.with_augmented(g, w) for o, g in zip(few, good, strict=True)], 1)])[0][0]
        for w in (chosen, 0.0)
    ]
    assert scores[0] >= scores[1] - 0.01
