"""Poisoned clicks (thesis §5.2.2, table 5.1): the malicious clients click what is irrelevant and never stop.

They compute and send their updates like everybody else, so the harm is in the clicks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.arrays import Booleans, Doubles, Uint64s
from quorank.attacks.colluders import Knowledge, check_clients, check_rows, check_share
from quorank.users import Cascade


@dataclass(frozen=True)
class ClickPoisoning:
    """The malicious clients are users of the preset "poison". They need to know nothing, so `knowledge` changes nothing;
    it is there so that one section of an experiment reads for every published attack.
    """

    kind: ClassVar[str] = "clicks"
    poisons_clicks: ClassVar[bool] = True

    clients: int = 1  # m
    knowledge: Knowledge = "partial"

    def __post_init__(self) -> None:
        check_clients(self.clients)

    def check(self, n: int) -> None:
        """Refuse a federation of n clients in which half or more are malicious."""
        check_share(self.kind, self.clients, n)

    def users(self) -> Cascade:
        """How the malicious clients click."""
        return Cascade(preset="poison")

    def poison(
        self, updates: Doubles, malicious: Booleans, theta: Doubles, rng_key: Uint64s, round_: int
    ) -> Doubles:
        """The updates as they are."""
        check_rows(updates, malicious, theta)
        return np.array(updates, dtype=np.float64)
