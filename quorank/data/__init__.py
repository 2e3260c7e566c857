"""Ranking data: queries, their candidate documents' features, labels; readers, caches, generators."""

from quorank.data.letor import read_letor
from quorank.data.ranking import Collection, RankingData
from quorank.data.source import DataSource, load
from quorank.data.writer import write_letor

__all__ = ["Collection", "DataSource", "RankingData", "load", "read_letor", "write_letor"]
