"""Correlated noise: its covariance, its privacy against any contributions, and the optimum with everyone in every round."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from chance import assert_mean
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

from quorank.errors import BadInput
from quorank.kernels.draws import Purpose, key_of
from quorank.privacy.mechanisms.correlated import (
    KINDS,
    Factor,
    inverse_square_root_coefficients,
    sensitivity,
    square_root_coefficients,
    tree_children,
)
from quorank.privacy.mechanisms.discrete_gaussian import discrete_gaussian

KEY = key_of(3, Purpose.NOISE)
LENGTHS = [1, 2, 3, 7, 8, 12, 33]


def whole(rows, rounds) -> np.ndarray:
    """The lower triangle with these rows."""
    matrix = np.zeros((rounds, rounds))
    for t in range(rounds):
        matrix[t, : t + 1] = rows(t)
    return matrix


def ones(rounds) -> np.ndarray:
    """A: prefix sums."""
    return np.tril(np.ones((rounds, rounds)))


def moved(c, contributions) -> float:
    """How far a client with these contributions (T, d) moves C x."""
    return float(np.linalg.norm(c @ contributions))


def signs(rounds) -> np.ndarray:
    """All sign vectors up to a common sign, as rows."""
    return np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=rounds - 1)])


def least_error(weights) -> float:
    """(Σ_t √a_t)² with a_t = w_t + … + w_T: what no factorisation can undercut."""
    return float(np.sqrt(np.cumsum(weights[::-1])).sum() ** 2)


# ---------------------------------------------------------------- factors


@pytest.mark.parametrize("rounds", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_belong_to_a_matrix_and_its_inverse(kind, rounds) -> None:
    f = Factor(kind, rounds)
    c, inverse = whole(f.row, rounds), whole(f.inverse_row, rounds)
    np.testing.assert_allclose(c @ inverse, np.eye(rounds), atol=1e-12)
    assert np.all(c.T @ c >= 0)
    assert f.sensitivity == pytest.approx(sensitivity(c), rel=1e-12)


@pytest.mark.parametrize("rounds", LENGTHS)
def test_the_square_root_squared_is_the_triangle_of_ones(rounds) -> None:
    c = whole(Factor("square-root", rounds).row, rounds)
    np.testing.assert_allclose(c @ c, ones(rounds), atol=1e-12)


def test_square_root_coefficients_are_central_binomials() -> None:
    for k in range(30):
        r = math.comb(2 * k, k) / 4**k
        assert square_root_coefficients(30)[k] == pytest.approx(r, rel=1e-13)
        assert inverse_square_root_coefficients(30)[k] == pytest.approx(-r / (2 * k - 1), rel=1e-13)


def test_the_tree_of_eight() -> None:
    c = whole(Factor("tree", 8).row, 8)
    assert ["".join(str(int(v)) for v in row) for row in c] == [
        "10000000", "11000000", "00100000", "11110000", "00001000", "00001100", "00000010", "11111111",
    ]  # fmt: skip
    assert tree_children(8) == [6, 5, 3]


@pytest.mark.parametrize("rounds", [8, 33, 100])
def test_a_prefix_of_the_tree_holds_one_block_for_each_bit(rounds) -> None:
    b = ones(rounds) @ whole(Factor("tree", rounds).inverse_row, rounds)
    assert np.all(np.isclose(b, 0) | np.isclose(b, 1))
    assert b.sum(axis=1).round().tolist() == [bin(t).count("1") for t in range(1, rounds + 1)]


def test_independent_noise_is_plain_composition() -> None:
    f = Factor("independent", 9)
    assert f.sensitivity == 3.0
    np.testing.assert_array_equal(f.prefix_errors(), 9.0 * np.arange(1, 10))


def test_unknown_factors_and_rounds_are_refused() -> None:
    with pytest.raises(BadInput, match="did you mean 'square-root'"):
        Factor("square-rot", 3)
    with pytest.raises(BadInput, match="rounds: must be at least 1"):
        Factor("tree", 0)
    f = Factor("tree", 3)
    for call in (
        lambda: f.noise(3, 2, KEY, 1.0),
        lambda: f.noise(-1, 2, KEY, 1.0),
        lambda: f.noise_std(3),
        lambda: f.row(3),
    ):
        with pytest.raises(BadInput):
            call()


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_the_covariance_of_the_inverse(kind) -> None:
    rounds, std = 8, 2.5e6
    f = Factor(kind, rounds)
    drawn = np.stack([f.noise(t, 60_000, KEY, std) for t in range(rounds)], axis=1).astype(float)
    inverse = np.linalg.inv(whole(f.row, rounds))
    assert_mean(drawn, np.zeros(rounds))
    assert_mean(drawn[:, :, None] * drawn[:, None, :], std**2 * inverse @ inverse.T)
    prefixes = np.cumsum(drawn, axis=1) * f.sensitivity / std
    assert_mean(prefixes**2, f.prefix_errors())
    assert [f.noise_std(t) for t in range(rounds)] == pytest.approx(np.linalg.norm(inverse, axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_noise_over_seeds_has_the_covariance_of_the_inverse(kind) -> None:
    f = Factor(kind, 4)
    keys = [key_of(seed, Purpose.NOISE) for seed in range(4000)]
    drawn = np.array([[f.noise(t, 1, key, 1e3)[0] for t in range(4)] for key in keys]) / 1e3
    inverse = np.linalg.inv(whole(f.row, 4))
    assert_mean(drawn[:, :, None] * drawn[:, None, :], inverse @ inverse.T)


@given(st.sampled_from(KINDS), st.integers(1, 40), st.data())
def test_noise_depends_on_its_address_only(kind, rounds, data) -> None:
    f = Factor(kind, rounds)
    t, size = data.draw(st.integers(0, rounds - 1)), data.draw(st.integers(0, 9))
    once = f.noise(t, size, KEY, 70.0)
    for other in data.draw(st.lists(st.integers(0, rounds - 1), max_size=3)):
        f.noise(other, 5, KEY, 1.0)
    again = Factor(kind, rounds).noise(t, size + 3, KEY, 70.0)[:size]
    assert once.tobytes() == again.tobytes()


def test_independent_noise_is_the_discrete_gaussian_of_its_round() -> None:
    expected = np.empty(11, dtype=np.int64)
    discrete_gaussian(KEY, 6, 0, 1.5, expected)
    np.testing.assert_array_equal(Factor("independent", 9).noise(6, 11, KEY, 1.5), expected)


@pytest.mark.parametrize("kind", ["tree", "square-root"])
def test_the_same_sums_are_explained_by_noise_as_far_away_as_is_counted(kind) -> None:
    """Whoever explains a run's sums by another client's updates finds z moved by at most sens·(clip + rounding·√d).

    z is recovered from released sums round by round, for the true contributions and for none.
    """
    rounds, size, sigma, clip = 40, 6, 1e9, 2.0**25
    f = Factor(kind, rounds)
    noise = np.array([f.noise(t, size, KEY, sigma) for t in range(rounds)])
    update = np.floor(np.full((rounds, size), clip / math.sqrt(size)))
    released = noise + update.astype(np.int64)

    def explained(sums) -> np.ndarray:
        found = np.zeros((rounds, size), dtype=np.int64)
        for t in range(rounds):
            row = f.inverse_row(t)[:-1]
            earlier = np.zeros(size)
            for s in np.flatnonzero(row):
                earlier += row[s] * found[s]
            found[t] = sums[t] - np.rint(earlier).astype(np.int64)
        return found

    drawn = np.empty(size, dtype=np.int64)
    for t in (0, rounds - 1):
        discrete_gaussian(KEY, t, 0, sigma, drawn)
        np.testing.assert_array_equal(explained(noise)[t], drawn)
    moved_by = np.linalg.norm((explained(released) - explained(noise)).astype(float))
    bound = f.sensitivity * (clip + f.rounding(sigma) * math.sqrt(size))
    assert 0.999 * f.sensitivity * clip < moved_by <= bound
    assert (f.rounding(sigma) == 0.0) == (kind == "tree")


# ---------------------------------------------------------------- privacy


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 20), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_a_run_is_one_gaussian_release(kind, rounds, size, seed) -> None:
    """With noise covariance Σ, no contributions u of norms ≤ clip have uᵀΣ⁻¹u above 1/σ²; one update repeated does."""
    sigma, clip = 1.7, 0.3
    f = Factor(kind, rounds)
    inverse = (sigma * f.sensitivity * clip) * whole(f.inverse_row, rounds)
    whitened = np.linalg.inv(inverse)
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(rounds, size))
    u *= clip * rng.uniform(size=(rounds, 1)) ** 0.1 / np.linalg.norm(u, axis=1, keepdims=True)
    assert moved(whitened, u) <= (1 + 1e-9) / sigma
    assert moved(whitened, np.abs(u)) <= (1 + 1e-9) / sigma
    assert moved(whitened, np.full((rounds, 1), clip)) == pytest.approx(1 / sigma, rel=1e-9)


@given(arrays(np.float64, (5, 5), elements=st.floats(-2, 2)), st.integers(0, 2**32 - 1))
def test_the_sensitivity_is_safe_for_any_matrix(c, seed) -> None:
    """Coordinate ascent over unit vectors finds nothing above the bound, nor does any sign pattern."""
    assert max(moved(c, s[:, None]) for s in signs(5)) <= sensitivity(c) * (1 + 1e-9) + 1e-9
    u = np.random.default_rng(seed).normal(size=(5, 5))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    gram = c.T @ c
    for _ in range(20):
        for i in range(5):
            pull = gram[i] @ u - gram[i, i] * u[i]
            if np.linalg.norm(pull) > 1e-12:
                u[i] = pull / np.linalg.norm(pull)
    assert moved(c, u) <= sensitivity(c) * (1 + 1e-9) + 1e-9


def test_the_sum_of_the_gram_matrix_is_not_safe_when_it_has_negative_entries() -> None:
    c = np.array([[1.0, 0.0], [-1.0, 1.0]])
    unsafe = math.sqrt((c.T @ c).sum())
    assert moved(c, np.array([[1.0], [-1.0]])) == pytest.approx(math.sqrt(5))
    assert unsafe == pytest.approx(1.0)
    assert sensitivity(c) == pytest.approx(math.sqrt(5))


# ---------------------------------------------------------------- the optimum


@pytest.mark.parametrize("rounds", [1, 2, 10, 100, 1000])
def test_the_optimal_factor_reaches_the_bound(rounds) -> None:
    mean = Factor("optimal", rounds).prefix_errors().mean()
    assert mean * rounds == pytest.approx(least_error(np.ones(rounds)), rel=1e-12)
    last = np.array([0.0] * (rounds - 1) + [1.0])
    assert Factor("independent", rounds).prefix_errors()[-1] == pytest.approx(least_error(last), rel=1e-12)


def test_the_schedule_is_worth_a_ninth_in_the_mean_and_costs_a_third_at_the_end() -> None:
    optimal, independent = (Factor(kind, 4000).prefix_errors() for kind in ("optimal", "independent"))
    assert optimal.mean() / independent.mean() == pytest.approx(8 / 9, rel=1e-3)
    assert optimal[-1] / independent[-1] == pytest.approx(4 / 3, rel=0.02)


@pytest.mark.parametrize("rounds", [10, 100, 300])
@pytest.mark.parametrize("kind", ["tree", "square-root"])
def test_correlated_noise_loses_with_everyone_in_every_round(kind, rounds) -> None:
    errors, independent = (Factor(k, rounds).prefix_errors() for k in (kind, "independent"))
    assert errors.mean() > 1.8 * independent.mean()
    assert errors[-1] > 1.15 * independent[-1]


@given(arrays(np.float64, (6, 6), elements=st.floats(-1, 1)), arrays(np.float64, 6, elements=st.floats(0.01, 1)))
def test_no_factor_beats_the_bound_even_for_single_numbers(noise, weights) -> None:
    """Exact sensitivity to contributions ±1, any C near a diagonal or not, any weights of the prefixes."""
    c = np.tril(noise) + np.diag(np.sqrt(np.sqrt(np.cumsum(weights[::-1])[::-1])))
    if abs(np.linalg.det(c)) < 1e-3:
        return
    b = ones(6) @ np.linalg.inv(c)
    exact = max(moved(c, s[:, None]) for s in signs(6))
    assert exact**2 * (weights @ (b * b).sum(axis=1)) >= least_error(weights) * (1 - 1e-9)


def solve(rounds, rows, bounds, start) -> tuple[float, np.ndarray]:
    """min tr(AᵀA X⁻¹) over symmetric X, with ⟨row, X⟩ ≤ 1 for each row (a matrix): a convex problem."""
    lower = np.tril_indices(rounds)
    twice = np.where(lower[0] == lower[1], 1.0, 2.0)
    target = ones(rounds).T @ ones(rounds)

    def matrix(x) -> np.ndarray:
        out = np.zeros((rounds, rounds))
        out[lower] = x
        return out + np.tril(out, -1).T

    def value(x) -> tuple[float, np.ndarray]:
        full = matrix(x)
        if np.linalg.eigvalsh(full)[0] <= 1e-9:
            return 1e9, np.zeros_like(x)
        inverse = np.linalg.inv(full)
        slope = -inverse @ target @ inverse
        return float(np.trace(target @ inverse)), slope[lower] * twice

    flat = np.array([row[lower] * twice for row in rows])
    limit = {"type": "ineq", "fun": lambda x: 1 - flat @ x, "jac": lambda x: -flat}
    more = {"method": "SLSQP", "options": {"maxiter": 500, "ftol": 1e-12}}
    found = optimize.minimize(value, start[lower], jac=True, bounds=bounds, constraints=limit, **more)
    return float(found.fun), matrix(found.x)


@pytest.mark.parametrize("rounds", [2, 5, 8])
def test_a_convex_solver_finds_the_diagonal(rounds) -> None:
    rng = np.random.default_rng(rounds)
    start = np.diag(rng.uniform(0.5, 1.5, rounds)) + rng.uniform(0.05, 0.1) * np.ones((rounds, rounds))
    start /= start.sum()
    everyone = [np.ones((rounds, rounds))]
    error, x = solve(rounds, everyone, [(0, None)] * (rounds * (rounds + 1) // 2), start)
    assert error == pytest.approx(least_error(np.ones(rounds)), rel=1e-5)
    best = np.sqrt(np.arange(rounds, 0, -1))
    np.testing.assert_allclose(x, np.diag(best / best.sum()), atol=2e-3)


@pytest.mark.parametrize("rounds", [3, 6])
def test_negative_correlations_do_not_help_either(rounds) -> None:
    """Without X ≥ 0, but with the exact sensitivity to contributions ±1: the same optimum."""
    rows = [np.outer(s, s) for s in signs(rounds)]
    error, _ = solve(rounds, rows, None, np.eye(rounds) / rounds * 0.9 + 0.01)
    assert error == pytest.approx(least_error(np.ones(rounds)), rel=1e-5)


@pytest.mark.parametrize("rounds", [3, 12, 60])
def test_the_diagonal_satisfies_the_conditions_of_kuhn_and_tucker(rounds) -> None:
    x = np.sqrt(np.arange(rounds, 0, -1))
    x /= x.sum()
    slope = (ones(rounds).T @ ones(rounds)) / np.outer(x, x)
    multiplier = slope[0, 0]
    np.testing.assert_allclose(np.diag(slope), multiplier, rtol=1e-12)
    assert np.all(multiplier - slope >= -1e-9 * multiplier)
