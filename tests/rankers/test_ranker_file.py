"""The ranker file: every key is kept, equal content is equal bytes, and whatever was changed is noticed."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from small_runs import experiment

from quorank.data.normalisation import FixedRange, RawFeatures, WithinQuery
from quorank.errors import BadInput
from quorank.experiments.progress import experiment_digest
from quorank.rankers import MLP, Linear
from quorank.rankers.ranker_file import (
    Origin,
    SavedRanker,
    complete_names,
    parse_ranker,
    ranker_bytes,
    ranker_digest,
    read_ranker,
    stated_privacy,
)

THETA = np.array([0.1, -2.5e-17, 3.0])
PRIVATE = {"epsilon": 1.5, "delta": 1e-5, "unit": "client", "horizon": "7 rounds"}
ORIGIN = Origin("run", "ab" * 32, 2**64 - 1, 7, PRIVATE)
FULL = SavedRanker(
    Linear(), 3, THETA, FixedRange((0.0, -1.0, 5.0), (1e6, 1.0, 5.0)), ("BM25", "länge", "f3"), -1.0, ORIGIN
)


@pytest.mark.parametrize(
    "saved",
    [
        FULL,
        SavedRanker(Linear(), 3, THETA),
        SavedRanker(Linear(), 3, THETA, RawFeatures()),
        SavedRanker(MLP(2, activation="sigmoid"), 3, np.arange(10.0), WithinQuery()),
    ],
)
def test_a_file_is_read_back_as_it_was(saved: SavedRanker, tmp_path: Path) -> None:
    (tmp_path / "ranker.json").write_bytes(ranker_bytes(saved))
    found = read_ranker(tmp_path)
    assert found.theta.tobytes() == saved.theta.tobytes()
    names = ("ranker", "n_features", "normalisation", "feature_names", "missing", "origin", "digest")
    assert [getattr(found, name) for name in names] == [getattr(saved, name) for name in names]
    assert ranker_bytes(found) == ranker_bytes(saved)


def test_the_digest_is_of_the_canonical_content() -> None:
    content = json.loads(ranker_bytes(FULL))
    digest = content.pop("digest")
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert hashlib.sha256(canonical).hexdigest() == digest == FULL.digest


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": [0.1, 0.0, 3.0]},
        {"feature_names": ["BM25", "f3", "länge"]},
        {"missing": 0.0},
        {"normalisation": {"kind": "none"}},
        {"normalisation": {"kind": "fixed", "low": [0.0, -1.0, 5.0], "high": [1e6, 1.5, 5.0]}},
        {"origin": asdict(ORIGIN) | {"privacy": PRIVATE | {"epsilon": 0.1}}},
    ],
)
def test_what_was_changed_is_noticed_by_its_digest(change) -> None:
    changed = json.loads(ranker_bytes(FULL)) | change
    with refused("ranker-file.damaged", "tampered"):
        parse_ranker(json.dumps(changed).encode(), "tampered")
    changed["digest"] = ranker_digest(changed)
    parse_ranker(json.dumps(changed).encode(), "of somebody who knows how")


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": [0.0] * 5, "feature_names": [*"abcde"]},
        {"feature_names": ["a", "b"]},
        {"feature_names": ["a", "b", "a"]},
        {"feature_names": ["a", "", "c"]},
        {"normalisation": {"kind": "fixed"}},
        {"normalisation": {"kind": "fixed", "low": [0.0], "high": [1.0]}},
        {"normalisation": {"kind": "fixed", "low": [0.0, 0.0, 2.0], "high": [1.0, 1.0, 1.0]}},
        {"normalisation": {"kind": "query", "low": [0.0] * 3, "high": [1.0] * 3}},
        {"more": 1},
    ],
)
def test_what_does_not_fit_together_is_refused_also_with_a_right_digest(change) -> None:
    changed = json.loads(ranker_bytes(FULL)) | change
    changed["digest"] = ranker_digest(changed)
    with refused("ranker-file.damaged"):
        parse_ranker(json.dumps(changed).encode(), "bad.json")
    with refused("ranker-file.unreadable"):
        parse_ranker(ranker_bytes(FULL).replace(b"0.1", b"NaN"), "bad.json")


def test_names_are_complete_and_no_two_alike() -> None:
    assert complete_names((), 2) == ("f1", "f2")
    assert complete_names((" a\tb ", "f1", ""), 3) == ("a b", "f1", "f3")
    assert complete_names(("a", "a", "a (2)"), 3) == ("f1", "f2", "f3")  # else two would be alike
    assert complete_names(("x" * 200, "x" * 200), 2) == tuple(f"{'x' * 188} ({i})" for i in (1, 2))


def test_epsilon_is_rounded_up_so_that_processors_agree() -> None:
    told = {"epsilon": 7.99999912, "delta": 1e-5, "unit": "client", "horizon": "all", "kind": "gaussian"}
    assert stated_privacy(told) == {"epsilon": 8.0, "delta": 1e-5, "unit": "client", "horizon": "all"}
    assert stated_privacy(told | {"epsilon": 1.2345611}) == stated_privacy(told | {"epsilon": 1.2345612})
    assert stated_privacy(None) is None


def test_a_digest_of_an_experiment_does_not_say_where_its_data_lie() -> None:
    here, there, other = (experiment(f'data.source="{name}"') for name in ("/a/mq", "b/mq/", "/a/mr"))
    assert experiment_digest(here) == experiment_digest(there) != experiment_digest(other)


def test_fixed_constants_are_an_affine_map_in_double() -> None:
    x = np.array([[0.0, 2.0, 9.0], [2.5e6, -1.0, 5.0]], dtype=np.float32)
    expected = np.array([[0.0, (2.0 + 1.0) / 2.0, 0.0], [2.5, 0.0, 0.0]], dtype=np.float32)
    assert FULL.normalisation.scaled(x).tolist() == expected.tolist()
    with refused("normalisation.overflow"):
        FixedRange((0.0,), (1e-300,)).scaled(np.ones((1, 1), dtype=np.float32))


@pytest.mark.parametrize("key", ["ranker", "normalisation"])
def test_a_file_from_elsewhere_imports_no_module(key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("open('imported', 'w')")
    content = json.loads(ranker_bytes(FULL))
    content[key] = {"kind": "planted:Ranker"}
    content["digest"] = ranker_digest(content)
    with pytest.raises(BadInput, match="is code of a module, which is not run from here"):
        parse_ranker(json.dumps(content).encode(), "ranker.json")
    assert not (tmp_path / "imported").exists()


def test_a_ranker_of_a_module_is_read_once_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    lines = "from dataclasses import dataclass\nfrom quorank.rankers import Linear\n@dataclass(frozen=True)\n"
    (tmp_path / "written_here.py").write_text(f"{lines}class Other(Linear):\n    kind = 'other'\n")
    written = import_module("written_here")
    raw = ranker_bytes(replace(FULL, ranker=written.Other()))
    assert b"written_here:Other" in raw and parse_ranker(raw, "ranker.json").ranker == written.Other()
    monkeypatch.delitem(sys.modules, "written_here")
    with refused("ranker-file.damaged"):
        parse_ranker(raw, "ranker.json")
