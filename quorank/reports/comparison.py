"""Comparison of settings, as a table and as an HTML page.

Means are over the runs of a setting, differences are from the first setting, with significance tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.errors import brief, require, suggest
from quorank.experiments.experiment_file import flatten
from quorank.experiments.run_directory import Run
from quorank.files.atomic import sha256, write_whole
from quorank.kernels.arrays import Doubles
from quorank.metrics.significance import Difference, corrected, mark, repeated_t
from quorank.reports.page import render
from quorank.reports.panels import PALETTE
from quorank.reports.report import (
    NO_PRIVACY,
    ReportTable,
    curves_of,
    describe_no_relevant,
    describe_privacy,
    describe_run,
    kind_of,
    run_name,
    terminal_report,
)

if TYPE_CHECKING:
    from rich.console import Group as Renderable

REPETITION_KEYS = ("seed", "data.fold")
"""Runs that differ in nothing else are repetitions of one setting."""
_ABSENT = object()
LONGEST_LIST = 8
"""Longest list whose values a label shows."""


@dataclass(frozen=True, eq=False)
class RunGroup:
    """All repetitions of one setting."""

    label: str
    differs: Mapping[str, Any]  # the keys in which the settings at hand differ, with this one's values
    runs: tuple[Run, ...]

    def metric(self, section: str, name: str) -> Doubles:
        """Return (runs,) one metric of every run's summary."""
        return np.array([run.figure(section, name) for run in self.runs])


