"""Updates that clients keep for unlearning: their own of rounds 1, 1 + Δt, 1 + 2Δt, … (thesis §6.1.2).

Each client has one file, `clients/<number>.npz`, with the numbers of the rounds and a row of float32 for each. It holds
what the client sent before any privacy, which never leaves it. Single precision costs at most 6e-8 of an update's
length, and halves the file: 4·parameters bytes a kept round. Files have mode 0600 in a directory of mode 0700. With privacy
none are written by default, since they hold what privacy hides.

A checkpoint holds a digest of each client's updates, and the manifest of a finished run one of each file. Damaged or
exchanged updates are refused when a run resumes or a ranker is rebuilt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quorank.errors import BadInput, require
from quorank.experiments.run_directory import CLIENTS, clients_with_kept, kept_name
from quorank.federation.unlearning.methods import KeptRound, norms_of
from quorank.files.atomic import make_folder, sha256, write_whole
from quorank.files.documents import digest_of, read_manifest
from quorank.files.npz import Arrays, ArrayShape, archive_bytes, read_arrays
from quorank.kernels.arrays import Doubles, Floats, Integers

# for a private run that keeps updates, with its directory
WARNING = "its clients' raw updates are kept in {}, unclipped and without noise: their readers have what privacy hides"
_ADVICE = "; run the experiment again"
_OVERHEAD = 4096  # most bytes of an archive that are not arrays
_MOST_ROUNDS = 1 << 20  # limit on kept rounds where the number of rounds is unknown
_DIGEST = 32  # bytes


@dataclass(eq=False)
class KeptUpdates:
    """Kept updates of a run so far: each client's update of a kept round once, however often it is kept."""

    every: int  # Δt
    folder: Path  # of the run
    rows: dict[int, dict[int, Floats]] = field(default_factory=dict)  # client → round → (parameters,) update

    def due(self, done: int) -> bool:
        """Return whether the round after `done` rounds is kept."""
        return done % self.every == 0

    def keep(self, round_: int, clients: Integers, updates: Doubles) -> None:
        """Keep the updates (clients, parameters) of a round, counted from 1."""
        with np.errstate(over="ignore"):
            rows = updates.astype(np.float32)
        sentence = f"an update of round {round_} is too long to be kept; set federation.keep_every = 0 to keep none"
        require(np.isfinite(rows).all(), "update.too-long", sentence)
        for client, row in zip(clients.tolist(), rows, strict=True):
            self.rows.setdefault(client, {})[round_] = row

    def write(self) -> dict[str, str]:
        """Write every client's file atomically; return their digests by name."""
        digests = {}
        make_folder(self.folder / CLIENTS, private=True)
        for client, rounds, updates in self._own():
            content = archive_bytes({"rounds": rounds, "updates": updates})
            write_whole(self.folder / kept_name(client), content, private=True)
            digests[kept_name(client)] = sha256(content)
        return digests

    def arrays(self) -> Arrays:
        """Return the clients with kept updates and a digest of each one's, for the checkpoint."""
        digests = [_digest(*own) for own in self._own()]
        return {
            "kept_clients": np.array(sorted(self.rows), dtype=np.int64),
            "kept_digests": np.array(digests, dtype=np.uint8).reshape(-1, _DIGEST),
        }

    def _own(self) -> Iterator[tuple[int, Integers, Floats]]:
        """Yield each client with (rounds,) its rounds and (rounds, parameters) its updates."""
        for client, own in sorted(self.rows.items()):
            rounds = sorted(own)
            yield client, np.array(rounds, dtype=np.int64), np.array([own[round_] for round_ in rounds])

    def load(self, size: int, most: int = _MOST_ROUNDS) -> None:
        """Read the clients' files, of at most `most` rounds each, which an earlier process of this run wrote."""
        for client in clients_with_kept(self.folder):
            rounds, updates = read_kept(self.folder, client, size, most=most)
            self.rows[client] = dict(zip(rounds.tolist(), updates, strict=True))

    def restore(self, done: int, everyone: int | None, size: int, rounds: int, known: Arrays | None = None) -> None:
        """Read the files up to a checkpoint after `done` of all `rounds`; later rounds are played again.

        `everyone` is the number of clients where all take part in each round: then nothing may be missing. `known` are
        the checkpoint's digests (`arrays`); a checkpoint of clients on a network has none.
        """
        self.load(size, -(-rounds // self.every))
        before = {client: {r: row for r, row in own.items() if r <= done} for client, own in self.rows.items()}
        self.rows, wanted = {client: own for client, own in before.items() if own}, range(1, done + 1, self.every)
        for client in range(everyone or 0):
            sentence = f"updates that client {client} kept before the checkpoint are missing; start with --overwrite"
            complete = {*wanted} <= self.rows.get(client, {}).keys()
            require(complete, "kept-updates.missing", sentence, str(self.folder / kept_name(client)))
        if known is not None:
            noted = dict(zip(known["kept_clients"].tolist(), known["kept_digests"].tolist(), strict=True))
            now = {client: _digest(client, rounds, updates) for client, rounds, updates in self._own()}
            sentence = "damaged or exchanged: not this client's file at the checkpoint; start again with --overwrite"
            for client in sorted({*noted, *now}):
                same = noted.get(client) == now.get(client)
                require(same, "kept-updates.damaged", sentence, str(self.folder / kept_name(client)))
        self.rows = {c: {r: row for r, row in own.items() if r in wanted} for c, own in self.rows.items()}


def _digest(client: int, rounds: Integers, updates: Floats) -> list[int]:
    """Return the SHA-256 of a client's number, rounds and updates."""
    digest = hashlib.sha256(np.array([client, len(rounds), *rounds], dtype="<i8").tobytes())
    digest.update(np.ascontiguousarray(updates, dtype="<f4").tobytes())
    return list(digest.digest())


def read_kept(folder: Path, client: int, size: int, *, most: int = _MOST_ROUNDS) -> tuple[Integers, Floats]:
    """Read (rounds,) the rounds that a client kept, `most` at the most, and (rounds, size) its updates in them."""
    path, code = folder / kept_name(client), "kept-updates.damaged"
    expected = {"rounds": ArrayShape("i8", (None,)), "updates": ArrayShape("f4", (None, size), finite=True)}
    limit = _OVERHEAD + most * (8 + 4 * size)
    try:
        digest = digest_of(read_manifest(folder), folder, kept_name(client))
        found = read_arrays(path, expected, most=limit, digest=digest)
    except BadInput as error:
        raise BadInput(code, f"damaged file of kept updates ({error.sentence}){_ADVICE}", str(path)) from None
    rounds, updates = found["rounds"], found["updates"]
    fits = len(rounds) == len(updates) and (rounds >= 1).all() and (np.diff(rounds) > 0).all()
    sentence = f"damaged file of kept updates; expected a row of {size} finite numbers for each round{_ADVICE}"
    require(fits, code, sentence, str(path))
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
