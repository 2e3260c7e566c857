"""Progress of long work on stderr, and results on stdout as JSON or as tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table

    from quorank.experiments.progress import Progress
    from quorank.experiments.runner import Watch

LINE_SECONDS = 10.0


def say(text: str) -> None:
    """Print a message on stderr and flush it."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def show_progress(title: str, rounds: int, *, quiet: bool = False) -> Iterator[Watch | None]:
    """Yield a watcher that shows a run's progress on stderr: a bar on a terminal, a line every few seconds elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(title, rounds) as watch:
            yield watch
    else:
        line = progress_lines(f"{title.strip()}: round")
        words = "{} interactions/s, nDCG@10 {}, "
        yield lambda progress: line(progress.done, progress.rounds, lambda: words.format(*_figures(progress)))


def compiling(*, quiet: bool = False) -> Callable[..., None]:
    """Return a function that announces the first compilation, to be called once the input is accepted.

    Call this before reading the input, since readers compile too; an error then stays one sentence on a cold machine.
    """
    from quorank.kernels.compiled import is_cold

    cold = not quiet and is_cold()
    return lambda *_: say("compiling for this machine (the first time only) …") if cold else None


def _figures(progress: Progress) -> tuple[str, str]:
    rate = progress.interactions / max(progress.train_seconds, 1e-9)
    ndcg = progress.last("offline_ndcg@10")
    return compact(rate), f"{ndcg:.4f}" if ndcg == ndcg else "…"


@contextmanager
def _bar(title: str, rounds: int) -> Iterator[Watch]:
    from rich.console import Console
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


def progress_lines(title: str) -> Callable[..., None]:
    """Return progress(done, total, details) that prints a line every few seconds on stderr, with the remaining time.

    The estimate counts from the first call, so that loading and compiling do not distort it.
    """
    started = printed = 0.0
    first = 0

    def progress(done: int, total: int, details: Callable[[], str] = str) -> None:
        nonlocal started, printed, first
        now = time.monotonic()
        if not started:
            started, printed, first = now, now, done
        elif now - printed >= LINE_SECONDS and done > first:
            printed = now
            left = (now - started) / (done - first) * (total - done)
            say(f"{title} {done}/{total}, {details()}{left:.0f} s left")

    return progress


def print_result(figures: Any, as_json: bool, show: Callable[[Any], None], **how: Any) -> None:
    """Print one JSON object with options of `json.dumps`, or let `show` print the result for people."""
    if as_json:
        print(json.dumps(figures, **how))
    else:
        show(figures)


def print_rows(*rows: tuple[str, str, str]) -> None:
    """Print rows of name, value and explanation, wrapped to the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column()
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def table_of(
    heads: Iterable[str],
    rows: Iterable[Sequence[str]],
    align: Literal["left", "right"] = "left",
    title: str = "",
    **layout: Any,
) -> Table:
    """Return a table, ruled if it has a title; `align` applies to all columns but the first."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", **layout) if title else Table(box=None, **layout)
    for number, head in enumerate(heads):
        table.add_column(head, justify=align if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def print_text(*texts: object, style: str = "") -> None:
    """Print strings or tables, wrapped to the terminal, without interpreting markup."""
    from rich.console import Console

    console = Console()
    for text in texts:
        console.print(text, highlight=False, markup=False, style=style)


def timestamp(at: float) -> str:
    """Format seconds since 1970 as a UTC date and time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def consent_line(consent: dict[str, Any]) -> str:
    """Describe the state of consent and since when it holds."""
    return f"consent {'on' if consent['given'] else 'off'} since {consent['at']}"


def compact(number: float) -> str:
    """Format a number in few characters: 1234567 is 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def print_summary(summary: dict[str, Any]) -> None:
    """Print the metrics of one run."""
    evaluation, seconds = summary["evaluation"], summary["seconds"]
    offline, online, shown = summary["offline"], summary["online"], evaluation["k"]
    further = [f"{offline[f'ndcg@{depth}']:.4f} @{depth}" for depth in evaluation["cutoffs"] if depth != 10]
    more = [("", further[0].partition(" ")[0], f"nDCG of it: {', '.join(further)}")] if further else []
    convention = "left out" if evaluation["no_relevant"] == "skip" else "count 0"
    judged = f"{evaluation['counted_queries']} test queries; without relevant documents: {convention}"
    trained = f"{summary['interactions']:,} interactions in {seconds['train']:.1f} s"
    rate = f"{compact(summary['interactions_per_second'])}/s"
    print_rows(
        ("offline", f"{offline['ndcg@10']:.4f}", f"nDCG@10 of the final ranker, {judged}"),
        *more,
        ("", f"{offline['maxrr']:.4f}", "MaxRR, the reciprocal rank of its first relevant document"),
        *_handed_out(summary.get("handed_out")),
        *_trees(summary.get("trees")),
        *_counterfactual(summary.get("counterfactual")),
        *_online(online, shown),
        ("speed", rate, f"{trained}, evaluated in {seconds['evaluate']:.1f} s"),
        ("privacy", *_privacy(summary["privacy"])),
    )


def _trees(grown: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return a row about grown trees, if any."""
    if grown is None:
        return []
    advice = f"; {grown['advice']}" if "advice" in grown else ""
    return [("trees", f"{grown['trees']:,}", f"grown from {grown['lists']:,} lists{advice}")]


def _counterfactual(evaluation: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return a row about counterfactual estimates, if a log was replayed."""
    if evaluation is None:
        return []
    metric, estimates = next((name, each) for name, each in evaluation["estimates"].items() if name.startswith("dcg@"))
    gain, shown = estimates["snips"]["gain"], estimates["snips"]["shown"]["value"]
    around = "" if gain["error"] is None else f" ± {1.96 * gain['error']:.4f}"
    about = f"gain in {metric.upper()} of a relevant document over the lists as shown ({shown:.4f}){around}"
    return [("clicks", f"{gain['value']:+.4f}", f"{about}, by SNIPS on {evaluation['clicks']:,} logged clicks")]


def _online(online: dict[str, Any], shown: int) -> list[tuple[str, str, str]]:
    """Return the rows about lists shown to people, if any."""
    if online["ndcg@10"] is None:
        return []
    return [
        ("online", f"{online['ndcg@10']:.4f}", f"mean nDCG@10 of the lists of {shown} shown to people"),
        ("", f"{online['discounted']:.2f}", "discounted sum over rounds, γ = 0.9995"),
    ]


def _handed_out(choice: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return a row about the choice of the final ranker, if there was one."""
    if choice is None:
        return []
    last = choice["average"] == "last"
    name = "last θ" if last else f"γ = {choice['average']:g}"
    chosen = (
        "the ranker of the last round" if last else "mean of the rankers of all rounds, with weight t^γ for round t"
    )
    reason = "default, without a validation split"
    if choice["by"] == "validation":
        reason = f"chosen on {choice['validation_queries']} validation queries"
    return [("", name, f"{chosen}; {reason}")]


def _privacy(privacy: dict[str, Any] | None) -> tuple[str, str]:
    if privacy is None:
        return "none", "updates left the clients as they were"
    kind = privacy["kind"]
    if privacy["epsilon"] is None:
        return "no ε", f"{kind}: {privacy.get('warning', 'nothing is accounted')}"
    qualified = f"{kind}, per {privacy['unit']}, δ = {privacy['delta']:g}, {privacy['horizon']}"
    return f"ε = {privacy['epsilon']:.4g}", qualified
