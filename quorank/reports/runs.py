"""Finished runs read back from their directories, and which of them repeat the same setting."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput

REPETITION_KEYS = ("seed", "data.fold")
"""Runs that differ in nothing else are repetitions of one setting."""

SUMMARY_KEYS = (
    "offline",
    "online",
    "rounds",
    "interactions",
    "seconds",
    "interactions_per_second",
    "seed",
    "version",
)
OFFLINE_NDCG, OFFLINE_MAXRR = "offline_ndcg@10", "offline_maxrr"
ONLINE_NDCG, ONLINE_MAXRR, ONLINE_DISCOUNTED = "online_ndcg@10", "online_maxrr", "online_discounted"
CURVES = (OFFLINE_NDCG, OFFLINE_MAXRR, ONLINE_NDCG, ONLINE_MAXRR, ONLINE_DISCOUNTED, "update_norm")
_ABSENT = object()


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run. Columns of the history are NaN in rounds that were not evaluated."""

    path: Path
    config: Mapping[str, Any]  # run.toml, complete
    summary: Mapping[str, Any]  # summary.json
    history: Mapping[str, Doubles] = field(repr=False)  # column → (rows,)
    spent: Sequence[tuple[int, float]] = field(
        default=(), repr=False
    )  # (rounds done, ε by then), from ledger.json

    def setting(self, dotted: str, default: Any = None) -> Any:
        """A value of run.toml by its dotted key, e.g. "federation.clients"."""
        value: Any = self.config
        for key in dotted.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return default
            value = value[key]
        return value

    def figure(self, section: str, name: str) -> float:
        """A figure of the summary, e.g. ("offline", "ndcg@10"); NaN where the run has none."""
        value = self.summary.get(section, {}).get(name)
        return float(value) if isinstance(value, int | float) else math.nan

    def curve(self, column: str) -> tuple[Doubles, Doubles]:
        """(interactions, values) of one column, only where it was measured."""
        values = self.history[column]
        measured = np.isfinite(values)
        return self.history["interactions"][measured], values[measured]

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def repetition(self) -> tuple[int, str]:
        """What tells repetitions apart: the seed and the fold."""
        return self.seed, str(self.setting("data.fold", ""))


@dataclass(frozen=True, eq=False)
class Group:
    """All repetitions of one setting."""

    label: str
    differs: Mapping[str, Any]  # the keys in which the settings at hand differ, with this one's values
    runs: tuple[Run, ...]

    def figures(self, section: str, name: str) -> Doubles:
        """(runs,) one figure of every run's summary."""
        return np.array([run.figure(section, name) for run in self.runs])


def load_run(path: Path | str) -> Run:
    """The run in this directory; refused when it is none, is unfinished or is damaged."""
    folder = Path(path)
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such directory; expected the directory that `quorank run` wrote")
    has_config, has_summary = (folder / "run.toml").is_file(), (folder / "summary.json").is_file()
    if not has_summary and any(folder.glob("checkpoint*")):
        raise BadInput(f"{folder}: this run is unfinished; continue it with `quorank run --resume {folder}`")
    if not has_summary and has_config:
        raise BadInput(
            f"{folder}: summary.json is missing and there is no checkpoint to resume from; run it again"
        )
    if not has_config:
        missing = "run.toml" if has_summary else "run.toml and summary.json"
        raise BadInput(
            f"{folder}: not a run ({missing} missing); expected the directory that `quorank run` wrote"
        )
    return Run(
        folder,
        _read_config(folder / "run.toml"),
        _read_summary(folder / "summary.json"),
        _read_history(folder),
        spent_of(_read_json(folder / "ledger.json")) if (folder / "ledger.json").is_file() else (),
    )


