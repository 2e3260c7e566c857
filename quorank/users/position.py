"""Position-based users: rank r is examined with probability (1/r)^η, whichever documents stand above (thesis §4.5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.users.click_model import ClickModel, ClickTables
from quorank.users.presets import CLICK, Preset, by_label, check_range


@dataclass(frozen=True)
class PositionBased(ClickModel):
    """P(click) = (1/rank)^η · P(click | label); nobody stops early. The label's part is a cascade preset's."""

    kind: ClassVar[str] = "position"

    eta: float = 1.0  # η: 0 looks at everything, 2 hardly past the first
    preset: Preset = "perfect"  # who clicks: P(click) by label
    click: tuple[float, ...] | None = None  # P(click = 1 | examined, r), one per label

    def __post_init__(self) -> None:
        require_range("eta", self.eta, least=0.0, below=100.0)
        check_range("click", self.click)

    def tables(self, grades: int, k: int) -> ClickTables:
        click = by_label("click", self.click, CLICK, grades, self.preset, grades)
        return ClickTables((1.0 / np.arange(1, k + 1)) ** self.eta, click, np.zeros(len(click)))
