"""`quorank join`: take part in a run with this device's searches, show its log, give or withdraw consent, leave."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from quorank.cli.display import consent_line, print_result, print_rows, print_text, rows_of, say, table_of, timestamp
from quorank.cli.options import Consent, InvitationFile, Json, Quiet, at_most_one
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.experiments.deployment import SimulatedUser
    from quorank.member.client import Client
    from quorank.member.policy import Policy
    from quorank.member.sync import SyncReport

UNREACHED = 75
"""Exit code of `--once` where the service was unreachable (EX_TEMPFAIL): timers try again."""
LEAVE_SECONDS = 900.0
"""Timeout of `--leave`, during which the others rebuild the ranker."""


def join(
    data: Annotated[Path, Option(help="Private folder of this device, on a local disk.")],
    bundle: InvitationFile = None,
    consent: Consent = None,
    policy: Annotated[Path | None, Option(help="TOML file with your limits on runs; stored with the device.")] = None,
    pin: Annotated[
        list[str] | None,
        Option(metavar="NUMBER=HEX", help="Pin a member's public key, which its owner reads out from --status."),
    ] = None,
    attestation: Annotated[
        str, Option(metavar="HEX", help="Signature of the attester for this device's key, where the run has one.")
    ] = "",
    compare: Annotated[
        str,
        Option(metavar="NUMBER:DIGEST", help="Compare the list of members with another member's, from its --status."),
    ] = "",
    log: Annotated[bool, Option("--log", help="Show what was sent, when, and how it is protected.")] = False,
    status: Annotated[bool, Option("--status", help="Show the state of this device.")] = False,
    once: Annotated[bool, Option("--once", help="Sync with the service once and exit, for timers.")] = False,
    simulate: Annotated[
        Path | None, Option(help="Search and click as a simulated user of this experiment does.")
    ] = None,
    client: Annotated[int | None, Option(help="With --simulate: number of the client, from 0.")] = None,
    leave: Annotated[
        bool, Option("--leave", help="Request to be forgotten, then erase this device's private state.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a run with this device's own searches.

    Only releases are sent, once consent is given and there are enough new
    searches. All private state is one file in the folder. Other programs use
    the device through the socket in the folder while it runs.
    """
    chosen = at_most_one(log=log, status=status, leave=leave, once=once, compare=bool(compare))
    alone = once or not chosen or (bundle is None and simulate is None)
    require(alone, "option.conflict", f"{chosen} cannot be combined with --bundle and --simulate")
    require((simulate is None) == (client is None), "option.missing", "--simulate and --client need each other")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: all is closed
    if leave:
        _leave(data, json)
        return
    from quorank.member import local_socket
    from quorank.member.client import agreed_terms, known_members
    from quorank.member.membership import ATTESTATION, check_not_left
    from quorank.member.policy import Policy, check_terms, set_policy
    from quorank.member.private_store import FILE, PrivateStore
    from quorank.protocol.keys import SIGNATURE

    check_not_left(data)
    user = None
    if simulate is not None and client is not None:
        from quorank.experiments.deployment import SimulatedUser

        user = SimulatedUser.of(simulate, client)
    playing = bundle is not None or user is not None
    if policy is not None and (data / FILE).is_file():
        with PrivateStore(data, owner=False) as store:
            set_policy(store, Policy.read(policy))
    if consent is not None and not playing:
        given = consent == "on"
        # while another process plays the device, by its socket, so that it acts at once
        if local_socket.call(data, "consent", given=given) is None:
            with PrivateStore(data, owner=False) as store:
                if given:
                    check_terms(store, agreed_terms(store))
                store.set_consent(given, time.time())
    if pin or attestation:
        with PrivateStore(data, owner=False) as store:
            known_members(store).pins.pin(read_pins(pin or []))
            if attestation:
                store.set_fact(ATTESTATION, _bytes_of(attestation, SIGNATURE, "--attestation"))
    if compare:
        compare_lists(data, compare, json)
    elif log:
        show_log(data, json)
    elif status or ((pin or attestation or consent is not None) and not playing and not once):
        show_status(data, json)
    else:
        limits = None if policy is None else Policy.read(policy)
        _take_part(data, bundle, consent, user, limits, once=once, quiet=quiet, json=json)


