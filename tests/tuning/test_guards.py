"""Guards: no version that people lose by is given to them, and one that slipped through is taken back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

from quorank.tuning.coordinator import TuningCoordinator, Updates
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.histories.scenarios import SCENARIOS, RecordedScenario, recorded_scenario
from quorank.tuning.histories.visits import generate_visits, read_visits, write_visits
from quorank.tuning.rules import GUARDS, Count, Evidence, GradientRelease, ImmediateGuard, JudgedGuard
from quorank.tuning.simulation import Tuning, simulate_tuning

D = len(FRECENCY.weights)
LINK = FRECENCY.names.index("type.link")


@pytest.fixture(scope="module")
def browsing(tmp_path_factory: pytest.TempPathFactory) -> RecordedScenario:
    file = tmp_path_factory.mktemp("visits") / "visits.csv"
    write_visits(file, generate_visits(1, 60))
    return recorded_scenario(SCENARIOS["frecency"], read_visits(file))


def test_a_step_past_what_is_left_above_the_bound_reaches_nobody(browsing: RecordedScenario) -> None:
    """Published at once, a version whose points for links fell to 0 reaches all; judged, none does."""
    at_once, judged = (
        [simulate_tuning(Tuning(seed=seed, held_out=4000, guard=guard), scenario=browsing) for seed in (1, 2, 3)]
        for guard in (ImmediateGuard(), JudgedGuard())
    )
    assert np.median([course.worst_drop() for course in at_once]) > 0.01
    worst = max(at_once, key=lambda course: course.worst_drop())
    assert worst.weights[int(np.argmin(worst.accuracy))][LINK] == 0.0  # the whole of it was taken in one step
    assert max(course.worst_drop() for course in judged) < 0.01
    assert sum(course.shortened for course in judged) > 0
    for one, other in zip(judged, at_once, strict=True):
        assert one.accuracy[-1] > 1.005 * one.accuracy[0]  # and it still learns
        assert one.updates == other.updates
        assert one.violations == 0


def test_versions_that_all_pass_are_those_of_the_paper_an_iteration_later() -> None:
    tuning = Tuning(start="random", iterations=8, held_out=200)
    at_once = simulate_tuning(replace(tuning, guard=ImmediateGuard()))
    judged = simulate_tuning(replace(tuning, guard=JudgedGuard(sure=0.0, bound=0.99)))
    assert np.array_equal(judged.weights[1:], at_once.weights[:-1])
    assert judged.models[-1].trial == at_once.models[-1].weights


def trial(gain: float, count: int, base: float = 0.8) -> Evidence:
    """Evidence of `count` searches of which the candidate wins or loses |gain|."""
    changed = round(abs(gain) * count)
    first = np.where(np.arange(count) < base * count, 1.0, 0.0)
    other = first.copy()
    if gain < 0:
        other[:changed] = 0.0
    elif changed:
        other[-changed:] = 1.0
    return Evidence().add(first, other)


def test_evidence_by_hand() -> None:
    found = Evidence().add(np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.5, 1.0]))
    assert (found.searches, found.gain, found.squares, found.base) == (3, 0.5, 1.25, 1.5)
    mean, error = found.mean_and_error()
    assert mean == pytest.approx(0.5 / 3)
    assert error == pytest.approx(np.sqrt(1.25 - 0.25 / 3 + 1.0) / 3)  # one search of |d| = 1 is added


@pytest.mark.parametrize(
    ("gain", "count", "passes", "decided"),
    [
        (0.0, 50, False, False),  # one unseen search in fifty may be lost: 2 % is more than the bound
        (0.0, 400, True, True),
        (0.05, 100, True, True),
        (-0.05, 400, False, True),
        (-0.008, 400, False, False),  # at the bound: not known
        (-0.008, 4000, False, True),  # but long enough
    ],
)
def test_what_passes(gain: float, count: int, passes: bool, decided: bool) -> None:
    guard, evidence = JudgedGuard(), trial(gain, count)
    assert guard.passes(evidence) is passes
    assert guard.decides([evidence, trial(0.0, 1000)]) is decided
    assert guard.decides([trial(0.0, 1000), evidence]) is decided  # against the published weights too


def updates(first: tuple[float, float, float], count: int = 400, *, of: int = 20) -> Updates:
    """`count` updates that want a shorter step for links; every search has first places (1, 1, 1), each `of`th `first`."""
    slopes = np.zeros((count, D))
    slopes[:, LINK] = 1.0 + 0.01 * np.arange(count)
    places = np.ones((count, 3))
    places[::of] = first
    return Updates(GradientRelease().apply(slopes), np.ones(count), places)


def test_a_trial_that_fails_is_halved_then_given_up() -> None:
    protocol = TuningCoordinator(FRECENCY, closing=Count(400), guard=JudgedGuard(halvings=2))
    state = protocol.receive(protocol.start(), updates((1.0, 1.0, 1.0)))
    state, model = protocol.advance(state, 0.0)
    assert state.on_trial and model.weights == FRECENCY.named(FRECENCY.shipped)  # nobody has the step yet
    steps = [state.published[LINK] - state.weights[LINK]]
    for _ in range(2):
        state = protocol.receive(state, updates((1.0, 1.0, 0.0)))  # one in twenty loses: 5 %
        state, _ = protocol.advance(state, 0.0)
        steps.append(state.published[LINK] - state.weights[LINK])
    assert np.allclose(steps, steps[0] * np.array([1.0, 0.5, 0.25]))
    state = protocol.receive(state, updates((1.0, 1.0, 0.0)))
    state, model = protocol.advance(state, 0.0)
    assert not state.on_trial and model.weights == FRECENCY.named(FRECENCY.shipped)
    assert (
        state.memory["step"][LINK] == 0.01 and state.memory["step"][0] == 0.05
    )  # that weight's steps alone are shorter


def test_a_trial_goes_on_while_it_is_open() -> None:
    protocol = TuningCoordinator(FRECENCY, closing=Count(50), guard=JudgedGuard())
    state = protocol.receive(protocol.start(), updates((1.0, 1.0, 1.0), 50))
    state, _ = protocol.advance(state, 0.0)
    tried = state.weights
    for count in (50, 100):
        state = protocol.receive(state, updates((1.0, 1.0, 1.0), 50))
        assert protocol.closes(state, 0.0)
        if count == 50:
            state, _ = protocol.advance(state, 0.0)
            assert np.array_equal(state.weights, tried) and state.trials[0].searches == 50
            assert state.estimate.seen[LINK] == 50  # what was learned at these weights goes on too
    assert state.trials[0].searches == 100 and state.estimate.seen[LINK] == 100
    state, _ = protocol.advance(state, 0.0)
    assert np.array_equal(state.published, tried)


def test_published_weights_below_the_bound_are_taken_back() -> None:
    protocol = TuningCoordinator(FRECENCY, closing=Count(400), guard=JudgedGuard())
    state = protocol.start()
    for _ in range(3):
        state = protocol.receive(state, updates((1.0, 1.0, 1.0)))
        state, _ = protocol.advance(state, 0.0)
    assert not np.array_equal(state.published, FRECENCY.shipped)
    state = protocol.receive(state, updates((1.0, 0.0, 0.0)))  # one in twenty had it first before
    state, model = protocol.advance(state, 0.0)
    assert model.weights == model.trial == model.reference == FRECENCY.named(FRECENCY.shipped)
    assert not state.on_trial and state.watched == Evidence()


def test_first_places_that_are_none_are_refused() -> None:
    protocol = TuningCoordinator(FRECENCY, guard=JudgedGuard())
    for bad in (np.nan, -0.1, 1.1):
        state = protocol.receive(protocol.start(), updates((1.0, bad, 1.0), 40))
        assert state.estimate.count == 38 and state.trials[0].searches == 38
    nothing = updates((1.0, 1.0, 1.0), 40)._replace(first=None)
    assert protocol.receive(protocol.start(), nothing).estimate.count == 0


def test_refusals() -> None:
    for fields in ({"bound": 0.0}, {"bound": 1.0}, {"sure": -1.0}, {"most": 1}, {"halvings": -1}):
        with refused("value.out-of-range", next(iter(fields))):
            GUARDS.read({"kind": "judged", **fields}, "")
