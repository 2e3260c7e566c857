"""Progress of a run on stderr, and tables of figures on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from quorank.experiments.progress import Progress
    from quorank.experiments.runner import Watch

LINE_SECONDS = 10.0


@contextmanager
def watching(title: str, rounds: int, *, quiet: bool = False) -> Iterator[Watch | None]:
    """Yield what shows a run's progress: a bar on a terminal, a line every few seconds elsewhere; always on stderr."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(title, rounds) as watch:
            yield watch
    else:
        yield _lines(title.strip())


def compiling(*, quiet: bool = False) -> Callable[[], None]:
    """Return a function that says, where nothing is compiled yet, why this takes longer; called once input is accepted.

    Made before the input is read, since readers compile too; a refusal stays one sentence on such a machine.
    """
    from quorank.compiled import is_cold

    cold = not quiet and is_cold()

    def say() -> None:
        if cold:
            print("compiling for this machine (the first time only) …", file=sys.stderr, flush=True)

    return say


def _figures(progress: Progress) -> tuple[str, str]:
    rate = progress.interactions / max(progress.train_seconds, 1e-9)
    ndcg = progress.last("offline_ndcg@10")
    return compact(rate), f"{ndcg:.4f}" if ndcg == ndcg else "…"


@contextmanager
def _bar(title: str, rounds: int) -> Iterator[Watch]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s  nDCG@10 {task.fields[ndcg]}"),
        TimeRemainingColumn(compact=True),
    )
    with Bar(*columns, console=Console(stderr=True), expand=True, refresh_per_second=8) as bar:
        task = bar.add_task(title, total=rounds, rate="…", ndcg="…")
        shown = 0.0

        def watch(progress: Progress) -> None:
            nonlocal shown
            if time.monotonic() - shown < 0.1 and progress.done < rounds:
                return
            shown = time.monotonic()
            rate, ndcg = _figures(progress)
            bar.update(task, completed=progress.done, rate=rate, ndcg=ndcg)

        yield watch


@contextmanager
def counting(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what shows the progress of counted rounds: a line every few seconds, on stderr, with the time left."""
    started = printed = time.monotonic()

    def count(done: int, rounds: int) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= LINE_SECONDS / 2 and done < rounds:
            printed = now
            left = (now - started) / done * (rounds - done)
            print(f"{title}: round {done}/{rounds}, {left:.0f} s left", file=sys.stderr, flush=True)

    yield None if quiet else count


def _lines(title: str) -> Watch:
    started, first = 0.0, 0
    printed = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal printed, started, first
        now = time.monotonic()
        if started == 0.0:  # what came before the first round (loading, compiling) says nothing of the others
            started, first = now, progress.done
        if now - printed < LINE_SECONDS or progress.done == first:
            return
        printed = now
        rate, ndcg = _figures(progress)
        left = (now - started) / (progress.done - first) * (progress.rounds - progress.done)
        print(
            f"{title}: round {progress.done}/{progress.rounds}, {rate} interactions/s, nDCG@10 {ndcg}, {left:.0f} s left",
            file=sys.stderr,
        )

    return watch


def print_rows(*rows: tuple[str, str, str]) -> None:
    """Print rows of a name, a figure, and what it is, wrapped to the terminal."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column()
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def compact(number: float) -> str:
    """Format a number in few characters: 1234567 is 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def print_summary(summary: dict[str, Any]) -> None:
    """Print the figures of one run."""
    evaluation, seconds = summary["evaluation"], summary["seconds"]
    offline, online, k = summary["offline"], summary["online"], evaluation["k"]
    convention = "left out" if evaluation["no_relevant"] == "skip" else "count 0"
    judged = f"{evaluation['counted_queries']} test queries; without relevant documents: {convention}"
    trained = f"{summary['interactions']:,} interactions in {seconds['train']:.1f} s"
    print_rows(
        ("offline", f"{offline['ndcg@10']:.4f}", f"nDCG@{k} of the final ranker, {judged}"),
        ("", f"{offline['maxrr']:.4f}", "MaxRR, the reciprocal rank of its first relevant document"),
        ("online", f"{online['ndcg@10']:.4f}", f"mean nDCG@{k} of the lists that people were shown"),
        ("", f"{online['discounted']:.2f}", "discounted sum over rounds, γ = 0.9995"),
        (
            "speed",
            f"{compact(summary['interactions_per_second'])}/s",
            f"{trained}, evaluated in {seconds['evaluate']:.1f} s",
        ),
        ("privacy", *_privacy(summary["privacy"])),
    )


def _privacy(privacy: dict[str, Any] | None) -> tuple[str, str]:
    if privacy is None:
        return "none", "updates left the clients as they were"
    if privacy["epsilon"] is None:
        return "no ε", f"{privacy['kind']}: {privacy.get('warning', 'nothing is accounted')}"
    return (
        f"ε = {privacy['epsilon']:.4g}",
        f"{privacy['kind']}, per {privacy['unit']}, δ = {privacy['delta']:g}, {privacy['horizon']}",
    )
