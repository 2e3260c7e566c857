"""Figures: every shipped file is sound, and one small figure goes all the way through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from quorank.cli.main import application
from quorank.errors import BadInput
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.run_directory import Run
from quorank.metrics.lists import discounted_sum
from quorank.metrics.significance import corrected, paired_t
from quorank.reports.panels import PALETTE, Curve, Panel, paired_differences
from quorank.reproduce import figure as figure_module
from quorank.reproduce.figure import Check, Figure, figure_names, overlaid, read_figure, read_shipped
from quorank.reproduce.figure_report import a_round
from quorank.reproduce.record import POINTS, RecordedTable, read_record, read_tables, write_record, write_tables
from quorank.reproduce.report import FigureReport, ReportTable, index_markdown
from quorank.reproduce.results import ComparedPair, Finding, values_at

TINY = """
[figure]
title = "A tiny figure"
about = "two steps of the server"
paper = "Nobody: Nothing. Nowhere"
claim = "A longer step is better."
measures = ["offline_ndcg@10", "online_maxrr"]
repetitions = 3

[federation]
clients = 10
interactions = 2
rounds = 20

[grid]
users.preset = ["perfect", "navigational"]

[[collection]]
label = "small"
data = { source = "synthetic:mq2007", queries = 40 }

[[variant]]
label = "step 1"

[[variant]]
label = "step 20"
federation.server.step = 20.0

[[variant]]
label = "all by one"
centralised = true

[[check]]
claim = "A longer step is better"
above = ["step 20"]
below = ["step 1"]

[[check]]
claim = "Elsewhere"
similar = ["step 1", "step 20"]
only = ["large"]

[[published]]
where = "table 9, large"
collection = "small"
columns = ["navigational", "perfect"]
[published.rows]
"step 20" = [0.25, 0.125]

