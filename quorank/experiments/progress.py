"""Progress of a run: its figures by round, and the checkpoint that an interrupted run goes on from."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quorank import __version__
from quorank.arrays import Doubles
from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import write_toml
from quorank.experiments.kept_updates import KeptUpdates
from quorank.federation import Report, State
from quorank.federation.checkpoint import BROKEN, below, state_arrays, state_from
from quorank.files import write_whole
from quorank.metrics.lists import discounted_sum

COLUMNS = ("offline_ndcg@10", "offline_maxrr", "online_ndcg@10", "online_maxrr", "clicks", "update_norm")
LEDGER = ("participants", "sensitivity", "noise")  # of every round's release, for the ledger
DISCOUNT = 0.9995  # γ of the online measure, over rounds


@dataclass(eq=False)
class Progress:
    """Figures of a run so far: `values[name][t]` is of round t + 1; offline ones are NaN where none was measured."""

    rounds: int
    values: dict[str, Doubles]
    interactions: int = 0  # so far
    per_round: int = 0
    done: int = 0  # rounds
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0

    @classmethod
    def empty(cls, rounds: int) -> Progress:
        """Return the progress of a run before its first round."""
        return cls(rounds, {name: np.full(rounds, np.nan) for name in (*COLUMNS, *LEDGER)})

    def record(self, report: Report) -> None:
        """Take over the figures of a round that was closed."""
        at = report.round - 1
        self.values["online_ndcg@10"][at] = report.online_ndcg
        for name in ("online_maxrr", "clicks", "update_norm", *LEDGER):
            self.values[name][at] = getattr(report, name)
        self.per_round = report.interactions
        self.interactions += report.interactions
        self.done = report.round

    def record_offline(self, rounds: list[int], ndcg: Doubles, maxrr: Doubles) -> None:
        """Take over (rounds,) offline nDCG and MaxRR of the rankers after these rounds."""
        for round_, x, y in zip(rounds, ndcg, maxrr, strict=True):
            self.values["offline_ndcg@10"][round_ - 1] = x
            self.values["offline_maxrr"][round_ - 1] = y

    def last(self, name: str) -> float:
        """Return the newest figure of a column, NaN if there is none."""
        known = self.values[name][np.isfinite(self.values[name])]
        return float(known[-1]) if len(known) else float("nan")

    @property
    def dropped(self) -> int:
        """Rounds so far whose secure sum was opened and not used: honest clients could not have sent it."""
        unmoved, released = (
            self.values["update_norm"][: self.done] == 0.0,
            self.values["sensitivity"][: self.done] > 0.0,
        )
        return int(np.count_nonzero(unmoved & released))

    def online_mean(self) -> float:
        return float(self.values["online_ndcg@10"][: self.done].mean())

    def online_discounted(self) -> float:
        """Compute Σ_t γ^(t−1) · (mean nDCG of round t)."""
        return discounted_sum(self.values["online_ndcg@10"][: self.done], DISCOUNT)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the columns of `history.parquet`, a row per evaluated round."""
        count = self.done
        rows = np.flatnonzero(np.isfinite(self.values["offline_ndcg@10"][:count]))
        online = self.values["online_ndcg@10"][:count]
        running = np.cumsum(online * DISCOUNT ** np.arange(count))
        table: dict[str, npt.NDArray[np.generic]] = {"round": rows + 1, "interactions": (rows + 1) * self.per_round}
        for name in COLUMNS:
            table[name] = self.values[name][rows]
        table["online_discounted"] = running[rows]
        return table


def save_checkpoint(
    folder: Path, experiment: Experiment, state: State, progress: Progress, kept: KeptUpdates | None = None
) -> None:
    """Save where the run stands after a round, and of which experiment.

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
    write_whole(folder / storage.CHECKPOINT, buffer.getvalue())


def load_checkpoint(folder: Path, experiment: Experiment, size: int) -> tuple[State, Progress] | None:
    """Read where an interrupted run with `size` parameters stands; None if it has not saved anything yet."""
    path = folder / storage.CHECKPOINT
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
        sentence = f"damaged checkpoint ({error}); start the run again with --overwrite"
        raise BadInput("checkpoint.damaged", sentence, str(path)) from None
    same = str(arrays.get("experiment")) == _digest(experiment)
    if not same or state.theta.shape != (size,) or progress.rounds != experiment.rounds:
        sentence = f"this is of another experiment than {storage.CONFIG} beside it; restore that file, or start again"
        raise BadInput("checkpoint.of-another-experiment", sentence, str(path))
    return state, progress


def _digest(experiment: Experiment) -> str:
    return hashlib.blake2b(write_toml(experiment.tables()).encode(), digest_size=16).hexdigest()
