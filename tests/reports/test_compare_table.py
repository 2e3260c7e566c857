"""The comparison table: its figures by hand, its tests, its width."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import invoke
from made_up_runs import load_run, load_runs
from refusals import refused
from rich.console import Console
from scipy import stats

from quorank.cli.compare import compare, report
from quorank.metrics.significance import welch_t
from quorank.reports.comparison import MEASURES, CompareTable, RunGroup, baseline_first, compare_table, group_runs
from quorank.reports.report import NO_PRIVACY, describe_privacy, describe_run, privacy_fields

PRIVATE = {"kind": "gaussian", "epsilon": 2.0, "delta": 1e-5, "unit": "client", "horizon": "whole run"}


def _printed(table: CompareTable, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _groups(*paths: Path) -> list[RunGroup]:
    return group_runs(load_runs(paths))


def test_means_by_hand(make_grid) -> None:
    groups = _groups(make_grid(seeds=3))
    table = compare_table(groups)
    values = [run.summary["offline"]["ndcg@10"] for run in groups[0].runs]
    first = table.rows[0].spreads[0]
    assert first.mean == pytest.approx(sum(values) / 3)
    assert first.sd == pytest.approx(np.std(values, ddof=1))
    assert table.rows[0].against_first == ()


def test_seeds_of_a_fold_are_averaged_before_the_test(make_run) -> None:
    settings = (("perfect", 0.45), ("navigational", 0.44))
    paths = [
        make_run(f"{p}{f}{s}", preset=p, level=level + f / 100 * (p == "perfect"), fold=f, seed=s)
        for p, level in settings
        for f in (1, 2, 3)
        for s in (1, 2)
    ]
    groups = _groups(*paths)
    table = compare_table(groups)
    found = table.rows[1].against_first[0]
    means = [group.metric("offline", "ndcg@10").reshape(3, 2).mean(axis=1) for group in groups]
    assert found is not None and found.p == pytest.approx(stats.ttest_rel(means[1], means[0]).pvalue)
    assert found.unit == table.as_dict()["settings"][1]["against_first"]["offline.ndcg@10"]["unit"] == "fold"
    assert "paired t-test over 3 folds (means over seeds)" in " ".join(_printed(table).split())


def test_pairing_goes_by_seed_not_by_order(make_run) -> None:
    paths = [make_run(f"a{s}", seed=s, level=0.4 + s / 50) for s in (1, 2, 3)]
    paths += [make_run(f"b{s}", seed=s, preset="navigational", level=0.39 + s / 50) for s in (3, 1, 2)]
    found = compare_table(_groups(*paths)).rows[1].against_first[0]
    assert found is not None and found.test == "paired t"
    assert found.p is not None and found.p < 0.2  # seeds differ far more than settings: unpaired would see nothing


def test_other_seeds_are_compared_by_welch(make_run) -> None:
    paths = [make_run(f"a{s}", seed=s) for s in (1, 2, 3)]
    paths += [make_run(f"b{s}", seed=s, preset="navigational", level=0.4) for s in (3, 4)]
    groups = _groups(*paths)
    found = compare_table(groups).rows[1].against_first[0]
    expected = welch_t(groups[1].metric("offline", "ndcg@10"), groups[0].metric("offline", "ndcg@10"))
    assert found == replace(expected, unit="seed")


def test_p_is_corrected_for_the_comparisons_of_a_measure(make_grid) -> None:
    table = compare_table(_groups(make_grid(presets=("perfect", "navigational", "informational"), seeds=2)))
    assert table.comparisons == 2
    for row in table.rows[1:]:
        for d in row.against_first:
            assert d is not None and d.p is not None
            assert d.corrected_p == pytest.approx(min(1, 2 * d.p))


def test_lone_runs_are_shown_without_a_test(make_run) -> None:
    table = compare_table(_groups(make_run("a"), make_run("b", preset="navigational")))
    assert table.comparisons == 0
    assert table.rows[0].spreads[0].sd is None
    text = _printed(table)
    assert text.count("1 run, no test") == len(MEASURES)
    assert "Bonferroni" not in text


def test_a_figure_that_no_run_has_is_a_dash(make_run) -> None:
    paths = [make_run("a"), make_run("b", preset="navigational")]
    file = paths[1] / "summary.json"
    summary = json.loads(file.read_text())
    summary["offline"]["maxrr"] = None
    file.write_text(json.dumps(summary))
    table = compare_table(_groups(*paths))
    assert table.rows[1].spreads[1].mean is None
    assert table.rows[1].against_first[1] is None
    assert "–" in _printed(table)
    json.dumps(table.as_dict(), allow_nan=False)


@pytest.mark.parametrize("scale", [1, 10_000])
def test_eighty_columns_hold_every_figure(make_run, scale: int) -> None:
    paths = []
    for seed in (1, 2):
        for preset, level in (("perfect", 0.45), ("navigational", 0.41)):
            paths.append(make_run(f"{preset}{seed}", preset=preset, seed=seed, level=level, step=20.0))
            file = paths[-1] / "summary.json"
            summary = json.loads(file.read_text())
            summary["online"]["discounted"] *= scale * seed
            file.write_text(json.dumps(summary))
    table = compare_table(_groups(*paths))
    text = _printed(table)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    if scale == 1:
        shown = set(re.findall(r"\d+\.\d+", text))
        for row in table.rows:
            for spread, measure in zip(row.spreads, MEASURES, strict=True):
                assert f"{spread.mean:.{measure.decimals}f}" in shown


def test_the_terminal_says_what_letters_conventions_and_marks_mean(make_grid) -> None:
    text = " ".join(_printed(compare_table(_groups(make_grid(seeds=3)))).split())
    for words in (
        "A users.preset=perfect B users.preset=navigational",
        "queries without a relevant document are skipped",
        "two-tailed paired t-test over 3 seeds of one fold, p Bonferroni-corrected for 1 comparison per measure",
        "▲▼ p < .01",
        "No privacy mechanism",
    ):
        assert words in text
    assert text.count("No privacy mechanism") == 1


def test_settings_that_differ_in_privacy_each_state_theirs(make_run) -> None:
    table = compare_table(_groups(make_run("a"), make_run("b", step=20.0, privacy=PRIVATE)))
    text = " ".join(_printed(table).split())
    assert "No privacy mechanism: updates were sent unprotected." in text
    assert "Gaussian: ε = 2 at δ = 1e-05 (unit: client; horizon: whole run)." in text


def test_as_dict_is_json(make_grid) -> None:
    table = compare_table(_groups(make_grid(seeds=3))).as_dict()
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    first, second = table["settings"]
    assert table["baseline"] == first["label"] == "users.preset=perfect"
    assert (first["n"], first["against_first"]) == (3, None)
    assert second["against_first"]["offline.ndcg@10"]["mark"] in "▲▼△▽"
    assert second["differs"] == {"users.preset": "navigational"}


def test_a_run_is_described_in_a_sentence(make_run) -> None:
    assert describe_run(load_run(make_run(fold=2))) == (
        "1,000 clients with 4 interactions each per round learned a linear ranker together in 60 rounds "
        "(240,000 interactions) by PDGD from the clicks of perfect cascade users on synthetic:mq2007, fold "
        "2; updates were combined by mean."
    )


def test_epsilon_never_stands_alone() -> None:
    assert describe_privacy(None) == NO_PRIVACY
    for key in ("delta", "unit", "horizon"):
        told = describe_privacy({k: v for k, v in PRIVATE.items() if k != key})
        assert "withheld" in told and "2" not in told
    assert "states no ε" in describe_privacy({"kind": "signs"})
    fields = dict(privacy_fields(PRIVATE | {"epsilon_per_round": 0.1, "clients": 1000, "honest": True}))
    assert fields["epsilon per round"] == "ε = 0.1 at δ = 1e-05 (unit: client; horizon: per round)"
    assert (fields["clients"], fields["honest"], fields["δ"]) == ("1,000", "yes", "1e-05")
    assert "epsilon" not in fields


def test_settings_are_named_by_what_differs(make_run) -> None:
    runs = load_runs(
        [
            make_run("a", preset="perfect", step=20.0),
            make_run("b", preset="navigational", step=1.0),
            make_run("c", preset="perfect", step=20, seed=2),  # TOML's 20 and 20.0 are one setting
        ]
    )
    first, second = group_runs(runs)
    assert first.label == "users.preset=perfect, federation.server.step=20"
    assert second.label == "users.preset=navigational, federation.server.step=1"
    assert first.differs == {"users.preset": "perfect", "federation.server.step": 20.0}
    assert [run.path.name for run in first.runs] == ["a", "c"]


def test_a_setting_may_lack_keys_that_others_have(make_run) -> None:
    plain, extra = make_run("plain"), make_run("extra")
    with (extra / "run.toml").open("a") as file:
        file.write("\n[attack]\nkind = 'flip'\nshare = 0.3\nloud = true\n")
    labels = [group.label for group in group_runs(load_runs([plain, extra]))]
    assert labels == [
        "no attack.kind, no attack.share, no attack.loud",
        "attack.kind=flip, attack.share=0.3, attack.loud=true",
    ]


def test_the_baseline_is_chosen_by_letter_value_label_or_run(make_run) -> None:
    paths = [
        make_run(f"{p[:3]}{s}", preset=p, seed=s) for p in ("perfect", "navigational", "informational") for s in (1, 2)
    ]
    groups = _groups(*paths)
    for name in ("B", "users.preset=navigational", "preset=navigational", "nav2", f"{paths[2]}/"):
        moved = baseline_first(groups, name)
        assert [group.differs["users.preset"] for group in moved] == ["navigational", "perfect", "informational"]
        table = compare_table(moved)
        assert table.as_dict()["baseline"] == "users.preset=navigational"
        expected = moved[1].metric("offline", "ndcg@10").mean() - moved[0].metric("offline", "ndcg@10").mean()
        assert table.rows[1].against_first[0].difference == pytest.approx(expected)
    for name in ("D", "preset=unknown", "seed=1"):
        with refused("comparison.unknown-baseline", "--baseline"):
            baseline_first(groups, name)


def test_keys_choose_what_is_grouped(make_run) -> None:
    """Two presets with two steps and two seeds each: four settings, or two of four runs each."""
    paths = [
        make_run(f"{p}{step}{s}", preset=p, step=step, seed=s, level=0.4 + step / 100)
        for p in ("perfect", "navigational")
        for step in (1.0, 2.0)
        for s in (1, 2)
    ]
    runs = load_runs(paths)
    assert [len(group.runs) for group in group_runs(runs)] == [2, 2, 2, 2]
    for by, labels in (
        (["users.preset"], ["users.preset=perfect", "users.preset=navigational"]),
        (["users"], ["users.preset=perfect", "users.preset=navigational"]),
        (["federation.server"], ["federation.server.step=1", "federation.server.step=2"]),
        (["seed"], ["seed=1", "seed=2"]),
    ):
        groups = group_runs(runs, by)
        assert [group.label for group in groups] == labels
        assert [len(group.runs) for group in groups] == [4, 4]
    table = compare_table(group_runs(runs, ["users.preset"]))
    values = [load_run(path).summary["offline"]["ndcg@10"] for path in paths]
    assert table.rows[0].spreads[0].mean == pytest.approx(np.mean(values[:4]))
    assert "Runs of one setting also differ in federation.server.step" in " ".join(table.notes())
    assert "also differ" not in " ".join(compare_table(group_runs(runs)).notes())
    with refused("comparison.unknown-key", "--by"):
        group_runs(runs, ["users.presett"])


pytestmark = pytest.mark.slow

app = typer.Typer()
app.command()(compare)
app.command()(report)


def test_baseline_and_keys_on_the_command_line(make_run, tmp_path: Path) -> None:
    paths = [make_run(f"{p}{s}", preset=p, step=s) for p in ("perfect", "navigational") for s in (1.0, 2.0)]
    found = json.loads(
        invoke(app, "compare", *paths, "--by", "users", "--baseline", "preset=navigational", "--json").stdout
    )
    assert (found["baseline"], found["by"]) == ("users.preset=navigational", ["users"])
    assert [(row["name"], row["n"]) for row in found["settings"]] == [("A", 2), ("B", 2)]
    invoke(app, "report", *paths, "--by", "users", "--baseline", "B", "--out", tmp_path / "page.html")
    assert "2 settings, 4 runs" in (tmp_path / "page.html").read_text()


def test_many_settings_are_small_multiples(make_run, tmp_path: Path) -> None:
    """Eleven curves in a plot cannot be told apart: each of ten is drawn with the first one."""
    paths = [make_run(f"r{s}", step=float(s), level=0.3 + s / 100) for s in range(1, 12)]
    invoke(app, "report", *paths[:8], "--out", tmp_path / "few.html")
    invoke(app, "report", *paths, "--out", tmp_path / "many.html")
    few, many = ((tmp_path / name).read_text().count("<svg") for name in ("few.html", "many.html"))
    assert many == 10 * few
    page = (tmp_path / "many.html").read_text()
    assert "Offline nDCG@10: K, A dotted" in page


def test_report_of_several_runs_is_a_comparison(make_grid, make_run, tmp_path: Path) -> None:
    for runs in ([make_grid(seeds=1)], [make_run("a"), make_run("b", preset="navigational")]):
        invoke(app, "report", *runs, "--out", tmp_path / "page.html")
        assert "2 settings, 2 runs" in (tmp_path / "page.html").read_text()
