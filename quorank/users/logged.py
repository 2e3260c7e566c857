"""Logged users: people whose lists and clicks stand in a log, and are replayed as they were.

The list of an interaction is the one that was shown then, and the clicks are those that were made; nothing is drawn. Only a
learner that takes any list, can learn from that. If a list is shown that is not in the log, as in an
audit's simulation, they click the documents that were clicked in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.users.click_model import ClickModel, ClickTables


@dataclass(frozen=True)
class LoggedClicks(ClickModel):
    """Users of a log of clicks; `partition.kind = "users"` says whose, and in which order."""

    kind: ClassVar[str] = "logged"
    replays_lists: ClassVar[bool] = True

    def tables(self, grades: int, k: int) -> ClickTables:
        """Return P(click) = 1 for what was clicked, at every rank."""
        clicked = np.ones(grades)
        clicked[0] = 0.0
        return ClickTables(np.ones(k), clicked, np.zeros(grades))
