"""The directory of a run: the names of its files, and how they come and go.

Each file appears whole or not at all; `summary.json` comes last and marks a finished run (`finished_run` reads it back).
Nothing here loads a federation or compiles anything, so that commands about finished runs start at once.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles
from quorank.errors import BadInput, require
from quorank.experiments.experiment_file import read_experiment_file, write_toml
from quorank.files import write_whole

if TYPE_CHECKING:
    from quorank.experiments.experiment import Experiment

CHECKPOINT, CONFIG, SUMMARY, RANKER = "checkpoint.npz", "run.toml", "summary.json", "ranker.json"
HISTORY, LEDGER, REPORT = "history.parquet", "ledger.json", "report.html"
UNLEARNED = "unlearned.json"
GRID_INDEX, GRID_FILE = "grid.json", "grid.toml"
OUTPUTS = (SUMMARY, RANKER, HISTORY, LEDGER, REPORT, CHECKPOINT, CONFIG, UNLEARNED)
REBUILT = ("unlearned/ranker.json", "unlearned/unlearning.json")
CLIENTS = "clients"
"""Folder of the updates that clients keep for unlearning, a file each (`kept_updates`)."""


def is_finished(folder: Path) -> bool:
    """Return whether the directory holds a run that came to its end."""
    return (folder / SUMMARY).is_file()


def check_new(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a directory that already holds a run, unless it may be overwritten."""
    is_file = folder.exists() and not folder.is_dir()
    require(not is_file, "folder.is-file", "this is a file; expected a directory for the run", str(folder))
    found = [name for name in (*OUTPUTS, GRID_INDEX, GRID_FILE) if (folder / name).exists()]
    choices = f"choose another --out, continue it with --resume {folder}, or replace it with --overwrite"
    if found and not overwrite:
        raise BadInput("run.already-there", f"there is a run already ({found[0]}); {choices}", str(folder))


def open_new(folder: Path, experiment: Experiment) -> None:
    """Make the directory of a run, without what an earlier run left there, and write `run.toml`."""
    make_folder(folder)
    clear(folder)
    write_whole(folder / CONFIG, write_toml(experiment.tables()).encode())


def make_folder(folder: Path) -> None:
    """Make a folder and its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("folder.unwritable", f"cannot be created ({error.strerror})", str(folder)) from None


def clear(folder: Path) -> None:
    """Delete what an earlier run or grid left here, and nothing else."""
    names = (*OUTPUTS, *REBUILT, GRID_INDEX, GRID_FILE)
    kept = [kept_file(folder, client) for client in clients_with_kept(folder)]
    for path in (*(folder / name for name in names), *kept):
        path.unlink(missing_ok=True)
    for below in (folder / Path(REBUILT[0]).parent, folder / CLIENTS):
        if below.is_dir() and not any(below.iterdir()):
            below.rmdir()


def remove(folder: Path) -> None:
    """Delete a run that came to nothing, and its folder if nothing else is in it."""
    clear(folder)
    if not any(folder.iterdir()):
        folder.rmdir()


def kept_file(folder: Path, client: int) -> Path:
    """Return the path of the updates that a client keeps for unlearning."""
    return folder / CLIENTS / f"{client}.npz"


def clients_with_kept(folder: Path) -> list[int]:
    """Return the clients that have a file of kept updates in this run, in order."""
    found = (folder / CLIENTS).glob("*.npz") if (folder / CLIENTS).is_dir() else ()
    return sorted(int(path.stem) for path in found if path.stem.isdecimal() and path.stem.isascii())


def read_experiment(folder: Path) -> Experiment:
    """Read the experiment of an existing run."""
    from quorank.experiments.experiment import Experiment

    expected = f"no run to resume here; expected a directory with {CONFIG}"
    require((folder / CONFIG).is_file(), "run.missing", expected, str(folder))
    return Experiment.read(read_experiment_file(folder / CONFIG))


def ranker_bytes(experiment: Experiment, n_features: int, theta: Doubles) -> bytes:
    """Encode `ranker.json`: nothing but the ranker with parameters (parameters,), so that equal rankers are equal bytes."""
    from quorank.rankers.ranker_file import FORMAT

    content = {
        "format": FORMAT,
        "ranker": experiment.tables()["ranker"],
        "n_features": n_features,
        "normalize": experiment.data.normalize,
        "parameters": theta.tolist(),
    }
    return json_bytes(content)


def damaged(path: Path, what: str) -> BadInput:
    """Return the error about a file that is not what Quorank wrote."""
    return BadInput("file.damaged", f"damaged: {what}", str(path))


def read_json(path: Path, advice: str = "") -> dict[str, Any]:
    """Read a JSON object; `advice` ends the sentence about a damaged file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, f"not readable as JSON ({error}){advice}") from None
    if not isinstance(content, dict):
        raise damaged(path, f"expected a JSON object{advice}")
    return content


def json_bytes(content: Any) -> bytes:
    """Encode a value as the JSON files of a run are written."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parquet_bytes(columns: dict[str, npt.NDArray[np.generic]]) -> bytes:
    """Encode columns of equal length as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()
