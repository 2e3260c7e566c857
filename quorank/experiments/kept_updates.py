"""Updates that clients keep for unlearning: their own of rounds 1, 1 + Δt, 1 + 2Δt, … (thesis §6.1.2).

Each client has one file, `clients/<number>.npz`, with the numbers of the rounds and a row of float32 for each. It holds
what the client sent before any privacy, which never leaves it. Single precision costs at most 6e-8 of an update's
length, and halves the file: 4·parameters bytes a kept round.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quorank.arrays import Doubles, Floats, Integers
from quorank.errors import BadInput, require
from quorank.experiments.run_directory import CLIENTS, clients_with_kept, kept_file
from quorank.federation.unlearning import KeptRound, norms_of
from quorank.files import write_whole


@dataclass(eq=False)
class KeptUpdates:
    """Kept rounds of a run while it goes on, written to the clients' files with every checkpoint."""

    every: int  # Δt
    rounds: list[int] = field(default_factory=list)
    clients: list[Integers] = field(default_factory=list)
    updates: list[Floats] = field(default_factory=list)

    def due(self, done: int) -> bool:
        """Return whether the round after so many is one that is kept."""
        return done % self.every == 0

    def keep(self, round_: int, clients: Integers, updates: Doubles) -> None:
        """Keep the updates (clients, parameters) of a round, which is counted from 1."""
        with np.errstate(over="ignore"):
            rows = updates.astype(np.float32)
        sentence = f"an update of round {round_} is too long to be kept; set federation.keep_every = 0 to keep none"
        require(np.isfinite(rows).all(), "update.too-long", sentence)
        self.rounds.append(round_)
        self.clients.append(np.array(clients, dtype=np.int64))
        self.updates.append(rows)

    def write(self, folder: Path) -> None:
        """Write every client's file, each whole or not at all."""
        own: dict[int, list[tuple[int, Floats]]] = {}
        for round_, clients, updates in zip(self.rounds, self.clients, self.updates, strict=True):
            for client, update in zip(clients.tolist(), updates, strict=True):
                own.setdefault(client, []).append((round_, update))
        (folder / CLIENTS).mkdir(exist_ok=True)
        for client, entries in own.items():
            buffer = io.BytesIO()
            rounds = np.array([round_ for round_, _ in entries], dtype=np.int64)
            np.savez(buffer, rounds=rounds, updates=np.array([update for _, update in entries]))
            write_whole(kept_file(folder, client), buffer.getvalue())

    def restore(self, folder: Path, done: int, everyone: int | None, size: int) -> None:
        """Read back what was kept up to a checkpoint; later rounds are played again, so they are dropped here.

        `everyone` is the number of clients where all take part in each round: then nothing may be missing.
        """
        own = {client: read_kept(folder, client, size) for client in clients_with_kept(folder)}
        wanted = range(1, done + 1, self.every)
        if everyone is not None:
            for client in range(everyone):
                rounds = own[client][0] if client in own else np.empty(0, dtype=np.int64)
                sentence = (
                    f"updates that client {client} kept before the checkpoint are missing; start again with --overwrite"
                )
                complete = np.isin(np.array(wanted), rounds).all()
                require(complete, "kept-updates.missing", sentence, str(kept_file(folder, client)))
        for round_ in wanted:
            held = [(client, rows[rounds == round_]) for client, (rounds, rows) in sorted(own.items())]
            self.rounds.append(round_)
            self.clients.append(np.array([client for client, rows in held for _ in rows], dtype=np.int64))
            self.updates.append(np.concatenate([np.empty((0, size), np.float32), *(rows for _, rows in held)]))


def read_kept(folder: Path, client: int, size: int) -> tuple[Integers, Floats]:
    """Read (rounds,) the rounds that a client kept and (rounds, size) its updates in them."""
    path = kept_file(folder, client)
    try:
        with np.load(path, allow_pickle=False) as saved:
            rounds, updates = saved["rounds"], saved["updates"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        sentence = f"damaged file of kept updates ({error}); run the experiment again"
        raise BadInput("kept-updates.damaged", sentence, str(path)) from None
    fits = rounds.ndim == 1 and updates.shape == (len(rounds), size) and updates.dtype == np.float32
    fits = fits and rounds.dtype == np.int64 and np.isfinite(updates).all()
    sentence = f"damaged file of kept updates; expected a row of {size} finite numbers for each round"
    require(fits, "kept-updates.damaged", sentence, str(path))
    return rounds, updates


def kept_rounds(
    folder: Path, clients: Sequence[int], wanted: Sequence[int], size: int, *, whole: bool = False
) -> list[KeptRound]:
    """Read the lengths of the updates that these clients kept of the wanted rounds; with `whole` the updates too."""
    own = {}
    for client in clients:
        rounds, updates = read_kept(folder, client, size)
        entries = zip(norms_of(updates).tolist(), updates, strict=True)
        own[client] = dict(zip(rounds.tolist(), entries, strict=True))
    found = []
    for round_ in wanted:
        held = [(client, *kept[round_]) for client, kept in sorted(own.items()) if round_ in kept]
        numbers = np.array([client for client, _, _ in held], dtype=np.int64)
        lengths = np.array([length for _, length, _ in held])
        rows = np.array([update for *_, update in held], dtype=np.float64).reshape(len(held), size) if whole else None
        found.append(KeptRound(round_, numbers, lengths, rows))
    return found
