"""Directory of a run: names of its files, creation, cleaning and sealing, and the finished run read back.

Files are written atomically. `manifest.json` holds the digests of all files that are read back; `summary.json` comes last
and marks a finished run. Leftovers of killed processes are removed when a run is started, resumed or changed. `load_run`
refuses what is no run, is unfinished or is damaged; a grid's directory stands for all of its runs. Nothing here loads a
federation or compiles anything, so that commands about finished runs start at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import numpy as np

from quorank.errors import BadInput, require
from quorank.experiments.experiment_file import read_experiment_file, write_toml
from quorank.files.arrow import read_columns
from quorank.files.atomic import read_whole, remove_leftovers, sha256
from quorank.files.codec import Length, Range
from quorank.files.documents import (
    MANIFEST,
    decode_document,
    digest_of,
    parse_toml,
    read_json,
    read_manifest,
    read_toml_text,
    write_manifest,
)
from quorank.kernels.arrays import Doubles

if TYPE_CHECKING:
    from quorank.experiments.experiment import Experiment

CHECKPOINT, CONFIG, SUMMARY, RANKER = "checkpoint.npz", "run.toml", "summary.json", "ranker.json"
HISTORY, LEDGER, REPORT = "history.parquet", "ledger.json", "report.html"
ROUNDS = "rounds.parquet"  # online metrics of every round; `history.parquet` has rows of evaluated rounds only
UNLEARNED = "unlearned.json"
LOCK = "run.lock"  # held by the process that plays the run
CARRIED = "carried.bin"  # updates that clients on a network carry into the next round (`engines.simulated_clients`)
GRID_INDEX, GRID_FILE = "grid.json", "grid.toml"
OUTPUTS = (SUMMARY, MANIFEST, RANKER, HISTORY, ROUNDS, LEDGER, REPORT, CHECKPOINT, CONFIG, UNLEARNED)
REBUILT = ("unlearned/ranker.json", "unlearned/unlearning.json")
SEALED = (CONFIG, RANKER, HISTORY, ROUNDS, LEDGER, SUMMARY, UNLEARNED)  # in the manifest, with kept updates
CLIENTS = "clients"  # directory of the updates that clients keep for unlearning, one file each (`kept_updates`)


def new_folder(stem: str) -> Path:
    """Return runs/STEM, or the first runs/STEM-2, -3 … that is free."""
    base = Path("runs")
    names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1_000_000))
    return next(base / name for name in names if not (base / name).exists())


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


def config_bytes(experiment: Experiment) -> bytes:
    """Encode `run.toml`."""
    return write_toml(experiment.tables()).encode()


def tidy(folder: Path) -> None:
    """Remove leftovers of killed processes."""
    remove_leftovers(folder, folder / CLIENTS, folder / Path(REBUILT[0]).parent)
    (folder / CARRIED).unlink(missing_ok=True)  # the checkpoint holds it too
    if is_finished(folder):
        (folder / CHECKPOINT).unlink(missing_ok=True)  # of a run that was killed behind its last file


def seal(folder: Path, changed: Iterable[str], known: Mapping[str, str]) -> None:
    """Write the manifest of a finished run again, with new digests of the changed files and `known` ones of the others."""
    names = [*(name for name in SEALED if (folder / name).is_file())]
    names += [kept_name(client) for client in clients_with_kept(folder)]
    added = set(changed) & set(names)
    old = {name: known[name] for name in names if name in known and name not in added}
    write_manifest(folder, old | {name: sha256(read_whole(folder / name, 1 << 31)) for name in added})


def clear(folder: Path) -> None:
    """Delete the files of an earlier run or grid, and nothing else."""
    tidy(folder)
    names = (*OUTPUTS, *REBUILT, GRID_INDEX, GRID_FILE)
    kept = (kept_name(client) for client in clients_with_kept(folder))
    for path in [folder / name for name in (*names, *kept)]:
        if path.is_dir() and not path.is_symlink():
            raise BadInput("file.is-a-directory", "this is a directory, and no file of a run; remove it", str(path))
        path.unlink(missing_ok=True)
    for below in (folder / Path(REBUILT[0]).parent, folder / CLIENTS):
        if below.is_dir() and not any(below.iterdir()):
            below.rmdir()


def remove(folder: Path) -> None:
    """Delete a failed run, and its directory if nothing else is in it."""
    clear(folder)
    (folder / LOCK).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def kept_name(client: int) -> str:
    """Return the name of a client's kept updates in the directory of a run."""
    return f"{CLIENTS}/{client}.npz"


def clients_with_kept(folder: Path) -> list[int]:
    """Return the clients that have a file of kept updates in this run, in order."""
    found = (folder / CLIENTS).glob("*.npz") if (folder / CLIENTS).is_dir() else ()
    named = (path.stem for path in found)
    return sorted(int(stem) for stem in named if stem.isascii() and stem.isdecimal() and stem == str(int(stem[:20])))


