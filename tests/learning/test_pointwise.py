"""Pointwise learning against least squares, logistic regression and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.data.ranking import RankingData
from quorank.errors import BadInput
from quorank.learning.pointwise import Pointwise, cumulated, logistic_slope, squared_slope


def instances(rows: int = 600, features: int = 5, seed: int = 1) -> tuple[RankingData, np.ndarray]:
    """Features in [0, 1], labels 0..2 along a hidden direction, and weights of 0.25 and 1."""
    random = np.random.default_rng(seed)
    x = random.random((rows, features)).astype(np.float32)
    hidden = x @ random.normal(size=features) + 0.3 * random.normal(size=rows)
    labels = np.searchsorted(np.quantile(hidden, [0.6, 0.9]), hidden)
    data = RankingData.from_arrays(x, labels, np.arange(0, rows + 1, 20))
    return data, np.where(random.random(rows) < 0.5, 0.25, 1.0)


@given(st.floats(-30, 30), st.floats(0, 1))
def test_slopes_are_those_of_the_losses(score: float, target: float) -> None:
    step = 1e-5

    def squared(s: float) -> float:
        return (s - target) ** 2 / 2

    def logistic(s: float) -> float:
        return np.logaddexp(0.0, s) - target * s

    for loss, slope in ((squared, squared_slope), (logistic, logistic_slope)):
        central = (loss(score + step) - loss(score - step)) / (2 * step)
        assert slope(score, target) == pytest.approx(central, abs=2e-5)


def test_squared_loss_ends_at_weighted_least_squares() -> None:
    data, weights = instances()
    learner = Pointwise(eta=0.3, batch=64, decay=0.0)
    theta = learner.steps(learner.initial(5), data, cumulated(weights), 20_000, highest=2, progress=(0.0, 1.0), seed=3)
    x = np.column_stack([data.features, np.ones(data.n_rows)]).astype(np.float64)
    root = np.sqrt(weights)[:, None]
    exact = np.linalg.lstsq(root * x, root[:, 0] * data.labels / 2, rcond=None)[0]
    assert np.abs(theta - exact).max() < 0.03
    assert learner.risk(theta, data, weights, highest=2) == pytest.approx(
        learner.risk(exact, data, weights, highest=2), rel=2e-3
    )


def test_one_step_is_the_mean_gradient_of_its_batch() -> None:
    """All rows alike: whichever are drawn, the step is known in closed form."""
    x = np.tile(np.array([0.5, 1.0], dtype=np.float32), (8, 1))
    data = RankingData.from_arrays(x, np.full(8, 2), [0, 8])
    learner = Pointwise(eta=0.1, batch=3, decay=0.5)
    theta = np.array([1.0, 2.0, 3.0])
    after = learner.steps(theta, data, cumulated(np.full(8, 0.5)), 1, highest=4)
    slope = 1.0 * 0.5 + 2.0 * 1.0 + 3.0 - 2 / 4
    expected = [1.0 - 0.1 * (slope * 0.5 + 0.5 * 1.0), 2.0 - 0.1 * (slope * 1.0 + 0.5 * 2.0), 3.0 - 0.1 * slope]
    assert after == pytest.approx(expected)
    assert theta.tolist() == [1.0, 2.0, 3.0]


def test_draws_depend_on_client_and_round_only() -> None:
    data, weights = instances()
    learner = Pointwise()

    def run(**address: int) -> bytes:
        return learner.steps(learner.initial(5), data, cumulated(weights), 5, highest=2, **address).tobytes()

    assert run(client=1, round_=2) == run(client=1, round_=2)
    assert len({run(client=c, round_=r, seed=s) for c in (0, 1) for r in (0, 1) for s in (1, 2)}) == 8


def test_no_instance_is_refused() -> None:
    data = RankingData.from_arrays(np.zeros((0, 3)), [], [0])
    with pytest.raises(BadInput, match="no instance"):
        Pointwise().steps(np.zeros(4), data, np.zeros(0), 1, highest=2)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [1.0, float("nan")], [float("inf"), 1.0]])
def test_weights_that_cannot_be(weights: list[float]) -> None:
    with pytest.raises(BadInput, match="finite numbers, none below 0"):
        cumulated(weights)


def test_instances_are_drawn_in_proportion_to_their_weights() -> None:
    """Two kinds of rows that pull a constant to 0 and to 1: it ends at the weighted share."""
    data = RankingData.from_arrays(np.zeros((10, 1)), [0] * 5 + [1] * 5, [0, 10])
    weights = np.array([3.0] * 5 + [1.0] * 5)
    learner = Pointwise(eta=0.1, decay=0.0)
    theta = learner.steps(np.zeros(2), data, cumulated(weights), 20_000, highest=1, progress=(0.0, 1.0))
    assert theta[-1] == pytest.approx(1 / 4, abs=0.01)
