"""Report of one run: sentences about its setting, metrics, privacy and clicks, and the HTML page."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from quorank.experiments.run_directory import Run, load_run
from quorank.files.atomic import write_whole
from quorank.reports.page import panel_svg, render
from quorank.reports.panels import MOST_CURVES, TITLES, Curve, Panel, panels_of, small_multiples

if TYPE_CHECKING:
    from rich.console import Group as Renderable
    from rich.console import RenderableType

NO_PRIVACY = "No privacy mechanism: updates were sent unprotected."
CLICK_COLUMNS = ("by logged clicks", "this ranker", "as shown", "gain")
NUMBER = re.compile(r"–|[+−-]?\d[\d.,]*%?(\s.*)?", re.DOTALL)


class ReportTable(NamedTuple):
    """Titled table; lines of a cell are separated by a line break."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def terminal_report(start: RenderableType, tables: Iterable[ReportTable], notes: Iterable[str]) -> Renderable:
    """Return tables and notes for a terminal of 80 columns; columns of numbers are right-justified."""
    from rich import box
    from rich.console import Group as Renderable
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    shown = []
    for title, head, rows in tables:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=title, title_justify="left")
        for index, name in enumerate(head):
            numbers = all(NUMBER.fullmatch(row[index]) for row in rows)
            # in a narrow terminal a number continues in the next line; it is never cut
            table.add_column(Text(name), justify="right" if index and numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        shown.append(table)
    return Renderable(start, *shown, *(Padding(Text(note, style="dim"), (0, 1)) for note in notes))


def describe_run(run: Run) -> str:
    """Describe a run's setting in one sentence."""
    clients, each = run.setting("federation.clients"), run.setting("federation.interactions")
    ranker, learner = kind_of(run.setting("ranker"), "unnamed"), kind_of(run.setting("learner"), "an unnamed learner")
    users = " ".join(word for word in (run.setting("users.preset"), kind_of(run.setting("users"))) if word)
    fold, feedback = run.setting("data.fold"), run.setting("learner.feedback")
    members = "Clients" if clients is None else f"{clients:,} clients"
    source = f"{run.setting('data.source', 'unnamed data')}" + ("" if fold is None else f", fold {fold}")
    article = "an" if ranker[:1] in "aeiou" or ranker == "mlp" else "a"  # the letters of MLP are spelled out
    together = f"{article} {ranker} ranker together in {run.summary['rounds']:,} rounds"
    if feedback is not None:
        learned_from = "labels" if feedback == "labels" else f"the logged clicks of {users or 'simulated'} users"
        return (
            f"{members} grew {together} by {learner} from {learned_from} on {source}; "
            "only sums over all clients were used."
        )
    pace = "" if each is None else f" with {each:,} interactions each per round"
    aggregation = kind_of(run.setting("federation.aggregation"))
    learner = learner.upper() if len(learner) <= 4 else learner
    return (
        f"{members}{pace} learned {together} ({run.summary['interactions']:,} interactions)"
        f" by {learner} from the clicks of {users or 'simulated'} users on {source}"
        f"{f'; updates were combined by {aggregation}' if aggregation else ''}."
    )


def describe_no_relevant(run: Run) -> str:
    """Return the treatment of queries without a relevant document in means of offline metrics and online nDCG."""
    conventions = {
        "skip": "queries without a relevant document are skipped",
        "zero": "queries without a relevant document count 0",
        "published": "queries without a relevant document are skipped offline and count 0 online",
    }
    unknown = "the run does not say how queries without a relevant document count"
    return conventions.get(run.setting("evaluation.no_relevant", ""), unknown)


def describe_privacy(entry: Mapping[str, Any] | None) -> str:
    """Describe summary["privacy"] in a sentence; an ε without its δ, unit and horizon is withheld."""
    if entry is None:
        return NO_PRIVACY
    mechanism = str(entry.get("kind", "an unnamed mechanism"))
    mechanism = mechanism[:1].upper() + mechanism[1:]
    if entry.get("epsilon") is None:
        return f"{mechanism}: the run states no ε."
    needed = {"δ": "delta", "unit": "unit", "horizon": "horizon"}
    missing = [word for word, key in needed.items() if entry.get(key) is None]
    if missing:
        return f"{mechanism}: its ε is withheld, because the run does not state its {' and '.join(missing)}."
    return f"{mechanism}: {_qualified(entry['epsilon'], entry, str(entry['horizon']))}."


def privacy_fields(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the other entries of summary["privacy"] by name, any further ε qualified like the first."""
    fields = []
    for key, value in entry.items():
        if key in ("kind", "epsilon"):
            continue
        if "epsilon" in key:
            if entry.get("delta") is not None and entry.get("unit") is not None:
                horizon = key.replace("epsilon", "").replace("_", " ").strip()
                fields.append((key.replace("_", " "), _qualified(value, entry, horizon or "not stated")))
        else:
            fields.append(("δ" if key == "delta" else key.replace("_", " "), format_value(value)))
    return fields


def kind_of(part: Any, default: str = "") -> str:
    """Return the kind of a part, written as a string or as a table."""
    return str(part.get("kind", default)) if isinstance(part, Mapping) else str(part or default)


def format_value(value: Any) -> str:
    """Format a value of a configuration or summary for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {format_value(v)}" for key, v in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(format_value(v) for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_decimals(value: float, decimals: int) -> str:
    """Format a number; a dash stands for NaN and infinity."""
    return f"{value:.{decimals}f}" if math.isfinite(value) else "–"


def format_seconds(value: float) -> str:
    """Format a duration: 0.84 s, 12.3 s, 3 min 20 s, 2 h 05 min."""
    if not math.isfinite(value):
        return "–"
    if value < 100:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def click_estimates(evaluation: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each metric and estimator: this ranker, the lists as shown, and their difference.

    Args:
        evaluation: Counterfactual evaluation as `LoggedClickEvaluator.figures` computes it.
    """
    return [
        [f"{metric}, {name.upper()}", *(_with_interval(each[part]) for part in ("ranker", "shown", "gain"))]
        for metric, estimators in evaluation["estimates"].items()
        for name, each in estimators.items()
    ]


def describe_clicks(evaluation: Mapping[str, Any]) -> str:
    """Describe the data of the estimates, and the interval after ±."""
    looks = ", ".join(f"{p:.2f}" for p in evaluation["propensities"])
    users = evaluation["users"]
    by_users, unit = ("", "searches") if users is None else (f" of {users:,} users", "users")
    return (
        f"{evaluation['clicks']:,} clicks{by_users} in {evaluation['searches']:,} searches, worth "
        f"{evaluation['effective_clicks']:,.0f} of equal weight; {evaluation['clipped_clicks']:,} at ranks clipped to "
        f"{evaluation['clip']:g}. Propensities of ranks: {looks}. ± is a 95 % interval over {unit}. Documents that were "
        "not shown are not judged."
    )


def _with_interval(estimate: Mapping[str, float | None]) -> str:
    error = estimate["error"]
    return f"{estimate['value']:.4f}" + ("" if error is None else f" ± {1.96 * error:.4f}")


def _qualified(epsilon: Any, entry: Mapping[str, Any], horizon: str) -> str:
    delta, unit = format_value(entry["delta"]), format_value(entry["unit"])
    return f"ε = {format_value(epsilon)} at δ = {delta} (unit: {unit}; horizon: {horizon})"


def write_report(run: Run | Path | str, path: Path | str) -> Path:
    """Write the report of one run, given as a run or its directory; return its path."""
    return write_whole(path, report_page(run if isinstance(run, Run) else load_run(run)).encode())


def report_page(run: Run) -> str:
    """Return the report of one run as HTML."""
    name, summary = run_name(run), run.summary
    unlearned, clicks, privacy = summary.get("unlearned"), summary.get("counterfactual"), summary.get("privacy")
    folder = Path(run.path.name) if run.path.is_absolute() else run.path  # the folders above are private
    return render(
        "run.html",
        title=f"{name} · Quorank run",
        eyebrow="Quorank run",
        heading=name,
        lead=describe_run(run),
        figures=_figures(run),
        no_relevant=describe_no_relevant(run),
        online_skipped=run.setting("evaluation.no_relevant", "") == "skip",
        counted=summary.get("evaluation", {}),
        depth=run.setting("evaluation.k", 10),
        unlearned=unlearned,
        unlearned_facts=_unlearned_facts(unlearned) if unlearned else [],
        click_estimates=click_estimates(clicks) if clicks else [],
        click_columns=CLICK_COLUMNS,
        click_note=describe_clicks(clicks) if clicks else "",
        **curves_of([[run]], [""]),
        privacy=describe_privacy(privacy),
        spent=[_spent(run, privacy)] if privacy and len(run.spent) > 1 else [],
        privacy_fields=privacy_fields(privacy) if privacy else [],
        config_path=shlex.quote((folder / "run.toml").as_posix()),
        configuration=(run.path / "run.toml").read_text(encoding="utf-8").strip(),
        seed=run.seed,
        version=summary["version"],
    )


def run_name(run: Run) -> str:
    """Return the name of the run's directory, without its location."""
    return run.path.resolve().name


def _figures(run: Run) -> list[tuple[str, str, str]]:
    train, evaluate = run.figure("seconds", "train"), run.figure("seconds", "evaluate")
    final, shown = "final ranker, test queries", "mean of the lists shown"
    discounted = "Σ over rounds t: 0.9995ᵗ⁻¹ × online nDCG@10"
    offline = [("Offline nDCG@10", "ndcg@10"), *((f"Offline nDCG@{n}", f"ndcg@{n}") for n in run.further)]
    offline.append(("Offline MaxRR", "maxrr"))
    return [
        *((name, format_decimals(run.figure("offline", key), 4), final) for name, key in offline),
        ("Online nDCG@10", format_decimals(run.figure("online", "ndcg@10"), 4), shown),
        ("Discounted", format_decimals(run.figure("online", "discounted"), 2), discounted),
        ("Speed", f"{run.summary['interactions_per_second']:,.0f}", "interactions per second"),
        ("Time", format_seconds(train), f"learning, and {format_seconds(evaluate)} evaluating"),
    ]


def _unlearned_facts(note: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rebuilt ranker's metrics, and the effort."""
    ndcg, maxrr = (format_decimals(note["after"][metric], 4) for metric in ("ndcg@10", "maxrr"))
    effort = (
        f"{note['rounds']:,} rounds of {note['local_steps']} local steps, {note['local_updates_share']:.1%} of the local "
        f"updates of retraining ({note['method']})"
    )
    return [("rebuilt", f"nDCG@10 {ndcg}, MaxRR {maxrr}"), ("effort", effort)]


def curves_of(groups: Sequence[Sequence[Run]], names: Sequence[str]) -> dict[str, Any]:
    """Return the values of curves.html for groups of repeated runs."""
    further = sorted({n for runs in groups for run in runs for n in run.further})
    panels = panels_of(groups, names, [*TITLES, *(f"offline_ndcg@{n}" for n in further)])
    crowded = len(groups) > MOST_CURVES
    multiples = [multiple for panel in panels for multiple in small_multiples(panel)]
    return {
        "curves": [panel_svg(panel, describe_panel(panel), named=not crowded) for panel in multiples],
        "crowded": crowded,
        "repeated": any(len(runs) > 1 for runs in groups),
        "averaged": any(panel.y_label for panel in panels),
    }


def describe_panel(panel: Panel) -> str:
    """Describe a panel for readers who do not see the drawing."""
    ends = [f"{curve.label} {curve.runs[:, -1].mean():.4f}".strip() for curve in panel.curves if len(curve.x)]
    return f"{panel.title} by {panel.x_label}; at the end: {', '.join(ends)}"


def _spent(run: Run, entry: Mapping[str, Any]) -> Markup:
    """Draw the ε that a client has spent by each round, at the δ of the whole run."""
    rounds, epsilons = np.array([(0.0, 0.0), *run.spent]).T
    title = f"ε spent by one client at δ = {format_value(entry.get('delta'))}"
    panel = Panel(title, "rounds", "", (Curve("", rounds, epsilons[None]),), "curves")
    return panel_svg(panel, describe_panel(panel))
