"""Run directories read back: whole ones, grids, and those that cannot be used."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from made_up_runs import load_run, load_runs

from quorank.errors import BadInput
from quorank.experiments.run_directory import is_grid


def test_a_run_is_read_back(make_run) -> None:
    run = load_run(make_run(seed=7, fold=3))
    assert (run.seed, run.repetition) == (7, (7, "3"))
    assert run.setting("federation.server.step") == 1.0
    assert run.setting("federation.nothing.here", "default") == "default"
    assert run.figure("offline", "ndcg@10") == run.summary["offline"]["ndcg@10"]
    assert math.isnan(run.figure("online", "unknown"))


def test_a_curve_holds_only_what_was_measured(make_run) -> None:
    run = load_run(make_run(rounds=60, every=10))
    x, y = run.curve("offline_ndcg@10")
    assert x.tolist() == [4000 * r for r in (10, 20, 30, 40, 50, 60)]
    assert np.isfinite(y).all()
    assert len(run.curve("online_ndcg@10")[0]) == 60


def test_no_run_here(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such directory"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"not a run \(run.toml and summary.json missing\)"):
        load_run(tmp_path)


def test_an_unfinished_run_says_how_to_go_on(make_run) -> None:
    folder = make_run()
    (folder / "summary.json").unlink()
    with pytest.raises(BadInput, match="run it again"):
        load_run(folder)
    (folder / "checkpoint.npz").touch()
    with pytest.raises(BadInput, match=f"quorank run --resume {folder}"):
        load_run(folder)


def test_a_grid_stands_for_its_runs(make_grid, make_run) -> None:
    grid, lone = make_grid(seeds=2), make_run(preset="informational")
    assert is_grid(grid) and not is_grid(lone)
    runs = load_runs([grid, lone, lone, grid / "perfect-1"])
    assert [run.path.name for run in runs] == ["perfect-1", "perfect-2", "navigational-1", "navigational-2", "run"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not readable as JSON"),
        ('{"runs": "perfect-1"}', "runs: expected a list"),
        ('{"runs": []}', "no runs yet"),
        ('{"runs": ["gone", "perfect-1"]}', "1 of 2 runs are missing, the first is gone"),
    ],
)
def test_a_damaged_grid_is_refused(make_grid, content: str, says: str) -> None:
    grid = make_grid(seeds=1)
    (grid / "grid.json").write_text(content)
    with pytest.raises(BadInput, match=says):
        load_runs([grid])
