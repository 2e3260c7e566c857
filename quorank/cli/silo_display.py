"""Status of a group's session, from its coordinator's status file and its members; also where it does not run."""

from __future__ import annotations

import time
from typing import Any

from quorank.cli.display import compact, print_rows
from quorank.network.service_members import InvitedMember, members
from quorank.network.silo_home import SiloHome

MEANINGS = {
    "not begun": "the coordinator has not run yet",
    "agreement": "parties agree on keys, which takes a hello and a contribution of every party",
    "statistics": "masked tables are added up, which takes those of every party",
    "asking": "sealed questions and answers pass between parties",
    "validation": "rankers are trained in turns, for the choice of a weight",
    "training": "the ranker is trained in turns",
    "end": "the ranker is handed out, until every party has kept it",
    "done": "every party has the ranker",
}
"""What happens in each phase of a session."""


def status_of(home: SiloHome, now: float | None = None) -> dict[str, Any]:
    """Return the status as a table of plain values."""
    at, told, process = time.time() if now is None else now, home.last_status(), home.process()
    running, terms = process is not None, home.group
    state = told.get("state", "new") if running else "stopped"
    if not running and (not told or told.get("state") == "done"):
        state = "done" if told else "new"
    present = {terms.parties[number] for number in told.get("present", [])} if running else set()
    admitted = {member.name: member for member in members(home)}  # of a name the latest
    return {
        "state": state,
        "process": process,
        "run": terms.run,
        "address": home.settings.address,
        "rehearsal": terms.seed is not None,
        "phase": told.get("phase", "not begun"),
        "parties": [
            {
                "name": name,
                "state": _state(admitted.get(name), present),
                "waited": running and name in told.get("waited", []),
                "known": name in admitted and admitted[name].node is not None,
            }
            for name in terms.parties
        ],
        "turns": told.get("rounds", 0),
        "turns_planned": told.get("rounds_planned", 0),
        "seconds_left": told.get("seconds_left") if running else None,
        "last_turn_seconds": told.get("last_round_seconds"),
        "traffic": told.get("traffic", {}),
        "refused": told.get("refused", {}),
        "sent_bytes": told.get("sent_bytes", 0),
        "received_bytes": told.get("received_bytes", 0),
        "uptime_seconds": max(0.0, at - told["started"]) if running and "started" in told else None,
        "metrics_port": told.get("metrics_port") if running else None,
    }


def _state(member: InvitedMember | None, present: set[str]) -> str:
    if member is None:
        return "not invited"
    if not member.admitted:
        return "revoked"
    return "present" if member.name in present else "away"


def print_status(table: dict[str, Any]) -> None:
    """Print the status for people."""
    uptime = table["uptime_seconds"]
    since = "" if uptime is None else f"for {uptime:,.0f} s, process {table['process']}, "
    rows = [(table["state"], "", f"{since}parties reach it at {table['address']}")]
    if table["rehearsal"]:
        rows.append(("rehearsal", "", "keys and noise follow from the seed: nothing is secret"))
    rows.append(("phase", "", _phase(table)))
    for party in table["parties"]:
        waited = "the session waits for its answer" if party["waited"] else ""
        rows.append((party["name"], "", party["state"] + (f": {waited}" if waited else "")))
    last, left = table["last_turn_seconds"], table["seconds_left"]
    took = "" if last is None else f", the last one took {last:,.1f} s"
    until = "" if left is None else f", about {left:,.0f} s are left"
    rows.append(("turns", str(table["turns"]), f"of {table['turns_planned']}{took}{until}"))
    for kind, count in table["traffic"].items():
        rows.append((kind, str(count["envelopes"]), f"envelopes, {compact(count['bytes'])}B"))
    rows.append(
        (
            "bytes",
            f"{compact(table['sent_bytes'] + table['received_bytes'])}B",
            f"by this process: {compact(table['sent_bytes'])}B to parties, {compact(table['received_bytes'])}B from them",
        )
    )
    reasons = ", ".join(f"{code} {count}" for code, count in sorted(table["refused"].items()))
    rows.append(("refused", str(sum(table["refused"].values())), reasons or "replies"))
    print_rows(*rows)


def _phase(table: dict[str, Any]) -> str:
    phase = str(table["phase"])
    return f"{phase}: {MEANINGS[phase]}" if phase in MEANINGS else phase
