"""Files of a run after unlearning: metrics of the rebuilt ranker, and an ε that covers the rebuilding.

`summary.json` gets the offline metrics of the rebuilt ranker and keeps the previous ones under `unlearned`. The online
metrics of the shown lists stay. `ledger.json` gets an entry for each rebuilding, and under `altogether` the loss of run and
rebuildings together at the run's δ (`privacy.composition`), which summary and report state too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quorank.federation.unlearning.methods import Rebuilt
from quorank.privacy import Setting
from quorank.privacy.ledger import combined_privacy, ledger
from quorank.privacy.mechanisms.mechanism import Mechanism

Offline = dict[str, float]


def rebuilding_entry(
    part: Mapping[str, Any], mechanism: Mechanism, setting: Setting, rebuilt: Rebuilt, clients: Sequence[int]
) -> dict[str, Any]:
    """Return the ledger entry of one rebuilding: its releases and their loss."""
    book = ledger(part, mechanism, setting, rebuilt.participants, rebuilt.sensitivity, rebuilt.noise)
    kept = {key: book[key] for key in ("setting", "releases", "privacy")}
    return {"without": sorted(clients), **kept}


def with_rebuilding(book: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's ledger with one more rebuilding."""
    entries = [*book.get("unlearning", []), entry]
    stated = combined_privacy(book["mechanism"], [book, *entries])
    return {**book, "unlearning": entries, "altogether": stated}


def unlearned_summary(
    summary: Mapping[str, Any],
    result: Mapping[str, Any],
    leavers: Sequence[int],
    before: Offline,
    after: Offline,
    privacy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the run's summary of the rebuilt ranker; `unlearned` holds the previous metrics and the effort."""
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
    # the run had published another ranker
    rest = {key: value for key, value in summary.items() if key != "handed_out"}
    return {**rest, "offline": after, "privacy": stated, "unlearned": note}
