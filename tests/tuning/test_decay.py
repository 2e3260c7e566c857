"""Frecency by exponential decay: the formula of Firefox 147 by hand, its shared pass, and its place in a tuning."""

from __future__ import annotations

import numpy as np
import pytest

from quorank.data.logs.browser_history import VISIT_TYPES
from quorank.tuning.heuristics.decay import DECAY_FRECENCY
from quorank.tuning.heuristics.firefox import PLACES, AgedSuggestions
from quorank.tuning.histories.generated import LAST
from quorank.tuning.simulation import Tuning, simulate_tuning


def page(*visits: tuple[str, float], total: int | None = None, bookmarked: bool = False) -> AgedSuggestions:
    """One page with these (type, days ago) visits."""
    age, bonus = np.zeros((1, LAST), np.float32), np.zeros((1, LAST), np.int8)
    for v, (kind, days) in enumerate(visits):
        age[0, v], bonus[0, v] = days, PLACES[VISIT_TYPES.index(kind)]
    count = len(visits) if total is None else total
    return AgedSuggestions(
        np.array([0, 1]), np.array([count], np.int32), np.array([len(visits)], np.int8), age, bonus,
        np.array([bookmarked]), np.array([0]),
    )  # fmt: skip


def score(items: AgedSuggestions) -> float:
    return float(DECAY_FRECENCY.score(DECAY_FRECENCY.shipped[None, :], items)[0, 0])


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (page(("typed", 0.0)), 100.0),
        (page(("typed", 30.0)), 100.0 / 2),
        (page(("link", 60.0)), 50.0 / 4),
        (page(("redirect-temporary", 0.0)), 20.0),
        (page(("link", 0.0), bookmarked=True), 100.0),
        (page(("reload", 0.0), bookmarked=True), 20.0),
        (page(("typed", 0.0), ("download", 30.0), total=7), 7 / 2 * (100.0 + 50.0 / 2)),
        (page(bookmarked=True), 100.0),
        (page(), 0.0),
    ],
)
def test_by_hand(items: AgedSuggestions, expected: float) -> None:
    assert score(items) == pytest.approx(expected, rel=1e-6)


def test_two_decays_with_one_half_life_are_one() -> None:
    """The published text decays to the last visit, then daily from there: e^(−λ(t_ref − t_v))·e^(−λ(now − t_ref))."""
    visits, last = [("typed", 12.0), ("link", 40.0), ("link", 90.0)], 12.0
    rate = np.log(2.0) / 30.0
    to_last = sum(w * np.exp(-rate * (days - last)) for w, (_, days) in zip((100, 50, 50), visits, strict=True))
    assert score(page(*visits)) == pytest.approx(to_last * np.exp(-rate * last), rel=1e-6)


def test_it_is_tuned_like_the_old_formula() -> None:
    course = simulate_tuning(Tuning("decay", start="random", held_out=2000))
    assert course.accuracy[-1] > 0.98 * course.true_accuracy > 1.05 * course.accuracy[0]
    assert course.violations == 0
