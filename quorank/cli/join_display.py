"""What `quorank join` shows of a device: where it stands, and all that it ever sent."""

from __future__ import annotations

import json as json_
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank.errors import BadInput

if TYPE_CHECKING:
    from quorank.network.private_store import PrivateStore, Release
    from quorank.network.terms import Terms


def known_terms(store: PrivateStore) -> Terms:
    """What this device agreed to."""
    from quorank.network.terms import Terms

    found = store.fact("terms")
    if found is None:
        raise BadInput(
            f"{store.folder}: this device has not joined a run yet; give an invitation with --bundle"
        )
    return Terms.read(json_.loads(found))


def show_status(data: Path, json: bool) -> None:
    """Consent, searches, and what was sent so far."""
    from quorank.cli.display import print_rows
    from quorank.network.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        terms, releases, ranker = known_terms(store), store.releases(), store.ranker
        figures: dict[str, Any] = {
            "run": terms.run,
            "client": terms.client,
            "consent": store.consent,
            "waiting": store.waiting(),
            "needed": terms.interactions,
            "releases": len(releases),
            "bytes_sent": sum(entry.size for entry in releases),
            "last_round": store.last_round(terms.run),
            "rounds": terms.rounds,
            "ranker_round": None if ranker is None else ranker.round,
            "privacy": terms.privacy.kind,
            "reports": terms.reports,
        }
    if json:
        print(json_.dumps(figures))
        return
    print_rows(
        ("consent", "on" if figures["consent"] else "off", "nothing leaves while it is off"),
        ("new searches", str(figures["waiting"]), f"an update is made of {figures['needed']}"),
        (
            "sent",
            str(figures["releases"]),
            f"releases, {figures['bytes_sent']:,} bytes in all (--log shows them)",
        ),
        (
            "round",
            str(figures["last_round"]),
            f"of {figures['rounds']}, the last one answered, of run {figures['run']}",
        ),
        ("privacy", str(figures["privacy"]), "of every release"),
        *([] if terms.reports is None else [("report", "with each", cost_of(terms.reports))]),
    )


def show_log(data: Path, json: bool) -> None:
    """All that ever left the device, and when consent was given or withdrawn."""
    from quorank.network.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        releases, consents = store.releases(), store.consents()
    if json:
        entries = [_entry(release) for release in releases]
        given = [{"at": _time(at), "given": on} for at, on in consents]
        print(json_.dumps({"releases": entries, "consent": given}))
        return
    from rich.console import Console
    from rich.table import Table

    reports = [release.privacy.get("report") for release in releases]
    heads = ("sent", "run", "round", "searches", "bytes", "privacy", *(["report"] if any(reports) else []))
    table = Table(*heads, box=None)
    for release, report in zip(releases, reports, strict=True):
        epsilon = release.privacy.get("epsilon")
        kind = release.privacy["kind"] + ("" if epsilon is None else f", ε = {epsilon:.4g}")
        told = [] if report is None else [f"{report['value']:.4g}"]
        cells = (release.round, release.interactions, f"{release.size:,}", kind, *told)
        table.add_row(_time(release.at), release.run, *map(str, cells))
    console = Console()
    console.print(table)
    for standing in dict.fromkeys(release.privacy["standing"] for release in releases):
        console.print(standing, highlight=False, markup=False)
    for cost in dict.fromkeys(cost_of(report) for report in reports if report is not None):
        console.print(f"report: {cost}", highlight=False, markup=False)
    for at, on in consents:
        console.print(f"consent {'on' if on else 'off'} since {_time(at)}", highlight=False)


def cost_of(report: dict[str, Any]) -> str:
    """What reports say and cost, for the device's owner."""
    composed = report["composed"]
    return (
        "nDCG of the lists by their clicks, noised here: "
        f"ε = {report['epsilon_per_report']:g} each (δ = 0, unit: {report['unit']}), against the coordinator too; "
        f"{report['horizon']}: ε = {report['epsilon']:g}, or {composed['epsilon']:.4g} at δ = {composed['delta']:g}; "
        "it comes on top of the ε of the updates"
    )


def _entry(release: Release) -> dict[str, Any]:
    return {
        "at": _time(release.at),
        "run": release.run,
        "round": release.round,
        "interactions": release.interactions,
        "bytes": release.size,
        "privacy": release.privacy,
    }


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
