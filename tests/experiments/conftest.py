"""Fixtures of the tests of experiments: runs without pages, and run directories made up in a moment."""

from __future__ import annotations

import pytest
from made_up_runs import make_grid, make_run
from quick_runs import leave_pages_out

__all__ = ["make_grid", "make_run"]


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without the page about each of them, for tests of something else."""
    leave_pages_out(monkeypatch)
