"""Users, times and ranks of the lists of a log, which accompany their ranking data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Integers


@dataclass(frozen=True)
class UserSelection:
    """Selection of the busiest `most` users of a log with at least `least` searches to learn from; None takes all."""

    most: int | None
    least: int = 1
    without: tuple[str, ...] = ()  # users that are left out


@dataclass(frozen=True, eq=False)
class SearchRecords:
    """Records of the lists of one split."""

    user: Integers  # (queries,) an index into `users`; −1 where the log names none
    time: Integers  # (queries,) microseconds since 1970; the lowest int64 where the log has none
    ranks: npt.NDArray[np.int16]  # (rows,) from 1 on, rising within a list; 0 where the log has no order
    users: Sequence[str] = field(repr=False)
    queries: Sequence[str] = field(repr=False)  # (queries,) what was asked, "" where unknown

    @property
    def has_ranks(self) -> bool:
        """Return whether lists are in the order in which they were shown."""
        return bool(len(self.ranks)) and int(self.ranks[0]) > 0

    def select(self, order: Integers, rows: Integers, user: Integers) -> SearchRecords:
        """Return the records of these searches, whose rows are given, by these users."""
        asked = [self.queries[search] for search in order.tolist()]
        return SearchRecords(user, self.time[order], self.ranks[rows], self.users, asked)


@dataclass(frozen=True, eq=False)
class LoggedSplits:
    """Records of a collection that was read from a log."""

    train: SearchRecords
    test: SearchRecords

    def describe(self) -> dict[str, Any]:
        """Return the statistics that `quorank data stats --json` prints."""
        users = np.unique(np.concatenate([self.train.user, self.test.user]))
        counts = np.unique(self.train.user[self.train.user >= 0], return_counts=True)[1]
        times = np.concatenate([self.train.time, self.test.time])
        timed = int(times.min()) != np.iinfo(np.int64).min
        ends = [str(np.datetime64(int(end), "us").astype("datetime64[s]")) + "Z" for end in (times.min(), times.max())]
        return {
            "users": int((users >= 0).sum()),
            "most_searches_of_a_user": int(counts.max(initial=0)),
            "median_searches_of_a_user": float(np.median(counts)) if len(counts) else 0.0,
            "from": ends[0] if timed else None,
            "to": ends[1] if timed else None,
            "ranks": self.train.has_ranks,
        }
