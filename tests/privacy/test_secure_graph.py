"""The neighbours of a secure sum: exact tails, the smallest safe neighbourhood, and rings that hold together."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.privacy.secure_sum.graph import (
    CORRECTNESS_BITS,
    EVERYBODY,
    SECURITY_BITS,
    Neighbourhood,
    Ring,
    exposure,
    neighbours_for,
    shortage,
    tolerated_colluders,
)


def tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P(at least `least` marked among `drawn`), exactly."""
    ways = sum(
        math.comb(marked, i) * math.comb(population - marked, drawn - i)
        for i in range(least, min(drawn, marked) + 1)
        if drawn - i <= population - marked
    )
    return Fraction(ways, math.comb(population, drawn))


@pytest.mark.parametrize(("n", "k", "t"), [(100, 38, 20), (1000, 76, 39), (1000, 46, 26)])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.3])
def test_tails_are_exact_where_they_are_tiny(n, k, t, share) -> None:
    marked = int(share * n)
    assert exposure(n, k, t, marked) == pytest.approx(float(n * tail(n - 1, marked, k, t)), rel=1e-8, abs=1e-200)
    assert shortage(n, k, t, marked) == pytest.approx(
        float(n * tail(n - 1, marked, k, k - t + 1)), rel=1e-8, abs=1e-200
    )


@pytest.mark.parametrize("n", [129, 200, 1000, 10_000])
@pytest.mark.parametrize(("dropouts", "colluding"), [(0.2, 0.1), (0.1, 0.05), (0.1, 0.0), (0.0, 0.3)])
def test_the_neighbourhood_is_safe_and_no_smaller_one_is(n, dropouts, colluding) -> None:
    plan = neighbours_for(n, dropouts, colluding)
    k, t, m, x = plan.neighbours, plan.threshold, plan.masks, plan.margin
    leave, spy = math.floor(dropouts * n), math.floor(colluding * n)
    there, pairs = n - leave, Fraction(n * (n - 1), 2)
    unsafe = there * tail(there - 1, spy, k, t) + Fraction(there * (there - 1), 2) * tail(there, spy, m, x + 1)
    assert unsafe <= Fraction(1, 2**SECURITY_BITS)
    assert n * tail(n - 1, leave, k, k - t + 1) + pairs * tail(n, leave, m, m - x) <= Fraction(1, 2**CORRECTNESS_BITS)
    if k > 2:
        smaller = [
            s
            for s in range((k - 2) // 2 + 1, k - 1)
            if there * tail(there - 1, spy, k - 2, s) <= Fraction(1, 2 ** (SECURITY_BITS + 1))
            and n * tail(n - 1, leave, k - 2, k - 2 - s + 1) <= Fraction(1, 2 ** (CORRECTNESS_BITS + 1))
        ]
        assert not smaller
    assert tolerated_colluders(n, plan, there) >= min(spy, 2 * there - n - 1)


def test_small_cohorts_are_all_neighbours_and_the_threshold_is_as_high_as_leaving_permits() -> None:
    for n, t in ((2, 2), (3, 2), (4, 3), (10, 9), (64, 57), (EVERYBODY, 115)):
        assert neighbours_for(n) == Neighbourhood(n - 1, t, n - 1)
    assert neighbours_for(10, 0.3) == Neighbourhood(9, 7, 9)
    assert neighbours_for(10, 0.9, 0.0) == Neighbourhood(9, 6, 9)  # never half
    assert neighbours_for(140, 0.45) == Neighbourhood(139, 77, 139)  # where no ring is safe


def joined(ring: Ring, clients: set[int]) -> bool:
    """Whether a walk along masks reaches everybody."""
    if not clients:
        return True
    reached, edge = set(), [next(iter(clients))]
    while edge:
        client = edge.pop()
        if client not in reached:
            reached.add(client)
            edge += [other for other in ring.masked_with(client) if other in clients]
    return reached == clients


@given(st.integers(2, 12), st.integers(1, 5), st.data())
def test_joins_looks_at_every_two_gaps_and_then_no_colluders_separate_the_others(n, half, data) -> None:
    m = min(2 * half, n - 1)
    margin = data.draw(st.integers(0, m - 1))
    order = data.draw(st.permutations(range(n)))
    ring = Ring(order, Neighbourhood(m, (m + 1) // 2 + 1, m, margin))
    clients = data.draw(st.sets(st.integers(0, n - 1)))
    assert not ring.joins({*clients, 99})
    if m >= n - 1:
        assert ring.joins(clients)
        return
    gaps = [{(start + step) % n for step in range(half)} for start in range(n)]
    least = min(sum(order[at] in clients for at in a | b) for a in gaps for b in gaps if not a & b)
    assert ring.joins(clients) == (least > margin)
    if least > margin:
        spies = combinations(sorted(clients), margin)
        assert all(joined(ring, clients - set(some)) for some in spies)


@given(st.integers(2, 30), st.integers(1, 8), st.integers(1, 8), st.randoms())
def test_neighbours_are_mutual_and_holders_are_among_those_masked_with(n, a, b, random) -> None:
    k, m = min(2 * min(a, b), n - 1), min(2 * max(a, b), n - 1)
    ring = Ring.drawn(range(10, 10 + n), Neighbourhood(k, (k + 1) // 2 + 1, m), random.randbytes)
    assert sorted(ring.order) == list(range(10, 10 + n))
    for client in ring.order:
        holders, partners = ring.holders(client), ring.masked_with(client)
        assert len(holders) == len(set(holders)) == k + 1
        assert len(partners) == len(set(partners)) == m + 1
        assert client in holders
        assert set(holders) <= set(partners)
        assert all(client in ring.holders(other) for other in holders)
        assert all(client in ring.masked_with(other) for other in partners)


def test_hopeless_cohorts_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 2 clients"):
        neighbours_for(1)
    with pytest.raises(BadInput, match="below 1 together"):
        neighbours_for(100, 0.6, 0.5)
    with pytest.raises(BadInput, match="is safe when 45% of 10000 clients leave"):
        neighbours_for(10_000, 0.45, 0.4)
