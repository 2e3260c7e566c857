"""Putting a rebuilt ranker in place: all files of the run change together, then the leavers' data are erased.

What is to be written is first noted in one file, `unlearned/unlearning.json`, with the contents of all files that change.
That note is the moment of decision: a request that is cut short before it has changed nothing, and one that is cut short
after it is finished by repeating the command, since every step may be done twice. When all is done the note keeps the
figures alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.unlearning.erasure import check_erased, doomed, erase, traces_of
from quorank.files import write_whole

NOTE = storage.REBUILT[1]
FIGURES = Path(NOTE).name
PENDING = "pending"


def check_out(run: Path, out: Path | None) -> None:
    """Refuse to write into another run."""
    if out is not None and (out / storage.CONFIG).is_file() and out.resolve() != run.resolve():
        raise BadInput(f"{out}: there is another run here; choose another --out")
    _make(out or (run / NOTE).parent)


def put(
    run: Path,
    clients: Sequence[int],
    leavers: Sequence[int],
    files: Mapping[str, str],
    result: Mapping[str, Any],
    out: Path | None,
) -> None:
    """Note what is to be done. From here on the request will be finished, by this command or by the next."""
    _make((run / NOTE).parent)
    plan = {
        "clients": sorted(clients),
        "leavers": list(leavers),
        "out": None if out is None else str(out),
        "files": dict(files),
    }
    write_whole(run / NOTE, storage.json_bytes({**result, PENDING: plan}))


def pending(run: Path, clients: Sequence[int]) -> bool:
    """Whether this very request was cut short; another one that was is to be finished first."""
    note = _read(run)
    if PENDING not in note:
        return False
    waiting = note[PENDING]["clients"]
    flags = " ".join(f"--client {client}" for client in waiting)
    require(
        waiting == sorted(clients),
        f"{run}: an earlier request was cut short; finish it first with `quorank unlearn {run} {flags}`",
    )
    return True


def finish(run: Path) -> dict[str, Any]:
    """Do what the note says; returns the figures."""
    result = _read(run)
    plan = result.pop(PENDING)
    leavers, files = plan["leavers"], plan["files"]
    own = (run / NOTE).parent
    folder = own if plan["out"] is None else Path(plan["out"])
    _make(folder)
    for name, text in files.items():
        write_whole(run / name, text)
    write_whole(folder / storage.RANKER, files[storage.RANKER])
    size = len(json.loads(files[storage.RANKER])["parameters"])
    traces = traces_of(run, leavers, size)
    check_erased(run, leavers, traces, doomed(run, leavers))  # copies are refused while they can be told
    erased = erase(run, leavers)
    read = check_erased(run, leavers, traces)
    result |= {"erased": erased, "files_checked": read, "ranker": str(folder / storage.RANKER)}
    left = {"clients": leavers, "after": result["after"]}
    write_whole(run / storage.UNLEARNED, storage.json_bytes(left))
    write_whole(folder / FIGURES, storage.json_bytes(result))
    if folder.resolve() != own.resolve():
        (run / NOTE).unlink()
        if not any(own.iterdir()):
            own.rmdir()
    return result


def _read(run: Path) -> dict[str, Any]:
    path = run / NOTE
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: damaged ({error}); delete it, and repeat the command") from None
    if not isinstance(content, dict) or not isinstance(content.get(PENDING, {}), dict):
        raise BadInput(
            f"{path}: damaged: not the figures of an unlearning; delete it, and repeat the command"
        )
    return content


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be created ({error.strerror})") from None
