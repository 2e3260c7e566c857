"""quorank export: a ranker into another system's format, and the check of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import Quorank
from exported_rankers import saved_ranker

from quorank.files.atomic import sha256
from quorank.files.documents import read_manifest, write_manifest


@pytest.fixture(autouse=True)
def ranker(own_folder: Path) -> Path:
    """A linear ranker with fixed constants, and two lists of LETOR lines for it."""
    lines = [
        f"{label} qid:{query} " + " ".join(f"{number}:{value:g}" for number, value in enumerate(row, 1))
        for query in ("first", "second")
        for label, row in enumerate(np.random.default_rng(len(query)).normal(size=(5, 6)) * 10)
    ]
    (own_folder / "lists.txt").write_text("\n".join([*lines, ""]))
    return saved_ranker("linear", "fixed").save(own_folder / "ranker.json")


def test_export_and_check(quorank: Quorank, own_folder: Path) -> None:
    told = json.loads(quorank("export", "ranker.json", "--to", "onnx", "--out", "out", "--json").out)
    assert (told["format"], told["ranker"], told["features"], told["normalize"]) == ("onnx", "linear", 6, "fixed")
    assert {Path(file).name for file in told["files"]} == {path.name for path in (own_folder / "out").iterdir()}
    outcome = quorank("export", "check", "out", "--data", "lists.txt", "--json")
    told = json.loads(outcome.out)
    assert (outcome.code, outcome.err, told["same"], told["difference"]) == (0, "", True, None)
    assert {name: figures["lists"] for name, figures in told["checked"].items()} == {
        "vectors": 12, "lists.txt": 2, "lists.txt, with gaps": 2,
    }  # fmt: skip
    outcome = quorank("export", "check", "out")
    assert outcome.code == 0 and "12 lists, 72 documents" in outcome.out
    assert max(map(len, quorank("export", "check", "out", "--data", "lists.txt").out.splitlines())) <= 80


def test_the_word_may_be_left_out_and_a_ranker_may_be_called_check(quorank: Quorank, own_folder: Path) -> None:
    (own_folder / "ranker.json").rename(own_folder / "check")
    for arguments in (["./check", "--to", "solr"], ["--to", "solr", "./check"], ["write", "check", "--to", "solr"]):
        assert quorank("export", *arguments, "--out", "out").code == 0
        assert quorank("export", "check", "out").code == 0
    assert "no export here" in quorank("export", "check", "./check").refused()


def test_a_tampered_weight_is_found(quorank: Quorank, own_folder: Path) -> None:
    assert quorank("export", "ranker.json", "--to", "opensearch", "--out", "out").code == 0
    file = own_folder / "out" / "model.json"
    content = json.loads(file.read_text())
    weights = json.loads(content["model"]["model"]["definition"])
    weights["clicks"] += 0.001
    content["model"]["model"]["definition"] = json.dumps(weights)
    file.write_text(json.dumps(content))
    assert quorank("export", "check", "out").refused().startswith("out/model.json: damaged or exchanged")
    listed = read_manifest(own_folder / "out")
    assert listed is not None
    write_manifest(own_folder / "out", listed | {"model.json": sha256(file.read_bytes())})
    outcome = quorank("export", "check", "out", "--data", "lists.txt", "--json")
    told = json.loads(outcome.out)
    assert outcome.code == 1 and not told["same"] and told["checked"] == {}
    assert outcome.err.startswith("quorank: out: model differs from its ranker: model.json: differs from")


def test_scores_that_differ_on_data_are_found(quorank: Quorank, own_folder: Path) -> None:
    """Large raw features cancel: float32 and Vespa's doubles differ."""
    replace(saved_ranker("linear"), theta=np.array([0.1, 0.2, 0.3, -0.1, -0.2, -0.3])).save(own_folder / "ranker.json")
    rows = np.random.default_rng(1).normal(size=(40, 3)) * 1e6
    lines = ["1 qid:a " + " ".join(f"{f}:{value}" for f, value in enumerate([*row, *row], 1)) for row in rows]
    (own_folder / "large.txt").write_text("\n".join([*lines, ""]))
    assert quorank("export", "ranker.json", "--to", "vespa", "--out", "out").code == 0
    outcome = quorank("export", "check", "out", "--data", "large.txt")
    assert outcome.code == 1 and "large.txt: query a: document" in outcome.err


def test_what_a_format_cannot_hold_is_refused_with_what_to_do(quorank: Quorank, own_folder: Path) -> None:
    saved_ranker("linear", "query").save(own_folder / "within.json")
    saved_ranker("relu", "fixed").save(own_folder / "network.json")
    sentence = quorank("export", "within.json", "--to", "onnx", "--out", "out").refused()
    assert 'normalize = "fixed"' in sentence and "--normalised" in sentence
    assert "choose onnx" in quorank("export", "network.json", "--to", "ranklib").refused()
    assert "unknown format 'solar'" in quorank("export", "ranker.json", "--to", "solar").refused()
    assert quorank("export", "ranker.json", "--to", "onnx", "--normalised").refused().startswith("--normalised: ")
    assert quorank("export", "none.json", "--to", "onnx").refused().startswith("none.json: no ranker here")
    assert not (own_folder / "out").exists()
    assert quorank("export", "within.json", "--to", "onnx", "--normalised", "--out", "out").code == 0
    assert "normalise each feature within its list" in (own_folder / "out" / "README.md").read_text()
    told = json.loads(quorank("export", "check", "out", "--data", "lists.txt", "--json").out)
    assert told["same"] and set(told["checked"]) == {"vectors", "lists.txt"}


def test_bad_data_and_folders(quorank: Quorank, own_folder: Path) -> None:
    assert quorank("export", "ranker.json", "--to", "ranklib", "--out", "out").code == 0
    (own_folder / "wide.txt").write_text("1 qid:1 7:2.5\n")
    assert "the ranker has 6 features" in quorank("export", "check", "out", "--data", "wide.txt").refused()
    assert quorank("export", "check", "out", "--data", "nothing-here").refused()
    assert quorank("export", "check", "x" * 300).refused()
    (own_folder / "out" / "mine.txt").write_text("")
    assert "holds 'mine.txt'" in quorank("export", "ranker.json", "--to", "solr", "--out", "out").refused()
