"""Experiments that are run for something else than their pages."""

from __future__ import annotations

import pytest
from quick_runs import leave_pages_out


@pytest.fixture
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without the page about each of them, for tests of something else."""
    leave_pages_out(monkeypatch)
