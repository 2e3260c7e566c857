"""The figures about privacy: what their labels say is what is run, and no ε stands without its unit, δ and horizon."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from quorank.cli.main import application
from quorank.errors import BadInput
from quorank.experiments.grid import Cell
from quorank.privacy import RandomisedResponse, Setting
from quorank.privacy.mechanisms.gaussian import ClippedGaussian
from quorank.privacy.mechanisms.published import PublishedLaplace
from quorank.reproduce import figure as figure_module
from quorank.reproduce.figure import Check, Figure, read_figure, read_shipped
from quorank.reproduce.results import is_similar

NAMES = ("fpdgd/table2", "fpdgd/figure2", "fpdgd/figure4", "foltr-es/privacy")
PARAMETERS = {"synthetic:mq2007": 46, "synthetic:mslr": 136}
EPSILON = re.compile(r"ε = ([\d.]+) (a round|whole run|a number sent) \(client, δ = ([\d.e-]+)\)")


def words_of(figure: Figure) -> list[str]:
    header = figure.header
    labels = [choice.label for choice in (*figure.variants, *figure.collections)]
    claims = [check.claim for check in figure.checks]
    return [header.title, header.about, header.claim, header.differs, *labels, *claims]


def setting_of(cell: Cell) -> Setting:
    federation = cell.experiment.federation
    parameters = PARAMETERS[cell.experiment.data.source]
    return federation.setting(cell.experiment.rounds, parameters, cell.experiment.evaluation.k + 1)


@pytest.mark.parametrize("name", NAMES)
def test_no_epsilon_without_unit_delta_and_horizon(name: str) -> None:
    for text in words_of(read_figure(read_shipped(name), quick=True)):
        assert len(re.findall(r"ε\s*=", text)) == len(EPSILON.findall(text)), text


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", NAMES)
def test_labels_say_what_is_run(name: str, quick: bool) -> None:
    seen = set()
    for cell in read_figure(read_shipped(name), quick=quick, repetitions=1).cells:
        label, part = str(cell.values["variant"]), cell.experiment.federation.privacy
        found = EPSILON.search(label)
        seen.add(part.kind)
        if part.kind == "none":
            assert found is None
        elif isinstance(part, RandomisedResponse):
            assert f"p={part.p:g}" in label.replace(" ", "")
            if found:
                eq6 = math.log(part.p * (11 - 1) / (1 - part.p))  # MaxRR of ten positions takes 11 values
                assert found.groups() == (f"{eq6:.2g}", "a number sent", "0")
        elif isinstance(part, PublishedLaplace):
            assert found is not None and "paper's ε" in label
            assert found.groups() == (f"{part.epsilon:g}", "a round", "0")
            delta = re.search(r"Δ = (\d)", label)
            assert delta is None or float(delta[1]) == part.sensitivity
        else:
            assert isinstance(part, ClippedGaussian) and found is not None
            assert found.groups() == (f"{part.epsilon:g}", "whole run", "1e-5")
            assert part.delta == 1e-5
    assert seen >= ({"none", "published", "gaussian"} if "fpdgd" in name else {"none", "randomised-response"})


@pytest.mark.parametrize("name", ["fpdgd/table2", "fpdgd/figure2"])
def test_the_papers_budgets_and_sensitivities(name: str) -> None:
    found = [
        (part.epsilon, part.sensitivity)
        for cell in read_figure(read_shipped(name), repetitions=1).cells
        if isinstance(part := cell.experiment.federation.privacy, PublishedLaplace)
        and "Δ" not in str(cell.values["variant"])
    ]
    assert sorted(set(found)) == [(1.2, 3.0), (2.3, 3.0), (4.5, 5.0), (10.0, 5.0)]
    sizes = {
        (e.federation.clients, e.federation.interactions, e.rounds)
        for e in (cell.experiment for cell in read_figure(read_shipped(name), repetitions=1).cells)
        if isinstance(e.federation.privacy, PublishedLaplace)
    }
    assert sizes == {(1000, 4, 1000), (1000, 2, 200)}


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", NAMES)
def test_every_accounted_cell_can_be_learned_and_keeps_its_budget(name: str, quick: bool) -> None:
    settings = {
        (part, setting_of(cell))
        for cell in read_figure(read_shipped(name), quick=quick, repetitions=1).cells
        if isinstance(part := cell.experiment.federation.privacy, ClippedGaussian)
    }
    for part, setting in settings:
        statement = part.mechanism(setting, 1).statement()  # refuses a hopeless budget
        assert statement is not None
        assert statement["epsilon"] <= part.epsilon * (1 + 1e-6)


def test_ten_clients_with_accounted_noise_are_refused() -> None:
    """Why figure 4 has no such curve."""
    part = ClippedGaussian(epsilon=4.5, delta=1e-5, clip=0.1)
    for rounds in (60, 200):
        with pytest.raises(BadInput, match="nothing can be learned within this budget"):
            part.mechanism(Setting(10, 10, rounds, parameters=136), 1)
    assert not any(
        cell.experiment.federation.clients == 10 and isinstance(cell.experiment.federation.privacy, ClippedGaussian)
        for cell in read_figure(read_shipped("fpdgd/figure4")).cells
    )


TINY = """
[figure]
title = "A tiny private figure"
about = "noise"
paper = "Nobody: Nothing. Nowhere"
claim = "Noise hurts."
measures = ["online_discounted"]
repetitions = 2

