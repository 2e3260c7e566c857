"""What every robust aggregation rule must hold; their equations are in test_aggregation_equations.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from refusals import refused
from scipy.spatial.distance import cdist

from quorank.errors import BadInput
from quorank.federation import Federation, coordinator
from quorank.federation.coordinator import Coordinator
from quorank.federation.rules import AGGREGATIONS, Mixing
from quorank.federation.rules.neighbours import distances
from quorank.learning import PDGD
from quorank.privacy import NoPrivacy

ROBUST = [rule for rule in AGGREGATIONS.members.values() if rule.needs_single_updates]
RULES = [
    *ROBUST,
    lambda byzantine: Mixing(byzantine, "median"),
    lambda byzantine: Mixing(byzantine, "geometric-median"),
]
IDS = [*(rule.kind for rule in ROBUST), "mixing-median", "mixing-geometric-median"]
ALL = pytest.mark.parametrize("rule", RULES, ids=IDS)


def combine(rule, updates) -> np.ndarray:
    return rule.combine_all(np.asarray(updates, dtype=np.float64), np.ones(len(updates)))


@ALL
@pytest.mark.parametrize("values", ["normal", "grid"])
def test_the_order_of_clients_does_not_matter_to_the_bit(rule, values) -> None:
    """On a small grid nearly all scores tie, also between different updates."""
    random = np.random.default_rng(3)
    for n in (11, 12):
        updates = random.normal(size=(n, 3)) if values == "normal" else random.integers(-1, 2, (n, 3)) * 0.1
        weights = random.random(n)
        first = rule(byzantine=2).combine_all(updates, weights)
        for _ in range(6):
            turn = random.permutation(n)
            again = rule(byzantine=2).combine_all(updates[turn], weights[turn])
            assert again.tobytes() == first.tobytes()


@ALL
def test_weights_are_claims_and_change_nothing(rule) -> None:
    updates = np.random.default_rng(4).normal(size=(11, 3))
    claimed = np.array([1e9, *np.ones(10)])
    part = rule(byzantine=2)
    np.testing.assert_array_equal(part.combine_all(updates, claimed), combine(part, updates))


@ALL
def test_updates_are_not_changed_and_the_result_is_a_copy(rule) -> None:
    updates = np.random.default_rng(5).normal(size=(11, 3))
    before = updates.copy()
    combine(rule(byzantine=2), updates)[:] = 7.0
    np.testing.assert_array_equal(updates, before)


@ALL
def test_scale_and_place_are_kept(rule) -> None:
    """combine(a·u) = a·combine(u) and combine(u + c) = combine(u) + c."""
    updates = np.random.default_rng(6).normal(size=(15, 4))  # fewer would leave Bulyan's last choice to the bytes
    part, shift = rule(byzantine=3), np.array([1.0, -20.0, 0.0, 3.0])
    found = combine(part, updates)
    np.testing.assert_allclose(combine(part, -0.01 * updates), -0.01 * found, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(combine(part, updates + shift), found + shift, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("size", [30.0, 1e6, 1e12, 1e200])
@pytest.mark.parametrize("together", [True, False])
@ALL
def test_far_away_updates_do_not_take_over(rule, size, together) -> None:
    """m = 3 of 15 anywhere: each result stays where its rule's guarantee keeps it.

    The geometric median g of n points, n − m of them within r of c, has ‖g − c‖ ≤ 2(n − m)/(n − 2m)·r.
    """
    random = np.random.default_rng([int(np.log10(size)), together])
    honest = random.normal(size=(12, 6)) + 1.0
    directions = np.ones((3, 6)) if together else np.sign(random.normal(size=(3, 6)))
    updates = np.vstack((honest, size * directions))[random.permutation(15)]
    part = rule(byzantine=3)
    found = combine(part, updates)
    low, high = honest.min(axis=0), honest.max(axis=0)
    middle = honest.mean(axis=0)
    radius = np.linalg.norm(honest - middle, axis=1).max()
    if part.kind == "krum":
        assert found.tolist() in honest.tolist()
    elif part.kind == "multi-krum":
        np.testing.assert_allclose(found, middle, rtol=1e-12)
    elif part.kind in ("geometric-median", "centred-clipping"):
        assert np.linalg.norm(found - middle) <= 2 * 12 / (15 - 2 * 3) * radius
    elif getattr(part, "then", None) != "geometric-median":
        assert np.all((low <= found) & (found <= high))
    else:
        assert np.linalg.norm(found - middle) <= 2 * 12 / (15 - 2 * 3) * radius


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@ALL
def test_what_is_not_finite_is_refused(rule, bad) -> None:
    updates = np.random.default_rng(7).normal(size=(11, 3))
    updates[4, 1] = bad
    with pytest.raises(BadInput, match=r"row 4 holds a number that is not finite"):
        combine(rule(byzantine=1), updates)


@ALL
def test_shapes_and_weights_are_refused(rule) -> None:
    part, updates = rule(byzantine=1), np.ones((11, 3))
    with refused("aggregation.shape"):
        part.combine_all(np.ones(11), np.ones(11))
    with refused("aggregation.shape"):
        part.combine_all(updates, np.ones(10))
    for bad in (np.nan, np.inf, -1.0):
        with refused("aggregation.bad-weight"):
            part.combine_all(updates, np.full(11, bad))
    with refused("aggregation.empty-cohort"):
        part.combine_all(np.ones((0, 3)), np.ones(0))
    with refused("value.out-of-range", "byzantine"):
        rule(byzantine=-1)


def test_the_smallest_cohorts() -> None:
    """Exactly n ≥ m + 3 for Krum, n ≥ 4m + 3 for Bulyan, n > 2m for all."""
    for m, n in itertools.product(range(5), range(1, 24)):
        for rule in ROBUST:
            least = {"krum": m + 3, "multi-krum": m + 3, "bulyan": 4 * m + 3}.get(rule.kind, 1)
            if n > 2 * m and n >= least:
                rule(byzantine=m).check(n)
                assert combine(rule(byzantine=m), np.arange(2.0 * n).reshape(n, 2) ** 1.5).shape == (2,)
            else:
                with pytest.raises(BadInput):
                    rule(byzantine=m).check(n)


@pytest.mark.parametrize("outlier", [1.0, 1e9, 1e200])
def test_distances_are_those_of_all_pairs(outlier) -> None:
    """Against SciPy: a common offset, two close groups, and outliers that overflow."""
    random = np.random.default_rng(8)
    rows = random.normal(size=(30, 17)) + 1e7
    rows[20:25] = rows[20] + 1e-4 * random.normal(size=(5, 17))
    rows[25] *= outlier
    with np.errstate(over="ignore"):
        expected = cdist(rows, rows)
    np.testing.assert_allclose(distances(rows), expected, rtol=1e-13)


COMPARES_PAIRS = [rule for rule in ROBUST if rule.compares_pairs]


@pytest.mark.parametrize("rule", COMPARES_PAIRS, ids=lambda rule: rule.kind)
def test_pairs_that_no_memory_holds_are_refused_before_a_run(rule, monkeypatch, tiny_collection) -> None:
    part = rule(byzantine=1)
    part.check_pair_memory(1000, 32_000_000)
    with refused("aggregation.pairs-too-many", "federation.aggregation"):
        part.check_pair_memory(1001, 32_000_000)
    monkeypatch.setattr(coordinator, "memory_bytes", lambda: 16_000_000_000)
    federation = Federation(100_000, 4, PDGD(), aggregation=part)
    with refused("aggregation.pairs-too-many", "federation.aggregation"):
        Coordinator(federation, NoPrivacy().mechanism(federation.setting(3, 11), 1), federation.start(np.zeros(11)), 3)
