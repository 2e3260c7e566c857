"""Who takes part: every set of the cohort's size alike, anew each round."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chance import assert_follows
from hypothesis import given
from hypothesis import strategies as st

from quorank.federation import Poisson, Sampled
from quorank.kernels.draws import Purpose, uniforms


@given(st.integers(1, 200), st.data(), st.integers(0, 10**6), st.integers(0, 2**40))
def test_a_cohort_is_sorted_unique_and_of_its_size(clients, data, round_, seed) -> None:
    cohort = data.draw(st.integers(1, clients))
    part = Sampled(cohort=cohort)
    members = part.members(clients, round_, seed)
    assert part.size(clients) == cohort == len(members)
    assert members.dtype == np.int64
    assert members.tolist() == sorted(set(members.tolist()))
    assert members[0] >= 0
    assert members[-1] < clients


@pytest.mark.parametrize("cohort", [1, 2, 3])
def test_every_set_is_alike(cohort) -> None:
    sets = list(itertools.combinations(range(5), cohort))
    drawn = [tuple(Sampled(cohort=cohort).members(5, round_, 1).tolist()) for round_ in range(20_000)]
    assert_follows(drawn, dict.fromkeys(sets, 1 / len(sets)))


@pytest.mark.parametrize(("clients", "cohort"), [(1, 1), (7, 3), (16, 16), (17, 16), (500, 1), (500, 20), (500, 499)])
def test_a_cohort_has_the_smallest_draws(clients, cohort) -> None:
    """The same clients as by sorting everybody's own draw, which is not done."""
    for round_ in range(3):
        each = [uniforms(9, Purpose.PARTICIPATION, 1, round_=round_, client=c)[0] for c in range(clients)]
        expected = sorted(np.argsort(each, kind="stable")[:cohort].tolist())
        assert Sampled(cohort=cohort).members(clients, round_, 9).tolist() == expected
        rate = Poisson(rate=cohort / clients)
        assert rate.members(clients, round_, 9).tolist() == np.flatnonzero(np.array(each) < cohort / clients).tolist()
