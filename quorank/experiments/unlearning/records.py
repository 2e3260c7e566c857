"""Files of a run after clients were unlearned: figures of the rebuilt ranker, and an ε that covers the rebuilding.

`summary.json` gets the offline figures of the rebuilt ranker, and keeps what they were under `unlearned`. The online
figures stay: they are of the lists that were shown while the run lasted. `ledger.json` keeps the run's own releases and
gets an entry for each rebuilding, and under `altogether` what run and rebuildings give away together, which is also
what the summary and the report state.

ε and δ of several releases add up (basic composition). Gaussian noise of everyone in every round adds up more tightly:
releases with multipliers z₁ … z_k are one with multiplier (Σ z_t⁻²)^(−1/2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quorank.federation.unlearning import Rebuilt
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.privacy.ledger import ledger
from quorank.privacy.mechanisms.mechanism import Mechanism

Offline = dict[str, float]


def rebuilding_entry(
    part: Mapping[str, Any], mechanism: Mechanism, setting: Setting, rebuilt: Rebuilt, clients: Sequence[int]
) -> dict[str, Any]:
    """Return the ledger of one rebuilding: every release of it, and what it gives away by itself."""
    book = ledger(part, mechanism, setting, rebuilt.participants, rebuilt.sensitivity, rebuilt.noise)
    kept = {key: book[key] for key in ("setting", "releases", "privacy")}
    return {"without": sorted(clients), **kept}


def with_rebuilding(book: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's ledger with one rebuilding more."""
    entries = [*book.get("unlearning", []), entry]
    part = book["mechanism"]
    stated = combined_privacy(part, [book["privacy"], *(e["privacy"] for e in entries)])
    return {**book, "unlearning": entries, "altogether": stated}


def combined_privacy(part: Mapping[str, Any], statements: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return what the run (first) and its rebuildings give away together; None where nothing is protected."""
    run, *rebuildings = statements
    if run is None or any(entry is None for entry in rebuildings):
        return None
    each = [run, *(entry for entry in rebuildings if entry is not None)]
    rounds = [int(entry["rounds"]) for entry in each]
    again = ", ".join(f"{count}" for count in rounds[1:])
    many = "rebuildings" if len(rounds) > 2 else "the rebuilding"
    found = {
        **run,
        "rounds": sum(rounds),
        "horizon": f"{run['horizon']}, and {many} of {again} round{'s' if rounds[1:] != [1] else ''} without those "
        "who left",
        "run_alone": {key: run[key] for key in ("epsilon", "delta", "horizon", "unit") if key in run},
    }
    if any(entry.get("epsilon") is None for entry in each):
        return found | {"epsilon": None}
    if _gaussian(part):
        accountant = part.get("accountant", "pld")
        z = combined_multiplier([(entry["noise_multiplier"], entry["rounds"]) for entry in each])
        epsilon = accounting.epsilon(Setting(1, 1, 1), z, run["delta"], accountant)
        return found | {"epsilon": epsilon, "added_up": "as one Gaussian release"}
    return found | {
        "epsilon": math.fsum(entry["epsilon"] for entry in each),
        "delta": math.fsum(entry["delta"] for entry in each),
        "added_up": "ε and δ are sums",
    }


def combined_multiplier(releases: Sequence[tuple[float, int]]) -> float:
    """Compute (Σ rounds·z⁻²)^(−1/2): the multiplier of the one Gaussian release that says as much as all of these."""
    return 1.0 / math.sqrt(math.fsum(rounds / z**2 for z, rounds in releases))


def _gaussian(part: Mapping[str, Any]) -> bool:
    """Whether noise is independent Gaussian; correlated noise and whole numbers are accounted otherwise."""
    plain = part.get("sum", "plain") == "plain" and part.get("over_rounds", "independent") == "independent"
    return part.get("kind") == ClippedGaussian.kind and plain


def unlearned_summary(
    summary: Mapping[str, Any],
    result: Mapping[str, Any],
    leavers: Sequence[int],
    before: Offline,
    after: Offline,
    privacy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the run's summary of the rebuilt ranker; `unlearned` holds what was before, and at what price."""
    earlier = summary.get("unlearned") or {}
    kept = ("local_updates_share", "interval", "local_steps", "method", "rounds", "local_updates")
    note = {
        "clients": sorted(leavers),
        "as_run": earlier.get("as_run", dict(summary["offline"])),
        "before": before,
        "after": after,
        **{key: result[key] for key in kept},
    }
    stated = summary.get("privacy") if privacy is None else dict(privacy)
    return {**summary, "offline": after, "privacy": stated, "unlearned": note}
