"""Signs in one and two bits, and the majority of them, against counting by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quorank.errors import BadInput
from quorank.tuning.rules import GradientRelease, Release, SignRelease

slopes = st.integers(1, 30).flatmap(
    lambda d: arrays.arrays(
        np.float64, st.tuples(st.integers(1, 20), st.just(d)), elements=st.sampled_from([-7.5, -1e-9, 0.0, 0.25, 1e9])
    )
)


@given(slopes)
def test_two_bits_say_all_three_signs(values: np.ndarray) -> None:
    release = SignRelease()
    assert np.array_equal(release.apply(values), np.sign(values)) and release.accepts(np.sign(values)).all()


@given(slopes, st.integers(0, 2**32))
def test_one_bit_says_the_sign_and_a_coin_where_there_is_none(values: np.ndarray, seed: int) -> None:
    coins = np.random.default_rng(seed).random(values.shape) < 0.5
    release = SignRelease(bits=1)
    assert np.array_equal(
        release.apply(values, coins), np.where(values == 0.0, np.where(coins, 1.0, -1.0), np.sign(values))
    )


def test_one_bit_without_coins_refuses_a_zero() -> None:
    with pytest.raises(BadInput, match="one bit cannot represent 0"):
        SignRelease(bits=1).apply(np.array([[1.0, 0.0]]))


def test_gradients_are_32_bit_floats() -> None:
    assert GradientRelease().apply(np.array([[1.0, 0.1]])).tolist() == [[1.0, float(np.float32(0.1))]]


@pytest.mark.parametrize(
    ("release", "values"),
    [
        (GradientRelease(), [0.1, np.nan, np.inf, 1e300]),
        (SignRelease(), [2.0, np.nan, 0.5]),
        (SignRelease(bits=1), [0.0, np.nan]),
    ],
    ids=str,
)
def test_values_that_no_client_releases_are_not_accepted(release: Release, values: list[float]) -> None:
    assert release.accepts(np.array([[1.0], *([value] for value in values)])).tolist() == [True] + [False] * len(values)


@given(values=slopes)
def test_the_majority_is_a_vote_in_which_zeros_abstain(values: np.ndarray) -> None:
    signs = np.sign(values)
    for k, found in enumerate(SignRelease().direction(signs.mean(axis=0))):
        votes = Counter(signs[:, k].tolist())
        assert found == np.sign(votes[1.0] - votes[-1.0])
