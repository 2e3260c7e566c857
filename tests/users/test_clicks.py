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
from sampling import sampled

from quorank.data.ranking import Collection, RankingData
from quorank.kernels.draws import Purpose, uniforms
from quorank.learning import Simulation
from quorank.rankers import Linear
from quorank.users import Cascade, ClickTables, PositionBased, TrustBias, UserBrowsing, simulate_clicks
from quorank.users.click_model import stack_tables

# Thesis tables 2.1 (3 grades), 2.2 (5 grades) and 5.1 (poison): P(click | r), P(stop | click, r); for 2 grades those of
# Hofmann et al. (2013)
TABLES = {
    (2, "perfect"): ((0.0, 1.0), (0.0, 0.0)),
    (2, "navigational"): ((0.05, 0.95), (0.2, 0.9)),
    (2, "informational"): ((0.4, 0.9), (0.1, 0.5)),
    (2, "poison"): ((1.0, 0.0), (0.0, 0.0)),
    (3, "perfect"): ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
    (3, "navigational"): ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
    (3, "informational"): ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
    (3, "poison"): ((1.0, 0.5, 0.0), (0.0, 0.0, 0.0)),
    (5, "perfect"): ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    (5, "navigational"): ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    (5, "informational"): ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
    (5, "poison"): ((1.0, 0.8, 0.4, 0.2, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
}
LISTS = {2: (0, 1, 0, 1, 1), 3: (1, 0, 2, 0, 1), 5: (1, 3, 0, 4, 2, 1)}


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
    for part in (Cascade(preset=preset), Cascade.preset(preset, grades=grades)):
        tables = part.tables(grades, 10)
        assert (tuple(tables.click), tuple(tables.stop), tables.examine.tolist()) == (click, stop, [1.0] * 10)


def independent_patterns(probabilities) -> dict[tuple[bool, ...], float]:
    """P of every click pattern where ranks are clicked independently."""
    patterns = itertools.product((False, True), repeat=len(probabilities))
    return {
        pattern: float(np.prod([p if c else 1 - p for p, c in zip(probabilities, pattern, strict=True)]))
        for pattern in patterns
    }


@pytest.mark.parametrize(("eta", "grades"), sampled([0.0, 0.5, 1.0, 1.5, 2.0], [3, 5]))
def test_position_based_clicks_are_independent(grades, eta) -> None:
    """P(click at rank r) = (1/r)^η · P(click | label), whatever stands above (thesis §4.5.1)."""
    click, _ = TABLES[grades, "informational"]
    labels = LISTS[grades][:4]
    tables = PositionBased(eta=eta, preset="informational").tables(grades, 10)
    exact = independent_patterns([(1 / rank) ** eta * click[label] for rank, label in enumerate(labels, 1)])
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


def test_own_tables_override_the_preset() -> None:
    part = Cascade(preset="poison", click=(0.0, 1.0, 1.0), stop=(0.0, 1.0, 0.0))
    assert simulate_clicks(part.tables(3, 10), [0, 2, 2, 1, 2], 1).tolist() == [False, True, True, True, False]
    position = PositionBased(eta=0.0, preset="poison", click=(0.0, 1.0, 1.0))
    assert simulate_clicks(position.tables(3, 10), [0, 2, 0, 1], 1).tolist() == [False, True, False, True]


def test_tables_must_cover_the_labels() -> None:
    for model, field in (
        (Cascade(grades=3), "click"),
        (Cascade(click=(0.1, 0.2), stop=(0.1, 0.2)), "click"),
        (Cascade(click=(0.1, 0.2, 0.3, 0.4, 0.5), stop=(0.1, 0.2)), "stop"),
        (PositionBased(click=(0.1, 0.2, 0.3)), "click"),
        (TrustBias(relevance=(0.0, 1.0)), "relevance"),
        (UserBrowsing(click=(0.0, 1.0)), "click"),
    ):
        with refused("click-model.too-few-grades", field):
            model.tables(5, 10)


@pytest.mark.parametrize(("highest", "grades"), [(0, 2), (1, 2), (2, 3), (3, 5), (4, 5)])
def test_presets_follow_the_scale_of_the_data(highest, grades) -> None:
    data = RankingData.from_arrays(np.ones((3, 2)), [0, highest, 0], [0, 3])
    assert Collection("three", data, data).grades == grades
    world = Simulation(data, Linear(), Cascade(), grades, 1).world()
    assert world.users.click[0, 0].tolist() == list(TABLES[grades, "perfect"][0])


def test_trust_bias_follows_its_equation() -> None:
    """P(click | d, k) = θ_k (ε⁺_k γ + ε⁻_k (1 − γ)), with own and with default ε."""
    labels = (0, 2, 1, 0)
    own = TrustBias(eta=0.5, relevance=(0.1, 0.6, 0.9), epsilon_plus=(0.95, 0.8), epsilon_minus=(0.6, 0.3, 0.1))
    gamma, plus, minus = (0.1, 0.6, 0.9), (0.95, 0.8, 0.8, 0.8), (0.6, 0.3, 0.1, 0.1)
    exact = [(1 / k) ** 0.5 * (plus[k - 1] * gamma[y] + minus[k - 1] * (1 - gamma[y])) for k, y in enumerate(labels, 1)]
    assert_follows(simulate(own.tables(3, 10), labels, 10_000), independent_patterns(exact))
    exact = [1 / k * ((1 - (k + 1) / 100) * y / 2 + 0.65 / k * (1 - y / 2)) for k, y in enumerate(labels, 1)]
    assert_follows(simulate(TrustBias().tables(3, 10), labels, 10_000, seed=3), independent_patterns(exact))


def browsing_patterns(labels, gamma, attraction) -> dict[tuple[bool, ...], float]:
    """P of every click pattern by the product of γ_{r,d}·α and 1 − γ_{r,d}·α down the list."""
    out = {}
    for pattern in itertools.product((False, True), repeat=len(labels)):
        probability, last = 1.0, 0
        for rank, (label, clicked) in enumerate(zip(labels, pattern, strict=True), 1):
            p = gamma[rank][rank - last] * attraction[label]
            probability *= p if clicked else 1 - p
            last = rank if clicked else last
        out[pattern] = probability
    return out


@pytest.mark.parametrize("eta", [1.0, 2.0])
def test_user_browsing_follows_its_equation(eta) -> None:
    """γ_{r,d} of the first ranks, by rank and distance to the last click, d = r where there is none."""
    table = {1: {1: 1.0}, 2: {1: 0.98, 2: 1.0}, 3: {1: 1.0, 2: 0.62, 3: 0.95}, 4: {1: 1.0, 2: 0.77, 3: 0.42, 4: 0.82}}
    gamma = {rank: {d: value**eta for d, value in row.items()} for rank, row in table.items()}
    labels, attraction = (1, 0, 2, 1), (0.4, 0.7, 0.9)
    tables = UserBrowsing(eta=eta, preset="informational").tables(3, 10)
    assert_follows(simulate(tables, labels, 10_000, seed=4), browsing_patterns(labels, gamma, attraction))


def test_long_lists_go_on_with_the_last_row_of_the_table() -> None:
    examine = UserBrowsing().tables(3, 14).examine
    assert examine.shape == (15, 14)
    assert examine[0, 9:].tolist() == [0.43] * 5  # nobody has clicked
    assert examine[13, 13] == 1.0 and examine[12, 13] == 1.0  # d = 1, 2
    assert examine[1, 13] == 0.12  # farther than the table goes


def test_models_of_different_shape_go_together() -> None:
    """Clients of one run may click by different models: each keeps its probabilities."""
    models = [Cascade(preset="informational"), TrustBias(), UserBrowsing()]
    tables = [model.tables(3, 4) for model in models]
    examine, click, stop = stack_tables(tables)
    assert (examine.shape, click.shape, stop.shape) == ((3, 5, 4), (3, 4, 3), (3, 3))
    for number, own in enumerate(tables):
        assert np.array_equal(examine[number], np.broadcast_to(own.examine, (5, 4)))
        assert np.array_equal(click[number], np.broadcast_to(own.click, (4, 3)))
