"""Every test of the command line works in an empty folder of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from command_line import SMALL, Outcome, Quorank, as_process, in_process
from quick_runs import no_pages

__all__ = ["no_pages"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `small.toml` in it."""
    monkeypatch.setenv("QUORANK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "small.toml").write_text(SMALL)
    return folder


@pytest.fixture
def quorank(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Quorank:
    """A verb inside this process: fast, since nothing is imported again."""
    return partial(in_process, monkeypatch, capfd)


@pytest.fixture
def process(own_folder: Path, tmp_path: Path) -> Quorank:
    """A verb as a process of its own: what a person types."""
    return partial(as_process, own_folder, tmp_path / "home")


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """The directory of a small run that a process made, and what that process printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(SMALL)
    outcome = as_process(folder, folder / "home", "run", "small.toml", "--out", "made", "--json", "--threads", 1)
    assert outcome.code == 0, outcome.err
    return folder / "made", outcome
