"""A finished run, read back from its directory.

`load_run` refuses what is no run, is unfinished or is damaged; a grid's directory stands for all of its runs.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.experiments import run_directory as storage

SUMMARY_KEYS = ("offline", "online", "rounds", "interactions", "seconds", "interactions_per_second", "seed", "version")
OFFLINE_NDCG, OFFLINE_MAXRR = "offline_ndcg@10", "offline_maxrr"
ONLINE_NDCG, ONLINE_MAXRR, ONLINE_DISCOUNTED = "online_ndcg@10", "online_maxrr", "online_discounted"
CURVES = (OFFLINE_NDCG, OFFLINE_MAXRR, ONLINE_NDCG, ONLINE_MAXRR, ONLINE_DISCOUNTED, "update_norm")


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run; columns of its history are NaN in rounds that were not evaluated."""

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
        """Return a figure of the summary, e.g. ("offline", "ndcg@10"); NaN where the run has none."""
        value = self.summary.get(section, {}).get(name)
        return float(value) if isinstance(value, int | float) else math.nan

    def curve(self, column: str) -> tuple[Doubles, Doubles]:
        """Return (points,) interactions and (points,) values of one column where it was measured."""
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
    ledger = folder / storage.LEDGER
    return Run(
        folder,
        _read_config(folder / storage.CONFIG),
        _read_summary(folder / storage.SUMMARY),
        _read_history(folder / storage.HISTORY),
        spent_of(storage.read_json(ledger)) if ledger.is_file() else (),
    )


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
    names = storage.read_json(file).get("runs")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise storage.damaged(file, 'expected "runs" to be a list of directory names')
    require(names, "grid.without-runs", "this grid has no runs yet", str(file))
    missing = [name for name in names if not (path / name).is_dir()]
    absent = f"{len(missing)} of {len(names)} runs are missing, the first is {next(iter(missing), None)}"
    require(not missing, "grid.without-runs", absent, str(file))
    return [path / name for name in names]


def _read_config(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise storage.damaged(file, f"not readable as TOML ({error})") from None


def _read_summary(file: Path) -> dict[str, Any]:
    summary = storage.read_json(file)
    missing = [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
        raise storage.damaged(file, f"{', '.join(missing)} missing")
    for keys, kinds, words in (
        (("offline", "online", "seconds"), dict, "an object"),
        (("rounds", "interactions", "interactions_per_second", "seed"), int | float, "a number"),
        (("privacy",), dict | None, "an object or null"),
    ):
        for key in keys:
            if not isinstance(summary.get(key), kinds):
                raise storage.damaged(file, f"expected {key} to be {words}, got {summary[key]!r}")
    return summary


def _read_history(file: Path) -> dict[str, Doubles]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.is_file():
        raise storage.damaged(file.parent, f"{file.name} is missing")
    try:
        table = pq.read_table(file)
        columns = {
            name: np.array(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
            for name in table.column_names
        }
    except (OSError, pa.ArrowException) as cause:
        raise storage.damaged(file, f"not readable as Parquet ({str(cause).splitlines()[0]})") from None
    missing = [name for name in ("round", "interactions") if name not in columns]
    if missing:
        raise storage.damaged(file, f"column {missing[0]} is missing")
    # A measure that a run doesn't have is a column of NaN, so that readers need not ask first.
    return {name: np.full(table.num_rows, np.nan) for name in CURVES} | columns
