"""Reports as HTML pages: what was run, what came out, how private it was and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quorank.experiments.finished_run import Run, load_run
from quorank.files.atomic import write_whole
from quorank.reports import logged_clicks, page, statement
from quorank.reports.comparison import RunGroup, compare_table, privacy_of
from quorank.reports.curve_svg import panel_svg
from quorank.reports.panels import PALETTE, TITLES, Curve, Panel, paired_differences, panels_of


def write_report(run: Run | Path | str, path: Path | str) -> Path:
    """Write the report of one run, given as a run or its directory; return where it was written."""
    return write_whole(path, report_page(run if isinstance(run, Run) else load_run(run)).encode())


def write_comparison(groups: Sequence[RunGroup], path: Path | str) -> Path:
    """Write the report of several settings, side by side; return where it was written."""
    return write_whole(path, comparison_page(groups).encode())


def report_page(run: Run) -> str:
    """Write the report of one run as HTML."""
    return page.page(
        f"{run_name(run)} · Quorank run",
        [
            page.header("Quorank run", run_name(run), statement.what_was_run(run)),
            page.figures(_figures(run)),
            page.paragraph(_how_measured(run), "note"),
            *([_unlearned(run.summary["unlearned"])] if "unlearned" in run.summary else []),
            *([_logged_clicks(run.summary["counterfactual"])] if "counterfactual" in run.summary else []),
            _curves([RunGroup("", {}, (run,))], [""]),
            _privacy(run),
            page.section(
                "Do it again",
                page.paragraph("From the folder in which it was started:"),
                page.code(f"quorank run {_config_path(run)} --out again"),
                page.paragraph(
                    f"Quorank {run.summary['version']}, seed {run.seed}. The same version and the same data "
                    "give the same figures, with any number of threads.",
                    "note",
                ),
            ),
            page.section("Configuration", page.code(_config_text(run))),
            _footer(str(run.summary["version"])),
        ],
    )


def _unlearned(note: Mapping[str, Any]) -> page.Markup:
    """Who left, what the ranker was worth before and after, and what it took."""
    who = ", ".join(map(str, note["clients"]))
    several = len(note["clients"]) > 1
    told = (
        f"Client{'s' if several else ''} {who} left after the run. The ranker was rebuilt without "
        f"{'them' if several else 'it'}: the offline figures above are of the rebuilt ranker. The online figures and the "
        "learning curves are of the run as it was played, with everyone."
    )
    figures = [
        (
            name,
            f"nDCG@10 {statement.rounded(note[key]['ndcg@10'], 4)}, MaxRR {statement.rounded(note[key]['maxrr'], 4)}",
        )
        for name, key in (("run as played", "as_run"), ("before", "before"), ("rebuilt", "after"))
    ]
    effort = (
        f"{note['rounds']:,} rounds of {note['local_steps']} local steps, {note['local_updates_share']:.1%} of the local "
        f"updates of retraining ({note['method']})"
    )
    return page.section("Unlearned", page.paragraph(told), page.facts([*figures, ("effort", effort)]))


def _logged_clicks(found: Mapping[str, Any]) -> page.Markup:
    """What the ranker would be worth to the people of a log, by their clicks on the lists that they were shown."""
    return page.section(
        "By logged clicks",
        page.paragraph(
            "The final ranker was shown to nobody. Clicks of the log's test part, each counted by how likely its rank was "
            "looked at, tell what its lists would be worth: DCG and clicks of a search (IPS), or of a relevant document "
            "(SNIPS, which varies less)."
        ),
        page.table(logged_clicks.HEAD, logged_clicks.estimates(found)),
        page.paragraph(logged_clicks.how_estimated(found), "note"),
    )


def _config_path(run: Run) -> str:
    """The run's file as a person would type it; no absolute path of a machine in a page that is passed on."""
    folder = Path(run.path.name) if run.path.is_absolute() else run.path
    return shlex.quote((folder / "run.toml").as_posix())


def comparison_page(groups: Sequence[RunGroup]) -> str:
    """Write the report of several settings as HTML."""
    compared = compare_table(groups)
    names = [row.name for row in compared.rows]
    runs = sum(len(group.runs) for group in groups)
    title = f"{len(groups)} setting{'s'[: len(groups) > 1]}, {runs} run{'s'[: runs > 1]}"
    head = [measure.name for measure in compared.measures]
    # the notes below the tables say what holds for all settings
    own = ["" if compared.same_privacy else " ".join(privacy_of(row.group)) for row in compared.rows]
    key = [(row.name, _underline(n), row.group.label, own[n]) for n, row in enumerate(compared.rows)]
    body = [
        page.header("Quorank comparison", title, statement.what_was_run(groups[0].runs[0])),
        page.section("Settings", page.paragraph(_sentence_scope(groups), "note"), page.key(key)),
        page.section("Means over runs", page.table(["", "runs", *head], compared.mean_rows())),
    ]
    if differences := compared.difference_rows():
        body.append(page.section("Differences from A", page.table(["", *head], differences)))
    body += [page.paragraph(note, "note") for note in compared.notes()]
    body.append(_curves(groups, names))
    differences_drawn = _differences(groups, names)
    body += [differences_drawn] if differences_drawn else []
    body.append(page.section("Runs", page.facts((row.name, _listed(row.group)) for row in compared.rows)))
    body.append(_footer(", ".join(dict.fromkeys(str(r.summary["version"]) for g in groups for r in g.runs))))
    return page.page(f"{title} · Quorank comparison", body)


def run_name(run: Run) -> str:
    """Return the directory's own name: where it lies on somebody's machine does not belong into a page."""
    return run.path.resolve().name


