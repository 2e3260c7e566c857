"""Progress of long work on stderr, and results on stdout as JSON or as tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

from quorank.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

    from quorank.experiments.progress import Progress
    from quorank.experiments.runner import Watch

LINE_SECONDS, TERMINAL_SECONDS = 10.0, 0.2
"""Intervals of progress lines, elsewhere and on a terminal."""


def say(text: str) -> None:
    """Print a message on stderr and flush it."""
    print(_shown(text), file=sys.stderr, flush=True)


def print_lines(*lines: str) -> None:
    """Print each string as one line on stdout, unwrapped, with its control characters escaped."""
    for line in lines:
        print(printable(line))


def _shown(text: str) -> str:
    """Escape the control characters of every line: names of services and files come from others."""
    return "\n".join(map(printable, text.split("\n")))


def show_progress(title: str) -> Watch:
    """Return a watcher that shows a run's progress on stderr."""
    from quorank.reports.panels import compact

    line = progress_lines(f"{title}: round")

    def watch(progress: Progress) -> None:
        def details() -> str:
            ndcg = progress.last("offline_ndcg@10")
            rate = compact(progress.interactions / max(progress.train_seconds, 1e-9))
            return f"{rate} interactions/s, nDCG@10 {f'{ndcg:.4f}' if ndcg == ndcg else '…'}, "

        line(progress.done, progress.rounds, details)

    return watch


def compiling(*, quiet: bool = False) -> Callable[..., None]:
    """Return a function that announces the first compilation, to be called once the input is accepted.

    Call this before reading the input, since readers compile too; an error then stays one sentence on a cold machine.
    """
    from quorank.kernels.compiled import is_cold

    cold = not quiet and is_cold()
    return lambda *_: say("compiling for this machine (the first time only) …") if cold else None


def progress_lines(title: str) -> Callable[..., None]:
    """Return progress(done, total, details) that prints a line on stderr, with the remaining time.

    On a terminal the line is replaced several times a second; elsewhere there is one every few seconds. The estimate
    counts from the first call, so that loading and compiling do not distort it.
    """
    started = printed = 0.0
    first, terminal = 0, sys.stderr.isatty()

    def progress(done: int, total: int, details: Callable[[], str] = str) -> None:
        nonlocal started, printed, first
        now = time.monotonic()
        if not started:
            started, printed, first = now, now, done
        elif done > first and now - printed >= (TERMINAL_SECONDS if terminal else LINE_SECONDS):
            printed = now
            left = (now - started) / (done - first) * (total - done)
            line = printable(f"{title} {done}/{total}, {details()}{left:.0f} s left")
            print(f"\r{line}\x1b[K" if terminal else line, end="" if terminal else None, file=sys.stderr, flush=True)
        if terminal and done == total:
            print(file=sys.stderr)

    return progress


def print_result(figures: Any, as_json: bool, show: Callable[[Any], None]) -> None:
    """Print a result as one JSON object, or for people by a function."""
    if as_json:
        print(json.dumps(figures, default=str))
    else:
        show(figures)


class _Filler(Formatter):
    """Formatter that raises TypeError for None, as for an item of None; the format `k` is that of `compact`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        from quorank.reports.panels import compact

        if value is None:
            raise TypeError
        return compact(value) if format_spec == "k" else str(super().format_field(value, format_spec))


def rows_of(template: str, figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the lines `name | value | …` of a template, filled in; lines with an absent value or None are left out.

    >>> rows_of("round | {round:,} | of {rounds[planned]}", {"round": 1000, "rounds": {"planned": 9}})
    [('round', '1,000', 'of 9')]
    >>> rows_of("round | {round:,} | of {rounds[planned]}", {"round": 1000, "rounds": None})
    []
    """
    rows = []
    for line in template.strip().splitlines():
        with suppress(LookupError, TypeError):
            rows.append(tuple(_Filler().vformat(cell.strip(), (), figures) for cell in line.split("|")))
    return rows


