"""Real data is looked for, and never written to."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def mq2008() -> Path:
    """The folder of MQ2008, or a skip."""
    folder = Path(os.environ.get("QUORANK_DATA") or Path(__file__).parents[3] / "shared" / "data") / "mq2008"
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is missing (set QUORANK_DATA to a folder with mq2008)")
    return folder
