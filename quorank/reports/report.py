"""HTML reports of a run and of a comparison of settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from quorank.experiments.run_directory import Run, load_run
from quorank.files.atomic import write_whole
from quorank.reports import statement
from quorank.reports.comparison import RunGroup, compare_table, privacy_of
from quorank.reports.page import panel_svg, render
from quorank.reports.panels import PALETTE, TITLES, Curve, Panel, panels_of


def write_report(run: Run | Path | str, path: Path | str) -> Path:
    """Write the report of one run, given as a run or its directory; return its path."""
    return write_whole(path, report_page(run if isinstance(run, Run) else load_run(run)).encode())


def write_comparison(groups: Sequence[RunGroup], path: Path | str) -> Path:
    """Write the report of several settings side by side; return its path."""
    return write_whole(path, comparison_page(groups).encode())


def report_page(run: Run) -> str:
    """Return the report of one run as HTML."""
    name, summary = run_name(run), run.summary
    unlearned, clicks, privacy = summary.get("unlearned"), summary.get("counterfactual"), summary.get("privacy")
    return render(
        "run.html",
        title=f"{name} · Quorank run",
        eyebrow="Quorank run",
        heading=name,
        lead=statement.what_was_run(run),
        figures=_figures(run),
        no_relevant=statement.no_relevant(run),
        counted_queries=statement.counted_queries(run),
        depth=run.setting("evaluation.k", 10),
        unlearned=unlearned,
        unlearned_facts=_unlearned_facts(unlearned) if unlearned else [],
        click_estimates=statement.click_estimates(clicks) if clicks else [],
        click_columns=statement.CLICK_COLUMNS,
        click_note=statement.click_note(clicks) if clicks else "",
        **_curves([RunGroup("", {}, (run,))], [""]),
        privacy=statement.privacy(privacy),
        spent=[_spent(run, privacy)] if privacy and len(run.spent) > 1 else [],
        privacy_fields=statement.privacy_fields(privacy) if privacy else [],
        config_path=_config_path(run),
        configuration=(run.path / "run.toml").read_text(encoding="utf-8").strip(),
        seed=run.seed,
        version=summary["version"],
    )


def comparison_page(groups: Sequence[RunGroup]) -> str:
    """Return the report of several settings as HTML."""
    table = compare_table(groups)
    names = [row.name for row in table.rows]
    runs = [run for group in groups for run in group.runs]
    heading = f"{len(groups)} setting{'s'[: len(groups) > 1]}, {len(runs)} run{'s'[: len(runs) > 1]}"
    rows = [
        {
            "name": row.name,
            "line": _underline(number),
            "label": row.group.label,
            # the notes below the tables say what holds for all settings
            "privacy": "" if table.same_privacy else " ".join(privacy_of(row.group)),
        }
        for number, row in enumerate(table.rows)
    ]
    return render(
        "comparison.html",
        title=f"{heading} · Quorank comparison",
        eyebrow="Quorank comparison",
        heading=heading,
        lead=statement.what_was_run(runs[0]),
        rows=rows,
        metrics=[measure.name for measure in table.measures],
        means=table.mean_rows(),
        differences=table.difference_rows(),
        notes=table.notes(),
        **_curves(groups, names),
        runs=[(row.name, _list_runs(row.group)) for row in table.rows],
        version=", ".join(dict.fromkeys(str(run.summary["version"]) for run in runs)),
    )


def run_name(run: Run) -> str:
    """Return the directory's own name: its place on a machine does not belong into a page."""
    return run.path.resolve().name


def _config_path(run: Run) -> str:
    """Return the run's file as a person would type it, without an absolute path."""
    folder = Path(run.path.name) if run.path.is_absolute() else run.path
    return shlex.quote((folder / "run.toml").as_posix())


def _figures(run: Run) -> list[tuple[str, str, str]]:
    train, evaluate = run.figure("seconds", "train"), run.figure("seconds", "evaluate")
    final, shown = "final ranker, test queries", "mean of the lists shown"
    discounted = "Σ over rounds t: 0.9995ᵗ⁻¹ × online nDCG@10"
    offline = [("Offline nDCG@10", "ndcg@10"), *((f"Offline nDCG@{n}", f"ndcg@{n}") for n in run.further)]
    offline.append(("Offline MaxRR", "maxrr"))
    return [
        *((name, statement.rounded(run.figure("offline", key), 4), final) for name, key in offline),
        ("Online nDCG@10", statement.rounded(run.figure("online", "ndcg@10"), 4), shown),
        ("Discounted", statement.rounded(run.figure("online", "discounted"), 2), discounted),
        ("Speed", statement.count(round(run.summary["interactions_per_second"])), "interactions per second"),
        ("Time", statement.seconds(train), f"learning, and {statement.seconds(evaluate)} evaluating"),
    ]


def _unlearned_facts(note: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the ranker's metrics before and after clients left, and the effort."""
    facts = []
    for name, key in (("original run", "as_run"), ("before", "before"), ("rebuilt", "after")):
        ndcg, maxrr = (statement.rounded(note[key][metric], 4) for metric in ("ndcg@10", "maxrr"))
        facts.append((name, f"nDCG@10 {ndcg}, MaxRR {maxrr}"))
    effort = (
        f"{note['rounds']:,} rounds of {note['local_steps']} local steps, {note['local_updates_share']:.1%} of the local "
        f"updates of retraining ({note['method']})"
    )
    return [*facts, ("effort", effort)]


def _curves(groups: Sequence[RunGroup], names: Sequence[str]) -> dict[str, Any]:
    further = sorted({n for group in groups for run in group.runs for n in run.further})
    panels = panels_of(groups, names, [*TITLES, *(f"offline_ndcg@{n}" for n in further)])
    return {
        "curves": [panel_svg(panel, describe(panel)) for panel in panels],
        "repeated": any(len(group.runs) > 1 for group in groups),
        "averaged": any(panel.y_label for panel in panels),
    }


def describe(panel: Panel) -> str:
    """Return a panel in words, for readers who do not see the drawing."""
    ends = [f"{curve.label} {curve.runs[:, -1].mean():.4f}".strip() for curve in panel.curves if len(curve.x)]
    return f"{panel.title} by {panel.x_label}; at the end: {', '.join(ends)}"


def _spent(run: Run, entry: Mapping[str, Any]) -> Markup:
    """Draw the ε that a client has spent by each round, at the δ of the whole run."""
    rounds, epsilons = np.array([(0.0, 0.0), *run.spent]).T
    title = f"ε spent by one client at δ = {statement.words(entry.get('delta'))}"
    panel = Panel(title, "rounds", "", (Curve("", rounds, epsilons[None]),), "curves")
    return panel_svg(panel, describe(panel))


def _list_runs(group: RunGroup) -> str:
    folds = [f", fold {run.setting('data.fold')}" if run.setting("data.fold") is not None else "" for run in group.runs]
    return ", ".join(f"{run_name(run)} (seed {run.seed}{fold})" for run, fold in zip(group.runs, folds, strict=True))


def _underline(number: int) -> str:
    """Return the number-th curve's dashes and colour in CSS."""
    dashes = ("solid", "dashed", "dotted")[number // len(PALETTE) % 3]
    return f"{dashes} var(--curve-{number % len(PALETTE) + 1})"
