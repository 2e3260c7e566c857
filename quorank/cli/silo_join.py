"""`quorank silo join`: take part in a group with one's own documents, and see who one is and all that was sent."""

from __future__ import annotations

import json as json_
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from quorank.errors import require

if TYPE_CHECKING:
    from quorank.network.declined import Declined
    from quorank.network.silo_folder import PartyFolder
    from quorank.network.silo_party import SiloParty

LINE_SECONDS = 60.0
"""A line is repeated after so long without a new one, so that one sees that it goes on."""


def join(
    data: Annotated[Path, Option(help="Folder of this party's private state.")],
    bundle: Annotated[
        Path | None, Option(help="The invitation; it is kept in the folder, so it is needed once.")
    ] = None,
    collection: Annotated[
        Path | None, Option(help="This party's documents, queries and judgements (BEIR, SMART, TREC); needed once.")
    ] = None,
    generated: Annotated[
        int | None, Option(help="Rehearse without a collection: which generated party, from 0.")
    ] = None,
    documents: Annotated[int, Option(min=10, help="With --generated: documents of each party.")] = 1000,
    coordinator: Annotated[
        str | None, Option(help="host:port of the coordinator; the invitation's unless given.")
    ] = None,
    consent: Annotated[
        Literal["on", "off"] | None, Option(help="Agree to take part, or withdraw, at any time.")
    ] = None,
    pin: Annotated[
        list[str] | None, Option(metavar="NAME=HEX", help="Hold another party to the identity that it told.")
    ] = None,
    identity: Annotated[
        bool, Option("--identity", help="Print this party's public identity, and whom it knows.")
    ] = False,
    log: Annotated[bool, Option("--log", help="Show what was sent, to whom, and what it tells.")] = False,
    status: Annotated[bool, Option("--status", help="Show where this party stands.")] = False,
    json: Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Take part in a group with this party's own documents, until all have one ranker.

    Documents, queries and judgements are read where they are and never
    leave. Nothing is sent before consent is on. All that must survive a
    restart is in the folder; start it again with --data alone.
    """

    chosen = [name for name, on in (("--identity", identity), ("--log", log), ("--status", status)) if on]
    require(len(chosen) <= 1, "option.conflict", "choose one of them", f"{' and '.join(chosen)}")
    folder = _folder(data, bundle, pin or [])
    if collection is not None or generated is not None:
        _note_source(folder, collection, generated, documents)
    if consent is not None:
        folder.set_consent(consent == "on")
    if identity:
        show_identity(folder, json)
    elif log:
        show_log(folder, json)
    elif status or (consent is not None and bundle is None):
        show_status(folder, json)
    else:
        if not folder.state.get("done"):
            _take_part(folder, coordinator, quiet=quiet or json)
        show_status(folder, json)


def _folder(data: Path, bundle: Path | None, pins: list[str]) -> PartyFolder:
    from quorank.network.silo_bundle import SiloBundle, read_identities
    from quorank.network.silo_folder import PartyFolder

    folder = PartyFolder.open(data) if bundle is None else PartyFolder.accept(data, SiloBundle.read(bundle))
    folder.note_pins(read_identities(pins, folder.invitation.terms))
    return folder


def _note_source(folder: PartyFolder, collection: Path | None, generated: int | None, documents: int) -> None:
    from quorank.network.silo_folder import FolderSource

    if collection is not None:
        require(
            collection.exists(),
            "file.missing",
            "there is nothing here; expected a collection",
            f"--collection {collection}",
        )
    source = FolderSource(None if collection is None else str(collection.absolute()), generated, documents)
    folder.note_source(source)


def _take_part(folder: PartyFolder, coordinator: str | None, *, quiet: bool) -> None:
    from dataclasses import replace

    from quorank.files import write_whole
    from quorank.network.silo_folder import RANKER
    from quorank.network.silo_link import connect, take_part
    from quorank.network.silo_service import ranker_bytes
    from quorank.process import interruptible

    invitation, say = folder.invitation, _Progress(quiet)
    if coordinator is not None:
        invitation = replace(invitation, address=coordinator)
    os.umask(0o077)  # whatever this process and its engine write is for its owner's eyes
    with folder.playing(), interruptible() as asked, _party(folder, say) as party:
        if invitation.terms.seed is not None:
            say("a rehearsal: keys and noise follow from the seed, so nothing is secret")
        if not folder.consent():
            say("consent is off, so nothing is sent; give it with --consent on, also while this runs")
        line = connect(invitation, folder.path)
        told, asked_at = "", time.monotonic()

        def seen(answer: bytes | Declined | None) -> None:
            nonlocal told, asked_at
            if party.progress != told:
                told = party.progress
                _note(folder, party)
            if answer is not None:
                asked_at = time.monotonic()
            minutes = int((time.monotonic() - asked_at) // 60)
            say(told if not minutes else f"{told}; the coordinator has asked nothing for {minutes} min")

        done = False
        try:
            done = take_part(party, line, lambda: party.ranker is not None, asked, seen)
        finally:
            line.close()
            if party.ranker is not None:
                write_whole(folder.path / RANKER, ranker_bytes(party.ranker))
            _note(folder, party, done=done)
        if not done and asked():
            raise KeyboardInterrupt


@contextmanager
def _party(folder: PartyFolder, say: Callable[[str], None] = lambda sentence: None) -> Iterator[SiloParty]:
    """The party of a folder, with its documents read."""
    from quorank.compiled import is_cold
    from quorank.network.silo_folder import SESSION
    from quorank.network.silo_party import SiloParty

    invitation = folder.invitation
    if is_cold():
        say("compiling for this machine (the first time only)")
    say(f"{invitation.name} reads its documents")
    holding = folder.holding()
    say(f"{invitation.name} has {holding.n_documents:,} documents and {holding.n_queries:,} queries")
    party = SiloParty(
        folder.path / SESSION,
        invitation.name,
        invitation.terms,
        holding,
        pins=folder.pins or None,
        consent=folder.consent,
    )
    try:
        yield party
    finally:
        party.close()


def _note(folder: PartyFolder, party: SiloParty, *, done: bool = False) -> None:
    told = {"progress": party.progress, "fingerprint": party.fingerprint, "figures": party.figures}
    folder.note_state(**told, done=done)


class _Progress:
    """Lines on stderr, of 80 columns at most: when something is new, and now and then."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.last, self.at = quiet, "", 0.0

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if self.quiet or (sentence == self.last and now - self.at < LINE_SECONDS):
            return
        import textwrap

        self.last, self.at = sentence, now
        stamp = time.strftime("%H:%M:%S ")
        lines = textwrap.wrap(sentence, 80 - len(stamp)) or [""]
        print(
            "\n".join([stamp + lines[0], *(" " * len(stamp) + line for line in lines[1:])]), file=sys.stderr, flush=True
        )


def show_identity(folder: PartyFolder, json: bool) -> None:
    """Print the public identity that the others pin, and the fingerprint that is compared by voice."""
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
    """Print where the party stands in its run."""
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
    """Print all that ever left, and when consent was given or withdrawn."""
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
