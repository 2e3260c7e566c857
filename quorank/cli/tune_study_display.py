"""What `quorank tune study` shows to people: plans, rehearsals, analyses, and how long it still takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from quorank.cli.display import LINE_SECONDS, compiling, print_rows

if TYPE_CHECKING:
    from quorank.tuning.studies.analysis import Analysis
    from quorank.tuning.studies.arms import Study
    from quorank.tuning.studies.power import Plan
    from quorank.tuning.studies.rehearsal import Rehearsal


def show_plan(study: Study, found: Plan, pilot: object) -> None:
    """The clients of each arm."""
    print_rows(
        ("clients", f"{found.clients:,}", f"in all, to find {found.metric} lower by {found.effect:g}"),
        *(("", f"{count:,}", f"{arm}, {study.arms[arm]:.0%}") for arm, count in found.arms.items()),
        (
            "power",
            f"{found.achieved:.1%}",
            f"of {found.simulations:,} simulated studies ({found.achieved_low:.1%} to {found.achieved_high:.1%})",
        ),
        ("alpha", f"{found.alpha:.4g}", f"{study.alpha:g} over {study.comparisons} comparisons (Bonferroni)"),
        (
            "pilot",
            f"{found.pilot_mean:.3f}",
            f"{found.metric}, standard deviation {found.pilot_deviation:.3f} between {found.pilot_clients:,} clients "
            f"({pilot})",
        ),
    )


def show_rehearsal(study: Study, found: Rehearsal) -> None:
    """How often studies found what is there, and what is not."""

    def rate(name: str, about: str) -> tuple[str, str, str]:
        seen = getattr(found, name)
        return "", f"{seen.rate:.1%}", f"{about} (95 % interval {seen.low:.1%} to {seen.high:.1%})"

    planned = found.plan
    print_rows(
        (
            "planned",
            f"{planned.clients:,}",
            f"clients, for {planned.achieved:.1%} power at α = {planned.alpha:.4g}",
        ),
        ("held", f"{found.repetitions:,}", f"studies with {found.clients:,} clients each"),
        (
            "true effect",
            f"{found.true_effect:+.3f}",
            f"± {found.true_effect_error:.3f} {study.metric}, mean over people",
        ),
        ("effect", *rate("found", "of studies found it, after correction")[1:]),
        (
            "no effect",
            *rate("false_nominal", f"of A/A studies had p < {study.alpha:g}, without correction")[1:],
        ),
        rate("false_any", "of A/A studies found anything, after correction"),
        rate("false_pooled", f"of A/A studies had p < {study.alpha:g} with searches pooled: wrong"),
    )


def show_analysis(study: Study, found: Analysis) -> None:
    """Every arm, then every comparison."""
    console = Console()
    arms = Table(box=None, pad_edge=False)
    for column in ("arm", "clients", "searches", *(f"mean {metric}" for metric in study.metrics)):
        arms.add_column(column, justify="left" if column == "arm" else "right")
    for name, arm in found.arms.items():
        means = (f"{arm.mean[m]:.4f} ± {arm.deviation[m] / arm.clients**0.5:.4f}" for m in study.metrics)
        arms.add_row(name, f"{arm.clients:,}", f"{arm.searches:,}", *means)
    console.print(arms)
    console.print("means over clients, ± standard error\n", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("comparison", "shift", "interval", "rank r", "corrected p", ""):
        table.add_column(column, justify="left" if column == "comparison" else "right")
    for c in found.comparisons:
        table.add_row(
            f"{c.metric}: {c.arm}\n  against {c.baseline}",
            f"{c.shift:+.3f}",
            f"{c.shift_low:+.3f} to {c.shift_high:+.3f}",
            f"{c.rank_biserial:+.3f}",
            f"{c.corrected_p:.3g}",
            "found" if c.significant else "",
        )
    console.print(table)
    console.print(
        f"Hodges-Lehmann shift and Mann-Whitney U between clients; {study.comparisons} comparisons share "
        f"α = {study.alpha:g}",
        style="dim",
    )


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """A line every few seconds on stderr, with the time that is left."""
    compiling()()
    started: float | None = None
    printed, first = time.monotonic(), 0

    def count(done: int, total: int) -> None:
        nonlocal started, printed, first
        now = time.monotonic()
        if started is None:  # planning and compiling say nothing about the studies
            started, first = now, done
        elif now - printed >= LINE_SECONDS and done < total:
            printed = now
            left = (now - started) / (done - first) * (total - done)
            print(f"{what}: {done}/{total}, {left:.0f} s left", file=sys.stderr, flush=True)

    yield count
