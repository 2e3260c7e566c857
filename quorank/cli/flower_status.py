"""Status of a coordinator, of devices or of parties, from its status file and its members; also where it does not run."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

from quorank.cli.display import compact, print_rows
from quorank.errors import BadInput
from quorank.privacy.ledger import WITHHELD
from quorank.service.home import STATUS, Home
from quorank.service.members import InvitedMember, members
from quorank.service.silo_home import SiloHome

PHASES = {
    "not begun": "the coordinator has not run yet",
    "agreement": "parties agree on keys, which takes a hello and a contribution of every party",
    "statistics": "masked tables are added up, which takes those of every party",
    "asking": "sealed questions and answers pass between parties",
    "validation": "rankers are trained in turns, for the choice of a weight",
    "training": "the ranker is trained in turns",
    "end": "the ranker is handed out, until every party has kept it",
    "done": "every party has the ranker",
}
"""What happens in each phase of a group's session."""


@contextlib.contextmanager
def readable_status(home: Home) -> Iterator[None]:
    """Refuse a status file that holds something else than what a coordinator writes."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError):
        sentence = "damaged: it holds something else than a status; delete it, a running coordinator writes it anew"
        raise BadInput("file.damaged", sentence, f"{home.path / STATUS}") from None


def status_of(home: Home, now: float | None = None) -> dict[str, Any]:
    """Return the status as a table of plain values; the names of devices are in `members` only."""
    from quorank.federation.private_figures import meaning
    from quorank.service.service import NO_NDCG

    at, told = time.time() if now is None else now, home.last_status()
    first, running, last = _process(home, told, at)
    left, present = set(told.get("left", [])), set(told.get("present", [])) if running else set()
    checkpoint, cohort = told.get("checkpoint_at"), told.get("cohort", 0) if running else 0
    reported, each = told.get("reported"), home.settings.report_epsilon

    def state(member: InvitedMember) -> str:
        return "left" if member.admitted and member.client in left else _state(member, member.client in present)

    return {
        **first,
        "rounds": told.get("rounds", 0),
        "rounds_planned": home.experiment.rounds,
        "clients": home.experiment.federation.clients,
        "cohort": cohort,
        "waiting": told.get("waiting", []) if running else [],
        "needed": math.ceil(home.settings.least * cohort),
        "members": [
            {"name": member.name, "client": member.client, "state": state(member), "known": member.node is not None}
            for member in members(home)
        ],
        "accepted": told.get("accepted", 0),
        "withheld": WITHHELD if told.get("withheld") else None,
        "refused": told.get("refused", {}),
        "epsilon_spent": told.get("epsilon"),
        "epsilon_delta": told.get("delta"),
        "epsilon_method": told.get("method") or None,
        "rebuilding_rounds": told.get("rebuilding_rounds", 0),
        "rebuilding_note": _refused_rebuilding(told),
        "privacy": told.get("privacy"),
        "report_epsilon": each or None,
        "ndcg": reported,
        "ndcg_note": NO_NDCG if each == 0.0 else meaning(reported, each, told.get("rounds", 0)),
        "last_round_seconds": told.get("last_round_seconds"),
        "sent_bytes": told.get("sent_bytes", 0),
        "received_bytes": told.get("received_bytes", 0),
        "checkpoint_age_seconds": None if checkpoint is None else max(0.0, at - checkpoint),
        **last,
    }


def _refused_rebuilding(told: dict[str, Any]) -> str | None:
    """The sentence about a rebuilding that was refused because of the budget."""
    if told.get("rebuilding_refused") is None:
        return None
    return (
        f"the ranker started anew after a client left: a rebuilding would bring ε to {told['rebuilding_refused']:.4g} "
        f"at δ = {told.get('delta')} (unit: client), beyond the budget of {told.get('budget') or 0.0:.4g}; "
        "a larger one is allowed with --total-epsilon"
    )


def group_status_of(home: SiloHome, now: float | None = None) -> dict[str, Any]:
    """Return the status of a group's session as a table of plain values."""
    at, told, terms = time.time() if now is None else now, home.last_status(), home.group
    first, running, last = _process(home, told, at)
    present = {terms.parties[number] for number in told.get("present", [])} if running else set()
    invited = {member.name: member for member in members(home)}  # of a name the latest
    return {
        **first,
        "rehearsal": terms.seed is not None,
        "phase": told.get("phase", "not begun"),
        "parties": [
            {
                "name": name,
                "state": _state(invited.get(name), name in present),
                "waited": running and name in told.get("waited", []),
                "known": name in invited and invited[name].node is not None,
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
        **last,
    }


def _process(home: Home, told: dict[str, Any], at: float) -> tuple[dict[str, Any], bool, dict[str, Any]]:
    """Return what a status of either kind begins with, whether the coordinator runs, and what the status ends with."""
    process = home.process()
    running, state = process is not None, told.get("state", "new")
    if not running and told and state != "done":
        state = "stopped"
    first = {"state": state, "process": process, "run": home.settings.run, "address": home.settings.address}
    uptime = max(0.0, at - told["started"]) if running and "started" in told else None
    return first, running, {"uptime_seconds": uptime, "metrics_port": told.get("metrics_port") if running else None}


def _state(member: InvitedMember | None, present: bool) -> str:
    if member is None:
        return "not invited"
    return "revoked" if not member.admitted else "present" if present else "away"


def print_status(table: dict[str, Any]) -> None:
    """Print the status for people."""
    from quorank.federation.private_figures import shown

    took = _took(table["last_round_seconds"])
    rows = [_standing(table, "devices"), ("rounds", str(table["rounds"]), f"of {table['rounds_planned']}{took}")]
    if table["cohort"]:
        waiting = ", ".join(map(str, table["waiting"][:20])) + (" …" if len(table["waiting"]) > 20 else "")
        meaning = f"clients asked, {table['needed']} needed; without a reply: {waiting or 'none'}"
        if table["withheld"] is not None:
            meaning = "clients planned for a round"
        rows.append(("cohort", str(table["cohort"]), meaning))
    states = [member["state"] for member in table["members"]]
    told = ", ".join(f"{states.count(state)} {state}" for state in ("present", "away", "left", "revoked"))
    rows.append(("invited", str(len(states) - states.count("revoked")), f"of {table['clients']} clients: {told}"))
    if table["withheld"] is None:
        rows.append(("accepted", str(table["accepted"]), "replies"))
    else:
        rows.append(("withheld", "", table["withheld"]))
    rows.append(_refused(table))
    if table["epsilon_spent"] is None:
        rows.append(("ε", "none", "stated: " + ("no round is done" if not table["rounds"] else "nothing is accounted")))
    else:
        statement = table["privacy"] or {}
        beside = ["their reports"] if table["report_epsilon"] else []
        beside += [f"{table['rebuilding_rounds']} rounds of rebuildings"] if table["rebuilding_rounds"] else []
        done = "the rounds done" + (f" with {' and '.join(beside)}" if beside else "")
        told = f"spent by {done}, δ = {table['epsilon_delta']}, unit: {statement.get('unit', 'client')}"
        rows.append(("ε", f"{table['epsilon_spent']:.4g}", told))
    if table["rebuilding_note"]:
        rows.append(("rebuilding", "refused", table["rebuilding_note"]))
    print_rows(*rows, ("nDCG", shown(table["ndcg"]), table["ndcg_note"]))


def print_group_status(table: dict[str, Any]) -> None:
    """Print the status of a group's session for people."""
    rows, phase = [_standing(table, "parties")], str(table["phase"])
    if table["rehearsal"]:
        rows.append(("rehearsal", "", "keys and noise follow from the seed: nothing is secret"))
    rows.append(("phase", "", f"{phase}: {PHASES[phase]}" if phase in PHASES else phase))
    for party in table["parties"]:
        waited = ": the session waits for its answer" if party["waited"] else ""
        rows.append((party["name"], "", party["state"] + waited))
    took, left = _took(table["last_turn_seconds"]), table["seconds_left"]
    until = "" if left is None else f", about {left:,.0f} s are left"
    rows.append(("turns", str(table["turns"]), f"of {table['turns_planned']}{took}{until}"))
    for kind, count in table["traffic"].items():
        rows.append((kind, str(count["envelopes"]), f"envelopes, {compact(count['bytes'])}B"))
    sent, received = table["sent_bytes"], table["received_bytes"]
    told = f"by this process: {compact(sent)}B to parties, {compact(received)}B from them"
    print_rows(*rows, ("bytes", f"{compact(sent + received)}B", told), _refused(table))


def _standing(table: dict[str, Any], whom: str) -> tuple[str, str, str]:
    uptime = table["uptime_seconds"]
    since = "" if uptime is None else f"for {uptime:,.0f} s, process {table['process']}, "
    return table["state"], "", f"{since}{whom} reach it at {table['address']}"


def _took(seconds: float | None) -> str:
    return "" if seconds is None else f", the last one took {seconds:,.1f} s"


def _refused(table: dict[str, Any]) -> tuple[str, str, str]:
    reasons = ", ".join(f"{code} {count}" for code, count in sorted(table["refused"].items()))
    return "refused", str(sum(table["refused"].values())), reasons or "replies"