[quick]
repetitions = 2
grid.users.preset = ["perfect"]
federation.rounds = 10
"""


def read(text: str, **options: Any) -> Figure:
    return read_figure(parse_experiment_file(text, "test/tiny.toml"), **options)


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", [n for n in figure_names() if "study" not in read_shipped(n).tables])
def test_shipped_figures_are_sound(name: str, quick: bool) -> None:
    figure = read_figure(read_shipped(name), quick=quick)  # reads and checks the experiment of every cell
    shape = (len(figure.collections), len(figure.columns), len(figure.variants), figure.header.repetitions)
    assert len(figure.cells) == np.prod(shape)
    assert len({cell.experiment for cell in figure.cells}) == len(figure.cells), "two cells are alike"
    assert len({(v.colour, v.line) for v in figure.variants}) == len(figure.variants), "two curves are alike"
    assert all(v.colour <= len(PALETTE) for v in figure.variants)
    for cell in figure.cells:
        plan, rounds = cell.experiment.federation, cell.experiment.rounds
        assert rounds >= 10 * cell.experiment.evaluation.every, f"{cell.name} has too few points for a curve"
        assert cell.experiment.seed == cell.values["repetition"]
        if quick:
            assert plan.clients * plan.interactions * rounds <= 250_000, f"{cell.name} is not quick"


def test_published_settings() -> None:
    plan = read_figure(read_shipped("fpdgd/figure3"), repetitions=1).cells[0].experiment
    assert (plan.federation.clients, plan.federation.interactions, plan.rounds) == (1000, 4, 1000)
    central = next(
        c for c in read_figure(read_shipped("foltr-es/rq3")).cells if c.values["variant"] == "PDGD batched, linear"
    )
    assert (central.experiment.federation.clients, central.experiment.federation.interactions) == (1, 2000 * 4)


def test_settings_are_laid_over_each_other() -> None:
    below = {"learner": {"kind": "pdgd", "eta": 0.1}, "federation": {"clients": 3, "server": "momentum"}}
    above = {"learner": {"kind": "evolution"}, "federation": {"server": {"step": 2.0}}}
    assert overlaid(below, above) == {
        "learner": {"kind": "evolution"},  # another part: nothing of the old one stays
        "federation": {"clients": 3, "server": {"kind": "momentum", "step": 2.0}},
    }
    assert below["federation"] == {"clients": 3, "server": "momentum"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("step 20.0", "step 20"), ""),
        (("offline_ndcg@10", "offline_ndgc@10"), "did you mean 'offline_ndcg@10'"),
        (('above = ["step 20"]', 'above = ["step 2"]'), "no variant 'step 2'"),
        (('below = ["step 1"]', 'below = ["step 1", "all by one"]\nmatched = true'), "as many variants"),
        (("[quick]", "[quik]"), "did you mean 'quick'"),
        (("federation.server.step", "federation.server.stepp"), "did you mean 'step'"),
        (('label = "step 20"', 'label = "step 1"'), "the same label"),
        (('["perfect", "navigational"]', '"perfect"'), "expected a list"),
        (('claim = "A longer step is better."', ""), "claim: is missing"),
        (('"step 20" = [0.25', '"step 2" = [0.25'), "no variant 'step 2'"),
        (("[0.25, 0.125]", "[0.25]"), "expected 2 numbers"),
        (('where = "table 9, large"', ""), "where: is missing"),
    ],
)
def test_mistakes_in_a_file_are_sentences(change: tuple[str, str], message: str) -> None:
    if not message:
        read(TINY)
        return
    with pytest.raises(BadInput, match=r"^test/tiny\.toml: ") as refused:
        read(TINY.replace(*change))
    assert message in str(refused.value)


def test_own_data_replaces_the_collections_and_uses_its_folds(tmp_path: Path) -> None:
    lines = "".join(f"{q % 2} qid:{q} 1:0.{q} 2:0.5\n" for q in range(1, 6))
    for fold in range(1, 6):
        (tmp_path / f"Fold{fold}").mkdir()
        for split in ("train", "test"):
            (tmp_path / f"Fold{fold}" / f"{split}.txt").write_text(lines)
    figure = read_figure(read_shipped("fpdgd/figure3"), data=str(tmp_path), repetitions=6)
    assert [c.label for c in figure.collections] == [tmp_path.name]
    runs = {(c.values["repetition"], c.experiment.data.fold) for c in figure.cells}
    assert runs == {(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 1)}
    shutil.rmtree(tmp_path / "Fold4")
    with pytest.raises(BadInput, match="no Fold4"):
        read_figure(read_shipped("fpdgd/figure3"), data=str(tmp_path))


def test_values_at_a_share_of_the_run() -> None:
    x = np.arange(1.0, 101.0)
    history = {"interactions": x, "offline_maxrr": x, "online_maxrr": x}
    run = Run(Path("run"), {}, {}, history)
    assert values_at([run], "offline_maxrr") == [100]
    assert values_at([run], "offline_maxrr", 0.2) == [20]
    assert values_at([run], "online_maxrr") == [sum(range(91, 101)) / 10]  # the last tenth
    assert values_at([run], "online_maxrr", 0.001) == [1]


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([], "not measured"),
        ([([1.0], [0.0])], "not tested"),
        ([([0.11, 0.12, 0.14], [0.10, 0.14, 0.10])], "undecided"),  # the right sign is not enough
        ([([1.0, 1.1, 1.2], [0.0, 0.1, 0.2001])], "holds"),
        ([([0.0, 0.1, 0.2001], [1.0, 1.1, 1.2])], "opposite"),
        ([([1.0, 1.1, 1.2], [0.0, 0.1, 0.2001]), ([0.11, 0.12, 0.14], [0.10, 0.14, 0.10])], "in part"),
        ([([1.0, 1.1, 1.2], [0.0, 0.1, 0.2001]), ([0.0, 0.1, 0.2001], [1.0, 1.1, 1.2])], "mixed"),
    ],
)
def test_a_finding_holds_only_where_the_difference_is_significant(
    pairs: list[tuple[list[float], list[float]]], verdict: str
) -> None:
    differences = corrected([paired_t(a, b) for a, b in pairs])
    comparisons = tuple(ComparedPair("panel", "a − b", d, d.difference > 0) for d in differences)
    assert Finding(Check("claim", above=("a",), below=("b",)), comparisons).verdict == verdict


def test_a_discounted_sum_becomes_the_mean_of_a_round() -> None:
    for rounds in (1, 40, 1000):
        assert a_round(discounted_sum([0.3] * rounds), rounds) == pytest.approx(0.3)
    assert a_round(1589.23, 10_000) == pytest.approx(0.8, abs=1e-4)  # the thesis's maximum is four fifths of one


def test_differences_are_paired_run_by_run() -> None:
    x = np.array([1.0, 2.0])
    first = Curve("a", x, np.array([[0.5, 0.6], [0.1, 0.2]]))
    other = Curve("b", x, np.array([[0.6, 0.8], [0.2, 0.2]]), colour=3, dashes="dotted")
    zero, gained = paired_differences([first, other])
    assert zero.mean.tolist() == [0.0, 0.0] and zero.spread is not None and zero.spread.tolist() == [0.0, 0.0]
    assert gained.mean == pytest.approx([0.1, 0.1])
    # runs gain 0.1 and 0.1, then 0.2 and 0.0: what the seeds change falls out
    assert gained.spread == pytest.approx([0.0, 0.1], abs=1e-12)
    assert (gained.colour, gained.dashes) == (3, "dotted")


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library with the tiny figure only."""
    folder = tmp_path / "papers"
    (folder / "test").mkdir(parents=True)
    (folder / "test" / "tiny.toml").write_text(TINY)
    monkeypatch.setattr(figure_module, "PAPERS", folder)
    return tmp_path


