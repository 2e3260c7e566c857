"""The audit of the noise itself: honest noise passes, and what is smaller, of another shape or used twice fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quorank.experiments.audit import audit_experiment
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.privacy.audit.noise import check_noise
from quorank.privacy.mechanisms import gaussian, integer_sums

SHAPE = 40, 25


def test_honest_noise_passes_and_the_power_is_as_stated() -> None:
    """Of noise at the stated limit 95 % fails; of noise halfway to the plan, and of honest noise, hardly any."""
    draw = np.random.default_rng(1)
    noises = draw.normal(size=(200, *SHAPE))
    limit = check_noise(noises[0]).noticed_below
    assert 0.5 < limit < 1.0 and all(check_noise(noise).passed for noise in noises)
    failed = [
        np.mean([not check_noise(scale * noise).passed for noise in noises]) for scale in (limit, 0.5 + 0.5 * limit)
    ]
    assert failed[0] == pytest.approx(0.95, abs=0.04) and failed[1] < 0.2
    ends = np.array([(one.low, one.high) for one in map(check_noise, noises)])
    assert (ends[:, 0] < 1.0).all() and (ends[:, 1] > 1.0).all()


def test_another_shape_of_the_same_variance_fails() -> None:
    draw, size = np.random.default_rng(2), (300, 46)
    for noise in (
        draw.uniform(-1.0, 1.0, size) * 3**0.5,
        draw.laplace(size=size) / 2**0.5,
        draw.choice([-1.0, 1.0], size),
    ):
        found = check_noise(noise)
        assert found.low < 1.0 < found.high and found.distance > 0.03 and not found.passed


def test_noise_that_is_used_twice_fails() -> None:
    noise = np.random.default_rng(3).normal(size=SHAPE)
    noise[30] = noise[2]
    found = check_noise(noise)
    assert found.low < 1.0 < found.high and found.repeated == 1 and not found.passed


def audited(**privacy: Any) -> dict[str, Any]:
    tables = {
        "federation": {"clients": 60, "interactions": 2, "rounds": 25, **privacy.pop("federation", {})},
        "privacy": {"kind": "gaussian", "clip": 0.3, **privacy},
    }
    experiment = Experiment.read(ExperimentFile(tables, "audited"))
    return audit_experiment(experiment, canaries=100, victims=0, threads=1)


CASES = {
    "2": {"epsilon": 2.0},
    "8": {"epsilon": 8.0},
    "given": {"noise_multiplier": 6.0, "accountant": "rdp"},
    "quantile": {"epsilon": 8.0, "quantile": 0.5},
    "poisson": {"epsilon": 8.0, "accountant": "rdp", "federation": {"participation": {"kind": "poisson", "rate": 0.5}}},
    "secure": {"epsilon": 8.0, "sum": "secure", "masks": False},
    "groups": {"epsilon": 20.0, "sum": "secure", "masks": False, "groups": 7, "dropouts": 0.1},
}


@pytest.mark.parametrize("case", CASES)
def test_half_of_the_noise_is_refuted_at_any_epsilon(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dishonest run draws half of what its statement says; the canaries do not notice, and cannot above 5.6."""
    honest = audited(**CASES[case])
    assert honest["passed"] and honest["noise"]["noticed_below"] > 0.8, honest
    exact, shares = gaussian.discrete_gaussian, integer_sums.skellam_rows
    monkeypatch.setattr(
        gaussian, "discrete_gaussian", lambda key, t, stream, sigma, out: exact(key, t, stream, sigma / 2, out)
    )
    monkeypatch.setattr(integer_sums, "skellam_rows", lambda key, t, who, v, out: shares(key, t, who, v / 4.0, out))
    found = audited(**CASES[case])
    assert not found["passed"] and found["noise"]["deviation"] == pytest.approx(0.5, abs=0.05)
    assert found["claimed"] == honest["claimed"] and found["lower_bound"] <= found["claimed"]["epsilon"]


def test_a_mechanism_that_misstates_its_own_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan follows from the claimed ε: a mechanism that halves what it says of itself gains nothing."""
    multiplier = gaussian.GaussianMechanism.sum_multiplier.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(gaussian.GaussianMechanism, "sum_multiplier", property(lambda self: multiplier(self) / 2.0))
    assert not audited(epsilon=8.0)["passed"]


def test_a_run_whose_rounds_share_their_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = gaussian.discrete_gaussian
    monkeypatch.setattr(gaussian, "discrete_gaussian", lambda key, t, *rest: exact(key, t // 2, *rest))
    found = audited(epsilon=8.0)
    assert found["noise"]["repeated"] == 12 and not found["passed"]


def test_the_ceiling_is_the_bound_of_an_audit_without_a_wrong_guess() -> None:
    found = audited(noise_multiplier=0.1, accountant="rdp")
    assert found["correct"] == found["guesses"] == 100 and found["lower_bound"] == found["ceiling"]
    assert found["passed"] and found["claimed"]["epsilon"] > 100.0
