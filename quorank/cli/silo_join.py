"""`quorank silo join`: take part in a group, and show identity, status and everything that was sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from quorank.cli.display import (
    consent_line,
    print_lines,
    print_result,
    print_rows,
    print_text,
    rows_of,
    say,
    table_of,
    timestamp,
)
from quorank.cli.options import Consent, InvitationFile, Json, Quiet, at_most_one
from quorank.cli.text_collections import read_texts, skipped_of
from quorank.errors import require
from quorank.text.collection import NAMED_FORMATS

if TYPE_CHECKING:
    from quorank.member.party import SiloParty
    from quorank.member.party_folder import PartyFolder

GRACE = 5.0
"""Time to wait for a search beyond its own patience, seconds."""


def join(
    data: Annotated[Path, Option(help="Private folder of this party.")],
    bundle: InvitationFile = None,
    collection: Annotated[
        Path | None, Option(help=f"This party's documents, queries and judgements ({NAMED_FORMATS}); needed once.")
    ] = None,
    generated: Annotated[
        int | None, Option(help="Rehearse without a collection: number of a generated party, from 0.")
    ] = None,
    documents: Annotated[int, Option(min=10, help="With --generated: number of documents.")] = 1000,
    embeddings: Annotated[
        Path | None,
        Option(help="Word vectors (text) or the folder of an ONNX encoder, if the group has agreed on embeddings."),
    ] = None,
    consent: Consent = None,
    pin: Annotated[list[str] | None, Option(metavar="NAME=HEX", help="Pin another party's public identity.")] = None,
    confirm: Annotated[
        str | None,
        Option(metavar="DIGITS", help="Fingerprint that the others read out; the session goes on from there."),
    ] = None,
    trust_service: Annotated[
        bool, Option("--trust-service", help="Go on without comparing: the service could read everything.")
    ] = False,
    until_ranker: Annotated[
        bool, Option("--until-ranker", help="End once this party has the ranker, even if the group searches.")
    ] = False,
    identity: Annotated[bool, Option("--identity", help="Print this party's public identity and its pins.")] = False,
    document: Annotated[
        int | None, Option(help="Print the id of the document with this number in others' searches.")
    ] = None,
    log: Annotated[bool, Option("--log", help="Show everything that was sent, with receiver and meaning.")] = False,
    status: Annotated[bool, Option("--status", help="Show the state of this party.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a group with this party's own documents until all have one ranker.

    Documents, queries and judgements are read where they are and never
    leave. Nothing is sent before consent is on, and nothing but keys before
    the others are confirmed: by --confirm, by --pin for each of them, or by
    --trust-service. A later start needs --data alone. If the group searches, the party answers searches until it is
    stopped.
    """
    at_most_one(identity=identity, log=log, status=status, document=document is not None)
    at_most_one(confirm=confirm is not None, **{"trust-service": trust_service})
    from quorank.member.party_folder import FolderSource, PartyFolder
    from quorank.protocol.invitation import Invitation
    from quorank.silos.session.terms import read_identities

    folder = PartyFolder.open(data) if bundle is None else PartyFolder.accept(data, Invitation.read(bundle))
    folder.note_pins(read_identities(pin or [], folder.terms))
    sentence = "--embeddings needs --collection"
    alone = collection is None and generated is None
    require(embeddings is None or not alone, "option.conflict", sentence, f"--embeddings {embeddings}")
    if not alone:
        for path, name in ((collection, "collection"), (embeddings, "embeddings")):
            sentence = f"there is nothing here; expected {name}"
            require(path is None or path.exists(), "file.missing", sentence, f"--{name} {path}")
        texts, vectors = (None if path is None else str(path.absolute()) for path in (collection, embeddings))
        folder.note_source(FolderSource(texts, generated, documents, vectors))
    if consent is not None:
        folder.consent(consent == "on")
    if confirm is not None or trust_service:
        folder.confirm(confirm)
    if identity:
        show_identity(folder, json)
    elif document is not None:
        figures = {"number": document, "id": folder.document_of(document)}
        print_result(figures, json, lambda found: print_lines(found["id"]))
    elif log:
        show_log(folder, json)
    else:
        changed = consent is not None or confirm is not None or trust_service
        wanted = not status and (not changed or bundle is not None)
        if wanted and (not folder.state.get("done") or folder.terms.search is not None):
            _take_part(folder, quiet=quiet or json, until_ranker=until_ranker)
        show_status(folder, json)


