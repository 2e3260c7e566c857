"""Installation of a rebuilt ranker: replace all files of the run together, then erase the leavers' data.

The contents of all changed files are first written to one note, `unlearned/unlearning.json`. A request that is interrupted
before it has changed nothing; one interrupted later is finished by repeating the command, since every step is idempotent.
In the end the note keeps the metrics alone.

A leaver is in its own file (`kept_updates`) and in every metric of a round or ranker that it had a part in: beside the
others' kept updates, the norm of a round's sum confirms a guess of its update. So history becomes one row of the rebuilt
ranker, and metrics of the run with the leaver go from the summary, the report and the note. After the erasure the whole
directory is read again: no clients' file may bear a leaver's number, and no file may contain a kept update of a leaver or
the norm or online metric of a round with it, as text, bytes or Parquet. Backups, the logs of `--log` and the disk below
the file system are outside this check.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np

from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.kept_updates import read_kept
from quorank.experiments.progress import COLUMNS
from quorank.files.arrow import parquet_bytes, read_columns, untrusted_batches
from quorank.files.atomic import make_folder, write_whole
from quorank.files.codec import Length, Range
from quorank.files.documents import MANIFEST, digest_of, json_bytes, parse_json, read_json, read_manifest
from quorank.kernels.arrays import Doubles

NOTE = storage.REBUILT[1]
PENDING = "pending"
TRACES = 16  # updates of a leaver, and rounds, that are searched, spread over the run
SHORTEST = 16  # bytes below which an update could occur elsewhere by chance
DIGITS = 12  # characters below which a metric could
WITH_LEAVERS = ("before", "distance")  # metrics that are shown and not kept
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
    summary = parse_json(files[storage.SUMMARY], storage.RunSummary, str(run / NOTE))
    write_whole(run / storage.HISTORY, parquet_bytes(rebuilt_history(summary)))
    read = _check_erased(run, leavers, traces)
    result |= {"erased": erased, "files_checked": read, "ranker": str(run / storage.REBUILT[0])}
    write_whole(run / storage.UNLEARNED, json_bytes({"clients": leavers, "after": result["after"]}))
    storage.seal(run, [*files, storage.HISTORY, storage.UNLEARNED], plan.digests)
    note = {key: value for key, value in result.items() if key not in WITH_LEAVERS}
    write_whole(run / NOTE, json_bytes(note))  # the request is done when the note says so
    return result


def rebuilt_history(summary: Mapping[str, Any]) -> dict[str, Doubles]:
    """Return the columns of `history.parquet` after unlearning: one row, the offline metrics of the rebuilt ranker."""
    row = {"round": summary["rounds"], "interactions": summary["interactions"], **dict.fromkeys(COLUMNS, np.nan)}
    row |= {f"offline_{name}": value for name, value in summary["offline"].items()}
    return {name: np.array([value], dtype=np.float64) for name, value in row.items()}


def find_data(run: Path, leavers: Sequence[int], size: int) -> tuple[list[bytes], list[Path]]:
    """Return bytes that identify the leavers' kept updates and rounds, and the files to erase; refuse copies elsewhere.

    The files are the leavers' own, those of every round, and leftovers of interrupted writes and late checkpoints.
    """
    found = [run / storage.kept_name(client) for client in leavers]
    found += [path for client in leavers for path in (run / storage.CLIENTS).glob(f".{client}.npz.*.tmp")]
    own = [path for path in (*found, run / storage.ROUNDS, run / storage.CHECKPOINT) if path.is_file()]
    traces = _traces_of(run, leavers, size) + _traces_of_rounds(run)
    _check_erased(run, leavers, traces, [*own, *(run / name for name in (*CHANGED, storage.HISTORY))])
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


def _traces_of_rounds(run: Path) -> list[bytes]:
    """Return the norms and online metrics of rounds, as text and as bytes, where they are long enough to identify one."""
    found = []
    history = read_columns(run / storage.HISTORY, ("update_norm", storage.ONLINE_NDCG))
    for name in ("update_norm", storage.ONLINE_NDCG):
        known = [value for value in history[name].tolist() if len(repr(value)) >= DIGITS]
        for at in np.unique(np.linspace(0, len(known) - 1, TRACES).astype(int)) if known else ():
            found += [repr(known[at]).encode(), struct.pack("<d", known[at]), struct.pack(">d", known[at])]
    return found


def _content(path: Path) -> bytes:
    """Return the bytes of a file, with the numbers of a Parquet file unpacked."""
    content = path.read_bytes()
    if content.startswith(b"PAR1"):
        with suppress(BadInput):  # what is not readable as a table holds no numbers of one
            for batch in untrusted_batches(path, "parquet"):
                content += b"".join(buffer for each in batch.columns for buffer in each.buffers() if buffer is not None)
    return content


def _check_erased(run: Path, leavers: Sequence[int], traces: Sequence[bytes], still_there: Sequence[Path] = ()) -> int:
    """Read all other files than those `still_there`, refuse a leaver's data, and return the number of files read."""
    names = {str(client) for client in leavers}
    read = 0
    for path in sorted(run.rglob("*")):
        if not path.is_file() or path in still_there:
            continue
        inside = path.relative_to(run)
        among_clients = inside.parts[0] == storage.CLIENTS and path.name.lstrip(".").split(".")[0] in names
        content = _content(path)
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
