"""nDCG of the shown lists by their users' clicks, reported under local differential privacy and averaged.

A device's figure is the mean over the B interactions of an update of nDCG@k of the list that was shown, a click counting
as relevance 1 and the clicked documents first being the best list. A list without a click counts 0: leaving it out would
make the number of lists in the mean a fact about the user, and a search that led nowhere is no success. So the figure lies
in [0, 1] whatever the user did, and it is reported by randomised response (`privacy.figure_response`), once with each
release, under a secret of its own. It says how the clicked documents stood in the list, not how relevant they are: a user
who clicks the first document whatever it is gives 1.

The coordinator's figure of a round is the unbiased mean of the reports that came with accepted replies, and its standard
error is of their noise: the most that it can be, for these devices. `smoothed` weighs each report by `DECAY` for every
round that it is old. Rounds with fewer than `LEAST_DEVICES` reports are left out of both: a mean of one or two is those
devices' own reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.kernels.arrays import Booleans
from quorank.metrics.lists import ndcg
from quorank.privacy.mechanisms.figure_response import FigureResponse
from quorank.privacy.streams import SECRET_BYTES
from quorank.protocol.terms import Terms

if TYPE_CHECKING:
    from quorank.federation.rounds import Report

LEAST_DEVICES = 4
"""A round's figure is shown if it is of so many devices."""
DECAY = 0.9
"""What a report weighs one round later."""
_REMEMBERED = 400  # rounds: 0.9^400 is nothing


def list_figure(clicks: Booleans, k: int) -> float:
    """nDCG@k of one shown list with its clicks as relevance; 0 without a click."""
    relevance = clicks[:k].astype(np.float64)
    return ndcg(relevance, relevance, k)


def device_figure(lists: Sequence[Booleans], k: int) -> float:
    """The mean over the lists of an update."""
    return float(np.mean([list_figure(clicks, k) for clicks in lists]))


def report_of(
    terms: Terms, lists: Sequence[Booleans], entropy: Callable[[int], bytes], round_: int
) -> tuple[tuple[float, float, float], dict[str, Any]]:
    """(the statistics of a reply, what the log says of them): zeros and nothing where no report was agreed."""
    figure = terms.figure
    if figure is None:
        return (0.0, 0.0, 0.0), {}
    x = device_figure(lists, terms.k)
    steps = figure.respond(x, entropy(SECRET_BYTES), round_, terms.client)
    return (float(steps), 0.0, 0.0), {"report": {"value": figure.unbiased(steps), **(terms.reports or {})}}


def reported(reports: Sequence[Report], figure: FigureResponse) -> dict[str, Any] | None:
    """The newest round's figure and the smoothed one, with their standard errors; None before there is one."""
    rounds = [report for report in reports[-_REMEMBERED:] if report.participants >= LEAST_DEVICES]
    if not rounds:
        return None
    last = rounds[-1]
    mean, error = smoothed(rounds, figure.variance, last.round)
    return {
        "value": last.online_ndcg,
        "error": figure.error(last.participants),
        "devices": last.participants,
        "round": last.round,
        "smoothed": mean,
        "smoothed_error": error,
        "smoothed_rounds": len(rounds),
    }


def smoothed(rounds: Sequence[Report], variance: float, now: int) -> tuple[float, float]:
    """Σ w·n·figure / Σ w·n over rounds with n reports, w = DECAY^age, and its standard error √(Σ w²·n·variance) / Σ w·n."""
    weights = np.array([DECAY ** (now - report.round) for report in rounds])
    counts = np.array([report.participants for report in rounds], dtype=np.float64)
    figures = np.array([report.online_ndcg for report in rounds])
    total = float(np.dot(weights, counts))
    mean = float(np.dot(weights * counts, figures)) / total
    return mean, math.sqrt(variance * float(np.dot(weights**2, counts))) / total


def shown(table: dict[str, Any] | None) -> str:
    """The newest figure for a line of the status."""
    return "none" if table is None else f"{table['value']:.2f} ± {table['error']:.2f}"


def meaning(table: dict[str, Any] | None, epsilon: float, rounds: int) -> str:
    """What stands beside it."""
    cost = f"each report costs ε = {epsilon:g} (δ = 0, unit: client), so far {epsilon * rounds:g} at most"
    if table is None:
        return f"yet: it is shown once {LEAST_DEVICES} devices have reported in a round; {cost}"
    return (
        f"by clicks, reported privately by {table['devices']} devices in round {table['round']}; over rounds "
        f"{table['smoothed']:.3f} ± {table['smoothed_error']:.3f}; {cost}"
    )
