"""`quorank evaluate`: a ranker judged again gives the figures that its run gave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Outcome, Quorank

from quorank.data import DataSource, load
from quorank.metrics.lists import dcg


@pytest.mark.parametrize("what", ["", "ranker.json"])
def test_it_agrees_with_the_run_to_the_last_bit(
    quorank: Quorank, finished_run: tuple[Path, Outcome], what: str
) -> None:
    folder, _ = finished_run
    outcome = quorank("evaluate", folder / what, "--data", "synthetic:mq2007", "--json")
    assert outcome.code == 0 and outcome.err == "" and outcome.out.count("\n") == 1
    found, summary = json.loads(outcome.out), json.loads((folder / "summary.json").read_text())
    assert found["ndcg@10"]["mean"] == pytest.approx(summary["offline"]["ndcg@10"], rel=1e-12)
    assert found["maxrr"]["mean"] == pytest.approx(summary["offline"]["maxrr"], rel=1e-12)
    assert found["queries"] == summary["evaluation"]["counted_queries"]
    assert found["all_queries"] == summary["evaluation"]["test_queries"]
    assert set(found) == {
        "ndcg@10", "maxrr", "err@10", "queries", "all_queries", "no_relevant", "split", "data", "fold",
    }  # fmt: skip


def test_rankers_are_judged_by_logged_clicks(quorank: Quorank, tmp_path: Path) -> None:
    """The weights of the true relevance gain on what was shown; too few numbers are refused."""
    weights = {str(n): (-1.0 if n <= 4 else 1.0) for n in range(1, 13)}
    settings = ("data.source=synthetic:clicks", "data.normalize=none", "federation.rounds=1", "federation.clients=2")
    start = "ranker.start={" + ", ".join(f"{name} = {value}" for name, value in weights.items()) + "}"
    given = [word for setting in (*settings, start) for word in ("--set", setting)]
    assert quorank("run", "fpdgd", *given, "--out", tmp_path / "run", "--quiet").code == 0
    outcome = quorank("evaluate", tmp_path / "run", "--data", "synthetic:clicks", "--json", "--k", 5)
    found = json.loads(outcome.out)["counterfactual"]
    assert found["estimates"]["dcg@5"]["ips"]["gain"]["low"] > 0 and found["propensities"][1] == pytest.approx(
        0.5, rel=0.1
    )
    shown = quorank("evaluate", tmp_path / "run", "--data", "synthetic:clicks", "--propensities", "power=1")
    assert "by logged clicks" in shown.out and "over users" in shown.out and max(map(len, shown.out.splitlines())) <= 80
    refused = quorank("evaluate", tmp_path / "run", "--data", "synthetic:clicks", "--propensities", "1,0.5")
    assert refused.code == 2 and refused.err.count("\n") == 1


def test_other_splits_and_cuts(quorank: Quorank, finished_run: tuple[Path, Outcome]) -> None:
    collection = load(DataSource("synthetic:mq2007"))
    theta = np.array(json.loads((finished_run[0] / "ranker.json").read_text())["parameters"])
    for split in ("train", "validation"):
        flags = ("--split", split, "--k", 5, "--no-relevant", "zero", "--json", "--threads", 2)
        found = json.loads(quorank("evaluate", finished_run[0], "--data", "synthetic:mq2007", *flags).out)
        data = getattr(collection, split)
        assert found["all_queries"] == data.n_queries and found["split"] == split
        values = []
        for start, end in zip(data.offsets[:-1], data.offsets[1:], strict=True):
            labels = data.labels[start:end]
            scores = np.asarray(data.features[start:end], dtype=np.float64) @ theta
            best = dcg(np.sort(labels)[::-1], 5)
            shown = labels[np.argsort(-scores, kind="stable")]
            values.append(dcg(shown, 5) / best if best else 0.0)
        assert found["ndcg@5"]["mean"] == pytest.approx(np.mean(values), abs=2e-3)  # scores are float32 there
        interval = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values))
        assert found["ndcg@5"]["interval"] == pytest.approx(interval, rel=0.02)


def test_data_of_another_width_are_refused(quorank: Quorank, finished_run: tuple[Path, Outcome]) -> None:
    Path("narrow").mkdir()
    for split in ("train", "test"):
        Path("narrow", f"{split}.txt").write_text("1 qid:1 1:0.5 3:1\n0 qid:1 1:0.25 2:2\n")
    sentence = quorank("evaluate", finished_run[0], "--data", "narrow").refused()
    assert "46 features" in sentence and "narrow has 3" in sentence
    missing = quorank("evaluate", finished_run[0], "--data", "narrow", "--split", "validation").refused()
    assert "no validation split" in missing