def _take_part(
    data: Path,
    bundle: Path | None,
    consent: str | None,
    user: SimulatedUser | None,
    policy: Policy | None,
    *,
    once: bool,
    quiet: bool,
    json: bool,
) -> None:
    from quorank.member import local_socket
    from quorank.member.client import Client
    from quorank.member.private_store import FILE
    from quorank.member.sync import FINAL

    if once and bundle is None and user is None:
        found = local_socket.call(data, "sync")
        if found is not None:  # the process that plays the device has done it
            print_result(found["sync"], json, lambda table: print(f"{table['outcome']} {table['code']}".rstrip()))
            raise Exit(UNREACHED if found["sync"]["outcome"] == "failed" else 0)
    sentence = "no invitation here; give one with --bundle"
    require(bundle is not None or (data / FILE).is_file(), "invitation.missing", sentence, f"{data}")

    def show(report: SyncReport) -> None:
        if not quiet and not json:
            size = f"{report.sent:,} bytes" if report.sent else report.sentence
            say(f"{report.outcome}: {size}" if size else report.outcome)

    def search(client: Client) -> None:
        assert user is not None
        while not client.device.ready():
            user(client.device)

    searching = None if user is None else search
    seed = None if user is None else user.simulation.seed
    with Client.open(data, bundle, seed=seed, policy=policy) as client:
        if bundle is not None and not quiet and not json:
            for sentence in client.statement():
                say(sentence)
        if consent is not None:
            client.consent(consent == "on")
        if once:
            report = local_socket.sync_with_search(client, searching)
            show(report)
        else:
            report = local_socket.run_device(client, show, searching)
    if report.outcome == "left":
        return
    if once and report.code in FINAL:
        raise BadInput(report.code, report.sentence, f"{data}")
    if once:
        print_result(report.table(), json, lambda _: None)
        raise Exit(UNREACHED if report.outcome == "failed" else 0)
    show_status(data, json)


def _leave(data: Path, json: bool) -> None:
    from quorank.member.client import Client
    from quorank.member.membership import left_note, resume_erasure
    from quorank.member.private_store import FILE

    note, end = left_note(data), time.monotonic() + LEAVE_SECONDS
    require((data / FILE).is_file() or note is not None, "device.missing", "no device here", f"{data}")

    def wait(seconds: float) -> None:
        sentence = "the service did not confirm that this client leaves; nothing was erased; try again later"
        require(time.monotonic() < end, "leaving.not-confirmed", sentence)
        time.sleep(min(seconds, max(0.0, end - time.monotonic())))

    if note is not None:
        sentence = "this client has left already, and its data are erased"
        require(note["erased"] is None, "device.left", sentence, f"{data}")
        erased = asdict(resume_erasure(data, note))
    elif _ask_running_process(data):
        while (note := left_note(data)) is None or note["erased"] is None:
            wait(0.2)
        erased = note["erased"]
    else:
        with Client.open(data) as client:
            while (report := client.leave()).outcome != "left":
                if not json:
                    say(f"quorank: {report.sentence}")
                wait(report.next)
        assert report.erased is not None
        erased = asdict(report.erased)
    told = "left; {names} overwritten and deleted ({bytes:,} bytes), no trace of {traces} in {searched} other files"
    print_result(erased, json, lambda found: print(told.format(names=", ".join(found["files"]), **found)))


def _ask_running_process(data: Path) -> bool:
    """Ask the process that runs the device, if any, to leave and erase it; its own sync may do so before it answers."""
    from quorank.member import local_socket
    from quorank.member.membership import left_note

    try:
        return local_socket.call(data, "leave") is not None
    except BadInput as error:
        if error.code not in ("socket.closed", "device.closed") or left_note(data) is None:
            raise
        return True


def read_pins(texts: list[str]) -> dict[str, bytes]:
    """Return public keys by member number, from texts of the form NUMBER=HEX."""
    from quorank.protocol.keys import PUBLIC

    found: dict[str, bytes] = {}
    for text in texts:
        number, equals, digits = text.partition("=")
        valid = equals and number.isdecimal() and len(number) < 10
        require(valid, "identity.malformed", f"expected NUMBER=HEX, got {text[:80]!r}", "--pin")
        key = _bytes_of(digits, PUBLIC, f"--pin {number}")
        number = f"{int(number)}"
        require(
            found.get(number, key) == key, "identity.conflict", "two different keys are given for this member", number
        )
        found[number] = key
    return found


