"""Experiment files: what is written reads back, and every key knows its line."""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file, set_values, write_toml

BARE = st.text("abcdefghijklmnopqrstuvwxyzABCDEFXYZ0123456789_-", min_size=1, max_size=8)
DOTTED = st.builds(".".join, st.lists(BARE, min_size=1, max_size=3))
# what stands in a file of somebody: all of Unicode's printable characters, quotes, backslashes, tabs, newlines
TEXTS = st.one_of(
    st.text(max_size=20).filter(lambda text: all(c.isprintable() or ord(c) < 0x10000 for c in text)),
    st.sampled_from(['"', "\\", "\n", "\t", "\r\n", "'''", '"""', "é", "𝒳", "日本", "a\\u0041", "\x7f", "\x00"]),
).filter(lambda text: not any(0xD800 <= ord(c) <= 0xDFFF for c in text))
SCALARS = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(DOTTED, inner, max_size=3)),
    max_leaves=6,
)
TABLES = st.dictionaries(BARE, st.one_of(VALUES, st.dictionaries(DOTTED, VALUES, max_size=4)), max_size=5)


def alike(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and true are three values in TOML."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def by_kind(tables: dict[str, Any]) -> dict[str, Any]:
    """Plain keys first: that is the order in which TOML has to have them."""
    return dict(sorted(tables.items(), key=lambda item: isinstance(item[1], dict)))


@given(TABLES)
@settings(max_examples=100)
@example({"a": 1e16, "b": 1e-7, "c": -0.0, "d": float("inf"), "e": 5e-324, "f": 2**63 - 1})
@example({"s": {"server": {"kind": "add", "step": 1.0}, "users.preset": [{"kind": "a b"}, "x", [True]]}})
@example({"s": {}, "t": {"u": {}, "v": []}})
def test_what_is_written_reads_back(tables: dict[str, Any]) -> None:
    assert alike(tomllib.loads(write_toml(tables)), by_kind(tables))


FILE = """\
# seed = 99 is a comment
seed = 7          # and so is [federation] here

[data]
source = "synthetic:mq2007" # not = a key
  fold = 1

 [ users ]  # users
"preset" = "perfect"
'grades' = 3

[federation]
# clients = 5
clients = 5
server.step = 2.0
participation = { kind = "sampled", cohort = 3 }

[federation.aggregation]
kind = "mean"

[grid]
"users.preset" = [
  "perfect",
]
learner.eta = [0.1]
"""


def test_every_key_knows_its_line_and_nothing_else_has_one() -> None:
    lines = {
        "seed": 2, "data": 4, "data.source": 5, "data.fold": 6, "users": 8, "users.preset": 9, "users.grades": 10,
        "federation": 12, "federation.clients": 14, "federation.server.step": 15, "federation.participation": 16,
        "federation.aggregation": 18, "federation.aggregation.kind": 19,
        "grid": 21, "grid.users.preset": 22, "grid.learner.eta": 25,
    }  # fmt: skip
    document = parse_experiment_file(FILE, "my.toml")
    assert document.places == {key: f"my.toml line {line}" for key, line in lines.items()}
    assert all(document.place_of(key) == place for key, place in document.places.items())


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("federation.clients", "my.toml line 14"),  # the key itself
        ("federation.server", "my.toml line 15"),  # else a key below it
        ("federation.participation.cohort", "my.toml line 16"),  # else what it is inside of
        ("federation.cohort", "my.toml line 12"),
        ("learner.eta", "my.toml"),  # not in the file
        ("", "my.toml"),
    ],
)
def test_an_error_is_located_as_exactly_as_it_can_be(where: str, place: str) -> None:
    error = parse_experiment_file(FILE, "my.toml").located(BadInput("value.out-of-range", "no good", where))
    assert (error.code, error.sentence) == ("value.out-of-range", "no good")
    assert str(error) == (f"{place}: {where}: no good" if where else f"{place}: no good")


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("# \u2028\nseed = 1\n", "seed", 2),
        ('["users"]\npreset = "x"\n', "users.preset", 2),
        ('users . preset = "x"\n', "users.preset", 1),
        ('"users"."preset" = "x"\n', "users.preset", 1),
        ('a = """\nseed = 4\n"""\nseed = 1\n', "seed", 4),
    ],
)
def test_odd_spellings_of_keys_have_their_line(text: str, key: str, line: int) -> None:
    assert parse_experiment_file(text, "f").places.get(key) == f"f line {line}"


@given(st.lists(st.sampled_from(["", "# x = 1", "  ", "\t# [a]"]), max_size=6), st.integers(0, 3))
def test_blank_lines_and_comments_move_lines_as_an_editor_counts_them(lines: list[str], spaces: int) -> None:
    text = "\n".join([*lines, " " * spaces + "[learner]", *lines, "eta = 1"])
    places = parse_experiment_file(text, "f").places
    assert places["learner"] == f"f line {len(lines) + 1}"
    assert places["learner.eta"] == f"f line {2 * len(lines) + 2}"


def test_set_values_reads_toml_and_takes_the_rest_as_text() -> None:
    document = parse_experiment_file('[federation]\nserver = "momentum"\nclients = 3\n', "f")
    changed = set_values(
        document,
        [
            "federation.clients=5",
            "federation.server.step=2.5",
            "users.preset=perfect",
            "data.source=a/b c=d.txt",
            "x.list=[1, 2]",
            'x.table={ kind = "k" }',
            "x.true=true",
            "x.quoted='7'",
            " spaced = 1 ",
        ],
    )
    assert changed.tables == {
        "federation": {"server": {"kind": "momentum", "step": 2.5}, "clients": 5},
        "users": {"preset": "perfect"},
        "data": {"source": "a/b c=d.txt"},
        "x": {"list": [1, 2], "table": {"kind": "k"}, "true": True, "quoted": "7"},
        "spaced": 1,
    }
    assert document.tables == {"federation": {"server": "momentum", "clients": 3}}  # the original stays
    assert changed.places["federation.clients"] == "--set federation.clients=5"
    assert changed.places["federation"] == "f line 1"


@pytest.mark.parametrize("assignment", ["clients", "=5", "", "a..b=1", ".a=1", "a.=1", "a b=1", "é=1", 'a"b=1'])
def test_an_assignment_without_key_and_value_is_refused(assignment: str) -> None:
    with pytest.raises(BadInput, match="expected KEY=VALUE"):
        set_values(parse_experiment_file("", "f"), [assignment])


@pytest.mark.parametrize(("text", "line"), [("a = \n", 1), ("\n\n[b\n", 3), ("a = 1\na = 2\n", 2)])
def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        read_experiment_file(file)
    assert str(refused.value).startswith(f"{file}: ") and f"line {line}" in str(refused.value)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert read_experiment_file(tmp_path / "marked.toml").tables == {"seed": 3}
    (tmp_path / "latin.toml").write_bytes("# caf\xe9".encode("latin-1"))
    os.mkfifo(tmp_path / "pipe")
    for name in ("latin.toml", "nowhere.toml", ".", "pipe"):
        with pytest.raises(BadInput) as refused:
            read_experiment_file(tmp_path / name)
        assert str(refused.value).startswith(str(tmp_path / name))
