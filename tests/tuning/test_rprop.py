"""Rprop against equations 1 and 2, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.tuning.coordinator import OPTIMISER_DEFAULTS, OPTIMISERS, Rprop

gradient = st.sampled_from([-3.0, -0.001, 0.0, 1e-12, 2.0])


@given(st.lists(st.lists(gradient, min_size=2, max_size=2), min_size=1, max_size=25))
def test_equations_1_and_2(steps: list[list[float]]) -> None:
    part = Rprop(initial=0.3, alpha=1.5, beta=0.5, least=0.1, most=1.0)
    theta, memory = np.zeros(2), part.start(2)
    expected, eta = [0.0, 0.0], [0.3, 0.3]
    for t, now in enumerate(steps):
        theta, memory = part.advance(theta, -np.array(now), memory)
        for i in range(2):
            if t >= 2:  # η(0) and η(1) are given; eq. 2 makes the later ones
                product = np.sign(now[i]) * np.sign(steps[t - 1][i])
                if product > 0:
                    eta[i] = min(eta[i] * 1.5, 1.0)
                elif product < 0:
                    eta[i] = max(eta[i] * 0.5, 0.1)
            expected[i] -= eta[i] * np.sign(now[i])
    assert np.allclose(theta, expected, atol=1e-12)


@given(st.floats(1e-30, 1e30), st.integers(0, 2**32))
def test_the_size_of_a_gradient_does_not_matter(scale: float, seed: int) -> None:
    part, random = Rprop(), np.random.default_rng(seed)
    one = other = np.zeros(4)
    first, second = part.start(4), part.start(4)
    for _ in range(6):
        update = random.normal(size=4)
        one, first = part.advance(one, update, first)
        other, second = part.advance(other, scale * update, second)
    assert np.array_equal(one, other)


def test_it_finds_the_least_of_an_absolute_value() -> None:
    part = Rprop(least=1e-4)
    theta, memory = np.array([3.0, -7.0]), part.start(2)
    for _ in range(80):
        theta, memory = part.advance(theta, -np.sign(theta - np.array([1.0, 2.0])), memory)
    assert np.allclose(theta, [1.0, 2.0], atol=1e-2)


@pytest.mark.parametrize("word", OPTIMISER_DEFAULTS)
def test_a_word_stands_for_a_part_of_that_kind(word: str) -> None:
    part = OPTIMISER_DEFAULTS[word]
    assert part.kind == word and OPTIMISERS.parse(str(part)) == part


@pytest.mark.parametrize("fields", [{"initial": 2.0}, {"alpha": 1.0}, {"beta": 1.0}, {"least": 0.0}], ids=str)
def test_refusals(fields: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="expected"):
        Rprop(**fields)