def reproduce(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application(), ["reproduce", *map(str, arguments)])


@pytest.mark.usefixtures("no_pages")
def test_a_figure_from_end_to_end(papers: Path) -> None:
    out = papers / "out"
    command = ("test/tiny", "--quick", "--jobs", "1", "--out", out)
    first = reproduce(*command, "--json", "--record", papers / "record")
    assert first.exit_code == 0, first.output
    results = json.loads(first.stdout)
    assert results == json.loads((out / "results.json").read_text())
    assert results["quick"] is True and results["repetitions"] == 2
    assert [panel["panel"] for panel in results["panels"]] == [{"users.preset": "perfect"}] * 2
    for panel in results["panels"]:
        assert [v["label"] for v in panel["variants"]] == ["step 1", "step 20", "all by one"]
        baseline = panel["variants"][0]
        assert baseline["against_first"] is None
        for variant in panel["variants"]:
            summaries = [json.loads((out / run / "summary.json").read_text()) for run in variant["runs"]]
            assert [s["seed"] for s in summaries] == [1, 2]
            if panel["measure"] == "offline_ndcg@10":
                assert variant["values"] == [s["offline"]["ndcg@10"] for s in summaries]
            assert variant["mean"] == pytest.approx(sum(variant["values"]) / 2)
            if variant is not baseline:
                difference = variant["mean"] - baseline["mean"]
                assert variant["against_first"]["difference"] == pytest.approx(difference, abs=1e-12)
    better, elsewhere = results["checks"]
    assert [c["agrees"] for c in better["comparisons"]].count(True) == better["agree"]
    assert len(better["comparisons"]) == 1
    assert elsewhere["verdict"] == "not measured"
    assert "quick version" in (out / "report.html").read_text()
    assert "://" not in (out / "report.html").read_text()
    assert (out / "figure.svg").stat().st_size > 5000
    drawn = (out / "report.html").read_text()
    assert (
        "paper 0.125" in drawn and "paper 0.250" not in drawn
    )  # the quick version has the panel of perfect clicks only
    assert drawn.count("<figure>") == 4  # two measures, of each the values and the differences
    assert "small: difference from step 1" in drawn

    assert [path.name for path in (papers / "record").iterdir()] == ["test-tiny.json"]
    recorded = read_record(papers / "record" / "test-tiny.json")
    written = recorded.markdown()
    step_20 = results["panels"][0]["variants"][1]
    assert f"{step_20['mean']:.4f} ±{step_20['sd']:.4f}<br>" in written and "<br>paper 0.125 |" in written
    assert "quorank reproduce test/tiny --quick" in written and "](test-tiny.svg)" in written
    recorded.write_panels(papers / "record")
    pictures = [path.read_text() for path in (papers / "record" / "test-tiny.svg", out / "figure.svg")]
    assert [text.count("<path") for text in pictures] == [pictures[1].count("<path")] * 2
    for row in recorded.panels:
        for panel in row[1]:
            assert all(len(curve.x) <= POINTS for curve in panel.curves)
    end = recorded.panels[0][1][0].curves[1].mean[-1]
    assert end == pytest.approx(step_20["mean"], rel=1e-4)

    # One run was interrupted: it alone is done again, and nothing changes.
    broken = out / results["panels"][0]["variants"][1]["runs"][0]
    (broken / "summary.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/summary.json")}
    again = reproduce(*command)
    assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert max(map(len, again.stdout.replace(str(out), "").splitlines())) <= 80
    assert "6 runs, 5 already finished" in again.stderr
    repeated = json.loads((out / "results.json").read_text())
    assert repeated["panels"] == results["panels"] and repeated["checks"] == results["checks"]

    # Another figure, another size, another content: refused in one sentence.
    for other in (("test/tiny",), ("test/tiny", "--quick", "--data", "synthetic:mslr")):
        refused = reproduce(*other, "--out", out)
        assert isinstance(refused.exception, BadInput)
        assert "choose another --out" in str(refused.exception)
    (papers / "papers/test/tiny.toml").write_text(TINY.replace("step = 20.0", "step = 21.0"))
    changed = reproduce(*command)
    assert isinstance(changed.exception, BadInput) and "other settings" in str(changed.exception)


def test_a_directory_with_something_else_is_refused(papers: Path) -> None:
    (papers / "out").mkdir()
    (papers / "out" / "thesis.tex").write_text("years of work")
    refused = reproduce("test/tiny", "--quick", "--out", papers / "out")
    assert isinstance(refused.exception, BadInput) and refused.exception.code == "folder.taken"
    assert "something else" in str(refused.exception)
    assert [path.name for path in (papers / "out").iterdir()] == ["thesis.tex"]


