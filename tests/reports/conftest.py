"""Fixtures of the tests of reports: run directories made up in a moment."""

from __future__ import annotations

from made_up_runs import make_grid, make_run

__all__ = ["make_grid", "make_run"]
