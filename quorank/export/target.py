"""What a target of `quorank export` is: the name of a format, which rankers it takes, and what writes its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quorank.errors import require
from quorank.rankers.ranker_file import SavedRanker


@dataclass(frozen=True)
class ExportTarget:
    """One format that rankers are written in."""

    name: str
    system: str  # what reads the files
    trees: bool  # it takes ensembles of trees
    flat: bool  # it takes linear rankers and networks
    files: Callable[[SavedRanker], dict[str, bytes]]  # content by file name

    def check(self, saved: SavedRanker, where: str) -> None:
        """Refuse a ranker that the format cannot hold."""
        takes = self.trees if saved.ranker.grown else self.flat
        kinds = " and ".join(word for word, there in (("trees", self.trees), ("flat rankers", self.flat)) if there)
        sentence = f"this is a {saved.ranker.kind} ranker, and {self.system} takes {kinds}; choose another format"
        require(takes, "export.wrong-ranker", sentence, where)
