"""Studies and their arms: shares by chi-square, independence between studies, files that are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chance import UNLIKELY, assert_follows
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quorank.errors import BadInput
from quorank.tuning.studies.study import ARMS, Study, read_study

IDS = [f"client-{n}" for n in range(20_000)]


@pytest.mark.parametrize(
    ("name", "arms"), [("frecency", ARMS), ("ünïcode", {"a": 0.01, "b": 0.9, "c": 0.04, "d": 0.05})]
)
def test_shares(name: str, arms: dict[str, float]) -> None:
    assert_follows(Study(name, arms).assign_all(IDS), arms)


def test_two_studies_have_nothing_to_do_with_each_other() -> None:
    one, other = Study("one").assign_all(IDS), Study("other").assign_all(IDS)
    table = np.array([[sum(a == x and b == y for a, b in zip(one, other, strict=True)) for y in ARMS] for x in ARMS])
    assert stats.chi2_contingency(table).pvalue > UNLIKELY


@given(st.text(max_size=20))
def test_an_arm_depends_on_name_and_id_alone(client: str) -> None:
    study = Study("s")
    assert study.assign(client) == Study("s", effect=3.0).assign(client) == study.assign_all(["x", client])[1]
    assert study.assign(client) in ARMS


def test_assignments_never_change() -> None:
    """Part of the format: a release that moved clients between arms would spoil every study under way."""
    assert Study("frecency").assign_all(["a", "b", "c", "d", "e", "f", "g", "h"]) == [
        "control",
        "treatment",
        "treatment",
        "treatment",
        "treatment",
        "control-no-decay",
        "control-no-decay",
        "treatment",
    ]


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('name = "mine"\neffect = 1\npower = 0.8\n[arms]\nnew = 0.5\nold = 0.5\n')
    assert read_study(file) == Study("mine", {"new": 0.5, "old": 0.5}, effect=1.0, power=0.8)
    file.write_text('name = "mine"\nmetrics = ["rank"]\nmetric = "rank"\n')
    assert read_study(file) == Study("mine", metrics=("rank",), metric="rank")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no name"),
        ("name = 3", "name"),
        ('name = "x"\narms = 3', "arms: expected a table"),
        ('name = "x"\n[arms]\na = 0.9', "two arms"),
        ('name = "x"\n[arms]\na = 0.5\nb = 0.6', "add up to 1"),
        ('name = "x"\n[arms]\na = -0.5\nb = 1.5', r"arms\.a: must be above 0"),
        ('name = "x"\nmetrics = ["ranks"]', "did you mean 'rank'"),
        ('name = "x"\nmetrics = ["rank", "rank"]\nmetric = "rank"', "named twice"),
        ('name = "x"\nmetrics = []', "metrics: expected 1 to 2 items"),
        ('name = "x"\npower = 1.0', "power"),
        ("name = ", "not a TOML file"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=words) as refused:
        read_study(file)
    assert str(file) in str(refused.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_study(tmp_path / "missing.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        read_study(tmp_path)


def test_an_identity_decides_the_arm_for_ever() -> None:
    study = Study("frecency")
    keys = [bytes([n % 256, n // 256]) + bytes(30) for n in range(5000)]
    arms = [study.arm_of(key) for key in keys]
    assert_follows(arms, ARMS)
    assert arms == [study.assign(key.hex()) for key in keys]
    with pytest.raises(BadInput, match="32 bytes"):
        study.arm_of(b"short")
