"""Figures of the thesis, of exploration and propensities: labels say what is run, findings have panels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from quorank.data.partition import Clicks, Quantity
from quorank.data.partition.labels import LabelSplit
from quorank.data.partition.preferences import Preferences
from quorank.errors import BadInput
from quorank.experiments.grid import Cell
from quorank.experiments.run_directory import Run
from quorank.experiments.runner import Runner
from quorank.federation.attacks import ClickPoisoning, Fang, LittleIsEnough
from quorank.federation.personal import LocalOffset, OutputLayer, Shared
from quorank.learning import DBGD, MGD, PDGD, Counterfactual, PairRank
from quorank.reproduce.figure import Check, read_figure, read_shipped
from quorank.reproduce.results import compared_values
from quorank.users import PositionBased

CHAPTER_4 = tuple(f"thesis/{n}" for n in ("table4.2", "table4.3", *(f"figure4.{i}" for i in range(3, 10))))
CHAPTER_5 = ("thesis/figure5.2", "thesis/figure5.3", "thesis/figure5.4")
RULES = {"Krum": "krum", "Multi-Krum": "multi-krum", "Trimmed Mean": "trimmed-mean", "Median": "median"}


def label_of(cell: Cell) -> str:
    return str(cell.values["variant"])


def cells_of(name: str, quick: bool = False) -> dict[str, Cell]:
    """The cells of one panel by their variant."""
    cells = read_figure(read_shipped(name), quick=quick, repetitions=1).cells
    return {label_of(cell): cell for cell in cells if cell.values["column"] == 0}


@pytest.mark.parametrize("name", [*CHAPTER_4, *CHAPTER_5])
def test_published_sizes(name: str) -> None:
    clients = {
        "figure4.3": {4}, "table4.2": {4}, "figure4.4": {4}, "figure4.5": {5}, "table4.3": {5}, "figure4.6": {10},
        "figure4.7": {5}, "figure4.8": {3, 5}, "figure4.9": {5},
    }.get(name.removeprefix("thesis/"), {10})  # fmt: skip
    batches = {2, 5, 10} if name in ("thesis/figure4.5", "thesis/table4.3") else {5}
    experiments = [cell.experiment for cell in read_figure(read_shipped(name)).cells]
    assert {e.rounds for e in experiments} == {10_000}
    assert {e.federation.clients for e in experiments} == clients
    assert {e.federation.interactions for e in experiments} == batches
    assert {e.federation.learner.eta for e in experiments if isinstance(e.federation.learner, PDGD)} == {0.1}


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", CHAPTER_4)
def test_labels_of_chapter_4_say_what_is_run(name: str, quick: bool) -> None:
    for label, cell in cells_of(name, quick).items():
        experiment = cell.experiment
        plan, partition, learner = experiment.federation, experiment.partition, experiment.federation.learner
        assert plan.attack is None and plan.aggregation.kind == "mean" and isinstance(learner, PDGD)
        if "linear" in label or "neural" in label:
            assert experiment.ranker.hidden == (64 if "neural" in label else 0)
        assert partition.iid == (label.startswith("IID")), label
        batch, labels, mu = (re.search(pattern, label) for pattern in (r"B = (\d+)", r"#R = (\d)", r"FedProx ([\d.]+)"))
        assert batch is None or int(batch[1]) == plan.interactions
        assert labels is None or (isinstance(partition, LabelSplit) and partition.per_client == int(labels[1]))
        assert learner.proximal == (float(mu[1]) if mu else 0.0)
        shared = re.search(r"data-sharing (\d+) %", label)
        assert getattr(partition, "shared", 0.0) == (int(shared[1]) / 100 if shared else 0.0)
        personal = OutputLayer if "FedPer" in label else LocalOffset if "offset" in label else Shared
        assert isinstance(plan.personal, personal)
        if isinstance(partition, Preferences):
            assert (partition.judged == "preferences") == ("judged by preferences" in label)
        if isinstance(partition, Clicks):
            assert partition.model in label
        if name == "thesis/figure4.9":
            quantity = (1, 3, 5, 7, 9) if label == "type 4" or "and 4" in label else None
            kind = {"1": Preferences, "2": LabelSplit}.get(label[5:].strip()[:1], Quantity)
            assert isinstance(partition, kind)
            assert quantity is None or partition.quantity == quantity
            assert quantity is not None or partition.iid or partition.quantity is None


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", CHAPTER_5)
def test_labels_of_chapter_5_say_what_is_run(name: str, quick: bool) -> None:
    for label, cell in cells_of(name, quick).items():
        plan, malicious = cell.experiment.federation, re.search(r"m = (\d)", label)
        assert (plan.attack is None) == (malicious is None)
        rule = plan.aggregation
        words = label.removeprefix("ours: ").split(",")[0]
        expected = "krum" if "Krum" in label and "Multi" not in label else RULES.get(words, "mean")
        if not label.startswith("ours"):
            assert rule.kind == expected, label
        if malicious is not None:
            assert plan.attack is not None and plan.attack.clients == int(malicious[1])
            assert getattr(rule, "byzantine", int(malicious[1])) == int(malicious[1])
            attack = Fang if "Fang" in label else LittleIsEnough if "LIE" in label else ClickPoisoning
            assert isinstance(plan.attack, attack)
        else:
            assert getattr(rule, "byzantine", 3) == 3
        if isinstance(plan.attack, Fang):
            assert plan.attack.against == rule.kind == "krum"
            assert plan.attack.knowledge in label


@pytest.mark.parametrize("name", ["thesis/figure4.3", "thesis/figure4.5", "thesis/figure4.6", "thesis/figure4.8"])
def test_twins_differ_in_nothing_else(name: str) -> None:
    cells = cells_of(name)
    twins = [label for label in cells if label.startswith("IID") and "judged" not in label]
    for label in twins:
        other = label.replace("IID", "#R = 2" if name == "thesis/figure4.6" else "non-IID")
        iid, non = cells[label].experiment, cells[other].experiment
        assert iid.partition == replace(non.partition, iid=True)  # type: ignore[arg-type]
        assert replace(iid, partition=non.partition) == non
    assert len(twins) >= 2


def test_the_online_value_of_one_label_is_no_maximum_and_no_achievement() -> None:
    """1589.23 of table 4.3 is four fifths of the largest sum, whatever the ranker and whoever clicks."""
    largest = sum(0.9995**t for t in range(10_000))
    assert round(0.8 * largest, 2) == 1589.23
    found = set()
    for cell in read_figure(read_shipped("thesis/table4.3"), quick=True, repetitions=1).cells:
        if label_of(cell) in ("non-IID, B = 2, linear", "non-IID, B = 2, neural"):
            runner = Runner(replace(cell.experiment, rounds=10), threads=1)
            found.add(round(runner.run().online_mean(), 12))
    assert found == {0.8}


def test_poisoned_clicks_hurt_and_krum_defends() -> None:
    """The cells of figure 5.2 do what they are for, with informational clicks."""
    ends = {}
    for cell in read_figure(read_shipped("thesis/figure5.2"), quick=True, repetitions=1).cells:
        preset = getattr(cell.experiment.users, "preset", "")
        if preset == "informational" and label_of(cell) in ("no attack", "no defence, m = 4", "Krum, m = 3"):
            ends[label_of(cell)] = Runner(cell.experiment, threads=1).run().last("offline_ndcg@10")
    assert ends["no defence, m = 4"] < 0.5 * ends["no attack"]
    assert ends["Krum, m = 3"] > ends["no defence, m = 4"] + 0.1


def test_similar_variants_are_compared_with_the_first_only() -> None:
    check = Check("alike", similar=("a", "b", "c"), to_first=True)
    nothing: dict[str, list[Run]] = {name: [] for name in "abc"}
    found = [what for what, _, _ in compared_values(check, nothing, "offline_ndcg@10")]
    assert found == ["a − b", "a − c"]
    with pytest.raises(BadInput, match="to_first is for similar"):
        Check("above", above=("a",), below=("b",), to_first=True)


def test_intents_are_tested_on_their_training_queries(tmp_path: Path) -> None:
    figure = read_figure(read_shipped("thesis/figure4.3"), quick=True, data=f"intents:{tmp_path}")
    assert {cell.experiment.data.fold for cell in figure.cells} == {0}
    overlaps = {part.overlap for cell in figure.cells if isinstance(part := cell.experiment.partition, Preferences)}
    assert overlaps == {None}, "an overlap would be generated instead of the collection's own intents"
    with pytest.raises(BadInput, match="nowhere"):
        read_figure(read_shipped("thesis/figure4.3"), quick=True, data="intents:nowhere")


EXPLORATION = (
    "pdgd/bandits", "pdgd/neural", "mgd/candidates", "unbiased-ltr/propensities", "model-or-intervene/bias-noise",
    "pairrank/baselines",
)  # fmt: skip
LEARNERS = {"PDGD": PDGD, "DBGD": DBGD, "MGD": MGD, "PairRank": PairRank, "counterfactual": Counterfactual}


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", EXPLORATION)
def test_every_finding_has_panels(name: str, quick: bool) -> None:
    figure = read_figure(read_shipped(name), quick=quick, repetitions=1)
    panels = [{c.label, *map(str, column.values())} for c in figure.collections for column in figure.columns]
    for check in figure.checks:
        assert any(panel.issuperset(check.only) for panel in panels), check.claim


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", [*EXPLORATION, "fpdgd/figure6", "foltr-es/rq2", "foltr-es/rq3", "fpdgd/figure3"])
def test_budgets_are_equal_unless_the_label_says_so(name: str, quick: bool) -> None:
    spent: dict[object, set[int]] = {}
    for cell in read_figure(read_shipped(name), quick=quick, repetitions=1).cells:
        plan = cell.experiment.federation
        budget = plan.clients * plan.interactions * cell.experiment.rounds
        share = 10 if "a tenth of the interactions" in label_of(cell) else 1
        spent.setdefault((cell.values["collection"], cell.values["column"]), set()).add(share * budget)
    assert all(len(budgets) == 1 for budgets in spent.values()), spent


@pytest.mark.parametrize("name", EXPLORATION)
def test_labels_say_what_learns(name: str) -> None:
    for cell in read_figure(read_shipped(name), quick=True, repetitions=1).cells:
        label, plan = label_of(cell), cell.experiment.federation
        learner = plan.learner
        for word, kind in LEARNERS.items():
            if label.startswith(word):
                assert isinstance(learner, kind), label
        assert plan.clients == (100 if "100 clients" in label or name.startswith("unbiased") else 1), label
        if isinstance(learner, MGD) and "n =" in label:
            assert f"n = {learner.candidates}" in label
            assert (learner.winner == "one") == label.startswith("MGD-W")
        if isinstance(learner, PairRank):
            assert learner.alpha == (0.3 if "α = 0.3" in label else 1.0)


@pytest.mark.parametrize("name", ["unbiased-ltr/propensities", "model-or-intervene/bias-noise"])
def test_propensities_are_those_of_the_label(name: str) -> None:
    seen = set()
    for cell in read_figure(read_shipped(name), quick=True, repetitions=1).cells:
        learner, users = cell.experiment.federation.learner, cell.experiment.users
        assert isinstance(users, PositionBased)
        assert not isinstance(learner, Counterfactual) or learner.share == 0.0, "it explores nothing"
        found = re.search(r"propensities for η = ([\d.]+)", label_of(cell))
        if found and isinstance(learner, Counterfactual):
            assert learner.power == float(found[1])
            seen.add((learner.power, users.eta))
        elif "p = 1" in label_of(cell) and isinstance(learner, Counterfactual):
            assert learner.power == 0.0
    assert {(1.0, 1.0), (2.0, 2.0)} <= seen, "the right propensities are among those that are tried"
