"""The figures about exploration and propensities: labels say what is run, and every finding has its panels."""

from __future__ import annotations

import re

import pytest

from quorank.experiments.grid import Cell
from quorank.learning import DBGD, MGD, PDGD, Counterfactual, PairRank
from quorank.reproduce.figure import load_figure
from quorank.users import PositionBased

NAMES = (
    "pdgd/bandits", "pdgd/neural", "mgd/candidates", "unbiased-ltr/propensities", "model-or-intervene/bias-noise",
    "pairrank/baselines",
)  # fmt: skip
KINDS = {"PDGD": PDGD, "DBGD": DBGD, "MGD": MGD, "PairRank": PairRank, "counterfactual": Counterfactual}


def label_of(cell: Cell) -> str:
    return str(cell.values["variant"])


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", NAMES)
def test_every_finding_has_panels(name: str, quick: bool) -> None:
    figure = load_figure(name, quick=quick, repetitions=1)
    panels = [{c.label, *map(str, column.values())} for c in figure.collections for column in figure.columns]
    for check in figure.checks:
        assert any(panel.issuperset(check.only) for panel in panels), check.claim


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", NAMES)
def test_budgets_are_equal_unless_the_label_says_so(name: str, quick: bool) -> None:
    spent: dict[str, set[int]] = {}
    for cell in load_figure(name, quick=quick, repetitions=1).cells:
        plan = cell.experiment.federation
        budget = plan.clients * plan.interactions * cell.experiment.rounds
        share = 10 if "a tenth of the interactions" in label_of(cell) else 1
        spent.setdefault(str(cell.values["collection"]), set()).add(share * budget)
    assert all(len(budgets) == 1 for budgets in spent.values()), spent


@pytest.mark.parametrize("name", NAMES)
def test_labels_say_what_learns(name: str) -> None:
    for cell in load_figure(name, quick=True, repetitions=1).cells:
        label, plan = label_of(cell), cell.experiment.federation
        learner = plan.learner
        for word, kind in KINDS.items():
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
    for cell in load_figure(name, quick=True, repetitions=1).cells:
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
