"""Sentences and formatted values about a run, for tables and reports: setting, conventions, privacy, click estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quorank.experiments.run_directory import Run

NO_PRIVACY = "No privacy mechanism: updates left the clients as they were."
CLICK_COLUMNS = ("by logged clicks", "this ranker", "as shown", "gain")


def what_was_run(run: Run) -> str:
    """Describe the run in one sentence, from its configuration."""
    clients, each = run.setting("federation.clients"), run.setting("federation.interactions")
    ranker, learner = kind(run.setting("ranker"), "unnamed"), kind(run.setting("learner"), "an unnamed learner")
    users = " ".join(word for word in (run.setting("users.preset"), kind(run.setting("users"))) if word)
    fold, feedback = run.setting("data.fold"), run.setting("learner.feedback")
    members = "Clients" if clients is None else f"{count(clients)} clients"
    source = f"{run.setting('data.source', 'unnamed data')}" + ("" if fold is None else f", fold {fold}")
    together = f"{_article(ranker)} {ranker} ranker together in {count(run.summary['rounds'])} rounds"
    if feedback is not None:
        learned_from = "labels" if feedback == "labels" else f"the logged clicks of {users or 'simulated'} users"
        told = "only sums over all clients were used"
        return f"{members} grew {together} by {learner} from {learned_from} on {source}; {told}."
    pace = "" if each is None else f" with {count(each)} interactions each per round"
    aggregation = kind(run.setting("federation.aggregation"))
    learner = learner.upper() if len(learner) <= 4 else learner
    return (
        f"{members}{pace} learned {together} ({count(run.summary['interactions'])} interactions)"
        f" by {learner} from the clicks of {users or 'simulated'} users on {source}"
        f"{f'; updates were combined by {aggregation}' if aggregation else ''}."
    )


def no_relevant(run: Run) -> str:
    """Return the convention of the offline mean, which changes its value, to be stated wherever the value is shown."""
    conventions = {
        "skip": "queries without a relevant document are skipped",
        "zero": "queries without a relevant document count 0",
    }
    unknown = "the run does not say how queries without a relevant document count"
    return conventions.get(run.setting("evaluation.no_relevant", ""), unknown)


def counted_queries(run: Run) -> str:
    """Return the number of test queries that the offline metrics count, if the run says so."""
    plan = run.summary.get("evaluation")
    if not isinstance(plan, Mapping) or not {"counted_queries", "test_queries"} <= plan.keys():
        return ""
    return f" ({count(plan['counted_queries'])} of {count(plan['test_queries'])} test queries count)"


def privacy(entry: Mapping[str, Any] | None) -> str:
    """Describe summary["privacy"] in a sentence; an ε without its δ, unit and horizon is withheld."""
    if entry is None:
        return NO_PRIVACY
    mechanism = str(entry.get("mechanism") or entry.get("kind") or "an unnamed mechanism")
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
        if key in ("mechanism", "kind", "epsilon"):
            continue
        if "epsilon" in key:
            if entry.get("delta") is not None and entry.get("unit") is not None:
                horizon = key.replace("epsilon", "").replace("_", " ").strip()
                fields.append((key.replace("_", " "), _qualified(value, entry, horizon or "not stated")))
        else:
            fields.append(("δ" if key == "delta" else key.replace("_", " "), words(value)))
    return fields


def kind(part: Any, default: str = "") -> str:
    """Return the word that names a part, which is written as a word or as a table."""
    return str(part.get("kind", default)) if isinstance(part, Mapping) else str(part or default)


def words(value: Any) -> str:
    """Format a value of a configuration or summary for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {words(v)}" for key, v in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(words(v) for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def count(value: Any) -> str:
    """Format an integer with thousands separators; anything else unchanged."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def rounded(value: float, decimals: int) -> str:
    """Format a number, or a dash for None."""
    return f"{value:.{decimals}f}" if math.isfinite(value) else "–"


def seconds(value: float) -> str:
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


def click_note(evaluation: Mapping[str, Any]) -> str:
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
    delta, unit = words(entry["delta"]), words(entry["unit"])
    return f"ε = {words(epsilon)} at δ = {delta} (unit: {unit}; horizon: {horizon})"


def _article(word: str) -> str:
    # "an mlp": its letters are spelled out, and the first begins with a vowel sound
    return "an" if word[:1] in "aeiou" or word == "mlp" else "a"
