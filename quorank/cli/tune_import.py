"""`quorank tune import`: what a browser's history could teach a heuristic, counted on the person's own machine."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from quorank.tuning.histories.browser import History


def import_(
    path: Annotated[
        Path,
        typer.Argument(help="places.sqlite, History, or the folder of a profile.", show_default=False),
    ],
    show: Annotated[
        int, typer.Option(min=0, help="Also print so many of the best pages: the only way to see an address.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Read the history of Firefox or Chromium, and count what could be learned from it.

    The file is only read, also while the browser runs. Nothing leaves this
    machine, and only counts are printed.
    """
    from quorank.cli.display import print_rows
    from quorank.tuning.histories.browser import searches
    from quorank.tuning.histories.profiles import read_history

    browser, history = read_history(path)
    found = searches(history)
    figures: dict[str, Any] = {"browser": browser, **history.counts(), "searches": len(found.chosen)}
    figures["update"] = _update(found)
    if show:
        figures["best"] = _best(history, show)
    if json:
        print(json_.dumps(figures))
        return
    types = ", ".join(f"{name} {count:,}" for name, count in figures["types"].items())
    update = figures["update"]
    print_rows(
        ("pages", f"{figures['pages']:,}", f"{figures['bookmarked']:,} of them bookmarked ({browser})"),
        ("visits", f"{figures['visits']:,}", f"within {figures['span_days']:,.1f} days; {types or 'none'}"),
        ("left out", f"{figures['skipped']:,}", "visits of an unknown kind, or to no page"),
        (
            "searches",
            f"{figures['searches']:,}",
            "that can be learned from: a known page was typed, others matched",
        ),
        (
            "an update",
            f"{update['gradient_bytes']} bytes",
            f"a gradient of {update['weights']} weights; {update['sign_bytes']} bytes as signs"
            + ("" if update["norm"] is None else f"; length of the last one {update['norm']:.4g}"),
        ),
    )
    for row in figures.get("best", []):
        print(f"{row['frecency']:>10.1f}  {row['url']}")


def _update(found: Any) -> dict[str, Any]:
    """The size of what would leave this machine for one search, and the length of the last gradient."""
    import numpy as np

    from quorank.tuning.differences import gradients
    from quorank.tuning.heuristics.frecency import FRECENCY
    from quorank.tuning.histories.generated import take
    from quorank.tuning.histories.worlds import WORLDS
    from quorank.tuning.releases import Gradient, Signs

    weights = len(FRECENCY.weights)
    norm = None
    if len(found.chosen):
        last = take(found, [len(found.chosen) - 1])
        slopes, _ = gradients(FRECENCY, FRECENCY.shipped, last, WORLDS["frecency"].margin)
        norm = float(np.sqrt((slopes**2).sum()))
    return {
        "weights": weights,
        "gradient_bytes": Gradient().size(weights),
        "sign_bytes": Signs().size(weights),
        "norm": norm,
    }


def _best(history: History, count: int) -> list[dict[str, Any]]:
    """The pages with the highest frecency after the last visit."""
    import numpy as np

    from quorank.tuning.heuristics.frecency import FRECENCY
    from quorank.tuning.histories.browser import candidates_at

    if not len(history.time):
        return []
    pages = np.flatnonzero(~history.hidden)
    block = candidates_at(history, pages, float(history.time[-1]) + 1.0)
    scores = FRECENCY.score(FRECENCY.shipped[None, :], block)[0]
    best = np.argsort(-scores, kind="stable")[:count]
    return [{"url": history.urls[pages[i]], "frecency": float(scores[i])} for i in best]
