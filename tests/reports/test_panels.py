"""Curves of runs: aligned, averaged over blocks, thinned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.experiments.run_directory import load_runs
from quorank.reports.comparison import group_runs
from quorank.reports.panels import Curve, aligned, block_means, panels_of, spread_out, thin


def _curve(label: str = "A", points: int = 50, runs: int = 3) -> Curve:
    x = np.arange(1, points + 1) * 80_000.0
    return Curve(label, x, np.linspace(0.2, 0.4567891, points) + np.arange(runs)[:, None] * 0.01)


def test_a_curve_has_a_value_per_run_and_point() -> None:
    with refused("curve.shape", "curve 'A'"):
        Curve("A", np.arange(3.0), np.zeros((2, 4)))


def test_thin_keeps_both_ends() -> None:
    thinned = thin(_curve(points=1000), 100)
    assert len(thinned.x) == 100
    assert (thinned.x[0], thinned.x[-1]) == (80_000.0, 80_000_000.0)
    assert thin(_curve(points=50), 100).x.shape == (50,)


def test_block_means_by_hand() -> None:
    curve = Curve("A", np.array([1.0, 2, 3, 4, 5]), np.array([[1.0, 3, 5, 7, 10]]))
    means, length = block_means(curve, points=3)
    assert length == 2
    assert means.x.tolist() == [2, 4, 5]
    assert means.runs.tolist() == [[(1 + 3) / 2, (5 + 7) / 2, 10]]
    assert block_means(curve, points=5) == (curve, 1)
    assert block_means(Curve("A", np.empty(0), np.empty((0, 0))))[1] == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_labels_are_spread_apart_in_order_and_within(places: list[float]) -> None:
    moved = spread_out(places, gap=0.1, low=0, high=1)
    order = np.argsort(places, kind="stable")
    assert np.all(np.diff(np.array(moved)[order]) >= 0.1 - 1e-9)
    assert min(moved) >= -1e-9 and max(moved) <= 1 + 1e-9


def test_panels_of_runs(make_grid) -> None:
    groups = group_runs(load_runs([make_grid(seeds=2)]))
    offline, online = panels_of([group.runs for group in groups], ["A", "B"])
    assert [curve.label for curve in offline.curves] == ["A", "B"]
    assert offline.curves[0].runs.shape == (2, 6)
    assert online.title == "Online nDCG@10"
    assert online.y_label == ""


def test_panels_say_over_how_many_rounds_they_average(make_run) -> None:
    groups = group_runs(load_runs([make_run(rounds=250)]))
    _, online = panels_of([group.runs for group in groups], ["A"])
    assert online.y_label == "mean of 3 rounds"


def test_aligned_stacks_runs_measured_alike(make_run) -> None:
    runs = load_runs([make_run("a", seed=1), make_run("b", seed=2)])
    x, values = aligned(runs, "online_ndcg@10")
    assert values.shape == (2, len(x)) == (2, 60)


def test_aligned_interpolates_where_all_runs_were(make_run) -> None:
    runs = load_runs([make_run("a", every=10), make_run("b", every=15)])
    x, values = aligned(runs, "offline_ndcg@10")
    assert x.tolist() == [4000 * r for r in (20, 30, 40, 50, 60)]
    between, at = runs[1].curve("offline_ndcg@10")
    assert values[1, 0] == pytest.approx(np.interp(80_000, between, at))