def _figures(run: Run) -> list[tuple[str, str, str]]:
    train, evaluate = run.figure("seconds", "train"), run.figure("seconds", "evaluate")
    final, shown = "final ranker, test queries", "mean of the lists shown"
    discounted = "Σ over rounds t: 0.9995ᵗ⁻¹ × online nDCG@10"
    entries = [
        ("Offline nDCG@10", statement.rounded(run.figure("offline", "ndcg@10"), 4), final),
        ("Offline MaxRR", statement.rounded(run.figure("offline", "maxrr"), 4), final),
        ("Online nDCG@10", statement.rounded(run.figure("online", "ndcg@10"), 4), shown),
        ("Discounted", statement.rounded(run.figure("online", "discounted"), 2), discounted),
        ("Speed", statement.count(round(run.summary["interactions_per_second"])), "interactions per second"),
        ("Time", statement.seconds(train), f"learning, and {statement.seconds(evaluate)} evaluating"),
    ]
    further = [
        (f"Offline nDCG@{n}", statement.rounded(run.figure("offline", f"ndcg@{n}"), 4), final) for n in run.further
    ]
    return [entries[0], *further, *entries[1:]]


def _how_measured(run: Run) -> str:
    return (
        "Offline measures rank the test queries with the final ranker; for nDCG, "
        f"{statement.no_relevant(run)}{statement.counted_queries(run)}. Online measures are of the lists of "
        f"{run.setting('evaluation.k', 10)} documents shown to users during the run; there, a query without a relevant "
        "document counts 0. One run with one seed says nothing about the spread over runs: repeat it with other seeds and "
        "put the runs side by side with “quorank compare”."
    )


def _curves(groups: Sequence[RunGroup], names: Sequence[str]) -> page.Markup:
    further = sorted({n for group in groups for run in group.runs for n in run.further})
    panels = panels_of(groups, names, [*TITLES, *(f"offline_ndcg@{n}" for n in further)])
    if not panels:
        return page.section("Learning curves", page.paragraph("This run recorded none.", "note"))
    drawings = [(_alt(panel), panel_svg(panel)) for panel in panels]
    notes = []
    if any(len(group.runs) > 1 for group in groups):
        notes.append("Lines are means over runs, bands one standard deviation to each side.")
    if any(panel.y_label for panel in panels):
        notes.append("Online measures are averaged over consecutive rounds, as each plot says.")
    below = [page.paragraph(" ".join(notes), "note")] if notes else []
    return page.section("Learning curves", page.plots(drawings), *below)


def _differences(groups: Sequence[RunGroup], names: Sequence[str]) -> page.Markup | None:
    """Learning curves minus those of the first setting, over the seeds and folds that all settings have."""
    by_repetition = [{run.repetition: run for run in group.runs} for group in groups]
    shared = sorted(set(by_repetition[0]).intersection(*by_repetition))
    if len(groups) < 2 or len(shared) < 2:
        return None
    alike = [replace(g, runs=tuple(runs[at] for at in shared)) for g, runs in zip(groups, by_repetition, strict=True)]
    panels = [
        replace(panel, title=f"{panel.title} minus {names[0]}", curves=paired_differences(panel.curves))
        for panel in panels_of(alike, names)
        if all(len(curve.runs) == len(shared) and len(curve.x) for curve in panel.curves)
    ]
    note = (
        "Differences of runs with the same seed and fold: their mean, and its standard error to each side as the band."
    )
    drawings = [(_alt(panel), panel_svg(panel)) for panel in panels]
    return page.section("Paired differences", page.plots(drawings), page.paragraph(note, "note")) if panels else None


def _alt(panel: Panel) -> str:
    ends = [f"{curve.label} {curve.runs[:, -1].mean():.4f}".strip() for curve in panel.curves if len(curve.x)]
    return f"{panel.title} by {panel.x_label}; at the end: {', '.join(ends)}"


def _privacy(run: Run) -> page.Markup:
    entry = run.summary.get("privacy")
    fields = [page.facts(statement.privacy_fields(entry))] if entry and statement.privacy_fields(entry) else []
    drawing = [page.plots([_spent(run, entry)])] if entry and len(run.spent) > 1 else []
    return page.section("Privacy", page.paragraph(statement.privacy(entry)), *drawing, *fields)


def _spent(run: Run, entry: Mapping[str, Any]) -> tuple[str, str]:
    """The ε that a client has spent by each round, at the δ of the whole run."""
    rounds, epsilons = np.array([(0.0, 0.0), *run.spent]).T
    title = f"ε spent by one client at δ = {statement.words(entry.get('delta'))}"
    panel = Panel(title, "rounds", "", (Curve("", rounds, epsilons[None]),))
    return _alt(panel), panel_svg(panel)


def _config_text(run: Run) -> str:
    return (run.path / "run.toml").read_text(encoding="utf-8").strip()


def _listed(group: RunGroup) -> str:
    return ", ".join(
        f"{run_name(run)} (seed {run.seed}"
        + (f", fold {run.setting('data.fold')})" if run.setting("data.fold") is not None else ")")
        for run in group.runs
    )


def _underline(number: int) -> str:
    """The curve's colour and dashes, in CSS."""
    dashes = ("solid", "dashed", "dotted")[number // len(PALETTE) % 3]
    return f"{dashes} var(--curve-{number % len(PALETTE) + 1})"


def _sentence_scope(groups: Sequence[RunGroup]) -> str:
    if len(groups) == 1:
        return "The sentence above describes the first run; the others differ in seed or fold only."
    return "The sentence above describes the first run of A; other settings differ in what is named here."


def _footer(version: str) -> page.Markup:
    return page.footer(f"Run with Quorank {version}. This file loads nothing and runs no script.")
