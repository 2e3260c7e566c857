"""Erasing what a run holds of clients that have left, and checking that it is gone.

A run holds single clients' data in their own files only (`kept_updates`); its history, ledger and report hold sums and
means over all clients. The check reads the whole directory again: no file may bear a leaver's number among the clients'
files, and none may contain the bytes of an update that a leaver kept. What backups or the disk itself remember below the
file system is beyond it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.kept_updates import FOLDER, clients_of, file_of, read_file

TRACES = 16
"""Updates of a leaver that are looked for, spread over the run."""
SHORTEST = 16
"""Bytes below which an update could occur elsewhere by chance."""


def left_before(run: Path) -> tuple[int, ...]:
    """The clients that a run has unlearned already."""
    path = run / storage.UNLEARNED
    if not path.is_file():
        return ()
    try:
        clients = json.loads(path.read_bytes())["clients"]
        return tuple(sorted(int(client) for client in clients))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path}: damaged note of who left ({error}); restore it, or run the experiment again"
        ) from None


def traces_of(run: Path, leavers: Sequence[int], size: int) -> list[bytes]:
    """Bytes by which the leavers' kept updates would be recognised; to be taken before they are erased.

    Colluding attackers send the same update: what another client kept as well is not the leaver's alone.
    """
    present = clients_of(run)
    if not set(present) & set(leavers):
        return []
    others = b"".join(file_of(run, client).read_bytes() for client in present if client not in leavers)
    found = []
    for client in leavers:
        if client in present:
            try:
                _, updates = read_file(run, client, size)
            except BadInput:
                continue  # a damaged file is erased all the same; it has no updates to be recognised by
            telling = updates[np.any(updates != 0.0, axis=1)]
            chosen = (
                telling[np.unique(np.linspace(0, len(telling) - 1, TRACES).astype(int))]
                if len(telling)
                else telling
            )
            found += [row.tobytes() for row in chosen]
    return [trace for trace in found if len(trace) >= SHORTEST and trace not in others]


def doomed(run: Path, leavers: Sequence[int]) -> list[Path]:
    """The leavers' files, and what an interrupted write or a late checkpoint may have left of them."""
    found = [file_of(run, client) for client in leavers]
    found += [p for client in leavers for p in (run / FOLDER).glob(f".{client}.npz.*.tmp")]
    found.append(run / storage.CHECKPOINT)
    return [path for path in found if path.is_file()]


def erase(run: Path, leavers: Sequence[int]) -> list[str]:
    """Delete what is doomed; returns its names in the run's directory."""
    erased = []
    for path in doomed(run, leavers):
        path.unlink()
        erased.append(path.relative_to(run).as_posix())
    return erased


def check_erased(
    run: Path, leavers: Sequence[int], traces: Sequence[bytes], doomed: Sequence[Path] = ()
) -> int:
    """Read the run's directory again; refuse by name what still holds a leaver's data. Returns the files read.

    `doomed` are files that will be erased yet: before that, only copies of what they hold are refused.
    """
    names = {str(client) for client in leavers}
    read = 0
    for path in sorted(run.rglob("*")):
        if not path.is_file() or path in doomed:
            continue
        inside = path.relative_to(run)
        among_clients = inside.parts[0] == FOLDER and path.name.lstrip(".").split(".")[0] in names
        content = path.read_bytes()
        read += 1
        if among_clients or any(trace in content for trace in traces):
            raise BadInput(
                f"{path}: this file still holds data of a client that left; delete it, and repeat the command"
            )
    return read
