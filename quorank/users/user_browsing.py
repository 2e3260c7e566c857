"""Users of the user browsing model.

Dupret and Piwowarski 2008, "A user browsing model to predict search engine click data from past observations":

    P(click at rank r | last click at rank r − d) = γ_{r,d} · α_y

Whether rank r is looked at depends on the rank and on the distance d to the last click above; without one, d is r. What is
looked at is clicked with α of its label. So a click makes those next to it likely to be read, and after many documents
without one people stop reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require_range
from quorank.users.click_model import ClickModel, ClickTables
from quorank.users.presets import CLICK, Preset, by_label, check_range

GAMMA: tuple[tuple[float, ...], ...] = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)
"""γ_{r,d} by rank r from 1 and distance d from 1, with which simulations of unbiased learning to rank are made: the table
and the indices of `UserBrowsingModel` in the ULTRA toolbox (github.com/ULTR-Community/ULTRA, `ultra/utils/click_models.py`
and `example/ClickModel/ubm_0.1_1_4_1.0.json`). The last value of a row is that of a list without a click so far, d = r."""


@dataclass(frozen=True)
class UserBrowsing(ClickModel):
    """P(click) = γ_{r,d}^η · P(click | label); nobody stops. The label's part α is a cascade preset's, or `click`."""

    kind: ClassVar[str] = "user-browsing"

    eta: float = 1.0  # η: 0 looks at everything, 1 as published, more looks less far
    preset: Preset = "perfect"  # who clicks: P(click) by label
    click: tuple[float, ...] | None = None  # α, one per label

    def __post_init__(self) -> None:
        require_range("eta", self.eta, least=0.0, below=100.0)
        check_range("click", self.click)

    def tables(self, grades: int, k: int) -> ClickTables:
        click = by_label("click", self.click, CLICK, grades, self.preset, grades)
        examine = np.array([[gamma(rank, last) ** self.eta for rank in range(1, k + 1)] for last in range(k + 1)])
        return ClickTables(examine, click, np.zeros(len(click)))


def gamma(rank: int, last: int) -> float:
    """γ at a rank after a last click at rank `last`, 0 for none; ranks and distances past the table are its last ones."""
    row = GAMMA[min(rank, len(GAMMA)) - 1]
    if last == 0 or len(row) == 1:
        return row[-1]
    return row[min(max(rank - last, 1), len(row) - 1) - 1]