def print_rows(*rows: tuple[str, ...]) -> None:
    """Print rows of name, value and explanation, wrapped to the terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column()
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    print_text(table)


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
        table.add_row(*map(_shown, row))
    return table


class _Escaped:
    """Table or report whose control characters are escaped once it is laid out."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else segment._replace(text=_shown(segment.text))


def print_text(*texts: RenderableType) -> None:
    """Print strings, tables or reports, wrapped to the terminal, without interpreting markup."""
    from rich.console import Console

    console = Console()
    for text in texts:
        console.print(_shown(text) if isinstance(text, str) else _Escaped(text), highlight=False, markup=False)


def timestamp(at: float) -> str:
    """Format seconds since 1970 as a UTC date and time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def consent_line(consent: dict[str, Any]) -> str:
    """Describe the state of consent and since when it holds."""
    return f"consent {'on' if consent['given'] else 'off'} since {consent['at']}"


SUMMARY = """
offline | {offline[ndcg@10]:.4f} | nDCG@10 of the final ranker, {evaluation[counted_queries]} test queries; without \
relevant documents: {left_out}
 | | nDCG of it: {further}
 | {offline[maxrr]:.4f} | MaxRR, the reciprocal rank of its first relevant document
 | {handed_out} | {chosen}
trees | {trees[trees]:,} | grown from {trees[lists]:,} lists
clicks | {gain:+.4f} | gain in {metric} of a relevant document over the lists as shown{around}, by SNIPS on \
{counterfactual[clicks]:,} logged clicks
online | {online[ndcg@10]:.4f} | mean nDCG@10 of the lists of {evaluation[k]} shown to people
 | {online[discounted]:.2f} | discounted sum over rounds, γ = 0.9995
speed | {interactions_per_second:k}/s | {interactions:,} interactions in {seconds[train]:.1f} s, \
evaluated in {seconds[evaluate]:.1f} s
privacy | {claim[0]} | {claim[1]}
"""


def print_summary(summary: dict[str, Any]) -> None:
    """Print the metrics of one run."""
    evaluation, offline, clicks = summary["evaluation"], summary["offline"], summary.get("counterfactual")
    further = [f"{offline[f'ndcg@{depth}']:.4f} @{depth}" for depth in evaluation["cutoffs"] if depth != 10]
    words = summary | {
        "further": ", ".join(further) or None,
        "left_out": "count 0" if evaluation["no_relevant"] == "zero" else "left out",
        "claim": _privacy(summary["privacy"]),
    }
    if clicks is not None:
        metric, estimates = next(item for item in clicks["estimates"].items() if item[0].startswith("dcg@"))
        gain = estimates["snips"]["gain"]
        around = "" if gain["error"] is None else f" ± {1.96 * gain['error']:.4f}"
        words |= {"metric": metric.upper(), "gain": gain["value"], "around": around}
    if choice := summary.get("handed_out"):
        last = choice["average"] == "last"
        words["handed_out"] = "last θ" if last else f"γ = {choice['average']:g}"
        ranker = "the ranker of the last round" if last else "mean of the rankers of all rounds, weighted by t^γ"
        queries = choice.get("validation_queries")
        by = "default, without a validation split"
        if choice["by"] == "validation":
            by = f"chosen on {queries} validation queries"
        elif queries is not None:
            by = f"default; no other was better by a standard error on {queries} validation queries"
        words["chosen"] = f"{ranker}; {by}"
    print_rows(*rows_of(SUMMARY, words))


def _privacy(privacy: dict[str, Any] | None) -> tuple[str, str]:
    if privacy is None:
        return "none", "updates were sent unprotected"
    if privacy["epsilon"] is None:
        return "no ε", f"{privacy['kind']}: {privacy.get('warning', 'nothing is accounted')}"
    qualified = f"{privacy['kind']}, per {privacy['unit']}, δ = {privacy['delta']:g}, {privacy['horizon']}"
    return f"ε = {privacy['epsilon']:.4g}", qualified
