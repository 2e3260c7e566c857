"""Plots: what they hold, where they go, and that the same data gives the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.experiments.finished_run import load_run, load_runs
from quorank.reports.comparison import group_runs
from quorank.reports.panel_files import draw, learning_curves
from quorank.reports.panels import PALETTE, Curve, Panel, aligned, block_means, compact, panels_of, spread_out, thin


def _curve(label: str = "A", points: int = 50, runs: int = 3) -> Curve:
    x = np.arange(1, points + 1) * 80_000.0
    return Curve(label, x, np.linspace(0.2, 0.4567891, points) + np.arange(runs)[:, None] * 0.01)


def _panel(*curves: Curve) -> Panel:
    return Panel("Offline nDCG@10", "interactions", "", curves, "curves")


def test_compact() -> None:
    assert [compact(v) for v in (0, 750, 2500, 4e6, 1.5e9)] == ["0", "750", "2.5k", "4M", "1.5G"]


def test_mean_and_band_are_drawn() -> None:
    curve = _curve(runs=3)
    axes = learning_curves([_panel(curve)]).axes[0]
    (line,), (band,) = axes.get_lines(), axes.collections
    np.testing.assert_allclose(line.get_ydata(), curve.runs.mean(axis=0))
    spread = curve.runs.std(axis=0, ddof=1)
    outline = band.get_paths()[0].vertices[:, 1]
    assert outline.max() == pytest.approx((curve.runs.mean(axis=0) + spread).max())
    assert outline.min() == pytest.approx((curve.runs.mean(axis=0) - spread).min())


def test_one_run_has_no_band_and_says_where_it_ends() -> None:
    axes = learning_curves([_panel(_curve(runs=1))]).axes[0]
    assert not axes.collections
    assert [text.get_text() for text in axes.texts] == ["0.4568"]


def test_short_names_stand_at_the_curves_and_long_ones_below() -> None:
    short = learning_curves([_panel(_curve("A"), _curve("B"))]).axes[0]
    assert [text.get_text() for text in short.texts] == ["A", "B"]
    (legend,) = learning_curves([_panel(_curve("users.preset=perfect"), _curve("users.preset=$x_$"))] * 2).legends
    assert [text.get_text() for text in legend.get_texts()] == ["users.preset=perfect", "users.preset=$x_$"]


def test_many_curves_stay_distinguishable() -> None:
    axes = learning_curves([_panel(*[_curve(f"setting number {n:03}") for n in range(len(PALETTE) * 2)])]).axes[0]
    looks = {(line.get_color(), line.get_linestyle(), str(line._dash_pattern)) for line in axes.get_lines()}
    assert len(looks) == len(PALETTE) * 2


def test_ticks_are_compact() -> None:
    figure = learning_curves([_panel(_curve())])
    figure.draw_without_rendering()
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["0", "1M", "2M", "3M", "4M"]


def test_three_panels_make_two_rows() -> None:
    places = [axes.get_position() for axes in learning_curves([_panel(_curve())] * 3).axes]
    assert places[0].x1 < places[1].x0 and places[0].y0 == places[1].y0 > places[2].y1
    assert places[2].x0 == places[0].x0


def test_names_numbers_and_legend_stay_within_the_figure() -> None:
    long = [_curve(f"users.preset=perfect, eta={n}") for n in range(5)]
    panels = [_panel(_curve()), _panel(_curve("WWW of 16 chars!"), _curve("B")), _panel(*long)]
    for shown in ([panels[0]], [panels[1]], [panels[2]], panels):
        figure = learning_curves(shown)
        figure.draw_without_rendering()
        inside, whole = figure.get_tightbbox(), figure.bbox_inches
        assert inside.x0 >= 0 and inside.x1 <= whole.x1 and inside.y0 >= 0 and inside.y1 <= whole.y1


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_files_are_written_whole_and_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{n}{suffix}" for n in (1, 2)]
    for path in paths:
        learning_curves([_panel(_curve())], path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_what_cannot_be_plotted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to plot"):
        learning_curves([])
    with pytest.raises(BadInput, match=r"\.svg, \.png, \.pdf, not '\.gif'"):
        learning_curves([_panel(_curve())], tmp_path / "plot.gif")
    with pytest.raises(BadInput, match="does not exist"):
        learning_curves([_panel(_curve())], tmp_path / "no" / "plot.svg")
    with pytest.raises(BadInput, match="a value per run and point"):
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
    offline, online = panels_of(groups, ["A", "B"])
    assert [curve.label for curve in offline.curves] == ["A", "B"]
    assert offline.curves[0].runs.shape == (2, 6)
    assert online.title == "Online nDCG@10"
    assert online.y_label == ""


def test_panels_say_over_how_many_rounds_they_average(make_run) -> None:
    groups = group_runs(load_runs([make_run(rounds=250)]))
    _, online = panels_of(groups, ["A"])
    assert online.y_label == "mean of 3 rounds"


def _small(label: str = "A", **changes: object) -> Curve:
    return replace(_curve(label, points=8), **changes)  # type: ignore[arg-type]


def test_a_titled_grid_has_rows_columns_and_one_legend() -> None:
    curves = (_small("first"), _small("$second$", colour=4, dashes="dashed"))
    panels = [Panel(f"panel {n}", "rounds", "nDCG", curves, y_range=(0.1, 0.6)) for n in range(5)]
    figure = draw(panels, 3, "A figure")
    assert figure.get_suptitle() == "A figure"
    assert [axes.get_visible() for axes in figure.axes] == [True] * 5 + [False]
    assert [axes.get_title("left") for axes in figure.axes[:5]] == [panel.title for panel in panels]
    assert all(axes.get_ylim() == (0.1, 0.6) and axes.get_legend() is None for axes in figure.axes[:5])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "$second$"]
    plain, dashed = figure.axes[0].get_lines()
    assert (plain.get_color(), dashed.get_color()) == (PALETTE[0], PALETTE[4])
    assert plain._dash_pattern != dashed._dash_pattern


def test_panels_with_other_curves_have_legends_of_their_own() -> None:
    panels = (_panel(_small("A"), _small("B")), _panel(_small("C"), _small("D")))
    figure = draw(panels, 2, "A figure")
    assert figure.legends == []
    assert [[t.get_text() for t in axes.get_legend().get_texts()] for axes in figure.axes] == [["A", "B"], ["C", "D"]]


def test_points_have_error_bars_and_axes_may_be_logarithmic() -> None:
    known = Curve("A", np.array([1.0, 10.0]), np.array([[1.0, 2.0]]), deviation=np.array([0.5, 0.25]))
    panel = Panel("", "clients", "", (known,), form="points", log="x", y_numbers=False)
    (axes,) = draw([panel], 1, "A figure").axes
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"
    bars = np.array([path.vertices for path in axes.collections[0].get_paths()])
    np.testing.assert_allclose(bars[:, :, 1], [[0.5, 1.5], [1.75, 2.25]])


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


def test_aligned_of_nothing_is_empty(make_run) -> None:
    run = load_run(make_run())
    run.history["offline_maxrr"][:] = np.nan  # type: ignore[index]
    x, values = aligned([run], "offline_maxrr")
    assert len(x) == 0 and values.size == 0
