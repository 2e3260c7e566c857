"""What `quorank silo join` shows of a party: who it is, where it stands, and all that it ever sent."""

from __future__ import annotations

import json as json_
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorank.network.silo_folder import PartyFolder


def show_identity(folder: PartyFolder, json: bool) -> None:
    """What the others pin, and what is compared by voice."""
    own, pins = folder.identity(), folder.pins
    agreed = folder.state.get("fingerprint")
    if json:
        table = {"name": own.name, "identity": own.public.hex(), "fingerprint": agreed}
        print(json_.dumps(table | {"pinned": {name: key.hex() for name, key in sorted(pins.items())}}))
        return
    print(f"{own.name}={own.public.hex()}")
    print(f"fingerprint: {agreed or 'not agreed on yet'}")
    for name in folder.invitation.terms.parties:
        if name != own.name:
            print(f"{name}: {'pinned' if name in pins else 'not pinned'}")


def show_status(folder: PartyFolder, json: bool) -> None:
    from quorank.cli.display import print_rows
    from quorank.network.silo_folder import RANKER

    state, terms = folder.state, folder.invitation.terms
    figures: dict[str, Any] = {
        "name": folder.invitation.name,
        "run": terms.run,
        "parties": list(terms.parties),
        "rehearsal": terms.seed is not None,
        "consent": folder.consent(),
        "progress": state.get("progress", "has not started yet"),
        "fingerprint": state.get("fingerprint"),
        "pinned": sorted(folder.pins),
        "figures": state.get("figures"),
        "ranker": str(folder.path / RANKER) if (folder.path / RANKER).is_file() else None,
    }
    if json:
        print(json_.dumps(figures))
        return
    others = [name for name in terms.parties if name != figures["name"]]
    agreed = figures["fingerprint"]
    rows = [
        ("party", f"{figures['name']} of the run {terms.run}, with {', '.join(others)}"),
        ("consent", "on" if figures["consent"] else "off: nothing is sent"),
        ("progress", str(figures["progress"])),
        ("pinned", ", ".join(sorted(folder.pins)) or "nobody"),
        ("fingerprint", f"{agreed}, to be compared by voice" if agreed else "not agreed on yet"),
        ("ranker", str(figures["ranker"] or "not there yet")),
    ]
    if figures["figures"]:
        told = f"nDCG@10 {figures['figures']['ndcg@10']:.3f} on this party's own test lists, which nobody else learns"
        rows.append(("own tests", told))
    print_rows(*((name, "", meaning) for name, meaning in rows))


def show_log(folder: PartyFolder, json: bool) -> None:
    """All that ever left, and when consent was given or withdrawn."""
    entries = [entry | {"at": _time(entry["at"])} for entry in folder.sent_log()]
    consents = [{"at": _time(at), "given": on} for at, on in folder.consents]
    if json:
        print(json_.dumps({"sent": entries, "consent": consents}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("sent", "what", "for", "bytes", box=None)
    for entry in entries:
        table.add_row(entry["at"], entry["kind"], entry["receiver"], f"{entry['bytes']:,}")
    console = Console()
    console.print(table)
    for kind, sentence in {entry["kind"]: entry["tells"] for entry in entries}.items():
        console.print(f"{kind}: {sentence}", highlight=False, markup=False)
    for given in consents:
        console.print(f"consent {'on' if given['given'] else 'off'} since {given['at']}", highlight=False)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