def spent_of(ledger: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """The ε spent over the rounds, as a ledger has it; nothing where no ε adds up."""
    entries = ledger.get("spent")
    return tuple((int(e["round"]), float(e["epsilon"])) for e in entries) if isinstance(entries, list) else ()


def load_runs(paths: Iterable[Path | str]) -> list[Run]:
    """The runs in these directories, in order and once each; a grid directory stands for all of its runs."""
    found: dict[Path, Run] = {}
    for path in paths:
        for folder in _expand(Path(path)):
            if folder.resolve() not in found:
                found[folder.resolve()] = load_run(folder)
    if not found:
        raise BadInput("no runs were given; expected at least one run or grid directory")
    return list(found.values())


def is_grid(path: Path | str) -> bool:
    """Whether the directory holds a grid of runs instead of one run."""
    return (Path(path) / "grid.json").is_file()


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}: a TOML table by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat.update(
            flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
        )
    return flat


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Runs that differ only in seed and fold, together, in the order in which their settings first appear."""
    members: dict[str, list[Run]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        flat = {key: value for key, value in flatten(run.config).items() if key not in REPETITION_KEYS}
        identity = json.dumps({key: _text(value) for key, value in sorted(flat.items())})
        members.setdefault(identity, []).append(run)
        settings[identity] = flat
    keys = list(dict.fromkeys(key for flat in settings.values() for key in flat))
    varying = [key for key in keys if len({_text(flat.get(key, _ABSENT)) for flat in settings.values()}) > 1]
    differs = {identity: {k: flat[k] for k in varying if k in flat} for identity, flat in settings.items()}
    labels = {
        identity: ", ".join(f"{k}={_text(v)}" for k, v in table.items())
        for identity, table in differs.items()
    }
    if len(members) == 1:
        identity, repetitions = next(iter(members.items()))
        return [Group(_lone_label(repetitions[0]), {}, tuple(repetitions))]
    return [
        # A setting that lacks every differing key is named by what it lacks.
        Group(labels[i] or ", ".join(f"no {key}" for key in varying), differs[i], tuple(repetitions))
        for i, repetitions in members.items()
    ]


def aligned(runs: Sequence[Run], column: str) -> tuple[Doubles, Doubles]:
    """One column of several runs over shared x: (points,) interactions and (runs, points) values.

    Runs without the column are left out. Where runs were not measured at the same interactions (people join
    and leave), values are interpolated at those of the first run that all of them reached.
    """
    curves = [(x, y) for x, y in (run.curve(column) for run in runs) if len(x)]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    first = curves[0][0]
    if all(np.array_equal(x, first) for x, _ in curves):
        return first, np.stack([y for _, y in curves])
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    shared = first[(first >= low) & (first <= high)]
    return shared, np.stack([np.interp(shared, x, y) for x, y in curves])


def _expand(path: Path) -> list[Path]:
    if not is_grid(path):
        return [path]
    file = path / "grid.json"
    grid = _read_json(file)
    names = grid.get("runs")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput(f'{file}: damaged: expected "runs" to be a list of directory names')
    if not names:
        raise BadInput(f"{file}: this grid has no runs yet")
    missing = [name for name in names if not (path / name).is_dir()]
    if missing:
        raise BadInput(f"{file}: {len(missing)} of {len(names)} runs are missing, the first is {missing[0]}")
    return [path / name for name in names]


def _read_config(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{file}: damaged: not readable as TOML ({error})") from None


def _read_summary(file: Path) -> dict[str, Any]:
    summary = _read_json(file)
    missing = [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
        raise BadInput(f"{file}: damaged: {', '.join(missing)} missing")
    for section in ("offline", "online", "seconds"):
        if not isinstance(summary[section], dict):
            raise BadInput(f"{file}: damaged: expected {section} to be an object, got {summary[section]!r}")
    for number in ("rounds", "interactions", "interactions_per_second", "seed"):
        if not isinstance(summary[number], int | float):
            raise BadInput(f"{file}: damaged: expected {number} to be a number, got {summary[number]!r}")
    if not isinstance(summary.get("privacy"), dict | None):
        raise BadInput(
            f"{file}: damaged: expected privacy to be an object or null, got {summary['privacy']!r}"
        )
    return summary


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: damaged: not readable as JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{file}: damaged: expected a JSON object")
    return value


def _read_history(folder: Path) -> dict[str, Doubles]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder / "history.parquet"
    if not file.is_file():
        raise BadInput(f"{folder}: damaged: history.parquet is missing")
    try:
        table = pq.read_table(file)
        columns = {
            name: np.array(
                table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64
            )
            for name in table.column_names
        }
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{file}: damaged: not readable as Parquet ({str(error).splitlines()[0]})") from None
    missing = [name for name in ("round", "interactions") if name not in columns]
    if missing:
        raise BadInput(f"{file}: damaged: column {missing[0]} is missing")
    # A measure that a run doesn't have is a column of NaN, so that readers need not ask first.
    return {name: np.full(table.num_rows, np.nan) for name in CURVES} | columns


def _lone_label(run: Run) -> str:
    learner, source = run.setting("learner", "?"), run.setting("data.source", "?")
    return f"{learner.get('kind', '?') if isinstance(learner, Mapping) else learner} on {source}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # As many digits as tell two values apart, and 1.0 is the same setting as 1.
    return f"{value:.12g}" if isinstance(value, float) else str(value)
