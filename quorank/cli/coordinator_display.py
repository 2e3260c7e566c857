"""Status of a federation in the terminal: the document of its page, at 80 columns, or as JSON."""

from __future__ import annotations

from quorank.cli.display import print_result, print_rows
from quorank.service.dashboard.status import Quality, Status

_WHOM = {"devices": "devices", "parties": "parties", "tuning": "devices", "simulation": "clients"}
_ROUNDS = {"devices": "rounds", "parties": "turns", "tuning": "versions", "simulation": "rounds"}
_NAMED = 12
"""Members of a group or awaited ones that are named."""


def show_status(status: Status, as_json: bool) -> None:
    """Print the status, as JSON or for people."""
    print_result(status.bounded().table(), as_json, lambda _: print_status(status))


def print_status(status: Status) -> None:
    """Print the status for people, wrapped to the terminal."""
    print_rows(*status_rows(status))


def status_rows(status: Status) -> list[tuple[str, str, str]]:
    """The status in rows: a name, a figure, and what it is."""
    rows = [_standing(status), *((problem.code, "!", problem.sentence) for problem in status.problems)]
    if status.rehearsal:
        rows.append(("rehearsal", "", "keys and noise follow from the seed: nothing is secret"))
    if status.phase is not None:
        rows.append(("phase", "", status.phase))
    rows += [_rounds(status), *_round(status), *_members(status)]
    if status.kind == "parties":
        for kind, sums in status.traffic.items():
            rows.append((kind, f"{sums.get('envelopes', 0):,}", f"envelopes, {sums.get('bytes', 0):,} bytes"))
    elif status.withheld is not None:
        rows.append(("withheld", "", status.withheld))
    else:
        rows.append(("accepted", f"{status.accepted or 0:,}", "replies"))
    codes = ", ".join(f"{code} {count:,}" for code, count in sorted(status.refused.items()))
    rows.append(("refused", f"{sum(status.refused.values()):,}", codes or "nothing"))
    if status.kind != "parties":
        rows += [_epsilon(status), _quality(status.quality, status.quality_note)]
    if status.rebuilding_note is not None:
        rows.append(("rebuilding", "", status.rebuilding_note))
    for weight in status.weights:
        bounds = f"shipped {weight.shipped:.4g}, between {weight.lower:.4g} and {weight.upper:.4g}"
        rows.append((weight.name, f"{weight.value:.4g}", bounds))
    return [*rows, _versions(status)]


def _standing(status: Status) -> tuple[str, str, str]:
    up, address = status.uptime_seconds, status.address
    told = [] if up is None else [f"for {up:,.0f} s"]
    told += [] if status.process is None else [f"process {status.process}"]
    told += [] if address is None else [f"{_WHOM[status.kind]} reach it at {address}"]
    return status.state, "", ", ".join([status.run, *told])


def _rounds(status: Status) -> tuple[str, str, str]:
    told = [] if status.rounds_planned is None else [f"of {status.rounds_planned:,}"]
    if status.last_round_seconds is not None:
        told.append(f"the last one took {status.last_round_seconds:,.1f} s")
    if status.seconds_left is not None and status.rounds_planned is not None and status.state == "running":
        told.append(f"about {status.seconds_left:,.0f} s are left")
    return _ROUNDS[status.kind], f"{status.rounds:,}", ", ".join(told)


def _round(status: Status) -> list[tuple[str, str, str]]:
    """The open round, where there is one."""
    if not status.cohort or status.kind == "parties":
        return []
    if status.withheld is not None:
        return [("cohort", f"{status.cohort:,}", "clients planned for a round")]
    awaited = [str(member.client) for member in status.members if member.waiting]
    more = " …" if len(awaited) > _NAMED or (status.counts.waiting or 0) > len(awaited) else ""
    told = [f"clients asked, {status.needed or 0:,} needed, {status.replies or 0:,} came"]
    told += [f"without a reply: {', '.join(awaited[:_NAMED])}{more}"] if awaited else []
    if status.deadline_seconds is not None:
        told.append(f"deadline in {status.deadline_seconds:,.0f} s")
    return [("cohort", f"{status.cohort:,}", "; ".join(told))]


def _members(status: Status) -> list[tuple[str, str, str]]:
    counts = status.counts
    if status.kind == "simulation":
        return [("clients", f"{counts.planned or 0:,}", "simulated")]
    late = "" if counts.late is None else f", {counts.late:,} late"
    told = f"{counts.seen:,} seen lately{late}, {counts.invited:,} invited, {counts.left:,} left"
    told += f", {counts.revoked:,} revoked"
    rows = [("enrolled", f"{counts.enrolled:,}", told)]
    if status.kind == "parties":
        for member in status.members:
            waited = ": the session waits for its answer" if member.waiting else ""
            rows.append(
                (member.name or f"{member.client}", "", f"{member.state}, {member.phase or 'not begun'}{waited}")
            )
    elif not counts.enrolled:
        rows[0] = ("enrolled", "0", "no device has come yet: invite one with quorank coordinator invite DIR NAME")
    return rows


def _epsilon(status: Status) -> tuple[str, str, str]:
    if status.epsilon_spent is None:
        return "ε", "none", "spent: " + ("nothing is accounted" if status.rounds else "no round is done")
    planned = "" if status.epsilon_planned is None else f"of {status.epsilon_planned:.4g} planned, "
    horizon = "" if status.epsilon_horizon is None else f", {status.epsilon_horizon}"
    rebuilt = f"; {status.rebuilding_rounds} rounds of rebuildings are in it" if status.rebuilding_rounds else ""
    unit = f"unit: {status.epsilon_unit or 'client'}"
    return "ε", f"{status.epsilon_spent:.4g}", f"spent {planned}δ = {status.epsilon_delta:g}, {unit}{horizon}{rebuilt}"


def _quality(quality: Quality | None, note: str | None) -> tuple[str, str, str]:
    if quality is None:
        return "quality", "none", note or "nobody reports it"
    if quality.best is None:
        return "quality", "none", f"{quality.measure}: too few to say; shown from {quality.least_devices} reports on"
    value, error = quality.best
    if error is None:
        return "quality", f"{value:.4f}", quality.measure
    doubt = "" if quality.is_significant else ": too few to say"
    over = " over rounds" if quality.smoothed is not None else ""
    told = f"{quality.measure}{over}, ± two standard errors{doubt}; {quality.devices} reports in round {quality.round}"
    return "quality", f"{value:.2f} ± {2 * error:.2f}", told


def _versions(status: Status) -> tuple[str, str, str]:
    known = ", ".join(f"{count:,} × {version}" for version, count in sorted(status.versions.members.items()))
    told = f"protocol {status.versions.protocol}" + (f"; {_WHOM[status.kind]}: {known}" if known else "")
    return "version", status.versions.service, told
