"""Installation of a rebuilt ranker: replace all files of the run together, then erase the leavers' data.

The contents of all changed files are first written to one note, `unlearned/unlearning.json`. A request that is interrupted
before it has changed nothing; one interrupted later is finished by repeating the command, since every step is idempotent.
In the end the note keeps the metrics alone.

A run holds single clients' data in their files only (`kept_updates`); history, ledger and report hold sums and means over
all clients. After the erasure the whole directory is read again: no clients' file may bear a leaver's number, and no file
may contain the bytes of a kept update of a leaver. Backups and the disk below the file system are outside this check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np

from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.kept_updates import read_kept
from quorank.files.atomic import make_folder, write_whole
from quorank.files.codec import Length, Range
from quorank.files.documents import MANIFEST, digest_of, json_bytes, parse_json, read_json, read_manifest

NOTE = storage.REBUILT[1]
PENDING = "pending"
TRACES = 16  # updates of a leaver that are searched, spread over the run
SHORTEST = 16  # bytes below which an update could occur elsewhere by chance
CHANGED = (storage.LEDGER, storage.RANKER, storage.REPORT, storage.SUMMARY)  # files of a run that a request replaces
Client = Annotated[int, Range(0, 2**31)]


@dataclass(frozen=True)
class PendingRequest:
    """Request that is being carried out."""

    clients: list[Client]
    leavers: list[Client]
    files: dict[str, str]  # new contents by name
    digests: dict[str, Annotated[str, Length(64)]]  # of the run's manifest before

    def __post_init__(self) -> None:
        known = storage.RANKER in self.files and {*self.files} <= {*CHANGED}
        require(known, "value.out-of-range", f"expected {storage.RANKER}, and no file but {CHANGED}", "files")


class RequestNote(TypedDict, total=False):
    """Content of `unlearning.json`: metrics of the rebuilding, and the request while it is pending."""

    after: float
    pending: PendingRequest


class LeftClients(TypedDict):
    """Clients that a run has unlearned."""

    clients: list[Client]


class RankerParameters(TypedDict):
    """Parameters in a ranker file."""

    parameters: list[float]


def left_before(run: Path) -> tuple[int, ...]:
    """Return the clients that a run has unlearned already."""
    path, digests = run / storage.UNLEARNED, read_manifest(run)
    if not path.exists() and storage.UNLEARNED not in (digests or {}):
        return ()
    advice = "; restore it, or run the experiment again"
    digest = digest_of(digests, run, storage.UNLEARNED)
    return tuple(sorted(read_json(path, LeftClients, digest=digest, advice=advice)["clients"]))


def note_request(
    run: Path, clients: Sequence[int], leavers: Sequence[int], files: Mapping[str, str], result: Mapping[str, Any]
) -> None:
    """Write the note, after which the request will be finished by this command or the next."""
    make_folder((run / NOTE).parent)
    plan = PendingRequest(sorted(clients), list(leavers), dict(files), read_manifest(run) or {})
    write_whole(run / NOTE, json_bytes({**result, PENDING: plan}))


def is_pending(run: Path, clients: Sequence[int]) -> bool:
    """Return whether this request was interrupted; refuse another one before that is finished."""
    note = _read_note(run)
    if PENDING not in note:
        return False
    waiting = note[PENDING].clients
    flags = " ".join(f"--client {client}" for client in waiting)
    sentence = f"an earlier request was cut short; finish it first with `quorank unlearn {run} {flags}`"
    require(waiting == sorted(clients), "unlearning.pending", sentence, str(run))
    return True


def finish_request(run: Path) -> dict[str, Any]:
    """Carry out the noted request; return the metrics."""
    result = _read_note(run)
    plan = result.pop(PENDING)
    leavers, files = plan.leavers, plan.files
    (run / MANIFEST).unlink(missing_ok=True)  # written again when all files are as they shall be
    for name, text in files.items():
        write_whole(run / name, text)
    write_whole(run / storage.REBUILT[0], files[storage.RANKER])
    size = len(parse_json(files[storage.RANKER], RankerParameters, str(run / NOTE))["parameters"])
    traces, own = find_data(run, leavers, size)
    erased = erase(run, own)
    read = _check_erased(run, leavers, traces)
    result |= {"erased": erased, "files_checked": read, "ranker": str(run / storage.REBUILT[0])}
    write_whole(run / storage.UNLEARNED, json_bytes({"clients": leavers, "after": result["after"]}))
    storage.seal(run, [*files, storage.UNLEARNED], plan.digests)
    write_whole(run / NOTE, json_bytes(result))  # the request is done when the note says so
    return result


def find_data(run: Path, leavers: Sequence[int], size: int) -> tuple[list[bytes], list[Path]]:
    """Return bytes that identify the leavers' kept updates, and the files to erase; refuse copies in other files.

    The files are the leavers' own, and leftovers of interrupted writes and late checkpoints.
    """
    found = [run / storage.kept_name(client) for client in leavers]
    found += [path for client in leavers for path in (run / storage.CLIENTS).glob(f".{client}.npz.*.tmp")]
    own = [path for path in (*found, run / storage.CHECKPOINT) if path.is_file()]
    traces = _traces_of(run, leavers, size)
    _check_erased(run, leavers, traces, own)
    return traces, own


def erase(run: Path, files: Sequence[Path]) -> list[str]:
    """Delete files of a run; return their names in its directory."""
    for path in files:
        path.unlink()
    return [path.relative_to(run).as_posix() for path in files]


def _traces_of(run: Path, leavers: Sequence[int], size: int) -> list[bytes]:
    """Return bytes of the leavers' updates, without those that another client kept too, such as a colluding attacker."""
    present = storage.clients_with_kept(run)
    own = [client for client in leavers if client in present]
    if not own:
        return []
    others = b"".join((run / storage.kept_name(client)).read_bytes() for client in present if client not in leavers)
    found = []
    for client in own:
        try:
            _, updates = read_kept(run, client, size)
        except BadInput:
            continue  # a damaged file is erased all the same; it has no updates to be recognised by
        rows = updates[np.any(updates != 0.0, axis=1)]
        if len(rows):
            chosen = np.unique(np.linspace(0, len(rows) - 1, TRACES).astype(int))
            found += [row.tobytes() for row in rows[chosen]]
    return [trace for trace in found if len(trace) >= SHORTEST and trace not in others]


def _check_erased(run: Path, leavers: Sequence[int], traces: Sequence[bytes], still_there: Sequence[Path] = ()) -> int:
    """Read all other files than those `still_there`, refuse a leaver's data, and return the number of files read."""
    names = {str(client) for client in leavers}
    read = 0
    for path in sorted(run.rglob("*")):
        if not path.is_file() or path in still_there:
            continue
        inside = path.relative_to(run)
        among_clients = inside.parts[0] == storage.CLIENTS and path.name.lstrip(".").split(".")[0] in names
        content = path.read_bytes()
        read += 1
        left = among_clients or any(trace in content for trace in traces)
        sentence = "this file still holds data of a client that left; delete it, and repeat the command"
        require(not left, "unlearning.data-left", sentence, str(path))
    return read


def _read_note(run: Path) -> dict[str, Any]:
    path, advice = run / NOTE, "; delete it, and repeat the command"
    if not path.exists():
        return {}
    content: dict[str, Any] = read_json(path, RequestNote, advice=advice)
    sentence = f"damaged: after: is missing{advice}"
    require(PENDING not in content or "after" in content, "file.damaged", sentence, str(path))
    return content
