"""Real text collections are looked for and never written to."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_text():
    """The folder with real text collections, or a skip."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("QUORANK_DATA") or root.parent / "shared" / "data")
    if not (folder / "cranfield").is_dir():
        pytest.skip(f"no real text: {folder} has no cranfield (set QUORANK_DATA to a folder that has)")
    return folder
