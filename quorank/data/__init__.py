"""Ranking data: queries, features and labels of their candidate documents; readers, cache, generators, partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorank import lazy_exports

if TYPE_CHECKING:
    from quorank.data.letor.reader import read_letor
    from quorank.data.letor.writer import write_letor
    from quorank.data.ranking import Collection, RankingData
    from quorank.data.source import DataSource, load

__all__ = ["Collection", "DataSource", "RankingData", "load", "read_letor", "write_letor"]

__getattr__ = lazy_exports(
    __name__,
    {
        "quorank.data.letor.reader": "read_letor",
        "quorank.data.letor.writer": "write_letor",
        "quorank.data.ranking": "Collection RankingData",
        "quorank.data.source": "DataSource load",
    },
)
