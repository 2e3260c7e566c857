"""Inner products, min-max, min-sum and mimicry against their equations; the attack that tries out the rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from honest_cohorts import first, honest_updates

from quorank.engines.process import Simulator
from quorank.federation import Federation
from quorank.federation.attacks import InnerProduct, Mimic, MinMax, MinSum, Tailored, TwoPhase
from quorank.federation.attacks.attack import AttackedRule
from quorank.federation.attacks.fitted import GAMMAS
from quorank.federation.rules import Krum, Mixing, SpectralFilter, TrimmedMean
from quorank.kernels.draws import Purpose, key_of
from quorank.learning import Simulation
from quorank.rankers import Linear
from quorank.users import Cascade

KEY = key_of(1, Purpose.ATTACK)


def perturbation(known, direction) -> np.ndarray:
    """p of the paper."""
    mean = known.mean(axis=0)
    return {"unit": -mean / np.linalg.norm(mean), "deviation": -known.std(axis=0), "sign": -np.sign(mean)}[direction]


def sent_by(attack, updates, m) -> np.ndarray:
    return attack.poison(updates, first(m, len(updates)), np.zeros(updates.shape[1]), KEY, 0)[:m]


def test_inner_products_send_the_mean_backwards() -> None:
    """Xie et al., eq. 3: −ϵ/(n − m)·Σ of the honest updates."""
    updates, _ = honest_updates(1)
    expected = -2.5 * sum(updates[i] for i in range(3, 10)) / 7
    np.testing.assert_allclose(sent_by(InnerProduct(3, factor=2.5), updates, 3), [expected] * 3, rtol=1e-12)


@pytest.mark.parametrize("direction", ["unit", "deviation", "sign"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_min_max_goes_as_far_as_honest_updates_are_apart(direction, seed) -> None:
    """Eq. 7: the largest distance equals the largest between honest ones; a little farther it would be exceeded."""
    updates, _ = honest_updates(seed)
    honest, sent = updates[3:], sent_by(MinMax(3, direction=direction), updates, 3)
    limit = max(np.linalg.norm(a - b) for a, b in itertools.combinations(honest, 2))
    mean, harmful = honest.mean(axis=0), perturbation(honest, direction)
    gamma = float((sent[0] - mean) @ harmful / (harmful @ harmful))
    np.testing.assert_allclose(sent, [mean + gamma * harmful] * 3, rtol=1e-9, atol=1e-12)
    farthest = [max(np.linalg.norm(mean + g * harmful - u) for u in honest) for g in (gamma, 1.001 * gamma)]
    assert gamma > 0.0
    assert farthest[0] == pytest.approx(limit, rel=1e-9)
    assert farthest[1] > limit


@pytest.mark.parametrize("direction", ["unit", "deviation", "sign"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_min_sum_spends_the_largest_honest_sum(direction, seed) -> None:
    """Eq. 8: the sum of squared distances equals the largest of an honest update."""
    updates, _ = honest_updates(seed)
    honest, sent = updates[3:], sent_by(MinSum(3, direction=direction), updates, 3)[0]
    limit = max(sum(float(np.sum((a - b) ** 2)) for b in honest) for a in honest)
    assert sum(float(np.sum((sent - b) ** 2)) for b in honest) == pytest.approx(limit, rel=1e-9)
    assert float((sent - honest.mean(axis=0)) @ perturbation(honest, direction)) > 0.0


def test_without_a_direction_the_mean_is_sent() -> None:
    updates = np.zeros((10, 4))
    for attack in (MinMax(3), MinSum(3, direction="sign")):
        assert not sent_by(attack, updates, 3).any()


def test_mimics_send_one_honest_update() -> None:
    updates, _ = honest_updates(4)
    np.testing.assert_array_equal(sent_by(Mimic(3), updates, 3), [updates[3]] * 3)
    far = updates.copy()
    far[7] *= 10.0  # the largest variance lies along it
    np.testing.assert_array_equal(sent_by(Mimic(3, victim="farthest"), far, 3), [far[7]] * 3)


@pytest.mark.parametrize("rule", [Krum(3), TrimmedMean(3), SpectralFilter(3), Mixing(3)], ids=str)
@pytest.mark.parametrize("against", ["update", "sign", "deviation"])
def test_no_place_that_is_tried_moves_the_rule_farther(rule, against) -> None:
    """By brute force over every γ, with equal malicious updates."""
    updates, theta = honest_updates(5)
    combined = lambda rows: rule.combine_all(rows, np.ones(10))  # noqa: E731
    sent = Tailored(3, against).poison(updates, first(3), theta, KEY, 0, AttackedRule(combined))
    honest = updates[3:]
    mean = honest.mean(axis=0)
    opposed = {"update": mean, "sign": np.sign(mean), "deviation": np.sign(mean) * honest.std(axis=0)}[against]
    towards = -opposed / np.linalg.norm(opposed)
    spread = np.median(np.linalg.norm(honest - mean, axis=1))
    tried = [float(combined(np.vstack(([mean + gamma * spread * towards] * 3, honest))) @ towards) for gamma in GAMMAS]
    assert float(combined(sent) @ towards) == pytest.approx(max(tried), rel=1e-9)
    assert max(tried) > tried[0]


def test_what_is_sent_takes_the_attackers_to_a_place_in_the_memory() -> None:
    """With β = 0.9 they send (place − 0.9·history)/0.1, so all of them are remembered at one place."""
    updates, theta = honest_updates(6)
    history = np.random.default_rng(6).normal(size=updates.shape)
    rule = SpectralFilter(3, history=0.9)
    view = AttackedRule(lambda rows: rule.combine_all(0.9 * history + 0.1 * rows, np.ones(10)), history, 0.9)
    sent = Tailored(3, "memory").poison(updates, first(3), theta, KEY, 0, view)
    remembered = 0.9 * history + 0.1 * sent
    np.testing.assert_allclose(remembered[:3], [remembered[0]] * 3, rtol=1e-9)
    centre = remembered[3:].mean(axis=0)
    spread = np.median(np.linalg.norm(remembered[3:] - centre, axis=1))
    assert min(abs(np.linalg.norm(remembered[0] - centre) / spread - gamma) for gamma in GAMMAS) < 1e-9


@pytest.mark.parametrize("phase", ["honest", "drift", "memory", "ranker", "axis"])
def test_each_of_two_phases_pushes_in_its_direction(phase) -> None:
    """A mean moves with γ, so all stand at μ_h + 5·r·p, with p written out by NumPy's covariance."""
    updates, theta = honest_updates(8)
    history = np.random.default_rng(8).normal(size=updates.shape)
    view = AttackedRule(lambda rows: (0.9 * history + 0.1 * rows).mean(axis=0), history, 0.9)
    attack = TwoPhase(3, turn=0, after=phase) if phase in ("ranker", "axis") else TwoPhase(3, phase, turn=1)
    sent = attack.poison(updates, first(3), theta, KEY, 0, view)
    honest = (0.9 * history + 0.1 * updates)[3:]
    mean, covariance = honest.mean(axis=0), np.cov(honest.T, bias=True)
    axis = np.linalg.eigh(covariance)[1][:, -1]
    axis *= np.sign(axis @ theta)
    opposed = {"drift": covariance @ mean, "memory": mean, "ranker": covariance @ theta, "axis": axis}
    if phase == "honest":
        np.testing.assert_array_equal(sent, updates)
        return
    spread = np.median(np.linalg.norm(honest - mean, axis=1))
    position = mean - GAMMAS[-1] * spread * opposed[phase] / np.linalg.norm(opposed[phase])
    np.testing.assert_allclose((0.9 * history + 0.1 * sent)[:3], [position] * 3, rtol=1e-6, atol=1e-9)


def test_the_simulator_shows_the_attack_the_rule_with_its_memory(tiny_collection) -> None:
    """What the attack was told that the server would do is what the server does."""
    seen = []

    class Spy(Tailored):
        def malicious_updates(self, cohort):
            sent = super().malicious_updates(cohort)
            rows = np.array(cohort.updates)
            rows[cohort.malicious] = sent
            seen.append((cohort.rule.combined(rows), cohort.rule.history is None))
            return sent

    federation = Federation(clients=9, interactions=2, aggregation=SpectralFilter(2, history=0.8), attack=Spy(2))
    simulator = Simulator(federation, Simulation(tiny_collection.train, Linear(), Cascade(), 3, 1), rounds=3)
    state = simulator.initial()
    for round_ in range(3):
        after, _ = federation.round(state, simulator.gather(state))
        np.testing.assert_allclose(after.theta - state.theta, seen[round_][0], rtol=1e-9, atol=1e-15)
        state = after
    assert [fresh for _, fresh in seen] == [True, False, False]
