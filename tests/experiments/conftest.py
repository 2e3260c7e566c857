"""Fixtures of the tests of experiments: runs without pages, and run directories made up in a moment."""

from made_up_runs import make_grid, make_run
from quick_runs import no_pages

__all__ = ["make_grid", "make_run", "no_pages"]
