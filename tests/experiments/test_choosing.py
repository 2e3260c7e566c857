"""The ranker that a run hands out: chosen by the validation split, or by the server's rule where there is none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from quick_runs import run_quickly

from quorank.data import DataSource, load
from quorank.data.letor.writer import write_letor
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.experiments.workload import LEAST_GAIN, best_ranker
from quorank.federation import Add, Federation
from quorank.metrics.lists import ndcg
from quorank.users import Cascade


def test_few_queries_do_not_outvote_the_rule() -> None:
    """The gains over the first are 0.1 ± error, with error = deviation/√(queries − 1)."""
    rule = np.array([0.5, 0.5, 0.5, 0.5, 0.5])
    sure = rule + 0.1 + np.array([-1, 1, -1, 1, 0]) * 0.05  # deviation √(4/5)·0.05: 0.1 > 0.022
    surer = rule + np.array([0.3, 0.1, 0.1, 0.1, 0.1])  # mean 0.14, deviation 0.08: 0.14 > 0.04
    lucky = rule + np.array([1.0, 0.0, 0.0, -0.1, -0.15])  # mean 0.15, deviation 0.43: 0.15 < 0.21
    assert pytest.approx(1.0) == LEAST_GAIN
    assert best_ranker(np.array([rule, sure])) == 1
    assert best_ranker(np.array([rule, sure, surer, lucky])) == 2
    assert best_ranker(np.array([rule, lucky])) == 0
    assert best_ranker(np.array([rule, rule, rule - 0.1])) == 0, "as good is not better"
    assert best_ranker(np.array([[0.5], [0.6], [0.7]])) == 2, "one query has no error"


MEANS = {"step": 30.0, "average": -0.4, "among": (-0.75, 0.0)}


def experiment(source: DataSource, every: int = 1, **server: object) -> Experiment:
    federation = Federation(10, server=Add(**(MEANS | server)))  # type: ignore[arg-type]
    plan = EvaluationPlan(every=every)
    return Experiment(source, users=Cascade("informational"), federation=federation, rounds=12, evaluation=plan)


GENERATED = DataSource("synthetic:mq2007", queries=60)


def by_hand(theta: np.ndarray, data, k: int = 10) -> float:
    """Mean nDCG over the queries with a relevant document, list by list."""
    found = []
    for q in range(data.n_queries):
        rows = slice(data.offsets[q], data.offsets[q + 1])
        labels = data.labels[rows]
        scores = data.padded[rows, : data.n_features] @ theta.astype(np.float32)
        if labels.max() > 0:
            found.append(ndcg(labels[np.argsort(-scores, kind="stable")], labels, k))
    return float(np.mean(found))


def test_the_validation_split_chooses_what_is_handed_out(tmp_path: Path) -> None:
    summary = run_quickly(experiment(GENERATED), tmp_path / "run", threads=1)
    collection, again = load(GENERATED), Runner(experiment(GENERATED), threads=1)
    again.run()
    choices = again.experiment.federation.choices(again.state)
    assert [*choices] == [-0.4, -0.75, 0.0, math.inf]
    on_validation = {gamma: by_hand(theta, collection.validation) for gamma, theta in choices.items()}
    evaluator = again.workload.validation
    each = evaluator.per_query([*choices.values()])[0][:, evaluator.counted()]
    history = pq.read_table(tmp_path / "run" / "history.parquet").to_pydict()
    asked = {r: gamma for r, gamma in zip(history["round"], history["average"], strict=True) if not math.isnan(gamma)}
    assert [*asked] == [1, 2, 4, 8, 12], "when the rounds have doubled, and at the end"
    chosen = [*choices][best_ranker(each)]
    assert on_validation[chosen] >= on_validation[-0.4]
    handed_out = summary["handed_out"]
    assert handed_out["by"] == ("rule" if chosen == -0.4 else "validation")
    assert handed_out["average"] == ("last" if math.isinf(chosen) else chosen)
    assert handed_out["validation_ndcg@10"] == pytest.approx(on_validation[chosen], abs=1e-5)
    assert handed_out["validation_queries"] == len(each[0])
    written = json.loads((tmp_path / "run" / "ranker.json").read_text())
    assert written["parameters"] == choices[chosen].tolist()
    assert summary["offline"]["ndcg@10"] == pytest.approx(by_hand(choices[chosen], collection.test), abs=1e-5)
    assert history["average"][-1] == chosen and history["validation_ndcg@10"][-1] == handed_out["validation_ndcg@10"]


@pytest.mark.parametrize(("step", "by", "average"), [(30.0, "validation", "last"), (3000.0, "rule", -0.4)])
def test_the_summary_names_what_decided(tmp_path: Path, step: float, by: str, average: object) -> None:
    """With huge steps no ranker is clearly better on the validation split than the rule's, which then decides."""
    handed_out = run_quickly(experiment(GENERATED, 12, step=step), tmp_path / "run", threads=1)["handed_out"]
    assert (handed_out["by"], handed_out["average"]) == (by, average)
    assert handed_out["validation_queries"] > 0, "the split is asked in both cases"


def test_without_a_split_the_rule_decides(tmp_path: Path) -> None:
    collection = load(GENERATED)
    for name, split in (("train", collection.train), ("test", collection.test)):
        write_letor(split, tmp_path / f"{name}.txt")
    alone, beside = DataSource(str(tmp_path), normalize="none"), experiment(GENERATED, among=())
    summary = run_quickly(experiment(alone), tmp_path / "run", threads=1)
    assert summary["handed_out"] == {"by": "rule", "average": -0.4}
    assert "average" not in pq.read_table(tmp_path / "run" / "history.parquet").column_names
    without = run_quickly(beside, tmp_path / "beside", threads=1)
    assert "handed_out" not in without, "one ranker is no choice"
    for figures in ("offline", "online"):
        assert summary[figures] == pytest.approx(without[figures])


def test_what_is_handed_out_changes_no_list_that_people_see(tmp_path: Path) -> None:
    """θ goes on as with server = add, so the online figures are the same numbers."""
    ours, early = (
        run_quickly(experiment(GENERATED, 12, average=average, among=()), tmp_path / f"{average}", threads=1)
        for average in (-0.4, -2.0)
    )
    assert ours["online"] == early["online"] and ours["offline"] != early["offline"]
