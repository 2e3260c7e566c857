"""Ranking data: queries, features and labels of their candidate documents; readers, cache, generators, partitions."""

from quorank.data.letor.reader import read_letor
from quorank.data.letor.writer import write_letor
from quorank.data.ranking import Collection, RankingData
from quorank.data.source import DataSource, load

__all__ = ["Collection", "DataSource", "RankingData", "load", "read_letor", "write_letor"]
