"""Replay of a log: which of its searches each client does in which round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quorank.kernels.arrays import Integers

MINUTE = 60_000_000
"""In microseconds, in which the times of a log are."""


@dataclass(frozen=True, eq=False)
class LogReplay:
    """Turns of clients, by rounds: in its turn a client does `count` of its searches from `first` on.

    It depends on the log alone, so that a replay gives the same bits in any chunks, with any threads, after a resume.
    """

    starts: Integers  # (rounds + 1,) the turns of round t are starts[t] .. starts[t + 1]
    client: Integers  # (turns,) ascending within a round
    first: Integers  # (turns,) a query of the clients' data
    count: Integers  # (turns,)

    @property
    def rounds(self) -> int:
        return len(self.starts) - 1

    @property
    def busiest(self) -> int:
        """The most searches of a client in a round."""
        return int(self.count.max())

    @property
    def smallest(self) -> int:
        """The size of the smallest cohort."""
        return int(np.diff(self.starts).min())

    def turns(self, round_: int) -> tuple[Integers, Integers, Integers]:
        """Return (clients, first searches, counts) of a round, from 0 on."""
        span = slice(int(self.starts[round_]), int(self.starts[round_ + 1]))
        return self.client[span], self.first[span], self.count[span]


def side_by_side(first: Integers, searches: Integers, batch: int) -> LogReplay:
    """Return the replay in which every client does its next `batch` searches in each round, while it has that many.

    first, searches: (clients,) the first search of each client, and how many it has.
    """
    clients, batches = _batches(searches, batch)
    return _replay(batches, clients, first[clients] + batches * batch, np.full(len(clients), batch, dtype=np.int64))


def by_arrival(
    first: Integers, searches: Integers, times: Integers, batch: int, together: int, minutes: float | None
) -> LogReplay:
    """Return the replay in the log's own time: a client comes when it has done `batch` further searches.

    A round is of the next `together` that come, or of all who come within `minutes`; a client that comes twice
    in a round does both batches in it. `times` (searches of all clients,) are those of the clients' data.
    """
    clients, batches = _batches(searches, batch)
    begins = first[clients] + batches * batch
    came = times[begins + batch - 1]
    order = np.lexsort((clients, came))  # those of the same moment: by their numbers
    came, clients, begins = came[order], clients[order], begins[order]
    rounds = np.arange(len(order), dtype=np.int64) // together
    if minutes is not None and len(came):
        window = ((came - came[0]) // max(1, round(minutes * MINUTE))).astype(np.int64)
        rounds = np.unique(window, return_inverse=True)[1].astype(np.int64)  # windows without anybody are no rounds
    return _replay(rounds, clients, begins, np.full(len(clients), batch, dtype=np.int64))


def _batches(searches: Integers, batch: int) -> tuple[Integers, Integers]:
    """(batches of all,) the client of each full batch, and its number among the client's."""
    whole = searches // batch
    clients = np.repeat(np.arange(len(searches), dtype=np.int64), whole)
    ends = np.cumsum(whole)
    return clients, np.arange(len(clients), dtype=np.int64) - np.repeat(ends - whole, whole)


def _replay(rounds: Integers, clients: Integers, first: Integers, count: Integers) -> LogReplay:
    """Put turns together by round and client; batches of one client in one round follow each other."""
    order = np.lexsort((first, clients, rounds))
    rounds, clients, first, count = rounds[order], clients[order], first[order], count[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(rounds) != 0) | (np.diff(clients) != 0)
    at = np.flatnonzero(new)
    counts = np.add.reduceat(count, at) if len(at) else count
    total = int(rounds[-1]) + 1 if len(rounds) else 0
    starts = np.searchsorted(rounds[at], np.arange(total + 1)).astype(np.int64)
    return LogReplay(starts, clients[at], first[at], counts.astype(np.int64))
