"""A grid on a Dask cluster: the bytes of a grid on one host, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from small_runs import SMALL, files_of

from quorank.errors import BadInput
from quorank.experiments import cluster
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.grid import Grid, run_grid
from quorank.experiments.run_directory import REPORT, SUMMARY, is_finished
from quorank.reports.report import report_page

pytestmark = pytest.mark.slow

GRID = "[grid]\nseed = [1, 2]\n"


def grid_of(text: str = GRID, settings: str = SMALL) -> Grid:
    found = Grid.read(parse_experiment_file(settings + text, "my.toml"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def hosts():
    """Two workers, each a process that could as well be on another host: they share no folder with the caller."""
    distributed = pytest.importorskip("distributed", reason="dask's distributed is not installed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as local:
        yield local


@pytest.fixture(scope="module")
def on_one_host(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one") / "grid"
    run_grid(grid_of(), folder, threads=1, report=report_page)
    return folder


def same_bytes(folders: list[Path], expected: Path) -> None:
    for target in folders:
        assert files_of(target) == files_of(expected / target.name)


def test_the_files_are_those_of_a_grid_on_one_host(hosts, on_one_host, tmp_path) -> None:
    seen = []
    folders = cluster.run_on_cluster(
        grid_of(),
        tmp_path / "grid",
        hosts.scheduler_address,
        finished=lambda cell, _: seen.append(cell.name),
        report=report_page,
    )
    assert all((target / REPORT).is_file() for target in folders)
    assert sorted(seen) == sorted(target.name for target in folders)
    same_bytes(folders, on_one_host)
    for name in ("grid.json", "grid.toml"):
        assert (tmp_path / "grid" / name).read_bytes() == (on_one_host / name).read_bytes()
    names = {path.relative_to(on_one_host) for path in on_one_host.rglob("*")}
    assert {path.relative_to(tmp_path / "grid") for path in (tmp_path / "grid").rglob("*")} == names

    # finished cells are kept, a missing one is run again, and nothing is replaced unasked
    (folders[1] / SUMMARY).unlink()
    kept, seen = (folders[0] / SUMMARY).stat().st_mtime_ns, []
    with pytest.raises(BadInput, match="there is a run already"):
        cluster.run_on_cluster(grid_of(), tmp_path / "grid", hosts.scheduler_address)
    cluster.run_on_cluster(
        grid_of(),
        tmp_path / "grid",
        hosts.scheduler_address,
        resume=True,
        finished=lambda cell, _: seen.append(cell.name),
    )
    assert seen == [folders[1].name]
    assert (folders[0] / SUMMARY).stat().st_mtime_ns == kept
    same_bytes(folders, on_one_host)


def test_a_worker_that_dies_costs_time_and_nothing_else(hosts, on_one_host, tmp_path) -> None:
    killed = []

    def kill() -> None:
        """As soon as a worker plays a run, it goes."""
        for _ in range(600):
            busy = [address for address, worker in hosts.scheduler.workers.items() if worker.processing]
            if busy:
                (nanny,) = (each for each in hosts.workers.values() if each.worker_address == busy[0])
                os.kill(nanny.process.process.pid, signal.SIGKILL)
                killed.append(busy[0])
                return
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    folders = cluster.run_on_cluster(grid_of(), tmp_path / "grid", hosts.scheduler_address)
    thread.join()
    assert len(killed) == 1
    same_bytes(folders, on_one_host)


def test_a_cell_that_cannot_be_run_is_one_sentence(hosts, tmp_path) -> None:
    settings = SMALL.replace('"synthetic:mq2007"', f'"{tmp_path / "absent"}"').replace("queries = 60\n", "")
    with pytest.raises(BadInput, match=r"seed=1: .*absent"):
        cluster.run_on_cluster(grid_of("[grid]\nseed = [1]\n", settings), tmp_path / "grid", hosts.scheduler_address)
    assert not is_finished(tmp_path / "grid" / "seed=1")


def test_hosts_that_differ_are_refused_before_anything_runs(hosts, tmp_path, monkeypatch) -> None:
    ours = cluster.versions()
    monkeypatch.setattr(cluster, "versions", lambda: ours | {"quorank": "9.9"})
    with pytest.raises(BadInput, match=r"has quorank .*, and here it is 9.9"):
        cluster.run_on_cluster(grid_of(), tmp_path / "grid", hosts.scheduler_address)
    assert not (tmp_path / "grid").exists()


def test_a_scheduler_that_is_not_there_is_one_sentence(tmp_path, monkeypatch) -> None:
    pytest.importorskip("distributed", reason="dask's distributed is not installed")
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(BadInput, match="no Dask scheduler answers there"):
        cluster.run_on_cluster(grid_of(), tmp_path / "grid", "tcp://127.0.0.1:9")
    assert not (tmp_path / "grid").exists()


def test_without_dask_the_sentence_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(BadInput, match=r"install quorank\[cluster\]"):
        cluster.run_on_cluster(grid_of(), tmp_path / "grid", "tcp://127.0.0.1:9")
