"""Counterfactual estimates of a ranker from a log's clicks, as rows of a table and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = ("by logged clicks", "this ranker", "as shown", "gain")


def estimates(found: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each metric and estimator: of the ranker, of what was shown, and their difference.

    found: what `LoggedClickEvaluator.figures` computes.
    """
    return [
        [f"{metric}, {name.upper()}", *(_with_interval(each[of]) for of in ("ranker", "shown", "gain"))]
        for metric, estimators in found["estimates"].items()
        for name, each in estimators.items()
    ]


def how_estimated(found: Mapping[str, Any]) -> str:
    """Say what the estimates are made of, and what ± is."""
    looks = ", ".join(f"{p:.2f}" for p in found["propensities"])
    of_users, over = ("", "searches") if found["users"] is None else (f" of {found['users']:,} users", "users")
    return (
        f"{found['clicks']:,} clicks{of_users} in {found['searches']:,} searches, worth "
        f"{found['effective_clicks']:,.0f} of equal weight; {found['clipped_clicks']:,} at ranks clipped to "
        f"{found['clip']:g}. Propensities of ranks: {looks}. ± is a 95 % interval over {over}. Documents that were not "
        "shown are not judged."
    )


def _with_interval(estimate: Mapping[str, float | None]) -> str:
    error = estimate["error"]
    return f"{estimate['value']:.4f}" + ("" if error is None else f" ± {1.96 * error:.4f}")