[federation]
clients = 40
interactions = 2
rounds = 12

[grid]
users.preset = ["perfect"]

[[collection]]
label = "small"
data = { source = "synthetic:mq2007", queries = 40 }

[[variant]]
label = "plain"
[[variant]]
label = "published"
privacy = { kind = "published", epsilon = 0.1, sensitivity = 5.0 }
[[variant]]
label = "accounted"
privacy = { kind = "gaussian", epsilon = 8.0 }
[[variant]]
label = "local"
learner = { kind = "evolution" }
privacy = { kind = "randomised-response", p = 0.5, per = "interaction" }

[[check]]
claim = "Matched"
above = ["plain", "accounted"]
below = ["published", "local"]
matched = true
[[check]]
claim = "Alike by share"
similar = ["plain", "published", "accounted"]
within = 1.0
relative = true
[[check]]
claim = "Not alike by the same number"
similar = ["plain", "local"]
within = 1e-9
relative = true
"""


@pytest.mark.usefixtures("no_pages")
def test_a_private_figure_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "papers" / "test").mkdir(parents=True)
    (tmp_path / "papers" / "test" / "tiny.toml").write_text(TINY)
    monkeypatch.setattr(figure_module, "PAPERS", tmp_path / "papers")
    out = tmp_path / "out"
    done = CliRunner().invoke(application(), ["reproduce", "test/tiny", "--json", "--jobs", "1", "--out", str(out)])
    assert done.exit_code == 0, done.output
    results: dict[str, Any] = json.loads(done.stdout)
    (panel,) = results["panels"]
    for variant in panel["variants"]:
        for run, value in zip(variant["runs"], variant["values"], strict=True):
            shown = pq.read_table(out / run / "history.parquet")["online_ndcg@10"].to_pylist()
            assert len(shown) == 12
            assert value == pytest.approx(sum(ndcg * 0.9995**t for t, ndcg in enumerate(shown)))
        book = json.loads((out / variant["runs"][0] / "ledger.json").read_text())
        assert variant["privacy"] == book["privacy"]
    stated = {variant["label"]: variant["privacy"] for variant in panel["variants"]}
    assert stated["plain"] is None
    assert stated["published"]["epsilon"] is None
    assert stated["published"]["exact_noise_epsilon"] == pytest.approx(0.1 * math.sqrt(46) * 12)
    assert stated["local"]["epsilon"] == pytest.approx(math.log(10) * 2 * 12)  # two interactions a round
    assert stated["accounted"]["epsilon"] <= 8.0 + 1e-6

    matched, alike, apart = results["checks"]
    assert [c["what"] for c in matched["comparisons"]] == ["plain − published", "accounted − local"]
    assert alike["agree"] == len(alike["comparisons"]) == 3
    assert apart["agree"] == 0

    html = (out / "report.html").read_text()
    assert "what the ledger states" in html
    for text in (html, CliRunner().invoke(application(), ["reproduce", "test/tiny", "--out", str(out)]).stdout):
        flat = " ".join(text.split())
        assert "Discounted: Σ over rounds" in flat
        assert "understates it by up to √46" in flat
    assert "<svg" in (out / "figure.svg").read_text()


def test_a_relative_margin_grows_with_the_values() -> None:
    absolute = Check("claim", similar=("a", "b"), within=0.01)
    relative = Check("claim", similar=("a", "b"), within=0.01, relative=True)
    around_300 = np.array([299.0, 301.0])
    assert is_similar(relative, 2.9, around_300) and is_similar(relative, -2.9, around_300)
    assert not is_similar(relative, 3.1, around_300)
    assert not is_similar(absolute, 0.02, around_300) and is_similar(absolute, -0.009, around_300)
