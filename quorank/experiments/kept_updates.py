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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quorank.errors import BadInput, require
from quorank.experiments.run_directory import CLIENTS, clients_with_kept, kept_file, kept_name
from quorank.federation.unlearning.methods import KeptRound, norms_of
from quorank.files.atomic import make_private_folder, sha256, write_whole
from quorank.files.manifest import digest_of, read_manifest
from quorank.files.npz import Arrays, ArrayShape, archive_bytes, read_arrays
from quorank.kernels.arrays import Doubles, Floats, Integers

WARNING = "its clients' raw updates are kept in {}, unclipped and without noise: their readers have what privacy hides"
"""Warning for a private run that keeps updates, with its directory."""
_ADVICE = "; run the experiment again"
_OVERHEAD = 4096
"""Bytes of an archive beside its arrays, at most."""
_NEVER = 1 << 20
"""Limit on kept rounds where the number of rounds is unknown."""


@dataclass(eq=False)
class KeptUpdates:
    """Kept updates of a run so far: each client's update of a kept round once, however often it is kept."""

    every: int  # Δt
    folder: Path  # of the run
    rows: dict[int, dict[int, Floats]] = field(default_factory=dict)  # round → client → (parameters,) update

    def due(self, done: int) -> bool:
        """Return whether the round after `done` rounds is kept."""
        return done % self.every == 0

    def keep(self, round_: int, clients: Integers, updates: Doubles) -> None:
        """Keep the updates (clients, parameters) of a round, counted from 1."""
        with np.errstate(over="ignore"):
            rows = updates.astype(np.float32)
        sentence = f"an update of round {round_} is too long to be kept; set federation.keep_every = 0 to keep none"
        require(np.isfinite(rows).all(), "update.too-long", sentence)
        self.rows.setdefault(round_, {}).update(zip(clients.tolist(), rows, strict=True))

    def write(self) -> dict[str, str]:
        """Write every client's file atomically; return their digests by name."""
        digests = {}
        make_private_folder(self.folder / CLIENTS)
        for client, entries in self._by_client().items():
            rounds = np.array([round_ for round_, _ in entries], dtype=np.int64)
            content = archive_bytes({"rounds": rounds, "updates": np.array([update for _, update in entries])})
            write_whole(kept_file(self.folder, client), content, private=True)
            digests[kept_name(client)] = sha256(content)
        return digests

    def arrays(self) -> Arrays:
        """Return the clients with kept updates and a digest of each one's, for the checkpoint."""
        own = sorted(self._by_client().items())
        digests = [_digest(client, [r for r, _ in entries], [u for _, u in entries]) for client, entries in own]
        return {
            "kept_clients": np.array([client for client, _ in own], dtype=np.int64),
            "kept_digests": np.array(digests, dtype=np.uint8).reshape(-1, _DIGEST),
        }

    def _by_client(self) -> dict[int, list[tuple[int, Floats]]]:
        own: dict[int, list[tuple[int, Floats]]] = {}
        for round_, rows in sorted(self.rows.items()):
            for client, update in rows.items():
                own.setdefault(client, []).append((round_, update))
        return own

    def load(self, size: int) -> None:
        """Read the files of clients on a network, which an earlier process of this run wrote."""
        for client in clients_with_kept(self.folder):
            for round_, row in zip(*read_kept(self.folder, client, size), strict=True):
                self.rows.setdefault(int(round_), {})[client] = row

    def restore(self, done: int, everyone: int | None, size: int, rounds: int, known: Arrays | None = None) -> None:
        """Read the files up to a checkpoint after `done` of so many rounds; later rounds are played again.

        `everyone` is the number of clients where all take part in each round: then nothing may be missing. `known` are
        the checkpoint's digests (`arrays`); a checkpoint of clients on a network has none.
        """
        most = -(-rounds // self.every)
        own = {client: read_kept(self.folder, client, size, most=most) for client in clients_with_kept(self.folder)}
        wanted = range(1, done + 1, self.every)
        for client in range(everyone or 0):
            found = own[client][0] if client in own else np.empty(0, dtype=np.int64)
            sentence = (
                f"updates that client {client} kept before the checkpoint are missing; start again with --overwrite"
            )
            where = str(kept_file(self.folder, client))
            require(np.isin(np.array(wanted), found).all(), "kept-updates.missing", sentence, where)
        if known is not None:
            _check_digests(self.folder, own, done, known)
        for client, (found, rows) in sorted(own.items()):
            for round_, row in zip(found.tolist(), rows, strict=True):
                if round_ in wanted:
                    self.rows.setdefault(round_, {})[client] = row


_DIGEST = 32


def _digest(client: int, rounds: Sequence[int], updates: Sequence[Floats]) -> list[int]:
    """Return the SHA-256 of a client's number, rounds and updates."""
    digest = hashlib.sha256(np.array([client, len(rounds), *rounds], dtype="<i8").tobytes())
    for update in updates:
        digest.update(np.ascontiguousarray(update, dtype="<f4").tobytes())
    return list(digest.digest())


def _check_digests(folder: Path, own: dict[int, tuple[Integers, Floats]], done: int, kept: Arrays) -> None:
    """Refuse files that differ from the digests of the checkpoint."""
    known = dict(zip(kept["kept_clients"].tolist(), kept["kept_digests"].tolist(), strict=True))
    for client in sorted({*known, *own}):
        rounds, updates = own.get(client, (np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.float32)))
        before = rounds <= done
        if client not in known and not before.any():
            continue  # it took part after the checkpoint, in rounds that are played again
        found = _digest(client, rounds[before].tolist(), list(updates[before]))
        sentence = "damaged or exchanged: not what this client had kept at the checkpoint; start again with --overwrite"
        require(known.get(client) == found, "kept-updates.damaged", sentence, str(kept_file(folder, client)))


def read_kept(folder: Path, client: int, size: int, *, most: int = _NEVER) -> tuple[Integers, Floats]:
    """Read (rounds,) the rounds that a client kept, `most` at the most, and (rounds, size) its updates in them."""
    path, code = kept_file(folder, client), "kept-updates.damaged"
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
