"""Users who click at random, whatever they are shown: a baseline from which nothing can be learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.users import ClickModel, ClickTables


@dataclass(frozen=True)
class RandomUser(ClickModel):
    """P(click) = `click` for every document; nobody leaves before the end of the list."""

    kind: ClassVar[str] = "random"

    click: float = 0.5

    def __post_init__(self) -> None:
        require_range("click", self.click, least=0.0, most=1.0)

    def tables(self, grades: int, k: int) -> ClickTables:
        return ClickTables(np.ones(k), np.full(grades, self.click), np.zeros(grades))
