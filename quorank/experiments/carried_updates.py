"""File of what simulated clients on a network carry on of their updates (m of `client_momentum`), in the run's folder.

Each client has two slots: a row m and the round that it is of. A round reads the newest row of an earlier round and
writes the other slot: its round is taken out first, then comes the row, then the new round. So a process that is killed
anywhere, started again and asked for the round again comes to the same bits. The file is made anew from the checkpoint
whenever a run begins or goes on, so that it need not survive a power cut.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from quorank.engines.process import Simulator
from quorank.errors import require
from quorank.experiments.run_directory import CARRIED
from quorank.federation.reply import Reply, Task
from quorank.files.atomic import atomically
from quorank.kernels.arrays import Doubles, Integers

NOTHING = -2
"""The round of a slot without a row; rows before the first round are of round -1."""
OVER = "task.over"
"""The code of the refusal of a round after which these clients have answered another."""


class CarriedUpdates:
    """The file, mapped into memory: rows (2, clients, parameters) and their rounds (2, clients), counted from 0."""

    def __init__(self, folder: Path, clients: int, size: int) -> None:
        path = folder / CARRIED
        rounds = 2 * 8 * clients
        whole = path.is_file() and path.stat().st_size == rounds * (1 + size)
        sentence = "what the clients carry on of their updates is missing or of another run; start it again"
        require(whole, "file.damaged", sentence, str(path))
        self._rounds = np.memmap(path, "<i8", "r+", 0, (2, clients))
        self._rows = np.memmap(path, "<f8", "r+", rounds, (2, clients, size))

    @classmethod
    def begin(cls, folder: Path, done: int, carried: Doubles) -> CarriedUpdates:
        """Make the file of a run after so many rounds; a process that has mapped an earlier one goes on with that."""
        clients, size = carried.shape

        def save(path: Path) -> None:
            with path.open("r+b") as file:
                length = 2 * 8 * clients * (1 + size)
                file.truncate(length)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, length)  # a full disk is noticed here, not by a signal
                file.write(np.repeat([done - 1, NOTHING], clients).astype("<i8").tobytes())
                file.write(np.ascontiguousarray(carried, dtype="<f8").data)

        atomically(folder / CARRIED, save, private=True)
        return cls(folder, clients, size)

    def before(self, round_: int, clients: Integers) -> Doubles:
        """Rows (clients, parameters) with which these clients begin a round; one that is over for them is refused."""
        return np.array(self._rows[self._newest(round_ - 1, clients), clients])

    def write(self, round_: int, clients: Integers, rows: Doubles) -> None:
        """Put down with which rows these clients leave a round."""
        slots = 1 - self._newest(round_ - 1, clients)
        self._rounds[slots, clients] = NOTHING
        self._rows[slots, clients] = rows
        self._rounds[slots, clients] = round_

    def replies(self, simulator: Simulator, task: Task, clients: Integers) -> list[Reply]:
        """What these clients send for a task; what they carry on from there is on file by then."""
        rows = self.before(task.round, clients)
        found = simulator.replies(task, clients, rows)
        self.write(task.round, clients, rows)
        return found

    def after(self, round_: int) -> Doubles:
        """Rows of all clients once a round is done; some may have begun the next one."""
        clients = np.arange(self._rounds.shape[1])
        return np.array(self._rows[self._newest(round_, clients), clients])

    def _newest(self, latest: int, clients: Integers) -> Integers:
        """Slots of the newest rows up to a round; refused where a client has answered one after the next."""
        rounds = np.array(self._rounds[:, clients])
        known = np.where(rounds <= latest, rounds, NOTHING)
        open_ = bool((rounds <= latest + 1).all() and (known.max(axis=0, initial=NOTHING) > NOTHING).all())
        require(open_, OVER, "the task is of a round that is over: its clients have answered a later one")
        return np.asarray(known.argmax(axis=0), dtype=np.int64)
