"""Run directories as `quorank run` writes them, made up in a moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorank.experiments import run_directory as finished_run
from quorank.files.atomic import sha256
from quorank.files.documents import write_manifest

MakeRun = Callable[..., Path]

CONFIG = """\
seed = {seed}

[data]
source = "{source}"
fold = {fold}
normalize = "query"

[ranker]
kind = "linear"

[users]
kind = "cascade"
preset = "{preset}"

[learner]
kind = "pdgd"
eta = 0.1

[federation]
clients = 1000
interactions = 4
rounds = {rounds}
aggregation = "mean"
server = {{ kind = "add", step = {step} }}

[privacy]
kind = "none"

[evaluation]
every = 10
no_relevant = "{no_relevant}"
"""


def write_run(
    path: Path,
    *,
    seed: int = 1,
    fold: int = 1,
    preset: str = "perfect",
    step: float = 1.0,
    source: str = "synthetic:mq2007",
    rounds: int = 60,
    level: float = 0.45,
    no_relevant: str = "skip",
    privacy: dict[str, Any] | None = None,
    every: int = 10,
) -> Path:
    """A finished run whose curves rise to about `level`."""
    random = np.random.default_rng([seed, fold, int(1000 * level)])
    path.mkdir(parents=True)
    names = {"seed": seed, "fold": fold, "preset": preset, "step": step, "source": source, "rounds": rounds}
    (path / "run.toml").write_text(CONFIG.format(**names, no_relevant=no_relevant), encoding="utf-8")
    rise = 1 - 0.5 * np.exp(-np.arange(1, rounds + 1) / (rounds / 8))
    run_level = level + random.normal(0, 0.003)
    online = run_level * 0.97 * rise + random.normal(0, 0.006, rounds)
    offline = run_level * rise + random.normal(0, 0.001, rounds)
    offline[np.arange(1, rounds + 1) % every != 0] = np.nan
    discounted = np.cumsum(0.9995 ** np.arange(rounds) * online)
    columns = {
        "round": np.arange(1, rounds + 1),
        "interactions": np.arange(1, rounds + 1) * 4000,
        "offline_ndcg@10": offline,
        "offline_maxrr": offline * 1.4,
        "online_ndcg@10": online,
        "online_maxrr": online * 1.3,
        "online_discounted": discounted,
        "update_norm": np.linspace(1, 0.1, rounds),
    }
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    pq.write_table(table, path / "history.parquet")
    last = offline[np.isfinite(offline)][-1]
    summary = {
        "offline": {"ndcg@10": float(last), "maxrr": float(last * 1.4)},
        "online": {"ndcg@10": float(online.mean()), "discounted": float(discounted[-1])},
        "rounds": rounds,
        "interactions": rounds * 4000,
        "seconds": {"train": 12.3456, "evaluate": 1.5},
        "interactions_per_second": 312345.678,
        "privacy": privacy,
        "seed": seed,
        "version": "0.1.0",
    }
    (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (path / "ledger.json").write_text("{}", encoding="utf-8")
    reseal(path)
    return path


def reseal(path: Path) -> None:
    """Write a manifest of the files as they are."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "manifest.json")
    write_manifest(path, {file.relative_to(path).as_posix(): sha256(file.read_bytes()) for file in files})


def load_run(path: Path) -> finished_run.Run:
    """Load a run that a test has changed."""
    if (path / "summary.json").is_file():
        reseal(path)
    return finished_run.load_run(path)


def load_runs(paths: Iterable[Path]) -> list[finished_run.Run]:
    """Load runs and grids that a test has changed."""
    paths = [*paths]
    for path in paths:
        for summary in path.glob("**/summary.json"):
            reseal(summary.parent)
    return finished_run.load_runs(paths)


def write_grid(path: Path, presets: tuple[str, ...] = ("perfect", "navigational"), seeds: int = 3) -> Path:
    """A grid of presets × seeds, each preset a little worse than the one before."""
    names = []
    for number, preset in enumerate(presets):
        for seed in range(1, seeds + 1):
            names.append(f"{preset}-{seed}")
            write_run(path / names[-1], seed=seed, preset=preset, level=0.45 - 0.03 * number)
    axes = {"users.preset": list(presets), "seed": list(range(1, seeds + 1))}
    (path / "grid.json").write_text(json.dumps({"axes": axes, "runs": names}), encoding="utf-8")
    return path


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return lambda name="run", **options: write_run(tmp_path / name, **options)


@pytest.fixture
def make_grid(tmp_path: Path) -> MakeRun:
    return lambda name="grid", **options: write_grid(tmp_path / name, **options)
