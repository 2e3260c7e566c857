"""The base class of click models: a user's behaviour as three tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from quorank.users.clicks import ClickTables


@dataclass(frozen=True)
class ClickModel(ABC):
    """Users who look at the ranks of a list, click by relevance and may leave after a click."""

    kind: ClassVar[str]

    @abstractmethod
    def tables(self, grades: int, k: int) -> ClickTables:
        """Return the probabilities for data with so many grades of relevance and lists of k documents."""