def _take_part(folder: PartyFolder, *, quiet: bool, until_ranker: bool) -> None:
    from quorank.files.atomic import write_whole
    from quorank.kernels.process import interruptible
    from quorank.member.party import UNCONFIRMED
    from quorank.member.party_folder import RANKER
    from quorank.member.party_run import take_part
    from quorank.rankers.ranker_file import ranker_bytes

    party: SiloParty | None = None
    budget: dict[str, Any] | None = None
    progress = shown = ""
    os.umask(0o077)  # files of this process are readable by their owner only

    def tell(sentence: str) -> None:
        nonlocal shown
        if sentence != shown and not quiet:
            say(sentence)
        shown = sentence

    def seen(fault: str = "") -> None:
        nonlocal progress
        if party is not None and party.progress != progress:
            progress = party.progress
            store(party)
            if progress.endswith(UNCONFIRMED):
                for name, key in party.identities.items():
                    tell(f"{name}={key}")
                tell(
                    f"fingerprint {party.fingerprint}: read it to the others, and go on with silo join --confirm DIGITS"
                )
        tell(f"{progress}; {fault}" if fault else progress)

    def store(party: SiloParty, *, done: bool = False) -> None:
        """Store the party's state, and its ranker once it is there."""
        if party.ranker is not None:
            write_whole(folder.folder / RANKER, ranker_bytes(folder.terms.saved_ranker(party.ranker)))
        done = done or (party.ranker is not None and folder.terms.search is not None)
        state = {"progress": party.progress, "fingerprint": party.fingerprint, "figures": party.figures}
        folder.note_state(**state, identities=party.identities, search=budget, skipped=skipped, done=done)

    chosen = folder.source.collection
    skipped = skipped_of(read_texts([chosen] if chosen else []))
    with folder.playing(), interruptible() as asked, closing(folder.service()) as line:
        party = _party(folder, tell, asked)
        with closing(party):
            if folder.terms.search is not None:
                pairs, others = len(party.holding.documents.body.terms), len(folder.terms.parties) - 1
                budget = folder.terms.search.budget(pairs, others)
                tell(search_cost(budget))
            if folder.terms.seed is not None:
                tell("a rehearsal: keys and noise follow from the seed, so nothing is secret")
            if not folder.has_consent():
                tell("consent is off, so nothing is sent; set --consent on, also while this runs")
            done = False
            try:
                done = take_part(
                    party,
                    line,
                    lambda: asked() or (until_ranker and party.ranker is not None),
                    folder.has_consent,
                    seen,
                    enrol=folder.enrol,
                )
            finally:
                store(party, done=done)
            searching = party.ranker is not None and folder.terms.search is not None
            if not done and not searching and asked():
                raise KeyboardInterrupt


def play_party(folder: PartyFolder, name: str, wait: float) -> dict[str, Any] | None:
    """Wait for the result of a search, running the party unless another process does."""
    from quorank.errors import BadInput
    from quorank.kernels.process import interruptible
    from quorank.member.party_run import take_part

    found: dict[str, Any] | None = None
    until = time.monotonic() + wait + GRACE

    def over() -> bool:
        nonlocal found
        found = found if found is not None else folder.desk.fetch(name)
        return found is not None or time.monotonic() > until or stopped()

    with interruptible() as stopped:
        try:
            with folder.playing(), closing(folder.service()) as line:
                party = _party(folder, lambda sentence: None, stopped)
                with closing(party):
                    take_part(party, line, over, folder.has_consent, enrol=folder.enrol)
        except BadInput as error:
            if error.code != "folder.busy":
                raise
            while not over():  # the process that plays the party answers
                time.sleep(0.1)
        if stopped():
            raise KeyboardInterrupt
    return found


def _party(folder: PartyFolder, tell: Callable[[str], None], stop: Callable[[], bool]) -> SiloParty:
    from quorank.kernels.compiled import is_cold
    from quorank.member.party import SiloParty
    from quorank.member.party_folder import SESSION

    invitation = folder.invitation
    if is_cold():
        tell("compiling for this machine (the first time only)")
    tell(f"{invitation.name} reads its documents")
    holding = folder.holding()
    tell(f"{invitation.name} has {holding.n_documents:,} documents and {holding.n_queries:,} queries")
    if not holding.n_answered:
        tell(
            f"{invitation.name} has no judged query that its documents answer: it takes part with its documents "
            "only, and cannot evaluate the ranker"
        )
    return SiloParty(
        folder.folder / SESSION, folder.identity, folder.terms, holding,
        pins=folder.pins.known, consent=folder.has_consent, confirmed=folder.has_confirmed, stop=stop, desk=folder.desk,
    )  # fmt: skip


