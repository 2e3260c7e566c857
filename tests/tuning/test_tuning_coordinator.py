"""The coordinator: what counts, what closes an iteration, and that nothing of an update is kept."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.tuning.coordinator import Rprop, TuningCoordinator, Updates
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.models import read_model, write_model
from quorank.tuning.rules import CLOSINGS, Count, Estimate, GradientRelease, SignRelease, Stable, Time

D = len(FRECENCY.weights)


def updates(slopes: np.ndarray) -> Updates:
    return Updates(slopes, np.full(len(slopes), 2.5))


def random_slopes(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32).astype(np.float64)


def test_running_sums_are_the_mean_and_its_standard_error() -> None:
    values = random_slopes(1, 40)
    estimate = Estimate.empty(D)
    for row in np.split(values, 8):
        estimate = estimate.add(row, np.ones(len(row)))
    assert estimate.count == 40 and estimate.loss == 40.0
    assert np.allclose(estimate.mean(), values.mean(axis=0))
    assert np.allclose(estimate.standard_error(), values.std(axis=0, ddof=1) / np.sqrt(40))
    assert np.isinf(Estimate.empty(D).add(values[:1], np.ones(1)).standard_error()).all()


def test_impossible_updates_are_left_out() -> None:
    protocol = TuningCoordinator(FRECENCY, closing=Count(4))
    slopes = random_slopes(2, 4)
    bad = slopes[[0, 1, 2]].copy()
    bad[0, 3], bad[1, 3], bad[2, 3] = np.nan, 1e300, 0.1  # not a number, and no 32-bit floats
    state = protocol.receive(protocol.start(), updates(np.concatenate((slopes, bad))))
    assert protocol.usable(updates(bad)).tolist() == [False] * 3
    assert state.estimate.count == 4 and state.estimate.loss == 4 * 2.5
    assert np.allclose(state.estimate.mean(), slopes.mean(axis=0) * FRECENCY.steps(FRECENCY.shipped))
    state, model = protocol.advance(state, 0.0)
    assert model.version == 1 and model.updates == 4 and model.loss == 2.5 and state.estimate.count == 0


@given(st.integers(0, 2**32))
@hypothesis_settings(max_examples=20)
def test_the_order_of_arrival_and_the_split_into_messages_do_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    slopes = random.integers(-8, 9, (30, D)).astype(np.float64)  # sums of whole numbers are exact
    protocol = TuningCoordinator(FRECENCY)
    both = []
    for order in (np.arange(30), random.permutation(30)):
        state = protocol.start()
        for rows in np.split(order, np.sort(random.integers(0, 31, 4))):
            state = protocol.receive(state, updates(slopes[rows]))
        both.append(protocol.advance(state, 0.0)[0].weights)
    assert np.allclose(both[0], both[1], atol=1e-12)


def test_no_update_is_kept() -> None:
    protocol = TuningCoordinator(FRECENCY)
    state = protocol.receive(protocol.start(), updates(random_slopes(6, 3)))
    before = len(pickle.dumps(state))
    state = protocol.receive(state, updates(random_slopes(7, 500)))
    assert state.estimate.count == 503 and len(pickle.dumps(state)) - before < 16


def test_a_step_is_the_optimisers_in_declared_steps() -> None:
    protocol = TuningCoordinator(FRECENCY, Rprop(initial=0.5), Count(2), sure=0.0)
    slopes = np.tile([0.0, 0, 0, -1, 0, 1, 0, 0, 0], (2, 1)).astype(float)
    state = protocol.receive(protocol.start(), updates(slopes))
    assert protocol.closes(state, 0.0)
    state, _ = protocol.advance(state, 0.0)
    moved = state.weights - FRECENCY.shipped
    assert np.allclose(moved, [0, 0, 0, 0.5 * 10.0, 0, -0.5 * 0.2, 0, 0, 0])


def test_what_is_not_known_is_not_moved() -> None:
    slopes = np.zeros((4, D))
    slopes[:, 5] = [1.0, 1.1, 0.9, 1.0]  # known
    slopes[:, 6] = [5.0, -4.0, 4.0, -4.0]  # mean 0.25, standard error 2.46
    for release in (GradientRelease(), SignRelease()):
        protocol = TuningCoordinator(FRECENCY, release=release, sure=1.0)
        state = protocol.receive(protocol.start(), updates(release.apply(slopes)))
        state, _ = protocol.advance(state, 0.0)
        moved = np.flatnonzero(state.weights != FRECENCY.shipped)
        assert moved.tolist() == [5]


def test_count_and_time() -> None:
    few = Estimate.empty(1).add(np.ones((3, 1)), np.ones(3))
    assert not Count(4).closes(few, 1e9) and Count(3).closes(few, 0.0)
    assert not Time(60.0).closes(few, 59.9) and Time(60.0).closes(few, 60.0)
    assert not Time(60.0).closes(Estimate.empty(1), 1e9)  # nothing came: go on waiting


def test_stable_closes_when_a_sign_is_known() -> None:
    stable = Stable(known=2.0, least=2, most=1000)
    n = 100
    noise = np.tile([1.0, -1.0], n // 2)

    def estimate(*columns: np.ndarray) -> Estimate:
        return Estimate.empty(len(columns)).add(np.stack(columns, axis=1), np.zeros(n))

    error = noise.std(ddof=1) / np.sqrt(n)  # about 0.1
    known, unknown, silent = 2.1 * error + noise, 1.9 * error + noise, np.zeros(n)
    assert stable.known_signs(estimate(known, unknown, silent)).tolist() == [True, False, False]
    assert stable.closes(estimate(known, unknown), 0.0)
    assert not stable.closes(estimate(unknown, silent), 1e9)
    assert replace(stable, most=n).closes(estimate(unknown, silent), 0.0)
    assert not replace(stable, least=n + 1).closes(estimate(known, unknown), 0.0)


def test_what_is_undecided_takes_its_sums_along() -> None:
    values = random_slopes(4, 40)
    first = Estimate.empty(D).add(values, np.ones(40))
    undecided = np.arange(D) % 2 == 0
    left = first.carry_over(undecided, 0.5)
    assert left.count == 0 and left.loss == 0.0 and not left.seen[~undecided].any()
    both = left.add(values[:10], np.ones(10))
    assert both.count == 10 and both.seen.tolist() == np.where(undecided, 30.0, 10.0).tolist()
    mixed = (0.5 * values.sum(axis=0) + values[:10].sum(axis=0)) / 30.0
    assert np.allclose(both.mean()[undecided], mixed[undecided])
    alone = Estimate.empty(D).add(values[:10], np.ones(10))
    assert np.allclose(both.standard_error()[~undecided], alone.standard_error()[~undecided])


def test_the_error_of_kept_sums_is_not_understated() -> None:
    """Means over 40 + 0.9·40 + 0.81·40 updates, drawn 2,000 times: they vary no more than is said."""
    draws = np.random.default_rng(1).normal(0.3, 2.0, (3, 40, 2000))
    estimate = Estimate.empty(2000)
    for values in draws:
        estimate = estimate.carry_over(np.ones(2000, np.bool_), 0.9).add(values, np.zeros(40))
    real, said = estimate.mean().std(), np.sqrt((estimate.standard_error() ** 2).mean())
    assert 0.9 * said < real <= 1.03 * said


def test_kept_evidence_moves_a_weight_that_single_iterations_do_not() -> None:
    slopes = np.zeros((4, D))
    slopes[:, 5] = [1.0, 0.0, 0.0, 0.0]  # one of four: exactly one standard error from 0
    moved = {}
    for keep in (0.0, 0.9):
        protocol = TuningCoordinator(FRECENCY, sure=1.8, keep=keep)
        state = protocol.start()
        for _ in range(8):
            state = protocol.receive(state, updates(slopes))
            state, _ = protocol.advance(state, 0.0)
        moved[keep] = bool(state.weights[5] < FRECENCY.shipped[5])
    assert moved == {0.0: False, 0.9: True}


def test_by_default_two_weights_move_by_chance() -> None:
    values = np.random.default_rng(3).normal(size=(400, 500, D))
    protocol = TuningCoordinator(FRECENCY)
    moves = [
        np.sum(np.abs(e.mean()) >= protocol.threshold * e.standard_error())
        for e in (Estimate.empty(D).add(v, np.zeros(500)) for v in values)
    ]
    assert np.mean(moves) == pytest.approx(2.0, abs=5 * np.std(moves) / 20)
    assert TuningCoordinator(FRECENCY, sure=0.0).threshold == 0.0


def test_a_coordinator_goes_on_from_a_file(tmp_path: Path) -> None:
    protocol = TuningCoordinator(FRECENCY)
    state = protocol.start()
    for turn in range(6):
        state = protocol.receive(state, updates(random_slopes(turn, 9)))
        state, model = protocol.advance(state, 0.0)
    file = write_model(model, tmp_path / "weights.json")
    again = protocol.resume(read_model(file, FRECENCY))
    for one in (state, again):
        assert one.version == 6
    after = []
    for one in (state, again):
        one = protocol.receive(one, updates(random_slopes(9, 9)))
        after.append(protocol.advance(one, 0.0)[1])
    assert after[0] == after[1]
    with pytest.raises(BadInput, match="continue with it"):
        TuningCoordinator(FRECENCY, Rprop(initial=0.1)).resume(model)


def test_refusals() -> None:
    with pytest.raises(BadInput, match="no updates yet"):
        TuningCoordinator(FRECENCY).advance(TuningCoordinator(FRECENCY).start(), 0.0)
    with pytest.raises(BadInput, match="not allowed"):
        TuningCoordinator(FRECENCY).start(FRECENCY.shipped[::-1])
    for bad in (("count", "updates", 0), ("time", "seconds", 0.0), ("stable", "least", 1), ("stable", "most", 8)):
        with pytest.raises(BadInput):
            CLOSINGS.read({"kind": bad[0], bad[1]: bad[2]}, "closing")
