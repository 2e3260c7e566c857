"""`quorank join`: take part in a run with one's own searches, see what was sent, give or withdraw consent, leave."""

from __future__ import annotations

import json as json_
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from quorank.cli.display import consent_line, print_figures, print_rows, print_text, say, table_of, timestamp
from quorank.cli.options import Consent, InvitationFile, Json, Quiet, at_most_one
from quorank.documents import ANYTHING, parse_json
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.device.private_store import PrivateStore
    from quorank.device.rehearsal import JoinRehearsal
    from quorank.federation.bundle import Bundle
    from quorank.federation.terms import Terms


def join(
    data: Annotated[Path, Option(help="Folder of this device's private state, on its own disk.")],
    coordinator: Annotated[
        str | None, Option(help="Address of the coordinator, host:port; that of the invitation unless given.")
    ] = None,
    bundle: InvitationFile = None,
    consent: Consent = None,
    log: Annotated[bool, Option("--log", help="Show what was sent, when, and how it is protected.")] = False,
    status: Annotated[bool, Option("--status", help="Show where this device stands.")] = False,
    simulate: Annotated[
        Path | None,
        Option(help="Let a simulated user of this experiment search; without a coordinator it is a rehearsal."),
    ] = None,
    client: Annotated[int | None, Option(help="With --simulate: which client, from 0.")] = None,
    leave: Annotated[
        bool, Option("--leave", help="Ask to be forgotten, then erase this device's private state.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a run with this device's own searches.

    Nothing leaves before consent is on and enough new searches were made, and
    then nothing but releases. All private state is one file in the folder.
    """
    chosen = at_most_one(log=log, status=status, leave=leave)
    alone = not chosen or (bundle is None and simulate is None)
    require(alone, "option.conflict", f"{chosen} goes without --bundle and --simulate")
    sentence = "--simulate needs --client: which client of the experiment to play"
    require(simulate is None or client is not None, "option.missing", sentence)
    sentence = "--client is of --simulate: the invitation says who a device is"
    require(client is None or simulate is not None, "option.conflict", sentence)
    if coordinator is not None:
        from quorank.federation.bundle import check_address

        check_address(coordinator)
    if leave:
        with _stoppable():
            _leave(data, coordinator, json)
        return
    _check_present(data)
    if log or status:
        if consent is not None:
            _set_consent(data, consent)
        (show_log if log else show_status)(data, json)
        if status and not json:
            _show_identity(data)
        return
    rehearsal = None
    if simulate is not None and client is not None:
        from quorank.device.rehearsal import JoinRehearsal

        rehearsal = JoinRehearsal(simulate, client)
    invitation = _invitation(data, bundle, coordinator)
    agreed = invitation or rehearsal
    if agreed is not None and (bundle is not None or rehearsal is not None):
        _begin(data, agreed.terms, None if bundle is None else invitation)
    if consent is not None:
        _set_consent(data, consent)
        if bundle is None and rehearsal is None:
            show_status(data, json)
            return
    _take_part(data, rehearsal, invitation, quiet=quiet or json)
    show_status(data, json)


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: the line is closed, the key is gone, exit 130."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_present(data: Path) -> None:
    """A client that has left does not come back by accident."""
    from quorank.device.leaving import LEFT, left

    sentence = f"this client has left its run ({LEFT}); choose another folder, with a new invitation"
    require(left(data) is None, "device.left", sentence, f"{data}")


def _invitation(data: Path, bundle: Path | None, coordinator: str | None) -> Bundle | None:
    """The one that was given, or that was kept; None where there is none."""
    from quorank.federation.bundle import FILE, Bundle

    path = bundle if bundle is not None else data / FILE
    if bundle is None and not path.is_file():
        sentence = "there is no invitation here; give one with --bundle"
        require(coordinator is None, "invitation.missing", sentence, f"{data}")
        return None
    found = Bundle.read(path)
    return found if coordinator is None else replace(found, address=coordinator)


def _begin(data: Path, terms: Terms, invitation: Bundle | None) -> None:
    """Make the private file, or see that it belongs to the same terms; keep an invitation that is new."""
    from quorank.device.private_store import PrivateStore
    from quorank.federation.bundle import FILE

    table = json_.dumps(terms.table(), sort_keys=True).encode()
    with PrivateStore(data) as store:
        sentence = "this folder belongs to a device under other terms; choose another folder, or leave first (--leave)"
        require(store.fact("terms") in (None, table), "folder.other-run", sentence, f"{data}")
        with store.transaction():
            store.set_fact("terms", table)
        if invitation is not None:
            invitation.write(data / FILE)


def _set_consent(data: Path, consent: str) -> None:
    """At any time, also while another process plays the device."""
    from quorank.device.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store, store.transaction():
        store.set_consent(consent == "on", time.time())


def _show_identity(data: Path) -> None:
    """What the coordinator must show for this client too (`quorank coordinator status --json`), where there is one."""
    from quorank.device.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        secret = store.fact("identity")
    if secret is not None:
        from quorank.privacy.secure_sum.identity import ClientIdentity

        print(f"identity in secure sums: {ClientIdentity(secret).public.hex()}")


def _take_part(data: Path, rehearsal: JoinRehearsal | None, invitation: Bundle | None, *, quiet: bool) -> None:
    from quorank.device import link as links
    from quorank.device.device import Device
    from quorank.device.private_store import PrivateStore
    from quorank.federation.declined import Declined
    from quorank.process import interruptible

    sentence = "there is no invitation here; give one with --bundle, or rehearse with --simulate and --client"
    require(invitation is not None or rehearsal is not None, "invitation.missing", sentence, f"{data}")
    sent = 0

    def seen(answer: bytes | Declined) -> None:
        nonlocal sent
        sent += isinstance(answer, bytes)
        if not quiet:
            told = answer.sentence if isinstance(answer, Declined) else f"sent {len(answer):,} bytes"
            say(f"task {sent}: {told}" if sent else told)

    with PrivateStore(data) as store, interruptible() as asked:
        terms = known_terms(store)
        device = Device(store, terms, seed=None if rehearsal is None else rehearsal.experiment.seed)
        if invitation is not None:
            line: links.Link = links.connect(invitation, data)
        else:
            assert rehearsal is not None
            line = rehearsal.link(data)
        line.stop = asked
        try:
            links.take_part(device, line, None if rehearsal is None else rehearsal.user, seen)
        finally:
            line.close()
        if asked():
            raise KeyboardInterrupt


def _leave(data: Path, coordinator: str | None, json: bool) -> None:
    from quorank.device import leaving
    from quorank.device import link as links
    from quorank.device.private_store import PrivateStore
    from quorank.private_file import FILE as STORE

    note = leaving.left(data)
    require((data / STORE).is_file() or note is not None, "device.missing", "there is no device here", f"{data}")
    if note is None:
        invitation = _invitation(data, None, coordinator)
        if invitation is None:
            sentence = "without an invitation there is no coordinator to leave; delete the folder instead"
            raise BadInput("invitation.missing", sentence, f"{data}")
        with PrivateStore(data) as store:
            line = links.connect(invitation, data)
            try:
                erased = leaving.leave(store, known_terms(store), invitation.key, line.leave, os.urandom)
            finally:
                line.close()
    else:
        sentence = "this client has left already, and its data are erased"
        require(note["erased"] is None, "device.left", sentence, f"{data}")
        erased = leaving.resume(data, {name: note[name] for name in note if name != "erased"})
    told = (
        f"left; {', '.join(erased.files)} overwritten and deleted ({erased.bytes:,} bytes), and no trace of "
        f"{erased.traces} found in {erased.searched} other files of {data}"
    )
    print_figures(asdict(erased), json, lambda _: print(told))


def known_terms(store: PrivateStore) -> Terms:
    """Return the terms that this device agreed to."""
    from quorank.federation.terms import Terms

    found = store.fact("terms")
    if found is None:
        sentence = "this device has not joined a run yet; give an invitation with --bundle"
        raise BadInput("device.not-joined", sentence, f"{store.folder}")
    return Terms.read(parse_json(found, ANYTHING, "the stored terms"))


def show_status(data: Path, json: bool) -> None:
    """Print consent, searches, and what was sent so far."""
    from quorank.device.private_store import PrivateStore

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
    print_figures(figures, json, _print_status)


def _print_status(figures: dict[str, Any]) -> None:
    told = f"of {figures['rounds']}, the last one answered, of run {figures['run']}"
    reports = [] if figures["reports"] is None else [("report", "with each", cost_of(figures["reports"]))]
    print_rows(
        ("consent", "on" if figures["consent"] else "off", "nothing leaves while it is off"),
        ("new searches", str(figures["waiting"]), f"an update is made of {figures['needed']}"),
        ("sent", str(figures["releases"]), f"releases, {figures['bytes_sent']:,} bytes in all (--log shows them)"),
        ("round", str(figures["last_round"]), told),
        ("privacy", str(figures["privacy"]), "of every release"),
        *reports,
    )


def show_log(data: Path, json: bool) -> None:
    """Print all that ever left the device, and when consent was given or withdrawn."""
    from quorank.device.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        releases = [
            {
                "at": timestamp(release.at),
                "run": release.run,
                "round": release.round,
                "interactions": release.interactions,
                "bytes": release.size,
                "privacy": release.privacy,
            }
            for release in store.releases()
        ]
        consents = [{"at": timestamp(at), "given": on} for at, on in store.consents()]
    print_figures({"releases": releases, "consent": consents}, json, _print_log)


def _print_log(log: dict[str, list[dict[str, Any]]]) -> None:
    reports = [release["privacy"]["report"] for release in log["releases"] if "report" in release["privacy"]]
    rows = []
    for release in log["releases"]:
        privacy, figures = release["privacy"], (str(release["round"]), str(release["interactions"]))
        epsilon = privacy.get("epsilon")
        kind = privacy["kind"] + ("" if epsilon is None else f", ε = {epsilon:.4g}")
        told = [f"{privacy['report']['value']:.4g}"] if "report" in privacy else []
        rows.append((release["at"], release["run"], *figures, f"{release['bytes']:,}", kind, *told))
    heads = ("sent", "run", "round", "searches", "bytes", "privacy", *(["report"] if reports else []))
    standings = dict.fromkeys(release["privacy"]["standing"] for release in log["releases"])
    costs = dict.fromkeys(f"report: {cost_of(report)}" for report in reports)
    print_text(table_of(heads, rows), *standings, *costs, *map(consent_line, log["consent"]))


def cost_of(report: dict[str, Any]) -> str:
    """Return in words what reports say and cost."""
    composed = report["composed"]
    return (
        "nDCG of the lists by their clicks, noised here: "
        f"ε = {report['epsilon_per_report']:g} each (δ = 0, unit: {report['unit']}), against the coordinator too; "
        f"{report['horizon']}: ε = {report['epsilon']:g}, or {composed['epsilon']:.4g} at δ = {composed['delta']:g}; "
        "it comes on top of the ε of the updates"
    )
