"""Caches and names go to a temporary folder; real data is looked for and never written to."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QUORANK_HOME", str(tmp_path / "home"))


@pytest.fixture
def real_data():
    """The folder with real collections, or a skip."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("QUORANK_DATA") or root.parent / "shared" / "data")
    if not (folder / "mq2008").is_dir():
        pytest.skip(f"no real data: {folder} has no mq2008 (set QUORANK_DATA to a folder that has)")
    return folder
