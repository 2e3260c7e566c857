"""Sums whose bits do not depend on the order of the clients, against math.fsum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.kernels.exact_sums import LARGEST, ExactSum

NUMBER = st.floats(-1e6, 1e6) | st.floats(-1, 1) | st.floats(-1e-9, 1e-9)
ROWS = st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=30)


def total(rows, weights=None, weighted=3, sizes=None) -> np.ndarray:
    """The sum, added in chunks of these sizes (cycled)."""
    rows = np.asarray(rows, dtype=np.float64)
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    running, at, turn = ExactSum(rows.shape[1]), 0, 0
    while at < len(rows):
        size = sizes[turn % len(sizes)] if sizes else len(rows)
        running.add(rows[at : at + size], weights[at : at + size], weighted)
        at, turn = at + size, turn + 1
    return running.value()


@given(ROWS)
def test_as_exact_as_it_says(rows) -> None:
    """Each number loses less than 2^−53; the total is rounded once or twice when it becomes a float again."""
    for j, found in enumerate(total(rows)):
        exact = math.fsum(row[j] for row in rows)
        assert abs(found - exact) <= len(rows) * 2.0**-53 + 2 * math.ulp(exact)


@given(ROWS, st.randoms(use_true_random=False), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_any_order_and_any_chunking_give_the_same_bits(rows, random, sizes) -> None:
    weights = [random.randint(1, 9) for _ in rows]
    expected = total(rows, weights)
    shuffled = list(zip(rows, weights, strict=True))
    random.shuffle(shuffled)
    found = total([row for row, _ in shuffled], [weight for _, weight in shuffled], sizes=sizes)
    assert found.tobytes() == expected.tobytes()


@given(ROWS, st.integers(0, 30))
def test_merged_sums_equal_one_sum(rows, cut) -> None:
    left, right = ExactSum(3), ExactSum(3)
    rows = np.array(rows)
    left.add(rows[:cut], np.ones(len(rows[:cut])), 3)
    right.add(rows[cut:], np.ones(len(rows[cut:])), 3)
    right.merge(left)
    assert right.value().tobytes() == total(rows).tobytes()


def test_what_floats_lose_is_kept() -> None:
    rows = np.array([[1e6]] + [[1e-11]] * 100_000 + [[-1e6]])
    assert total(rows, weighted=1)[0] == pytest.approx(1e-6, abs=1e5 * 2.0**-53)
    assert sum(row[0] for row in rows) != pytest.approx(1e-6, rel=1e-6)


def test_only_the_weighted_columns_are_weighted() -> None:
    found = total([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], weights=[2, 3], weighted=2)
    assert found.tolist() == [1 * 2 + 4 * 3, 2 * 2 + 5 * 3, 3 + 6]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300, LARGEST, -LARGEST])
@pytest.mark.parametrize("column", [0, 2])
def test_numbers_that_cannot_be_added_are_refused(bad, column) -> None:
    rows = np.zeros((4, 3))
    rows[2, column] = bad
    with pytest.raises(BadInput, match="not finite or is beyond"):
        total(rows, weighted=2)


def test_a_sum_that_would_leave_the_integers_is_refused() -> None:
    rows = np.full((40_000, 1), 0.999 * 2.0**36)
    with pytest.raises(BadInput, match="too large to be summed exactly"):
        ExactSum(1).add(rows, np.ones(len(rows)), 1)


def test_the_client_of_a_bad_update_is_named() -> None:
    rows = np.array([[1.0], [np.nan]])
    with pytest.raises(BadInput, match="client 17"):
        ExactSum(1).add(rows, np.ones(2), 1, np.array([4, 17]))
