"""The directory of a run. Each file appears whole or not at all; `summary.json` comes last and marks a finished run."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank import __version__
from quorank.arrays import Doubles
from quorank.errors import BadInput
from quorank.experiments.documents import read_document, write_toml
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates, clear_kept
from quorank.experiments.progress import Progress
from quorank.federation import State
from quorank.federation.checkpoint import BROKEN, below, state_arrays, state_from
from quorank.files import write_whole
from quorank.rankers.ranker_file import FORMAT

CHECKPOINT, CONFIG, SUMMARY, RANKER = "checkpoint.npz", "run.toml", "summary.json", "ranker.json"
UNLEARNED = "unlearned.json"
GRID = ("grid.json", "grid.toml")
OUTPUTS = (SUMMARY, RANKER, "history.parquet", "ledger.json", "report.html", CHECKPOINT, CONFIG, UNLEARNED)
REBUILT = ("unlearned/ranker.json", "unlearned/unlearning.json")


def is_finished(folder: Path) -> bool:
    return (folder / SUMMARY).is_file()


def check_new(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a directory that already holds a run, unless it may be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: this is a file; expected a directory for the run")
    found = [name for name in (*OUTPUTS, *GRID) if (folder / name).exists()]
    if found and not overwrite:
        raise BadInput(
            f"{folder}: there is a run already ({found[0]}); choose another --out, continue it with --resume {folder}, "
            "or replace it with --overwrite"
        )


def open_new(folder: Path, experiment: Experiment) -> None:
    """Make the directory of a run, without what an earlier run left there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be created ({error.strerror})") from None
    clear(folder)
    write_whole(folder / CONFIG, write_toml(experiment.tables()).encode())


def clear(folder: Path) -> None:
    """Delete what an earlier run or grid left here, and nothing else."""
    for name in (*OUTPUTS, *REBUILT, *GRID):
        (folder / name).unlink(missing_ok=True)
    rebuilt = folder / Path(REBUILT[0]).parent
    if rebuilt.is_dir() and not any(rebuilt.iterdir()):
        rebuilt.rmdir()
    clear_kept(folder)


def remove(folder: Path) -> None:
    """Take a run away that came to nothing."""
    clear(folder)
    if not any(folder.iterdir()):
        folder.rmdir()


def read_experiment(folder: Path) -> Experiment:
    """The experiment of an existing run."""
    if not (folder / CONFIG).is_file():
        raise BadInput(f"{folder}: no run to resume here; expected a directory with {CONFIG}")
    return Experiment.read(read_document(folder / CONFIG))


def _digest(experiment: Experiment) -> str:
    return hashlib.blake2b(write_toml(experiment.tables()).encode(), digest_size=16).hexdigest()


def save_checkpoint(
    folder: Path,
    experiment: Experiment,
    state: State,
    progress: Progress,
    kept: KeptUpdates | None = None,
) -> None:
    """Where the run stands after a round, and of which experiment.

    What clients kept goes first, so that a checkpoint never knows of a round whose updates were lost.
    """
    if kept is not None:
        kept.write(folder)
    arrays = state_arrays(state) | {f"column:{k}": v for k, v in progress.values.items()}
    counts = [progress.rounds, progress.interactions, progress.per_round]
    arrays["counts"] = np.array(counts, dtype=np.int64)
    arrays["seconds"] = np.array([progress.train_seconds, progress.evaluate_seconds])
    arrays["version"] = np.array(__version__)
    arrays["experiment"] = np.array(_digest(experiment))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_whole(folder / CHECKPOINT, buffer.getvalue())


def load_checkpoint(folder: Path, experiment: Experiment, size: int) -> tuple[State, Progress] | None:
    """Where an interrupted run stands; None if it has not saved anything yet."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as saved:
            arrays = dict(saved)
        counts = [int(c) for c in arrays["counts"]]
        state = state_from(arrays)
        seconds = arrays["seconds"].tolist()
        progress = Progress(counts[0], below(arrays, "column:"), counts[1], counts[2], state.round, *seconds)
    except BROKEN as error:
        raise BadInput(
            f"{path}: damaged checkpoint ({error}); start the run again with --overwrite"
        ) from None
    same = str(arrays.get("experiment")) == _digest(experiment)
    if not same or state.theta.shape != (size,) or progress.rounds != experiment.rounds:
        raise BadInput(
            f"{path}: the checkpoint is of another experiment than {CONFIG} beside it; restore {CONFIG}, or start again"
        )
    return state, progress


def ranker_bytes(experiment: Experiment, n_features: int, theta: Doubles) -> bytes:
    """`ranker.json`: nothing but the ranker, so that equal rankers are equal bytes."""
    content = {
        "format": FORMAT,
        "ranker": experiment.tables()["ranker"],
        "n_features": n_features,
        "normalize": experiment.data.normalize,
        "parameters": theta.tolist(),
    }
    return json_bytes(content)


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parquet_bytes(columns: dict[str, npt.NDArray[np.generic]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()
