"""Caches and names go to a temporary folder; real data is looked for and never written to."""

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("QUORANK_HOME", str(tmp_path / "home"))
