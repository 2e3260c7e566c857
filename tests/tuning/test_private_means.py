"""Study figures by randomised response: unbiased with an honest error, bounded by ε, and of no use one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused

from quorank.privacy.mechanisms.randomised_response import other_probability, true_probability
from quorank.tuning.studies.analysis import PrivateMeans, simulate_answers
from quorank.tuning.studies.study import Study, TypedSearches, study_of

STUDY = Study("means", {"treatment": 0.5, "control": 0.5})


def collected(means: dict[str, tuple[float, float]], clients: int) -> dict[str, TypedSearches]:
    """Two searches a client, around the arm's means of characters and rank."""
    random = np.random.default_rng(1)
    made = {}
    for arm, (characters, rank) in means.items():
        typed = random.poisson((characters, rank), (2 * clients, 2)).astype(np.int32)
        made[arm] = TypedSearches(np.repeat(np.arange(clients), 2), typed[:, 0], typed[:, 1])
    return made


def test_estimates_are_unbiased_and_their_error_is_true() -> None:
    private = PrivateMeans(STUDY, 4.0)
    searches = collected({"treatment": (3.0, 0.5), "control": (4.0, 1.0)}, 400)
    truth = {arm: min(12.0, float(typed.characters.mean())) for arm, typed in searches.items()}
    found = [private.analyse(simulate_answers(private, searches, seed)) for seed in range(60)]
    for arm in STUDY.arms:
        means = np.array([one.arms[arm].mean["characters"] for one in found])
        errors = np.array([one.arms[arm].error["characters"] for one in found])
        assert abs(means.mean() - truth[arm]) < 4.0 * errors.mean() / math.sqrt(60)
        # the error also holds the people's own spread, which these repetitions share
        assert 0.6 * errors.mean() < means.std(ddof=1) < 1.1 * errors.mean()
    compared = [c for one in found for c in one.comparisons if c.metric == "characters"]
    assert np.mean([c.difference for c in compared]) == pytest.approx(-1.0, abs=0.2)


def test_a_large_effect_is_found_and_none_is_not() -> None:
    private = PrivateMeans(STUDY, 4.0)
    effect = private.analyse(
        simulate_answers(private, collected({"treatment": (2.0, 1.0), "control": (4.0, 1.0)}, 4000), 1)
    )
    assert [c.significant for c in effect.comparisons] == [True, False]
    none = collected({"treatment": (4.0, 1.0), "control": (4.0, 1.0)}, 400)
    false = [
        c.significant for seed in range(40) for c in private.analyse(simulate_answers(private, none, seed)).comparisons
    ]
    assert np.mean(false) < 0.1


def test_epsilon_is_of_the_whole_report() -> None:
    private = PrivateMeans(STUDY, 3.0)
    steps = private.response.steps
    p, q = (f(private.response.epsilon, steps) for f in (true_probability, other_probability))
    assert len(STUDY.metrics) * math.log(p / q) == pytest.approx(3.0)
    seen = {private.answer({"characters": 0.0, "rank": 0.0}, seed) for seed in range(4000)}
    assert len(seen) == (steps + 1) ** 2  # whoever types nothing sends every answer


def test_means_beyond_the_largest_count_as_the_largest() -> None:
    private = PrivateMeans(STUDY, 4.0)
    for seed in range(20):
        far, near = (
            private.answer({"characters": 500.0, "rank": 6.0}, seed),
            private.answer({"characters": 12.0, "rank": 6.0}, seed),
        )
        assert far == near and private.allows(far)
    steps = private.response.steps
    for bad in ((0.0,), (steps + 1.0, 0.0), (0.5, 0.0), (math.nan, 0.0)):
        assert not private.allows(bad)


def test_refusals() -> None:
    private = PrivateMeans(STUDY, 2.0)
    with refused("study.empty-arm"):
        private.analyse({"treatment": np.zeros((9, 2), np.int64), "control": np.zeros((3, 2), np.int64)})
    with refused("value.out-of-range"):
        PrivateMeans(STUDY, 1000.0)
    for wrong in ({"epsilon": 0.0}, {"largest": {"characters": 0.0, "rank": 1.0}}):
        with refused("value.out-of-range"):
            study_of({"name": "s", **wrong}, "study")
