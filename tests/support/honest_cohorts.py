"""Cohorts of honest updates for the tests of attacks."""

from __future__ import annotations

import numpy as np


def honest_updates(seed, n=10, d=20, signal=0.3) -> tuple[np.ndarray, np.ndarray]:
    """Updates with a common direction under noise, and a ranker."""
    random = np.random.default_rng(seed)
    direction = signal * random.normal(size=d)
    return direction + random.normal(size=(n, d)), random.normal(size=d)


def first(m, n=10) -> np.ndarray:
    return np.arange(n) < m
