"""Rprop against equations 1 and 2, step by step."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quorank.tuning.coordinator import Rprop

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
