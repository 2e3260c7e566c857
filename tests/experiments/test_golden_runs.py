"""Results that must stay as they are: digests of the files of runs that use every part."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from golden_runs import RUNS, SMALL
from part_examples import FAMILIES
from quick_runs import run_quickly

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, set_values
from quorank.rankers.ranker_file import SavedRanker

DIGESTS = json.loads((Path(__file__).parent / "golden_digests.json").read_text(encoding="utf-8"))
"""Run → file → digests; `parameters` holds θ alone, independent of file formats. Some ledgers have two digests, because
accounting libraries round differently on processors with other vector widths."""
FILES = ("ranker.json", "history.parquet", "ledger.json")


def golden(name: str) -> Experiment:
    return Experiment.read(set_values(parse_experiment_file("", "golden"), [*SMALL, *RUNS[name]]))


def content_of(file: Path) -> bytes:
    """The bytes of a file; of Parquet the columns alone, since a file also names the version of its library."""
    content = file.read_bytes()
    if file.suffix != ".parquet":
        return content
    table = pq.read_table(io.BytesIO(content))
    columns = [column.combine_chunks().buffers()[1].to_pybytes() for column in table.columns]
    return repr([(field.name, str(field.type)) for field in table.schema]).encode() + b"".join(columns)


@pytest.mark.parametrize("name", RUNS)
def test_results_are_byte_for_byte_those_of_before(name: str, tmp_path: Path) -> None:
    run_quickly(golden(name), tmp_path / "run", threads=1)
    found = {file: hashlib.sha256(content_of(tmp_path / "run" / file)).hexdigest()[:32] for file in FILES}
    parameters = np.asarray(SavedRanker.load(tmp_path / "run").theta, dtype=np.float64)
    found["parameters"] = hashlib.sha256(parameters.tobytes()).hexdigest()[:32]
    assert all(found[file] in DIGESTS[name][file] for file in found), found


PLACES = {
    "learners": ("learner",),
    "privacies": ("privacy",),
    "partitions": ("partition",),
    "attacks": ("attack",),
    "aggregations": ("federation", "aggregation"),
    "servers": ("federation", "server"),
    "personalisations": ("federation", "personal"),
    "participations": ("federation", "participation"),
    "rankers": ("ranker",),
    "users": ("users",),
}
"""Where a part of each family stands in an experiment file."""


@pytest.mark.parametrize("family", PLACES)
def test_every_part_is_in_a_run(family: str) -> None:
    used = set()
    for name in RUNS:
        table = golden(name).tables()
        for key in PLACES[family]:
            table = table.get(key, {})
        used.add(table.get("kind"))
    assert set(FAMILIES[family].members) <= used
