"""Status of a coordinator, from its status file and its list of members; also where it does not run."""

from __future__ import annotations

import math
import time
from typing import Any

from quorank.cli.display import print_rows
from quorank.network.private_figures import meaning, shown
from quorank.network.service import NO_NDCG
from quorank.network.service_files import Home
from quorank.network.service_members import InvitedMember, members


def status_of(home: Home, now: float | None = None) -> dict[str, Any]:
    """Return the status as a table of plain values; the names of devices are in `members` only."""
    at, told, process = time.time() if now is None else now, home.last_status(), home.process()
    state = told.get("state", "new") if process is not None else "stopped"
    if process is None and (not told or told.get("state") == "done"):
        state = "done" if told else "new"
    running, known = process is not None, members(home)
    left = set(told.get("left", []))
    present = set(told.get("present", [])) if running else set()
    checkpoint = told.get("checkpoint_at")
    privacy = told.get("privacy")
    reported, each = told.get("reported"), home.settings.report_epsilon
    note = NO_NDCG if each == 0.0 else meaning(reported, each, told.get("rounds", 0))
    return {
        "state": state,
        "process": process,
        "run": home.settings.run,
        "address": home.settings.address,
        "rounds": told.get("rounds", 0),
        "rounds_planned": home.experiment.rounds,
        "clients": home.experiment.federation.clients,
        "cohort": told.get("cohort", 0) if running else 0,
        "waiting": told.get("waiting", []) if running else [],
        "needed": math.ceil(home.settings.least * told.get("cohort", 0)) if running else 0,
        "members": [
            {
                "name": member.name,
                "client": member.client,
                "state": _state(member, present, left),
                "known": member.node is not None,
            }
            for member in known
        ],
        "accepted": told.get("accepted", 0),
        "refused": told.get("refused", {}),
        "epsilon_spent": told.get("epsilon"),
        "privacy": privacy,
        "report_epsilon": each or None,
        "ndcg": reported,
        "ndcg_note": note,
        "last_round_seconds": told.get("last_round_seconds"),
        "sent_bytes": told.get("sent_bytes", 0),
        "received_bytes": told.get("received_bytes", 0),
        "checkpoint_age_seconds": None if checkpoint is None else max(0.0, at - checkpoint),
        "uptime_seconds": max(0.0, at - told["started"]) if running and "started" in told else None,
        "metrics_port": told.get("metrics_port") if running else None,
    }


def _state(member: InvitedMember, present: set[int], left: set[int]) -> str:
    if not member.admitted:
        return "revoked"
    if member.client in left:
        return "left"
    return "present" if member.client in present else "away"


def print_status(table: dict[str, Any]) -> None:
    """Print the status for people."""
    uptime, last = table["uptime_seconds"], table["last_round_seconds"]
    since = "" if uptime is None else f"for {uptime:,.0f} s, process {table['process']}, "
    rows = [(table["state"], "", f"{since}devices reach it at {table['address']}")]
    took = "" if last is None else f", the last one took {last:,.1f} s"
    rows.append(("rounds", str(table["rounds"]), f"of {table['rounds_planned']}{took}"))
    if table["cohort"]:
        waiting = ", ".join(map(str, table["waiting"][:20])) + (" …" if len(table["waiting"]) > 20 else "")
        meaning = f"clients asked, {table['needed']} needed; without a reply: {waiting or 'none'}"
        rows.append(("cohort", str(table["cohort"]), meaning))
    states = [member["state"] for member in table["members"]]
    told = ", ".join(f"{states.count(state)} {state}" for state in ("present", "away", "left", "revoked"))
    rows.append(("invited", str(len(states) - states.count("revoked")), f"of {table['clients']} clients: {told}"))
    reasons = ", ".join(f"{code} {count}" for code, count in sorted(table["refused"].items()))
    rows.append(("accepted", str(table["accepted"]), "replies"))
    rows.append(("refused", str(sum(table["refused"].values())), reasons or "replies"))
    statement = table["privacy"]
    if table["epsilon_spent"] is None:
        rows.append(("ε", "none", "stated: " + ("no round is done" if not table["rounds"] else "nothing is accounted")))
    else:
        delta, unit = (statement or {}).get("delta"), (statement or {}).get("unit", "client")
        done = "the rounds done" + (" with their reports" if table["report_epsilon"] else "")
        rows.append(("ε", f"{table['epsilon_spent']:.4g}", f"spent by {done}, δ = {delta}, unit: {unit}"))
    rows.append(("nDCG", shown(table["ndcg"]), table["ndcg_note"]))
    print_rows(*rows)