def _bytes_of(digits: str, size: int, where: str) -> bytes:
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    require(len(found) == size, "identity.malformed", f"expected {2 * size} hexadecimal digits", where)
    return found


def compare_lists(data: Path, text: str, json: bool) -> None:
    """Check whether the list of members is the one that another member has read out."""
    from quorank.member.client import known_members
    from quorank.member.private_store import PrivateStore
    from quorank.protocol.member_list import Head

    head = Head.parse(text)
    with PrivateStore(data, owner=False) as store:
        known = known_members(store).list
    sentence = "this device has no list of members yet; it receives one in the first secure sum"
    if known is None:
        raise BadInput("members.missing", sentence, f"{data}")
    sentence = f"this device knows only {len(known):,} members; compare on the other device with --compare {known.head}"
    require(head.size <= len(known), "members.missing", sentence, "--compare")
    sentence = "the two lists differ: the service shows members different lists; do not trust its secure sums"
    require(known.starts_with(head), "members.forked", sentence, "--compare")
    found = {"agrees": True, "compared": head.size, "members": f"{known.head}"}
    print_result(found, json, lambda table: print(f"both lists have the same {table['compared']:,} members"))


def show_status(data: Path, json: bool) -> None:
    """Print consent, interactions and counts of releases."""
    from quorank.member.client import device_status
    from quorank.member.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        figures = device_status(store)
    print_result(figures, json, _print_status)


STATUS = """
consent | {consented} | nothing is sent while it is off
new searches | {waiting} | an update needs {needed}
sent | {releases} | releases, {bytes_sent:,} bytes in all (--log shows them)
round | {last_round} | of {rounds}: last round with a reply; run {run}
privacy | {privacy} | of every release
report | with each | {cost}
policy | {accepts} | {declined}
members | {listed} | in the list{digest}; pinned: {pins}
state | {state} | identity: {identity}
"""


def _print_status(figures: dict[str, Any]) -> None:
    cost = None if figures["reports"] is None else cost_of(figures["reports"])
    last = {"last_round": str(figures["last_round"]), "privacy": str(figures["privacy"])}
    accepts = "declines" if figures["declined"] else "accepts"
    listed, _, digest = (figures["members"] or "0").partition(":")
    words: dict[str, Any] = {
        "listed": listed,
        "digest": f" {digest}" * bool(digest),
        "pins": ", ".join(figures["pinned"]) or "none",
    }
    words |= {"consented": "on" if figures["consent"] else "off", "cost": cost, "accepts": accepts} | last
    print_rows(*rows_of(STATUS, figures | words))
    print_text(*figures["statement"])


def show_log(data: Path, json: bool) -> None:
    """Print all that ever left the device, and every change of consent."""
    from quorank.member.client import device_log
    from quorank.member.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        found = device_log(store)
    for entry in (*found["releases"], *found["consent"]):
        entry["at"] = timestamp(entry["at"])
    print_result(found, json, _print_log)


def _print_log(log: dict[str, list[dict[str, Any]]]) -> None:
    rows, sentences = [], []
    for release in log["releases"]:
        privacy, report = release["privacy"], release["privacy"].get("report")
        epsilon = "" if privacy.get("epsilon") is None else f", ε = {privacy['epsilon']:.4g}"
        counts = (f"{release['round']}", f"{release['interactions']}", f"{release['bytes']:,}")
        reported = "" if report is None else f"{report['value']:.4g}"
        rows.append((release["at"], release["run"], *counts, f"{privacy['kind']}{epsilon}", reported))
        sentences += [privacy["standing"], *([] if report is None else [f"report: {cost_of(report)}"])]
    heads = ("sent", "run", "round", "searches", "bytes", "privacy", "report")
    print_text(table_of(heads, rows), *dict.fromkeys(sentences), *map(consent_line, log["consent"]))


def cost_of(report: dict[str, Any]) -> str:
    """Describe the content and the privacy cost of the reports."""
    composed = report["composed"]
    return (
        "nDCG of the shown lists by their clicks, with noise added on this device: "
        f"ε = {report['epsilon_per_report']:g} each (δ = 0, unit: {report['unit']}), also against the coordinator; "
        f"{report['horizon']}: ε = {report['epsilon']:g}, or {composed['epsilon']:.4g} at δ = {composed['delta']:g}; "
        "in addition to the ε of the updates"
    )