def show_identity(folder: PartyFolder, json: bool) -> None:
    """Print the public identity for the others to pin, and the fingerprint to compare by voice."""
    own, pins, agreed = folder.identity, folder.pins.known, folder.state.get("fingerprint")
    figures = {
        "name": own.name,
        "identity": own.public.hex(),
        "fingerprint": agreed,
        "others": folder.state.get("identities", {}),
        "pinned": {name: key.hex() for name, key in sorted(pins.items())},
    }
    lines = [f"{own.name}={own.public.hex()}", f"fingerprint: {agreed or 'not agreed on yet'}"]
    lines += [
        f"{name}: {'pinned' if name in pins else 'not pinned'}" for name in folder.terms.parties if name != own.name
    ]
    print_result(figures, json, lambda _: print_lines(*lines))


def show_status(folder: PartyFolder, json: bool) -> None:
    """Print the state of the party."""
    from quorank.member.party_folder import RANKER

    state, terms = folder.state, folder.terms
    figures: dict[str, Any] = {
        "name": folder.invitation.name,
        "run": terms.run,
        "parties": list(terms.parties),
        "rehearsal": terms.seed is not None,
        "consent": folder.has_consent(),
        "progress": state.get("progress", "has not started yet"),
        "fingerprint": state.get("fingerprint"),
        "pinned": sorted(folder.pins.known),
        "search": state.get("search"),
        "figures": state.get("figures"),
        "skipped": state.get("skipped", {}),
        "ranker": str(folder.folder / RANKER) if (folder.folder / RANKER).is_file() else None,
    }
    print_result(figures, json, _print_status)


def search_cost(budget: dict[str, Any]) -> str:
    """Return the sentence about what searches of the others cost this party's documents, and how many there can be."""
    days, all_told = budget["renew_days"], budget["entries_of_all_a_year"]
    period, year = (f"in every {days} days", " in a year") if days else ("in total", "")
    epsilon = "no ε" if budget["epsilon"] is None else f"ε = {budget['epsilon']:g}"
    return (
        f"each other party may learn {budget['entries']:,} of this party's {budget['pairs']:,} (document, term) "
        f"pairs {period}, all together {all_told:,} ({all_told / max(budget['pairs'], 1):.1%}){year}; {epsilon} for "
        f"{budget['unit']}, for any number of searches. Each other party can make at least "
        f"{budget['searches']:,} searches of 3 words {period}"
    )


STATUS = """
party | | {name} in the session {run}, with {others}
consent | | {consented}
progress | | {progress}
pinned | | {pins}
fingerprint | | {agreed}
searches | | {cost}
ranker | | {file}
own tests | | nDCG@10 {figures[ndcg@10]:.3f}, and {figures[bm25]:.3f} by this party's own search (BM25), on \
{figures[test_lists]} test queries; these metrics stay here
"""


def _print_status(figures: dict[str, Any]) -> None:
    agreed = figures["fingerprint"]
    words = {
        "others": ", ".join(name for name in figures["parties"] if name != figures["name"]),
        "consented": "on" if figures["consent"] else "off: nothing is sent",
        "pins": ", ".join(figures["pinned"]) or "nobody",
        "agreed": f"{agreed}, to be compared by voice" if agreed else "not agreed on yet",
        "cost": None if figures["search"] is None else search_cost(figures["search"]),
        "file": figures["ranker"] or "not there yet",
    }
    print_rows(*rows_of(STATUS, figures | words))


def show_log(folder: PartyFolder, json: bool) -> None:
    """Print everything that was sent, and when consent was given or withdrawn."""
    sent = [entry | {"at": timestamp(entry["at"])} for entry in folder.sent_log()]
    consents = [{"at": timestamp(at), "given": on} for at, on in folder.store.consents()]
    print_result({"sent": sent, "consent": consents}, json, _print_log)


def _print_log(log: dict[str, list[dict[str, Any]]]) -> None:
    sent = log["sent"]
    rows = [(entry["at"], entry["kind"], entry["receiver"], f"{entry['bytes']:,}") for entry in sent]
    tells = {entry["kind"]: entry["tells"] for entry in sent}
    sentences = (f"{kind}: {sentence}" for kind, sentence in tells.items())
    print_text(table_of(("sent", "what", "for", "bytes"), rows), *sentences, *map(consent_line, log["consent"]))
