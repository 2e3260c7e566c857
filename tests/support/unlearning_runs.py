"""Small runs whose clients keep updates, for the tests of unlearning."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import run_experiment
from quorank.reports.report import report_page

FILE = """\
[data]
source = "synthetic:mq2007"
queries = 60
[federation]
clients = 6
interactions = 5
rounds = 40
keep_every = 10
"""


def experiment(extra: str = "", **changes: object) -> Experiment:
    text = FILE.replace("keep_every = 10\n", "") if "keep_every" in extra else FILE
    for key, value in changes.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
        text = "\n".join([*lines, f"{key} = {value}", ""])
    return Experiment.read(parse_experiment_file(text + extra, "small.toml"))


@cache
def _once(chosen: Experiment, page: bool) -> Path:
    """A run that tests take copies of."""
    folder = Path(tempfile.mkdtemp(prefix="quorank-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run_experiment(chosen, folder / "run", threads=1, report=report_page if page else None)
    return folder / "run"


def made(name: str = "made", extra: str = "", page: bool = False, **changes: object) -> Path:
    shutil.copytree(_once(experiment(extra, **changes), page), name)
    return Path(name)


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "clients").iterdir()}
