"""The ranker of a silo group in `quorank evaluate` and `quorank export`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Quorank
from silo_groups import write_collection

from quorank.rankers import Linear
from quorank.rankers.ranker_file import Origin, SavedRanker, ranker_bytes
from quorank.silos.training.lists import OwnSearch

SEARCHED = OwnSearch()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "texts", "own", 60, 16)


def write_ranker(folder: Path, feature: str, weight: float = 1.0) -> Path:
    theta = np.zeros(18)
    theta[SEARCHED.feature_names.index(feature)] = weight
    (folder / "ranker.json").write_bytes(
        ranker_bytes(SavedRanker(Linear(), 18, theta, feature_names=SEARCHED.feature_names, origin=Origin("silo")))
    )
    return folder / "ranker.json"


def test_evaluate_reads_texts_and_compares_with_the_search(quorank: Quorank, texts: Path, tmp_path: Path) -> None:
    found = json.loads(quorank("evaluate", write_ranker(tmp_path, "BM25 of body"), "--data", texts, "--json").out)
    assert found["ndcg@10"] == found["bm25"] and found["bm25"]["mean"] > 0.9
    assert (found["queries"], found["documents"], found["split"]) == (16, 60, None)
    worse = write_ranker(tmp_path, "BM25 of body", -1.0)
    outcome = quorank("evaluate", worse, "--data", texts)
    assert outcome.code == 0 and "bm25" in outcome.out and "16 of 16 queries" in outcome.out
    turned = json.loads(quorank("evaluate", worse, "--data", texts, "--json", "--k", 3).out)
    assert turned["ndcg@3"]["mean"] < turned["bm25"]["mean"]


def test_a_group_s_ranker_and_other_data_are_refused_with_advice(quorank: Quorank, texts: Path, tmp_path: Path) -> None:
    ranker = write_ranker(tmp_path, "BM25 of body")
    assert quorank("data", "import", texts).code == 0
    assert "give --data the documents themselves" in quorank("evaluate", ranker, "--data", "texts").refused()


def test_an_export_defines_the_features(quorank: Quorank, tmp_path: Path) -> None:
    ranker, out = write_ranker(tmp_path, "latent of body"), tmp_path / "out"
    assert quorank("export", ranker, "--to", "onnx", "--normalised", "--out", out).code == 0
    said = (out / "README.md").read_text()
    for name in SEARCHED.feature_names:
        assert f"\n| {name} | " in said
    assert "mean L" in said and "first 100 documents" in said and "64 latent dimensions" in said
