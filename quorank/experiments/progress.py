"""Progress of a run: its metrics by round, its checkpoint, and what its files say in the end."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank import __version__
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import write_toml
from quorank.experiments.kept_updates import KeptUpdates
from quorank.federation import Report, State
from quorank.federation.feature_ranges import noise_part, range_mechanism, range_release
from quorank.federation.rounds import Reports
from quorank.federation.storage import parse_state, state_arrays, state_fault, state_shapes, strip_prefix
from quorank.files.atomic import write_whole
from quorank.files.npz import Arrays, ArrayShape, archive_bytes, read_arrays
from quorank.kernels.arrays import Doubles
from quorank.metrics.lists import discounted_sum
from quorank.privacy.ledger import combined_privacy
from quorank.rankers.ranker_file import Origin, SavedRanker, stated_privacy

COLUMNS = ("offline_ndcg@10", "offline_maxrr", "online_ndcg@10", "online_maxrr", "clicks", "update_norm")
ONLINE = ("online_ndcg@10", "online_maxrr", "clicks", "update_norm")
CHOSEN = ("validation_ndcg@10", "average")  # of the ranker that the validation split chose, where it was asked
LEDGER = ("participants", "sensitivity", "noise")  # of every round's release, for the ledger
DISCOUNT = 0.9995  # γ of the online measure, over rounds


@dataclass(eq=False)
class Progress:
    """Metrics of a run so far: `values[name][t]` is of round t + 1; NaN where not measured."""

    rounds: int
    values: dict[str, Doubles]
    interactions: int = 0  # so far
    per_round: int = 0
    done: int = 0  # rounds
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0

    @classmethod
    def empty(cls, rounds: int, cutoffs: Sequence[int] = ()) -> Progress:
        """Return the progress of a run before its first round; `cutoffs` are those of its plan other than 10."""
        names = (*COLUMNS, *(f"offline_ndcg@{depth}" for depth in cutoffs), *CHOSEN, *LEDGER)
        return cls(rounds, {name: np.full(rounds, np.nan) for name in names})

    @property
    def further(self) -> tuple[str, ...]:
        """Columns of offline nDCG at other cut-offs than 10."""
        return tuple(name for name in self.values if name not in (*COLUMNS, *CHOSEN, *LEDGER))

    def record(self, report: Report | Reports) -> None:
        """Record the report of a round or of several."""
        at: int | slice = report.round - 1
        if isinstance(report, Reports):
            at = slice(self.done, report.round)
        self.values["online_ndcg@10"][at] = report.online_ndcg
        for name in ("online_maxrr", "clicks", "update_norm", *LEDGER):
            self.values[name][at] = getattr(report, name)
        self.per_round = report.interactions
        self.interactions += report.interactions * (report.round - self.done)
        self.done = report.round

    def record_offline(self, rounds: list[int], means: Doubles) -> None:
        """Record offline metrics (2 + cut-offs, rounds) of the rankers after these rounds."""
        for name, values in zip(("offline_ndcg@10", "offline_maxrr", *self.further), means, strict=True):
            self.values[name][np.array(rounds) - 1] = values

    def offline(self) -> dict[str, float]:
        """Return the newest offline metrics, as `summary.json` names them."""
        names = ("offline_ndcg@10", "offline_maxrr", *self.further)
        return {name.removeprefix("offline_"): self.last(name) for name in names}

    def record_choice(self, round_: int, ndcg: float, average: float) -> None:
        """Record the γ that is best on the validation split after this round, and its nDCG."""
        for name, value in zip(CHOSEN, (ndcg, average), strict=True):
            self.values[name][round_ - 1] = value

    def choice(self) -> tuple[int, float] | None:
        """Return the round of the last choice and the γ that was chosen; None before the first."""
        known = np.flatnonzero(~np.isnan(self.values["average"]))
        return (int(known[-1]) + 1, float(self.values["average"][known[-1]])) if len(known) else None

    def last(self, name: str) -> float:
        """Return the newest value of a column, NaN before the first."""
        known = self.values[name][np.isfinite(self.values[name])]
        return float(known[-1]) if len(known) else float("nan")

    @property
    def dropped(self) -> int:
        """Number of rounds whose secure sum was outside the bounds of honest clients and not used."""
        norms, released = (self.values[name][: self.done] for name in ("update_norm", "sensitivity"))
        return int(np.count_nonzero((norms == 0.0) & (released > 0.0)))

    def online_mean(self) -> float:
        """Compute the mean nDCG@10 of the shown lists over rounds; NaN where no list was shown that can be judged."""
        values = self.values["online_ndcg@10"][: self.done]
        known = values[np.isfinite(values)]
        return float(known.mean()) if len(known) else math.nan

    def online(self) -> dict[str, float | None]:
        """Return mean nDCG@10 and Σ_t γ^(t−1) · (mean nDCG of round t); None where no list was shown."""
        mean = self.online_mean()
        if math.isnan(mean):
            return {"ndcg@10": None, "discounted": None}
        return {"ndcg@10": mean, "discounted": discounted_sum(self._online_ndcg(), DISCOUNT)}

    def _online_ndcg(self) -> Doubles:
        """Return (rounds,) online nDCG as it is summed: the mean for a round without a list that can be judged."""
        values = self.values["online_ndcg@10"][: self.done]
        return np.where(np.isfinite(values), values, self.online_mean())

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the columns of `history.parquet`, a row per evaluated round."""
        rows = np.flatnonzero(np.isfinite(self.values["offline_ndcg@10"][: self.done]))
        return self._table(rows, (*COLUMNS, *self.further), () if self.choice() is None else CHOSEN)

    def online_columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the columns of `rounds.parquet`, a row per round, evaluated or not."""
        return self._table(np.arange(self.done), ONLINE)

    def _table(
        self, rows: npt.NDArray[np.int64], names: Sequence[str], last: Sequence[str] = ()
    ) -> dict[str, npt.NDArray[np.generic]]:
        """Return a table of counters, the columns `names`, the discounted sum and the columns `last` at rounds from 0."""
        count = self.done
        running = np.cumsum(self._online_ndcg() * DISCOUNT ** np.arange(count))
        # cohorts of a size left to chance differ from round to round: each round counts as their mean
        interactions = (rows + 1) * self.interactions // max(count, 1)
        table: dict[str, npt.NDArray[np.generic]] = {"round": rows + 1, "interactions": interactions}
        table |= {name: self.values[name][rows] for name in names}
        table["online_discounted"] = running[rows]
        return table | {name: self.values[name][rows] for name in last}


def save_checkpoint(
    folder: Path, experiment: Experiment, state: State, progress: Progress, kept: KeptUpdates | None = None
) -> None:
    """Save the checkpoint of a run after a round.

    Kept updates are written first, so that none of a checkpoint's rounds is lost.
    """
    if kept is not None:
        kept.write()
    arrays = state_arrays(state) | {f"column:{k}": v for k, v in progress.values.items()}
    counts = [progress.rounds, progress.interactions, progress.per_round]
    arrays["counts"] = np.array(counts, dtype=np.int64)
    arrays["seconds"] = np.array([progress.train_seconds, progress.evaluate_seconds])
    arrays["version"] = np.array(__version__)
    arrays["experiment"] = np.array(_digest(experiment))
    if kept is not None:
        arrays |= kept.arrays()
    write_whole(folder / storage.CHECKPOINT, archive_bytes(arrays), private=True)


class Checkpoint(NamedTuple):
    """State, progress and digests of kept updates of an interrupted run."""

    state: State
    progress: Progress
    kept: Arrays | None  # what clients had kept by then (`KeptUpdates.arrays`); None if nothing is known of it


def load_checkpoint(folder: Path, experiment: Experiment, start: State) -> Checkpoint | None:
    """Read the checkpoint of a run that began with the state `start`; None before the first checkpoint."""
    path = folder / storage.CHECKPOINT
    if not (path.exists() or path.is_symlink()):
        return None
    code, advice = "checkpoint.damaged", "; start the run again with --overwrite"
    rounds = experiment.rounds
    expected = state_shapes() | {
        "column:*": ArrayShape("f8", (None,)),
        "counts": ArrayShape("i8", (3,)),
        "seconds": ArrayShape("f8", (2,), finite=True),
        "version": ArrayShape("U", ()),
        "experiment": ArrayShape("U", ()),
        "kept_clients": ArrayShape("i8", (None,), optional=True),
        "kept_digests": ArrayShape("u1", (None, 32), optional=True),
    }
    try:
        arrays = read_arrays(path, expected)
    except BadInput as error:
        raise BadInput(code, f"damaged checkpoint ({error.sentence}){advice}", str(path)) from None
    state, counts = parse_state(arrays), arrays["counts"].tolist()
    same = str(arrays["experiment"]) == _digest(experiment)
    if not same or state.theta.shape != start.theta.shape or counts[0] != rounds:
        sentence = f"of another experiment than {storage.CONFIG} in its folder; restore that file, or start again"
        raise BadInput("checkpoint.of-another-experiment", sentence, str(path))
    columns = strip_prefix(arrays, "column:")
    fault = state_fault(state, start, experiment.federation.clients)
    if not 1 <= state.round <= rounds or min(counts) < 0:
        fault = f"{state.round} rounds done of {rounds}"
    names = {*Progress.empty(0, experiment.evaluation.further).values}
    if {*columns} != names or any(len(values) != rounds for values in columns.values()):
        fault = "metrics of other rounds or columns"
    kept: Arrays = {name: arrays[name] for name in ("kept_clients", "kept_digests") if name in arrays}
    if len(kept) == 1 or len({len(values) for values in kept.values()}) > 1:
        fault = "digests of other clients than kept updates"
    require(not fault, code, f"damaged checkpoint ({fault}){advice}", str(path))
    columns = {name: columns[name] for name in Progress.empty(0, experiment.evaluation.further).values}
    progress = Progress(rounds, columns, counts[1], counts[2], state.round, *arrays["seconds"].tolist())
    return Checkpoint(state, progress, kept or None)


def _digest(experiment: Experiment) -> str:
    """Return the digest of the settings that differ from the defaults."""
    return hashlib.blake2b(write_toml(experiment.tables(complete=False)).encode(), digest_size=16).hexdigest()


# ---------------------------------------------------------------- results


def saved_ranker(
    experiment: Experiment,
    theta: Doubles,
    n_features: int,
    statement: Mapping[str, Any] | None,
    *,
    rounds: int | None = None,  # None: all of them
    names: Sequence[str] = (),
    by: Literal["run", "coordinator", "unlearning"] = "run",
) -> SavedRanker:
    """Return a run's ranker as its file holds it.

    `statement` is the privacy statement of all planned rounds, an upper bound for a ranker of fewer.
    """
    done = experiment.rounds if rounds is None else rounds
    origin = Origin(by, experiment_digest(experiment), experiment.seed, done, stated_privacy(statement))
    normalisation = experiment.data.normalize
    normalisation = normalisation.known if normalisation.low else normalisation
    return SavedRanker(experiment.ranker, n_features, theta, normalisation, tuple(names), 0.0, origin)


def experiment_digest(experiment: Experiment) -> str:
    """Return the SHA-256 of a resolved experiment, but for what its clients keep and how it is judged.

    Of a folder of data it counts the last name and not where it lies; what parts have by default does not count, so that a
    further field of a part leaves it as it is.
    """
    tables = experiment.tables(complete=False)
    del tables["federation"]["keep_every"]
    source = experiment.data.source.rstrip("/").rpartition("/")[2]
    shown = {"k": experiment.evaluation.k}
    content = tables | {"data": tables["data"] | {"source": source}, "evaluation": shown}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(b"quorank experiment " + text.encode()).hexdigest()


def with_ranges_entry(book: dict[str, Any], experiment: Experiment, n_features: int) -> dict[str, Any]:
    """Return a run's ledger with the release of learned normalisation constants, if there was one."""
    normalize, clients = experiment.data.normalize, experiment.federation.clients
    if normalize.epsilon is None:
        return book
    part = noise_part(normalize.epsilon, normalize.delta)
    mechanism = range_mechanism(part, clients, n_features, experiment.seed)
    book = {**book, "normalisation": range_release(part, mechanism, clients, n_features)}
    return {**book, "altogether": combined_privacy(book["mechanism"], [book])}
