"""Experiment files with every wrong kind of value at every key: one sentence with the key, never anything else."""

from __future__ import annotations

import dataclasses
import datetime
import math
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from quorank.errors import BadInput
from quorank.experiments import experiment as sections
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import (
    ExperimentFile,
    parse_experiment_file,
    read_experiment_file,
    set_key,
    set_values,
)
from quorank.experiments.grid import Grid

FAMILIES = {
    "ranker": sections.RANKERS,
    "users": sections.CLICK_MODELS,
    "learner": sections.LEARNERS,
    "privacy": sections.PRIVACIES,
    "partition": sections.PARTITIONS,
    "attack": sections.ATTACKS,
    "federation.aggregation": sections.AGGREGATIONS,
    "federation.participation": sections.PARTICIPATIONS,
    "federation.personal": sections.PERSONALISATIONS,
    "federation.server": sections.SERVERS,
}
VALUES: list[Any] = [
    *(-1, 0, 10**18, -(10**18), 10**400, 1e300, -1e300, 1e-300, 5e-324, math.nan, math.inf, -math.inf, 2.5, True),
    *("word", "", "x" * 4000, datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.time(1, 2)),
    *([], [1], ["a"], [[[]]], [{}], {}, {"kind": "x"}, {"kind": 3}, {"kind": []}, {"a": {"b": 1}}),
]


def keys() -> list[tuple[str, dict[str, str]]]:
    """Every key of the schema, with what must be chosen for it to be one."""
    found = [(name, {}) for name in ("seed", *sections.SECTIONS)]
    found += [(f"data.{each.name}", {}) for each in dataclasses.fields(sections.DataSource)]
    found += [(f"evaluation.{each.name}", {}) for each in dataclasses.fields(sections.EvaluationPlan)]
    found += [(f"federation.{name}", {}) for name in sections.FEDERATION_KEYS]
    for place, family in FAMILIES.items():
        found.append((f"{place}.kind", {}))
        for kind in family.kinds:
            member = family.member(kind)
            assert member is not None
            found += [(f"{place}.{each.name}", {f"{place}.kind": kind}) for each in dataclasses.fields(member)]
    return found


@pytest.mark.parametrize("section", ["seed", *sections.SECTIONS])
def test_every_key_takes_what_it_is_for_and_refuses_the_rest(section: str) -> None:
    tried = 0
    for key, chosen in keys():
        if key.split(".")[0] != section:
            continue
        for value in VALUES:
            if key == "privacy.epsilon" and value in (1e-300, 5e-324):
                continue  # seconds of root finding, and refused or not as any small number
            tables: dict[str, Any] = {}
            for name, kind in (*chosen.items(), (key, value)):
                set_key(tables, name, kind)
            tried += 1
            try:
                Experiment.read(ExperimentFile(tables, "file.toml")).tables()
            except BadInput as error:
                text = str(error)
                assert text.startswith("file.toml: ") and text.splitlines() == [text] and len(text) < 700, text[:300]
                assert error.where.removeprefix("file.toml: ").split(".")[0] in ("seed", *sections.SECTIONS), text
            except Exception as error:
                pytest.fail(f"{key} = {value!r} with {chosen}: {type(error).__name__}: {error}")
    assert tried > 0


HOSTILE = {
    "digits": ("seed = " + "9" * 5000, "toml.too-many-digits"),
    "hexadecimal digits": ("seed = 0x" + "f" * 50_000, "value.out-of-range"),
    "lists": ("a = " + "[" * 50_000, "toml.too-deep"),
    "closed lists": ("a = " + "[" * 300 + "]" * 300, "toml.too-deep"),
    "tables": ("a = " + "{ a = " * 5000, "toml.too-deep"),
    "dots": ("a." * 50_000 + "a = 1", "toml.too-deep"),
    "header": ("[" + "a." * 50_000 + "a]", "toml.too-deep"),
    "size": ("# " + "x" * 10_000_000, "file.too-large"),
    "text": ('[data]\nsource = "' + "x" * 100_000 + '"', "value.out-of-range"),
    "epsilon": ('[privacy]\nkind = "gaussian"\nepsilon = 1e300', "value.out-of-range"),
    "clients": ("[federation]\nclients = 1000000000000", "value.out-of-range"),
    "rounds": ("[federation]\nrounds = 1000000000000000000", "value.out-of-range"),
    "word": ("[partition]\n[partition.kind]\na = 1", "part.unknown-kind"),
    "word of a part": ('[partition]\nkind = "clicks"\npreset = { a = 1 }', "value.not-a-choice"),
    "grid": ("[grid]\n" + "\n".join(f"a{n} = [1, 2, 3, 4, 5, 6, 7, 8, 9]" for n in range(20)), "value.out-of-range"),
    "binary": ("\0\1\2", "experiment-file.not-toml"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, what: str) -> None:
    text, code = HOSTILE[what]
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    with refused(code):
        file = read_experiment_file(path)
        if Grid.read(file) is None:
            Experiment.read(file)


@pytest.mark.parametrize(
    ("assignment", "code"),
    [
        ("seed=" + "9" * 5000, "toml.too-many-digits"),
        ("seed=" + "[" * 5000, "toml.too-deep"),
        ("privacy.epsilon=1e300", "value.out-of-range"),
        ("partition={ kind = { a = 1 } }", "part.unknown-kind"),
        (".".join("a" * 40) + "=1", "option.malformed"),
        ("data.source=" + "x" * 100_000, "value.out-of-range"),
        ("federation.clients=nan", "value.wrong-type"),
        ("federation.clients=2020-01-01", "value.wrong-type"),
        ("federation.clients=1\nrounds = 3", "value.wrong-type"),
    ],
)
def test_hostile_assignments_are_refused(assignment: str, code: str) -> None:
    with refused(code):
        Experiment.read(set_values(parse_experiment_file("[privacy]\nkind = 'gaussian'", "f"), [assignment]))
