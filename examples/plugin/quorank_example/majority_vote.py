"""Majority vote of signs (Bernstein et al. 2019, "signSGD with majority vote is communication efficient …")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.federation.rules.rule import RobustRule
from quorank.kernels.arrays import Doubles


@dataclass(frozen=True)
class MajorityVote(RobustRule):
    """Every parameter moves by `size` in the direction that most clients ask for."""

    kind: ClassVar[str] = "majority-vote"

    size: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range("size", self.size, above=0.0)

    def combine_rows(self, rows: Doubles) -> Doubles:
        return np.asarray(self.size * np.sign(np.sign(rows).sum(axis=0)), dtype=np.float64)