def read_experiment(folder: Path) -> Experiment:
    """Read the experiment of an existing run."""
    from quorank.experiments.experiment import Experiment

    expected = f"no run to resume here; expected a directory with {CONFIG}"
    require((folder / CONFIG).is_file(), "run.missing", expected, str(folder))
    return Experiment.read(read_experiment_file(folder / CONFIG))


def damaged(path: Path, what: str) -> BadInput:
    """Return the error about a file that is not what Quorank wrote."""
    return BadInput("file.damaged", f"damaged: {what}", str(path))


# ---------------------------------------------------------------- finished runs

Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Amount = Annotated[float, Range(0.0)]
Numbers = dict[str, float | None]


class _Kind(TypedDict, total=False):
    kind: str
    preset: str


_PART = str | _Kind
# keys of `run.toml` that commands about finished runs read, by section; `Experiment.read` checks all of it
_SETTINGS: dict[str, dict[str, Any]] = {
    "": {"seed": Count, "ranker": _PART, "learner": _PART, "users": _PART, "privacy": _PART},
    "data": {"source": str, "fold": Count},
    "federation": {"clients": Positive, "interactions": Positive, "rounds": Positive, "aggregation": _PART},
    "evaluation": {"k": Positive, "every": Positive, "no_relevant": str, "cutoffs": list[Positive]},
}


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


class _Unlearned(TypedDict):
    clients: list[Count]
    after: dict[str, float]
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


ReportPage = Callable[[Run], str]  # HTML page about a run; a module's function, which processes find by its name


def load_run(path: Path | str) -> Run:
    """Read the run in this directory."""
    folder = Path(path)
    expected = "expected the directory that `quorank run` wrote"
    require(folder.is_dir(), "run.missing", f"no such directory; {expected}", str(folder))
    has_config, has_summary = (folder / CONFIG).is_file(), is_finished(folder)
    resumable = not has_summary and any(folder.glob("checkpoint*"))
    go_on = f"this run is unfinished; continue it with `quorank run --resume {folder}`"
    require(not resumable, "run.unfinished", go_on, str(folder))
    missing = "run.toml" if has_summary else "run.toml and summary.json"
    require(has_config, "run.missing", f"not a run ({missing} missing); {expected}", str(folder))
    again = "summary.json is missing and there is no checkpoint to resume from; run it again"
    require(has_summary, "run.unfinished", again, str(folder))
    digests = read_manifest(folder)
    if digests is None:
        raise damaged(folder, f"{MANIFEST} is missing; run it again")

    def digest(name: str) -> str | None:
        return digest_of(digests, folder, name)

    config = _read_config(folder / CONFIG, digest(CONFIG))
    summary = read_json(folder / SUMMARY, RunSummary, digest=digest(SUMMARY))
    history = _read_history(folder / HISTORY, summary["rounds"], digest(HISTORY))
    spent = spent_of(read_json(folder / LEDGER, SpentBudget, digest=digest(LEDGER)))
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


class _GridIndex(TypedDict):
    runs: list[Annotated[str, Length(255)]]


def is_grid(path: Path | str) -> bool:
    """Return whether the directory holds a grid of runs instead of one run."""
    return (Path(path) / GRID_INDEX).is_file()


def _runs_in(path: Path) -> list[Path]:
    if not is_grid(path):
        return [path]
    file = path / GRID_INDEX
    names: list[str] = read_json(file, _GridIndex)["runs"]
    require(names, "grid.without-runs", "this grid has no runs yet", str(file))
    for name in names:
        inside = name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}
        require(inside, "file.damaged", "damaged: expected the names of directories in this one", str(file))
    missing = [name for name in names if not (path / name).is_dir()]
    absent = f"{len(missing)} of {len(names)} runs are missing, the first is {next(iter(missing), None)}"
    require(not missing, "grid.without-runs", absent, str(file))
    return [path / name for name in names]


def _read_config(file: Path, digest: str | None) -> dict[str, Any]:
    tables = parse_toml(read_toml_text(file, digest, "file.damaged"), str(file), "file.damaged")
    for section, hints in _SETTINGS.items():
        table = tables.get(section, {}) if section else tables
        decode_document(dict[str, Any], table, str(file))
        for key in hints.keys() & table.keys():
            decode_document(dict[str, hints[key]], {f"{section}.{key}".strip("."): table[key]}, str(file))  # type: ignore[valid-type]
    return tables


def _read_history(file: Path, rounds: int, digest: str | None) -> dict[str, Doubles]:
    try:
        columns = read_columns(file, ("round", "interactions"), digest=digest)
    except BadInput as error:
        if error.code == "file.missing":
            raise damaged(file.parent, f"{file.name} is missing") from None
        raise
    for name in ("round", "interactions"):
        values = columns[name]
        sound = np.isfinite(values).all() and (values >= 0.0).all() and (np.diff(values) >= 0.0).all()
        require(sound, "file.damaged", f"damaged: column {name} does not count upwards", str(file))
    # A measure that a run doesn't have is a column of NaN, so that readers need not ask first.
    return {name: np.full(len(columns["round"]), np.nan) for name in CURVES} | columns
