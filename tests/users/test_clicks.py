"""Click models against the thesis' tables, closed forms and a walk in plain Python."""

from __future__ import annotations

import itertools

import equations
import numpy as np
import pytest
from chance import assert_follows
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.draws import Purpose, uniforms
from quorank.users import Cascade, ClickTables, PositionBased, simulate_clicks

# Thesis tables 2.1 (3 grades), 2.2 (5 grades) and 5.1 (poison): P(click | r), P(stop | click, r)
TABLES = {
    (3, "perfect"): ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
    (3, "navigational"): ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
    (3, "informational"): ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
    (3, "poison"): ((1.0, 0.5, 0.0), (0.0, 0.0, 0.0)),
    (5, "perfect"): ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    (5, "navigational"): ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    (5, "informational"): ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
    (5, "poison"): ((1.0, 0.8, 0.4, 0.2, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
}
LISTS = {3: (1, 0, 2, 0, 1), 5: (1, 3, 0, 4, 2, 1)}


def simulate(tables, labels, count, seed=1) -> list[tuple[bool, ...]]:
    """The clicks of many clients on one list."""
    labels = np.array(labels, dtype=np.int8)
    return [tuple(simulate_clicks(tables, labels, seed, client=c).tolist()) for c in range(count)]


@pytest.mark.parametrize(("grades", "preset"), TABLES)
def test_cascade_presets_follow_the_thesis(grades, preset) -> None:
    click, stop = TABLES[grades, preset]
    labels = LISTS[grades]
    tables = Cascade.preset(preset).tables(grades, 10)
    exact = equations.click_patterns(labels, [1.0] * len(labels), click, stop)
    assert_follows(simulate(tables, labels, 10_000), exact)


@pytest.mark.parametrize(("grades", "preset"), TABLES)
def test_cascade_tables_are_those_of_the_thesis(grades, preset) -> None:
    for part in (Cascade(preset=preset), Cascade.preset(preset, grades=grades)):
        tables = part.tables(grades, 10)
        assert (tuple(tables.click), tuple(tables.stop)) == TABLES[grades, preset]
        assert np.array_equal(tables.examine, np.ones(10))


@pytest.mark.parametrize("grades", [3, 5])
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0, 1.5, 2.0])
def test_position_based_clicks_are_independent(grades, eta) -> None:
    """P(click at rank r) = (1/r)^η · P(click | label), whatever stands above (thesis §4.5.1)."""
    click, _ = TABLES[grades, "informational"]
    labels = LISTS[grades][:4]
    tables = PositionBased(eta=eta, preset="informational").tables(grades, 10)
    exact = {}
    for pattern in itertools.product((False, True), repeat=len(labels)):
        p = [(1 / rank) ** eta * click[label] for rank, label in enumerate(labels, 1)]
        exact[pattern] = float(np.prod([q if c else 1 - q for q, c in zip(p, pattern, strict=True)]))
    assert_follows(simulate(tables, labels, 10_000, seed=2), exact)
    np.testing.assert_allclose(tables.examine, [(1 / rank) ** eta for rank in range(1, 11)], rtol=1e-15)


PROBABILITY = st.floats(0, 1)


@given(
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    examine=st.lists(PROBABILITY, min_size=12, max_size=12),
    click=st.tuples(PROBABILITY, PROBABILITY, PROBABILITY),
    stop=st.tuples(PROBABILITY, PROBABILITY, PROBABILITY),
    seed=st.integers(0, 2**40),
)
def test_a_second_uniform_is_drawn_only_after_a_click(labels, examine, click, stop, seed) -> None:
    """So the walk in plain Python, reading the same addressed draws one by one, gives the same clicks."""
    tables = ClickTables(np.array(examine), np.array(click), np.array(stop))
    for client in range(5):
        address = {"round_": 3, "client": client, "interaction": 2}
        draws = uniforms(seed, Purpose.CLICK, 2 * len(labels), **address)
        expected = equations.click_walk(labels, examine, click, stop, draws.tolist())
        assert simulate_clicks(tables, labels, seed, **address).tolist() == expected


def test_nobody_reads_on_after_leaving() -> None:
    leaves = ClickTables(np.ones(10), np.array([1.0, 1.0]), np.array([0.0, 1.0]))
    assert simulate_clicks(leaves, [0, 0, 1, 0, 1], 1).tolist() == [True, True, True, False, False]


def test_own_tables_override_the_preset() -> None:
    part = Cascade(preset="poison", click=(0.0, 1.0, 1.0), stop=(0.0, 1.0, 0.0))
    assert simulate_clicks(part.tables(3, 10), [0, 2, 2, 1, 2], 1).tolist() == [False, True, True, True, False]
    position = PositionBased(eta=0.0, preset="poison", click=(0.0, 1.0, 1.0))
    assert simulate_clicks(position.tables(3, 10), [0, 2, 0, 1], 1).tolist() == [False, True, False, True]


def test_tables_must_cover_the_labels() -> None:
    with refused("click-model.too-few-grades", "click"):
        Cascade(grades=3).tables(5, 10)
    with refused("click-model.too-few-grades", "click"):
        Cascade(click=(0.1, 0.2), stop=(0.1, 0.2)).tables(3, 10)
    with refused("click-model.too-few-grades", "stop"):
        Cascade(click=(0.1, 0.2, 0.3), stop=(0.1, 0.2)).tables(3, 10)
    with refused("click-model.too-few-grades", "click"):
        PositionBased(click=(0.1, 0.2, 0.3)).tables(5, 10)
