"""File of the updates that simulated clients on a network carry into the next round (m of `client_momentum`).

Each client has two slots: a row m and its round. A round reads the newest row of an earlier round and writes the other
slot: first its round is cleared, then the row is written, then the new round. A process that is killed anywhere, started
again and asked for the round again comes to the same bits. The file is written from the checkpoint whenever a run starts
or resumes, so that it need not survive a power cut.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from quorank.engines.process import Simulator
from quorank.errors import require
from quorank.federation.reply import Reply, Task
from quorank.files.atomic import atomically
from quorank.kernels.arrays import Doubles, Integers

NOTHING = -2
"""Round of an empty slot; rows before the first round have round -1."""
OVER = "task.over"
"""Error code: these clients have answered a later round."""


class CarriedUpdates:
    """The file, mapped into memory: rows (2, clients, parameters) and their rounds (2, clients), counted from 0."""

    def __init__(self, path: Path, clients: int, size: int) -> None:
        rounds = 2 * 8 * clients
        whole = path.is_file() and path.stat().st_size == rounds * (1 + size)
        sentence = "the updates that clients carry into the next round are missing or of another run; start it again"
        require(whole, "file.damaged", sentence, str(path))
        self._rounds = np.memmap(path, "<i8", "r+", 0, (2, clients))
        self._rows = np.memmap(path, "<f8", "r+", rounds, (2, clients, size))

    @classmethod
    def begin(cls, path: Path, done: int, carried: Doubles) -> CarriedUpdates:
        """Write the file of a run after `done` rounds; a process that has mapped an earlier file keeps that one."""
        clients, size = carried.shape

        def save(temporary: Path) -> None:
            with temporary.open("r+b") as file:
                length = 2 * 8 * clients * (1 + size)
                file.truncate(length)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, length)  # a full disk is noticed here, not by a signal
                file.write(np.repeat([done - 1, NOTHING], clients).astype("<i8").tobytes())
                file.write(np.ascontiguousarray(carried, dtype="<f8").data)

        atomically(path, save, private=True)
        return cls(path, clients, size)

    def before(self, round_: int, clients: Integers) -> Doubles:
        """Return rows (clients, parameters) before a round; refuse a round that is over for these clients."""
        return np.array(self._rows[self._newest(round_ - 1, clients), clients])

    def write(self, round_: int, clients: Integers, rows: Doubles) -> None:
        """Write rows (clients, parameters) after a round."""
        slots = 1 - self._newest(round_ - 1, clients)
        self._rounds[slots, clients] = NOTHING
        self._rows[slots, clients] = rows
        self._rounds[slots, clients] = round_

    def replies(self, simulator: Simulator, task: Task, clients: Integers) -> list[Reply]:
        """Return the replies of these clients to a task, after their rows are on file."""
        rows = self.before(task.round, clients)
        found = simulator.replies(task, clients, rows)
        self.write(task.round, clients, rows)
        return found

    def after(self, round_: int) -> Doubles:
        """Return rows of all clients after a round; some may have begun the next one."""
        clients = np.arange(self._rounds.shape[1])
        return np.array(self._rows[self._newest(round_, clients), clients])

    def _newest(self, latest: int, clients: Integers) -> Integers:
        """Return slots of the newest rows up to a round; refuse if a client has answered one after the next."""
        rounds = np.array(self._rounds[:, clients])
        known = np.where(rounds <= latest, rounds, NOTHING)
        open_ = bool((rounds <= latest + 1).all() and (known.max(axis=0, initial=NOTHING) > NOTHING).all())
        require(open_, OVER, "the task is of a round that is over: its clients have answered a later one")
        return np.asarray(known.argmax(axis=0), dtype=np.int64)
