"""`quorank join`: take part in a run with one's own searches, see what was sent, give or withdraw consent, leave."""

from __future__ import annotations

import json as json_
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.network.bundle import Bundle
    from quorank.network.rehearsal import Rehearsal
    from quorank.network.terms import Terms


def join(
    data: Annotated[
        Path,
        typer.Option(help="Folder of this device's private state, on its own disk.", show_default=False),
    ],
    coordinator: Annotated[
        str | None,
        typer.Option(
            help="Address of the coordinator, host:port; that of the invitation unless given.",
            show_default=False,
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="The invitation; it is kept in the folder, so it is needed once.", show_default=False
        ),
    ] = None,
    consent: Annotated[
        Literal["on", "off"] | None,
        typer.Option(help="Agree to take part, or withdraw, at any time.", show_default=False),
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="Show what was sent, when, and how it is protected.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show where this device stands.")] = False,
    simulate: Annotated[
        Path | None,
        typer.Option(
            help="Let a simulated user of this experiment search; without a coordinator it is a rehearsal.",
            show_default=False,
        ),
    ] = None,
    client: Annotated[
        int | None, typer.Option(help="With --simulate: which client, from 0.", show_default=False)
    ] = None,
    leave: Annotated[
        bool, typer.Option("--leave", help="Ask to be forgotten, then erase this device's private state.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Take part in a run with this device's own searches.

    Nothing leaves before consent is on and enough new searches were made, and
    then nothing but releases. All private state is one file in the folder.
    """
    from quorank.cli.join_display import show_log, show_status

    _check_options(coordinator, bundle, log, status, simulate, client, leave)
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
    rehearsal = _rehearsal(simulate, client)
    invitation = _invitation(data, bundle, coordinator)
    if bundle is not None or rehearsal is not None:
        _begin(data, _terms(rehearsal, invitation), bundle, invitation)
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


def _check_options(
    coordinator: str | None,
    bundle: Path | None,
    log: bool,
    status: bool,
    simulate: Path | None,
    client: int | None,
    leave: bool,
) -> None:
    chosen = [name for name, given in (("--log", log), ("--status", status), ("--leave", leave)) if given]
    require(len(chosen) <= 1, f"{' and '.join(chosen)}: choose one of them")
    other = bundle is not None or simulate is not None
    require(not chosen or not other, f"{''.join(chosen[:1])} goes without --bundle and --simulate")
    require(
        simulate is None or client is not None,
        "--simulate needs --client: which client of the experiment to play",
    )
    require(
        client is None or simulate is not None,
        "--client is of --simulate: the invitation says who a device is",
    )
    if coordinator is not None:
        from quorank.network.bundle import check_address

        check_address(coordinator)


def _check_present(data: Path) -> None:
    """A client that has left does not come back by accident."""
    from quorank.network.leaving import LEFT, left

    require(
        left(data) is None,
        f"{data}: this client has left its run ({LEFT}); choose another folder, with a new invitation",
    )


def _rehearsal(simulate: Path | None, client: int | None) -> Rehearsal | None:
    if simulate is None or client is None:
        return None
    from quorank.network.rehearsal import Rehearsal

    return Rehearsal(simulate, client)


def _invitation(data: Path, bundle: Path | None, coordinator: str | None) -> Bundle | None:
    """The one that was given, or that was kept; None where there is none."""
    from dataclasses import replace

    from quorank.network.bundle import FILE, Bundle

    path = bundle if bundle is not None else data / FILE
    if bundle is None and not path.is_file():
        require(coordinator is None, f"{data}: there is no invitation here; give one with --bundle")
        return None
    found = Bundle.read(path)
    return found if coordinator is None else replace(found, address=coordinator)


def _terms(rehearsal: Rehearsal | None, invitation: Bundle | None) -> Terms:
    if invitation is not None:
        return invitation.terms
    assert rehearsal is not None
    return rehearsal.terms


def _begin(data: Path, terms: Terms, bundle: Path | None, invitation: Bundle | None) -> None:
    """Make the private file, or see that it belongs to the same terms."""
    from quorank.network.bundle import FILE
    from quorank.network.private_store import PrivateStore

    table = json_.dumps(terms.table(), sort_keys=True).encode()
    with PrivateStore(data) as store:
        before = store.fact("terms")
        require(
            before in (None, table),
            f"{data}: this folder belongs to a device under other terms; choose another folder, or leave first (--leave)",
        )
        with store.transaction():
            store.set_fact("terms", table)
        if bundle is not None and invitation is not None:
            invitation.write(data / FILE)


def _set_consent(data: Path, consent: str) -> None:
    """At any time, also while another process plays the device."""
    from quorank.network.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store, store.transaction():
        store.set_consent(consent == "on", time.time())


def _show_identity(data: Path) -> None:
    """What the coordinator must show for this client too (`quorank coordinator status --json`), where there is one."""
    from quorank.network.private_store import PrivateStore

    with PrivateStore(data, owner=False) as store:
        secret = store.fact("identity")
    if secret is not None:
        from quorank.privacy.secure_sum.identity import ClientIdentity

        print(f"identity in secure sums: {ClientIdentity(secret).public.hex()}")


def _take_part(data: Path, rehearsal: Rehearsal | None, invitation: Bundle | None, *, quiet: bool) -> None:
    from quorank.cli.join_display import known_terms
    from quorank.network import link as links
    from quorank.network.declined import Declined
    from quorank.network.device import Device
    from quorank.network.private_store import PrivateStore
    from quorank.process import interruptible

    require(
        invitation is not None or rehearsal is not None,
        f"{data}: there is no invitation here; give one with --bundle, or rehearse with --simulate and --client",
    )
    sent = 0

    def seen(answer: bytes | Declined) -> None:
        nonlocal sent
        sent += isinstance(answer, bytes)
        if not quiet:
            told = answer.sentence if isinstance(answer, Declined) else f"sent {len(answer):,} bytes"
            print(f"task {sent}: {told}" if sent else told, file=sys.stderr, flush=True)

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
    from dataclasses import asdict

    from quorank.cli.join_display import known_terms
    from quorank.network import leaving
    from quorank.network import link as links
    from quorank.network.private_file import FILE as STORE
    from quorank.network.private_store import PrivateStore

    note = leaving.left(data)
    require((data / STORE).is_file() or note is not None, f"{data}: there is no device here")
    if note is None:
        invitation = _invitation(data, None, coordinator)
        if invitation is None:
            raise BadInput(
                f"{data}: without an invitation there is no coordinator to leave; delete the folder instead"
            )
        with PrivateStore(data) as store:
            line = links.connect(invitation, data)
            try:
                erased = leaving.leave(store, known_terms(store), invitation.key, line.leave, os.urandom)
            finally:
                line.close()
    else:
        require(note["erased"] is None, f"{data}: this client has left already, and its data are erased")
        erased = leaving.resume(data, {name: note[name] for name in note if name != "erased"})
    if json:
        print(json_.dumps(asdict(erased)))
    else:
        files = ", ".join(erased.files)
        print(
            f"left; {files} overwritten and deleted ({erased.bytes:,} bytes), and no trace of {erased.traces} found in "
            f"{erased.searched} other files of {data}"
        )
