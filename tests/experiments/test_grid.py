"""Grids: every combination of a file's values, side by side, each checked before any is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quick_runs import leave_pages_out, run_quickly
from small_runs import SMALL, files_of

from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file, set_values
from quorank.experiments.grid import Grid, run_grid


def grid_of(text: str, *assignments: str) -> Grid:
    found = Grid.read(set_values(parse_experiment_file(SMALL + text, "my.toml"), assignments))
    assert found is not None
    return found


PRESETS = '[grid]\n"users.preset" = ["perfect", "informational"]\nseed = [1, 2]\n'


def test_cells_are_all_combinations_the_last_axis_fastest() -> None:
    grid = grid_of(PRESETS)
    assert [cell.name for cell in grid.cells] == [
        "preset=perfect,seed=1",
        "preset=perfect,seed=2",
        "preset=informational,seed=1",
        "preset=informational,seed=2",
    ]
    for cell in grid.cells:
        assert cell.experiment.seed == cell.values["seed"]
        assert cell.experiment.users.preset == cell.values["users.preset"]
        assert cell.experiment.federation.clients == 20  # what the grid does not name comes from the file


def test_dotted_keys_sections_and_tables_mean_the_same() -> None:
    ways = [
        '[grid]\n"federation.clients" = [1, 2]\n',
        "[grid]\nfederation.clients = [1, 2]\n",
        "[grid.federation]\nclients = [1, 2]\n",
        "[grid]\nfederation = { clients = [1, 2] }\n",
    ]
    found = [grid_of(way) for way in ways]
    assert all(grid.axes == {"federation.clients": [1, 2]} for grid in found)
    assert [c.experiment.federation.clients for c in grid_of("", "grid.federation.clients=[1, 2]").cells] == [1, 2]


def test_a_table_of_the_grid_is_not_shared_between_cells() -> None:
    text = '[grid]\n"federation.server" = [{ kind = "add" }]\n"federation.server.step" = [1.0, 2.0]\n'
    assert [cell.experiment.federation.server.step for cell in grid_of(text).cells] == [1.0, 2.0]
    assert grid_of(text).axes["federation.server"] == [{"kind": "add"}]


@pytest.mark.parametrize(
    "text",
    [
        "[grid]\nseed = [1, 1, 1]\n",
        '[grid]\n"data.source" = ["a/b", "a b", "a:b"]\n',
        '[grid]\n"users.click" = [[0.0, 0.5, 1.0], [0, 0.5, 1]]\n"users.stop" = [[0.0, 0.0, 0.0]]\n',
        '[grid]\n"federation.server" = [{ kind = "add", step = 1 }, { kind = "add", step = 1.0 }]\n',
        "[grid]\nseed = [" + ", ".join(map(str, range(300))) + "]\n",
    ],
)
def test_names_of_cells_are_distinct_single_directories(text: str) -> None:
    names = [cell.name for cell in grid_of(text).cells]
    assert len(set(names)) == len(names)
    for name in names:
        assert name not in ("", ".", "..") and Path(name).name == name and name.isascii()
        assert " " not in name and ":" not in name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[grid]\nseed = [1, -1]\n", r"my.toml line 9: seed: .* got -1"),
        ("[grid]\nseed = []\n", r"my.toml line 9: grid.seed: expected a list of values"),
        ("[grid]\nseed = 3\n", r"my.toml line 9: grid.seed: expected a list of values, got 3"),
        ('[grid]\n"federation.clients" = [5, 0]\n', r"my.toml line 9: federation.clients: .* got 0"),
        ('[grid]\n"users.preset" = ["perfect", "lazy"]\n', r"my.toml line 9: users.preset: .* got 'lazy'"),
        ('[grid]\n"users.presett" = ["perfect"]\n', r"my.toml line 9: users.presett: .*'preset'"),
        ('[grid]\n\n"nothing.at.all" = [1]\n', r"my.toml.*: nothing: unknown section"),
        ('[grid]\n"data.fold" = [1, 9]\n', r"my.toml line 9: data[.: ]+fold: must be at least 1 and at most 5, got 9"),
        ('[grid]\n"federation.rounds" = [2, "many"]\n', r"my.toml line 9: federation.rounds: .*'many'"),
    ],
)
def test_bad_values_are_refused_with_their_line_before_anything_runs(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        grid_of(text)


def test_a_grid_that_is_no_section_is_refused() -> None:
    with pytest.raises(BadInput, match=r"my.toml line 1: grid: expected a section"):
        Grid.read(parse_experiment_file("grid = 3\n", "my.toml"))
    assert Grid.read(parse_experiment_file("seed = 3\n", "my.toml")) is None


@pytest.mark.usefixtures("no_pages")
def test_a_grid_reads_back_from_its_directory(tmp_path: Path) -> None:
    text = '[grid]\n"federation.server" = ["add", { kind = "momentum", step = 2.0 }]\nseed = [3]\n'
    grid = grid_of(text, "learner.eta=0.3")
    run_grid(grid, tmp_path / "grid")
    again = Grid.read(read_experiment_file(tmp_path / "grid" / "grid.toml"))
    assert again is not None
    assert [(c.name, c.experiment) for c in again.cells] == [(c.name, c.experiment) for c in grid.cells]
    assert all(c.experiment.federation.learner.eta == 0.3 for c in again.cells)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grids") / "grid"
    with pytest.MonkeyPatch.context() as patched:
        leave_pages_out(patched)
        run_grid(grid_of(PRESETS), folder)
    return folder


def test_each_cell_is_the_run_that_it_would_be_alone(finished: Path, tmp_path: Path) -> None:
    for cell in grid_of(PRESETS).cells[1:3]:
        run_quickly(cell.experiment, tmp_path / cell.name)
        assert files_of(finished / cell.name) == files_of(tmp_path / cell.name)
        assert Experiment.read(read_experiment_file(finished / cell.name / "run.toml")) == cell.experiment


def test_the_index_lists_axes_and_runs(finished: Path) -> None:
    index = json.loads((finished / "grid.json").read_text())
    assert index["axes"] == {"users.preset": ["perfect", "informational"], "seed": [1, 2]}
    assert index["runs"] == [cell.name for cell in grid_of(PRESETS).cells]
    inside = {path.name for path in finished.iterdir()}
    assert inside == {"grid.json", "grid.toml", *index["runs"]}


@pytest.mark.slow
def test_jobs_side_by_side_give_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    folders = run_grid(
        grid_of(PRESETS), tmp_path / "grid", jobs=2, finished=lambda cell, summary: seen.append(cell.name)
    )
    assert sorted(seen) == sorted(folder.name for folder in folders)
    for folder in folders:
        assert files_of(folder) == files_of(finished / folder.name)
