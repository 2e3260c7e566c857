"""A small federation on a real network: its data with names that would be recognised anywhere, and who is still running."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, set_values

ROUNDS = 3
FIRST_QUERY = 987_650_001
DOCUMENT = "GX-SECRET"
TOKEN = "QUORANK_TEST_TOKEN"


def write_collection(folder: Path) -> Path:
    """LETOR files whose queries and documents have names of their own."""
    folder.mkdir()
    random = np.random.default_rng(7)
    for split, queries in (("train", 30), ("vali", 5), ("test", 15)):
        lines = []
        for query in range(queries):
            for document in range(12):
                x = random.random(9).round(6)
                label = int(np.clip(2.2 * x[0] + x[1] - 1.0 + 0.3 * random.normal(), 0, 2))
                features = " ".join(f"{at}:{value:.6f}" for at, value in enumerate(x, 1))
                name = f"{DOCUMENT}-{split}-{query}-{document}"
                lines.append(f"{label} qid:{FIRST_QUERY + query} {features} #docid = {name}")
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return folder


def file_of(collection: Path) -> str:
    return f"""\
[data]
source = "{collection}"

[users]
preset = "informational"

[federation]
clients = 10
interactions = 3
rounds = {ROUNDS}
keep_every = 2
"""


def experiment_of(collection: Path, *assignments: str) -> Experiment:
    return Experiment.read(set_values(parse_experiment_file(file_of(collection), "flower.toml"), assignments))


def running(token: str) -> list[str]:
    """The processes that inherited this token from a test and have not ended."""
    return list(running_with_ids(token).values())


def running_with_ids(token: str) -> dict[int, str]:
    """The same by their ids."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if token.encode() in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found
