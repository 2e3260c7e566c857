"""Ranking data: queries, features and labels of their candidate documents; readers, cache, generators, partitions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.data.letor.reader import read_letor
    from quorank.data.letor.writer import write_letor
    from quorank.data.ranking import Collection, RankingData
    from quorank.data.source import DataSource, load

__all__ = ["Collection", "DataSource", "RankingData", "load", "read_letor", "write_letor"]

_HOMES = {
    "quorank.data.letor.reader": ("read_letor",),
    "quorank.data.letor.writer": ("write_letor",),
    "quorank.data.ranking": ("Collection", "RankingData"),
    "quorank.data.source": ("DataSource", "load"),
}
"""Where each name is; loaded when it is asked for, since a device needs few of them."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