def group_runs(runs: Sequence[Run], by: Sequence[str] = ()) -> list[RunGroup]:
    """Group runs that differ only in seed and fold, in the order in which their settings first appear.

    Args:
        runs: Finished runs.
        by: Keys of run.toml, or its sections; runs that agree in all of them are one group.

    Raises:
        BadInput: `comparison.unknown-key` for a key that no run has.
    """
    for key in by:
        known = {name for run in runs for name in flatten(run.config)}
        sentence = f"no run has the key {brief(key)}{suggest(key, sorted(known))}"
        require(any(_is_under(name, key) for name in known), "comparison.unknown-key", sentence, "--by")
    members: dict[str, list[Run]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        flat = {key: value for key, value in flatten(run.config).items() if _identifies(key, by)}
        identity = json.dumps({key: _text(value) for key, value in sorted(flat.items())})
        members.setdefault(identity, []).append(run)
        settings[identity] = flat
    varying = _varying([*settings.values()])
    differs = {identity: {k: flat[k] for k in varying if k in flat} for identity, flat in settings.items()}
    labels = {identity: ", ".join(f"{k}={_text(v)}" for k, v in table.items()) for identity, table in differs.items()}
    if len(members) == 1:
        run = runs[0]
        label = f"{kind_of(run.setting('learner'), '?')} on {run.setting('data.source', '?')}"
        return [RunGroup(label, {}, tuple(runs))]
    return [
        # a setting that lacks every differing key is named by the missing keys
        RunGroup(labels[i] or ", ".join(f"no {key}" for key in varying), differs[i], tuple(repetitions))
        for i, repetitions in members.items()
    ]


def baseline_first(groups: Sequence[RunGroup], name: str) -> list[RunGroup]:
    """Return the groups with the baseline before the others.

    Args:
        groups: Settings.
        name: Letter of the baseline, or the directory of one of its runs, or values such as "preset=perfect" that it alone
            has.

    Raises:
        BadInput: `comparison.unknown-baseline` unless the name is of exactly one setting.
    """
    wanted = {term.strip() for term in name.split(",")}

    def values(group: RunGroup) -> set[str]:
        return {f"{key[at:]}={_text(v)}" for key, v in group.differs.items() for at in (0, key.rfind(".") + 1)}

    named = [at for at, group in enumerate(groups) if name in (letter(at), group.label)]
    places = [{word for run in group.runs for word in (run.path.name, str(run.path))} for group in groups]
    of_run = [at for at, words in enumerate(places) if name.rstrip("/") in words]
    found = named or of_run or [at for at, group in enumerate(groups) if wanted <= values(group)]
    listed = "; ".join(f"{letter(at)} {group.label}" for at, group in enumerate(groups[:LONGEST_LIST]))
    sentence = f"{brief(name)} is the name of {len(found)} settings, expected one of: {listed}"
    require(len(found) == 1, "comparison.unknown-baseline", sentence, "--baseline")
    return [groups[found[0]], *(group for at, group in enumerate(groups) if at != found[0])]


def _is_under(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")


def _identifies(key: str, by: Sequence[str]) -> bool:
    """Return whether runs with other values of a key are in other groups."""
    return any(_is_under(key, section) for section in by) if by else key not in REPETITION_KEYS


def _varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which flat tables differ."""
    keys = dict.fromkeys(key for flat in settings for key in flat)
    return [key for key in keys if len({_text(flat.get(key, _ABSENT)) for flat in settings}) > 1]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple) and len(value) > LONGEST_LIST:
        return f"{len(value)} values ({sha256(repr(value).encode())[:6]})"
    # enough digits to distinguish two values, and 1.0 is the same setting as 1
    return f"{value:.12g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Measure:
    """Metric of summary.json, with its display name and its decimals."""

    section: str
    key: str
    name: str
    decimals: int


MEASURES = (
    Measure("offline", "ndcg@10", "offline nDCG@10", 4),
    Measure("offline", "maxrr", "offline MaxRR", 4),
    Measure("online", "ndcg@10", "online nDCG@10", 4),
    Measure("online", "discounted", "discounted", 2),
)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n − 1) over the runs that have the metric; None if no run has it."""

    mean: float | None
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Doubles) -> Spread:
        """Compute mean and standard deviation of the finite ones of (runs,) values."""
        values = values[np.isfinite(values)]
        mean = float(values.mean()) if len(values) else None
        return cls(mean, float(values.std(ddof=1)) if len(values) > 1 else None, len(values))

    def text(self, decimals: int) -> str:
        """Format a mean: 0.4312 ±0.0031, without a deviation for a single run."""
        if self.mean is None:
            return "–"
        sd = "" if self.sd is None else f" ±{self.sd:.{decimals}f}"
        return f"{self.mean:.{decimals}f}{sd}"


@dataclass(frozen=True)
class Row:
    """Setting; `against_first` follows the table's measures and is empty for the first setting itself."""

    name: str  # A, B, …
    group: RunGroup
    spreads: tuple[Spread, ...]
    against_first: tuple[Difference | None, ...]


@dataclass(frozen=True)
class CompareTable:
    """Table of settings for a terminal, for programs (`as_dict`) and for pages."""

    rows: tuple[Row, ...]
    measures: tuple[Measure, ...] = MEASURES

    @property
    def comparisons(self) -> int:
        """Number of settings that could be tested against the first, by which p is corrected."""
        tested = [[d is not None and d.p is not None for d in row.against_first] for row in self.rows[1:]]
        return max((sum(measure) for measure in zip(*tested, strict=True)), default=0)

    def notes(self) -> list[str]:
        """Return the conventions behind the numbers."""
        runs = [run for row in self.rows for run in row.group.runs]
        conventions = list(dict.fromkeys(describe_no_relevant(run) for run in runs))
        convention = conventions[0] if len(conventions) == 1 else "settings differ in how queries count"
        repeated = any(len(row.group.runs) > 1 for row in self.rows)
        spread_note = " ± is one standard deviation over runs." if repeated else ""
        notes = [
            f"Offline nDCG: {convention}.{spread_note}",
            "Discounted: Σ over rounds t of 0.9995^(t−1) × the round's online nDCG@10.",
        ]
        within = [_varying([flatten(run.config) for run in row.group.runs]) for row in self.rows]
        averaged = [key for key in dict.fromkeys(key for keys in within for key in keys) if key not in REPETITION_KEYS]
        if averaged:
            notes.append(f"Runs of one setting also differ in {', '.join(averaged)}; means are over all of them.")
        shown = list(dict.fromkeys(str(run.setting("evaluation.k", 10)) for run in runs))
        if shown != ["10"]:
            notes.append(f"These runs show lists of {' or '.join(shown)} documents.")
        if self.comparisons:
            tested = [d for row in self.rows for d in row.against_first if d is not None and d.p is not None]
            tests = " or ".join(sorted({d.test for d in tested}))
            notes.append(
                f"Differences from A: ± is half of the 95 % confidence interval; two-tailed {tests}-test over "
                f"{tested_units(tested)}, p Bonferroni-corrected for {self.comparisons} "
                f"comparison{'s'[: self.comparisons > 1]} per measure; △▽ p < .05, ▲▼ p < .01."
            )
        if self.same_privacy:
            privacy = privacy_of(self.rows[0].group)[0]
            notes.append(privacy if privacy == NO_PRIVACY else f"Privacy of all settings: {privacy}")
        return notes

    @property
    def same_privacy(self) -> bool:
        """True if one statement about privacy holds for all settings."""
        return len({line for row in self.rows for line in privacy_of(row.group)}) == 1

    def tables(self) -> list[ReportTable]:
        """Return the means of every setting and, for several, the differences of the others from the first."""
        names = [measure.name for measure in self.measures]
        means = [[row.name, f"{len(row.group.runs)}", *map(mean_text, row.spreads, self.measures)] for row in self.rows]
        differences = [
            [f"{row.name} − A", *map(difference_text, row.against_first, self.measures)] for row in self.rows[1:]
        ]
        tables = [ReportTable("Means over runs", ["", "runs", *names], means)]
        return [*tables, ReportTable("Differences from A", ["", *names], differences)] if differences else tables

    def __rich__(self) -> Renderable:
        """Return names, tables and notes for a terminal."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        names = Table.grid(padding=(0, 2))
        names.add_column(style="bold")
        names.add_column(overflow="fold")
        for row in self.rows:
            names.add_row(row.name, Text(row.group.label))
            if not self.same_privacy:
                names.add_row("", Text(" ".join(privacy_of(row.group)), style="dim"))
        return terminal_report(Padding(names, (0, 0, 0, 1)), self.tables(), self.notes())

    def as_dict(self) -> dict[str, Any]:
        """Return the table for JSON: numbers unrounded, missing ones null."""
        return {
            "baseline": self.rows[0].group.label,
            "correction": {"method": "bonferroni", "comparisons_per_measure": self.comparisons},
            "notes": self.notes(),
            "settings": [_row_dict(row, self.measures) for row in self.rows],
        }


def compare_table(groups: Sequence[RunGroup]) -> CompareTable:
    """Compare settings with the first of them."""
    require(len(groups) > 0, "run.missing", "nothing to compare: expected at least one run")
    further = sorted({n for group in groups for run in group.runs for n in run.further})
    cutoffs = (Measure("offline", f"ndcg@{n}", f"offline nDCG@{n}", 4) for n in further)
    measures, by_measure = (MEASURES[0], *cutoffs, *MEASURES[1:]), []
    for measure in measures:
        first, *others = (
            [(run.repetition, run.figure(measure.section, measure.key)) for run in group.runs] for group in groups
        )
        by_measure.append(corrected([repeated_t(values, first) for values in others]))
    against = [(), *zip(*by_measure, strict=True)]
    spreads = [tuple(Spread.of(group.metric(m.section, m.key)) for m in measures) for group in groups]
    names = map(letter, range(len(groups)))
    return CompareTable(tuple(map(Row, names, groups, spreads, against)), measures)


def letter(index: int) -> str:
    """Return a short name for the index-th setting: A, B, …, Z, A2, B2, …."""
    return chr(ord("A") + index % 26) + (str(index // 26 + 1) if index >= 26 else "")


def mean_text(spread: Spread, measure: Measure) -> str:
    """Format a mean over a setting's runs; large ones have one decimal."""
    return spread.text(measure.decimals if abs(spread.mean or 0.0) < 100 else 1)


def difference_text(difference: Difference | None, measure: Measure) -> str:
    """Format a difference in two lines: +0.0123 ±0.0025, then p = .003 ▲."""
    if difference is None:
        return "–"
    margin = "" if difference.margin is None else f" ±{difference.margin:.{measure.decimals}f}"
    value = f"{difference.difference:+.{measure.decimals}f}".replace("-", "−")
    tested = "1 fold, no test" if difference.unit == "fold" else "1 run, no test"
    if difference.corrected_p is not None:
        tested = f"{p_text(difference.corrected_p)} {mark(difference)}".rstrip()
    return f"{value}{margin}\n{tested}"


def p_text(p: float) -> str:
    """Format a p value: p = .003, p < .001."""
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("= 0.", "= .")


def tested_units(differences: Sequence[Difference]) -> str:
    """Describe the independent samples of tests: "5 folds (means over seeds)", "3 seeds of one fold"."""
    units = {(max(d.n, d.n_baseline), d.unit) for d in differences if d.p is not None}
    words = {"fold": "folds (means over seeds)", "seed": "seeds of one fold", "run": "runs"}
    return " or ".join(f"{n} {words[unit]}" for n, unit in sorted(units))


def privacy_of(group: RunGroup) -> list[str]:
    """Return the privacy statements of a setting's runs, each once."""
    return list(dict.fromkeys(describe_privacy(run.summary.get("privacy")) for run in group.runs))


def _row_dict(row: Row, measures: Sequence[Measure]) -> dict[str, Any]:
    figures: dict[str, dict[str, Any]] = {"offline": {}, "online": {}}
    for measure, value in zip(measures, row.spreads, strict=True):
        figures[measure.section][measure.key] = asdict(value)
    against = {
        f"{m.section}.{m.key}": None if d is None else d.as_dict()
        for m, d in zip(measures, row.against_first, strict=bool(row.against_first))
    }
    return {
        "name": row.name,
        "label": row.group.label,
        "differs": dict(row.group.differs),
        "runs": [str(run.path) for run in row.group.runs],
        "n": len(row.group.runs),
        **figures,
        "privacy": privacy_of(row.group),
        "against_first": against or None,
    }


def comparison_page(groups: Sequence[RunGroup]) -> str:
    """Return the report of several settings as HTML."""
    table = compare_table(groups)
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
        lead=describe_run(runs[0]),
        rows=rows,
        tables=table.tables(),
        notes=table.notes(),
        **curves_of([group.runs for group in groups], [row.name for row in table.rows]),
        runs=[(row.name, ", ".join(map(_describe, row.group.runs))) for row in table.rows],
        version=", ".join(dict.fromkeys(str(run.summary["version"]) for run in runs)),
    )


def write_comparison(groups: Sequence[RunGroup], path: Path | str) -> Path:
    """Write the report of several settings side by side; return its path."""
    return write_whole(path, comparison_page(groups).encode())


def _describe(run: Run) -> str:
    fold = run.setting("data.fold")
    return f"{run_name(run)} (seed {run.seed}{'' if fold is None else f', fold {fold}'})"


def _underline(number: int) -> str:
    """Return the number-th curve's dashes and colour in CSS."""
    dashes = ("solid", "dashed", "dotted")[number // len(PALETTE) % 3]
    return f"{dashes} var(--curve-{number % len(PALETTE) + 1})"