def test_unknown_figure_and_list() -> None:
    unknown = reproduce("fpdgd/figure33")
    assert isinstance(unknown.exception, BadInput) and unknown.exception.code == "figure.unknown"
    assert "did you mean 'fpdgd/figure3'" in str(unknown.exception)
    half = reproduce("rq3")
    assert "did you mean 'foltr-es/rq3'" in str(half.exception)
    listed = reproduce()
    assert listed.exit_code == 0
    every = set(figure_names())
    assert all(name in listed.stdout for name in every)
    assert {entry["figure"] for entry in json.loads(reproduce("--json").stdout)} == every


def test_pages_hold_texts_as_texts_and_the_index_lists_them() -> None:
    figure = read(TINY.replace("A tiny figure", "A <b>tiny</b> | *figure*"))
    table = ReportTable("values_of [it]", ("", "a|b"), [("x", "1 <2\n`3`")])
    findings = [("it | holds", "holds", "2 of 2"), ("more", "undecided", "")]
    report = FigureReport(figure, {}, findings, [table], ["n *1*"], [], [], "")
    page = report.markdown()
    assert "# test/tiny: A \\<b\\>tiny\\</b\\> \\| \\*figure\\*" in page
    assert "| x | 1 \\<2<br>\\`3\\` |" in page and "| it \\| holds | holds | 2 of 2 |" in page and "- n \\*1\\*" in page
    listed = index_markdown([report])
    assert "[test/tiny](test-tiny.md)" in listed and "holds: 1, undecided: 1" in listed


@pytest.mark.usefixtures("papers")
def test_a_data_file_holds_what_a_page_shows(tmp_path: Path) -> None:
    x = np.arange(1.0, 101.0)
    shared = Curve("a", x, np.array([x / 300.0, x / 250.0]), colour=2, dashes="dotted")
    lone = Curve.of_means("b", [1.5, 2.0], [np.nan, 1 / 3], level=True)
    panels = [("row", [Panel("p", "rounds", "", (shared, lone), "lines", "x", (0.0, 0.5))])]
    table = ReportTable("t", ("", "c"), [("x", "1\n2")])
    report = FigureReport(read(TINY), {}, [("it", "holds", "1 of 1")], [table], ["n"], [], panels, "", "0.0.1")
    found = read_record(write_record(report, tmp_path))
    assert found.markdown() == report.markdown()
    assert "Run with Quorank 0.0.1" in found.markdown()
    ((title, (panel,)),) = found.panels
    assert (title, panel.title, panel.form, panel.log, panel.y_range) == ("row", "p", "lines", "x", (0.0, 0.5))
    first, second = panel.curves
    assert len(first.x) == POINTS and first.x[0] == 1.0 and first.x[-1] == 100.0
    assert first.mean == pytest.approx(first.x * (11 / 3000), rel=1e-4)
    assert first.spread == pytest.approx(first.x * np.std([1 / 300, 1 / 250], ddof=1), rel=1e-2)
    assert (first.colour, first.dashes, first.level) == (2, "dotted", False)
    assert (second.x.tolist(), second.mean.tolist(), second.spread, second.level) == ([2.0], [0.33333], None, True)
    before = (tmp_path / "test-tiny.json").read_bytes()
    assert write_record(found, tmp_path).read_bytes() == before, "a data file that is read and written is the same"


def test_tables_replace_those_of_the_same_title(tmp_path: Path) -> None:
    file = tmp_path / "tables.json"
    write_tables([RecordedTable("a", ("x",), (("1",),)), RecordedTable("b", ("x",), (("2",),), "c", "run it")], file)
    write_tables([RecordedTable("a", ("x",), (("3 | 4",),))], file)
    first, second = read_tables(file)
    assert (first.rows, second.about, second.command) == ((("3 | 4",),), "c", "run it")
    assert first.markdown() == ["## a", "", "| x |", "|---|", "| 3 \\| 4 |", ""]


def test_a_paper_stands_for_its_figures_and_mistakes_are_found_before_any_run(papers: Path) -> None:
    (papers / "papers/test/other.toml").write_text(TINY.replace("step = 20.0", "step = 21.0"))
    refused = reproduce("test", "test/nothing", "--quick", "--out", papers / "out")
    assert isinstance(refused.exception, BadInput) and refused.exception.code == "figure.unknown"
    assert not (papers / "out").exists()
    several = reproduce("test", "--quick", "--json", "--out", papers / "out")
    assert isinstance(several.exception, BadInput) and several.exception.code == "option.conflict"
