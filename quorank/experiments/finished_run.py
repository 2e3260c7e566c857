"""A finished run, read back from its directory.

`load_run` refuses what is no run, is unfinished or is damaged; a grid's directory stands for all of its runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np

from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.files.arrow import read_columns
from quorank.files.atomic import read_whole
from quorank.files.codec import Length, Range
from quorank.files.documents import LARGEST_TOML, decode_document, parse_toml, read_json
from quorank.files.manifest import MANIFEST, digest_of, read_manifest
from quorank.kernels.arrays import Doubles

Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Amount = Annotated[float, Range(0.0)]
Numbers = dict[str, float | None]


class _Kind(TypedDict, total=False):
    kind: str
    preset: str


class _DataConfig(TypedDict, total=False):
    source: str
    fold: Count


class _FederationConfig(TypedDict, total=False):
    clients: Positive
    interactions: Positive
    rounds: Positive
    aggregation: str | _Kind


class _EvaluationConfig(TypedDict, total=False):
    k: Positive
    every: Positive
    no_relevant: str
    cutoffs: list[Positive]


class RunConfig(TypedDict, total=False):
    """Keys of `run.toml` that commands about finished runs read; `Experiment.read` checks all of it."""

    seed: Count
    data: _DataConfig
    ranker: str | _Kind
    learner: str | _Kind
    users: str | _Kind
    federation: _FederationConfig
    privacy: str | _Kind
    evaluation: _EvaluationConfig


class _Privacy(TypedDict, total=False):
    epsilon: Amount | None
    delta: Annotated[float | None, Range(0.0, 1.0)]


class _Counts(TypedDict, total=False):
    k: Positive
    test_queries: Count
    counted_queries: Count


class _Estimate(TypedDict):
    value: float
    error: Amount | None


class _Estimates(TypedDict):
    ranker: _Estimate
    shown: _Estimate
    gain: _Estimate


class _Counterfactual(TypedDict):
    estimates: dict[str, dict[str, _Estimates]]
    propensities: list[Annotated[float, Range(0.0, 1.0)]]
    clip: Amount
    clicks: Count
    clipped_clicks: Count
    effective_clicks: Amount
    searches: Count
    users: Count | None


_Offline = TypedDict("_Offline", {"ndcg@10": float, "maxrr": float})


class _Unlearned(TypedDict):
    clients: list[Count]
    as_run: _Offline
    before: _Offline
    after: _Offline
    rounds: Count
    local_steps: Count
    local_updates_share: Amount
    method: str


class RunSummary(TypedDict):
    """Content of `summary.json`."""

    offline: Numbers
    online: Numbers
    rounds: Count
    interactions: Count
    seconds: Numbers
    interactions_per_second: Amount
    seed: Count
    version: Annotated[str, Length(100)]
    privacy: NotRequired[_Privacy | None]
    evaluation: NotRequired[_Counts]
    counterfactual: NotRequired[_Counterfactual]
    unlearned: NotRequired[_Unlearned]


class _SpentPoint(TypedDict):
    round: Count
    epsilon: Amount


class SpentBudget(TypedDict, total=False):
    """Key of `ledger.json` that is read here; `privacy.ledger` checks all of it."""

    spent: list[_SpentPoint] | None


class GridIndex(TypedDict):
    """Names of the runs of a grid."""

    runs: list[Annotated[str, Length(255)]]


OFFLINE_NDCG, OFFLINE_MAXRR = "offline_ndcg@10", "offline_maxrr"
ONLINE_NDCG, ONLINE_MAXRR, ONLINE_DISCOUNTED = "online_ndcg@10", "online_maxrr", "online_discounted"
CURVES = (OFFLINE_NDCG, OFFLINE_MAXRR, ONLINE_NDCG, ONLINE_MAXRR, ONLINE_DISCOUNTED, "update_norm")


@dataclass(frozen=True, eq=False)
class Run:
    """Finished run; columns of its history are NaN in rounds that were not evaluated."""

    path: Path
    config: Mapping[str, Any]  # run.toml, complete
    summary: Mapping[str, Any]  # summary.json
    history: Mapping[str, Doubles] = field(repr=False)  # column → (rows,)
    spent: Sequence[tuple[int, float]] = field(default=(), repr=False)  # (rounds done, ε by then), ledger.json

    def setting(self, dotted: str, default: Any = None) -> Any:
        """Return a value of run.toml by its dotted key, e.g. "federation.clients"."""
        value: Any = self.config
        for key in dotted.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return default
            value = value[key]
        return value

    def figure(self, section: str, name: str) -> float:
        """Return a metric of the summary, e.g. ("offline", "ndcg@10"); NaN where the run has none."""
        value = self.summary.get(section, {}).get(name)
        return float(value) if isinstance(value, int | float) else math.nan

    def curve(self, column: str) -> tuple[Doubles, Doubles]:
        """Return (points,) interactions and (points,) values of one column where it was measured."""
        values = self.history.get(column, np.full(len(self.history["interactions"]), np.nan))
        measured = np.isfinite(values)
        return self.history["interactions"][measured], values[measured]

    @property
    def further(self) -> list[int]:
        """Cut-offs other than 10 at which its offline nDCG was measured, ascending."""
        depths = [key.removeprefix("ndcg@") for key in self.summary["offline"] if key.startswith("ndcg@")]
        return sorted(int(depth) for depth in depths if depth.isdecimal() and depth.isascii() and depth != "10")

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def repetition(self) -> tuple[int, str]:
        """Seed and fold, which differ between repetitions."""
        return self.seed, str(self.setting("data.fold", ""))


ReportPage = Callable[[Run], str]
"""A function from a run to the HTML page about it; at module level, so that processes of a grid find it by its name."""


def load_run(path: Path | str) -> Run:
    """Read the run in this directory."""
    folder = Path(path)
    expected = "expected the directory that `quorank run` wrote"
    require(folder.is_dir(), "run.missing", f"no such directory; {expected}", str(folder))
    has_config, has_summary = (folder / storage.CONFIG).is_file(), storage.is_finished(folder)
    resumable = not has_summary and any(folder.glob("checkpoint*"))
    go_on = f"this run is unfinished; continue it with `quorank run --resume {folder}`"
    require(not resumable, "run.unfinished", go_on, str(folder))
    missing = "run.toml" if has_summary else "run.toml and summary.json"
    require(has_config, "run.missing", f"not a run ({missing} missing); {expected}", str(folder))
    again = "summary.json is missing and there is no checkpoint to resume from; run it again"
    require(has_summary, "run.unfinished", again, str(folder))
    digests = read_manifest(folder)
    if digests is None:
        raise storage.damaged(folder, f"{MANIFEST} is missing; run it again")

    def digest(name: str) -> str | None:
        return digest_of(digests, folder, name)

    config = _read_config(folder / storage.CONFIG, digest(storage.CONFIG))
    summary = read_json(folder / storage.SUMMARY, RunSummary, digest=digest(storage.SUMMARY))
    history = _read_history(folder / storage.HISTORY, summary["rounds"], digest(storage.HISTORY))
    spent = spent_of(read_json(folder / storage.LEDGER, SpentBudget, digest=digest(storage.LEDGER)))
    return Run(folder, config, summary, history, spent)


def spent_of(ledger: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """Return (rounds done, ε spent by then) of a ledger; nothing where no ε adds up."""
    entries = ledger.get("spent")
    return tuple((int(e["round"]), float(e["epsilon"])) for e in entries) if isinstance(entries, list) else ()


def load_runs(paths: Iterable[Path | str]) -> list[Run]:
    """Read the runs in these directories, in order and once each; a grid directory stands for all of its runs."""
    found: dict[Path, Run] = {}
    for path in paths:
        for folder in _runs_in(Path(path)):
            if folder.resolve() not in found:
                found[folder.resolve()] = load_run(folder)
    require(found, "run.missing", "no runs were given; expected at least one run or grid directory")
    return list(found.values())


def is_grid(path: Path | str) -> bool:
    """Return whether the directory holds a grid of runs instead of one run."""
    return (Path(path) / storage.GRID_INDEX).is_file()


def _runs_in(path: Path) -> list[Path]:
    if not is_grid(path):
        return [path]
    file = path / storage.GRID_INDEX
    names: list[str] = read_json(file, GridIndex)["runs"]
    require(names, "grid.without-runs", "this grid has no runs yet", str(file))
    for name in names:
        inside = name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}
        require(inside, "file.damaged", "damaged: expected the names of directories in this one", str(file))
    missing = [name for name in names if not (path / name).is_dir()]
    absent = f"{len(missing)} of {len(names)} runs are missing, the first is {next(iter(missing), None)}"
    require(not missing, "grid.without-runs", absent, str(file))
    return [path / name for name in names]


def _read_config(file: Path, digest: str | None) -> dict[str, Any]:
    content = read_whole(file, LARGEST_TOML, digest)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise storage.damaged(file, "not UTF-8") from None
    tables = parse_toml(text, str(file), "file.damaged")
    return dict(decode_document(RunConfig, tables, str(file)))


def _read_history(file: Path, rounds: int, digest: str | None) -> dict[str, Doubles]:
    try:
        columns = read_columns(file, ("round", "interactions"), digest=digest)
    except BadInput as error:
        if error.code == "file.missing":
            raise storage.damaged(file.parent, f"{file.name} is missing") from None
        raise
    for name in ("round", "interactions"):
        values = columns[name]
        sound = np.isfinite(values).all() and (values >= 0.0).all() and (np.diff(values) >= 0.0).all()
        require(sound, "file.damaged", f"damaged: column {name} does not count upwards", str(file))
    # A measure that a run doesn't have is a column of NaN, so that readers need not ask first.
    return {name: np.full(len(columns["round"]), np.nan) for name in CURVES} | columns
