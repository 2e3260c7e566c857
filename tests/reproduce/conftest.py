"""Experiments that are run for something else than their pages."""

from quick_runs import no_pages

__all__ = ["no_pages"]
