"""Time to score many documents with a loaded ranker, beside a plain matrix product in the same process.

    python benchmarks/scoring.py                 1,000,000 rows of 136 features, linear, every normalisation
    python benchmarks/scoring.py --hidden 64     a network
    python benchmarks/scoring.py --parquet       write them to a Parquet file first; reading is timed on its own
    python benchmarks/scoring.py --letor         LETOR text

Each time is the least of three. `start` is a new process that imports quorank, loads the ranker and scores three rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from quorank.data import RankingData, write_letor
from quorank.data.feature_tables import read_feature_table
from quorank.data.normalisation import FixedRange, RawFeatures, WithinQuery
from quorank.files.arrow import parquet_bytes
from quorank.rankers import MLP, Linear
from quorank.rankers.ranker_file import SavedRanker

LIST = 100


def least(job, times: int = 3) -> float:
    """Seconds of the fastest of some runs."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        job()
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--features", type=int, default=136)
    options.add_argument("--hidden", type=int, default=0)
    options.add_argument("--parquet", action="store_true")
    options.add_argument("--letor", action="store_true")
    asked = options.parse_args()
    rows, n = asked.rows // LIST * LIST, asked.features
    random = np.random.default_rng(1)
    features = random.random((rows, n), dtype=np.float32)
    ranker = MLP(asked.hidden) if asked.hidden else Linear()
    theta = random.normal(size=ranker.size(n))
    weights = theta[:n].astype(np.float32)
    told: dict[str, object] = {"rows": rows, "features": n, "cores": os.cpu_count(), "ranker": str(ranker)}
    product = least(lambda: features @ weights)
    told["matmul_seconds"], sizes = product, [LIST] * (rows // LIST)
    for normalisation in (RawFeatures(), FixedRange((0.0,) * n, (2.0,) * n), WithinQuery()):
        saved = SavedRanker(ranker, n, theta, normalisation)
        seconds = least(lambda saved=saved: saved.score(features, sizes))
        told[normalisation.kind] = {"seconds": seconds, "times_matmul": seconds / product}
    with tempfile.TemporaryDirectory() as folder:
        names = SavedRanker(ranker, n, theta).feature_names
        if asked.parquet:
            path = Path(folder) / "t.parquet"
            path.write_bytes(parquet_bytes({name: features[:, j] for j, name in enumerate(names)}))
            told["read_parquet_seconds"] = least(lambda: read_feature_table(path, names))
        if asked.letor:
            path = Path(folder) / "t.txt"
            data = RankingData.from_arrays(features, np.zeros(rows, dtype=np.int8), np.arange(0, rows + 1, LIST))
            write_letor(data, path)
            told["read_letor_seconds"] = least(lambda: read_feature_table(path, names))
        path = SavedRanker(ranker, n, theta).save(Path(folder) / "ranker.json")
        code = f"import quorank; quorank.Ranker.load({str(path)!r}).score([[0.5] * {n}] * 3, [3])"
        told["start_seconds"] = least(lambda: subprocess.run([sys.executable, "-c", code], check=True), 5)
        told["python_start_seconds"] = least(lambda: subprocess.run([sys.executable, "-c", ""], check=True), 5)
        timed = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
        )
        lines = [line.split("|") for line in timed.stderr.splitlines() if "|" in line and "self" not in line]
        own = [int(own.split(":")[1]) for own, _, name in lines if name.strip().split(".")[0] in ("quorank", "numpy")]
        told["import_seconds_of_quorank_and_numpy"] = sum(own) / 1e6
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
