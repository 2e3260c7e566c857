"""Enrolment of members by the operator: invitations and open enrolment.

An invitation holds a code that enrols one member once. The member makes its own key; the store keeps the code's digest and
the public key, so the service cannot act in a member's name.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from quorank.errors import require
from quorank.protocol.invitation import CODE, Invitation
from quorank.service.home import Home
from quorank.service.store.sql_store import Member, SqlStore

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DAY = 86400.0


def invite(home: Home, store: SqlStore, name: str, out: Path) -> Member:
    """Invite a device: assign its number and write its invitation to a file."""
    return invite_all(home, store, {name: out})[0]


def invite_all(home: Home, store: SqlStore, files: Mapping[str, Path]) -> list[Member]:
    """Invite devices by name and write their invitations to files: all or none."""
    for name in files:
        sentence = f"{name!r} is not a device's name; use up to 64 letters, digits, dots, dashes and underscores"
        require(_NAME.fullmatch(name), "device.name", sentence)
    _check_room(home, store, len(files), next(iter(files)))
    codes = {name: secrets.token_bytes(CODE) for name in files}
    with ExitStack() as written:
        for name, out in files.items():
            written.enter_context(_written(home, out, name, code=codes[name], identities={}))
        return store.invite_devices(codes)


def _check_room(home: Home, store: SqlStore, places: int, where: str) -> None:
    """Reject more members than the run has clients, unless participation is open."""
    federation = home.experiment.federation if home.settings.kind == "coordinator" else None
    if federation is None or federation.participation.open_arrivals:
        return
    left = federation.clients - store.next_number()
    sentence = (
        f"{max(0, left)} of the experiment's {federation.clients} clients are left; set federation.clients higher in a "
        'new folder, or use open participation: participation = { kind = "arrivals" }'
    )
    require(places <= left, "invitation.none-left", sentence, where)


def enlist(home: Home, store: SqlStore, name: str, out: Path, number: int, identities: Mapping[str, bytes]) -> Member:
    """Add a party, or a revoked one again, and write its invitation: both or neither."""
    code = secrets.token_bytes(CODE)
    with _written(home, out, name, kind="party", code=code, identities=identities):
        return store.invite(name, "party", code, number)


def open_enrolment(home: Home, store: SqlStore, quota: int, days: float, out: Path) -> Invitation:
    """Open enrolment by token, with a quota and an end time."""
    require(1 <= quota <= 10**9, "value.out-of-range", "from 1 to 1,000,000,000 places", "--quota")
    require(0.0 < days <= 3650.0, "value.out-of-range", "above 0 and up to 3650", "--days")
    _check_room(home, store, quota, "--quota")
    token = secrets.token_urlsafe(24)
    with _written(home, out, home.settings.run[:100], token=token) as written:
        store.open_enrolment(token, quota, store.now() + days * DAY)
    return written


@contextmanager
def _written(home: Home, out: Path, name: str, **more: Any) -> Iterator[Invitation]:
    """Write an invitation to a new file, and remove it if the block fails."""
    require(not out.exists(), "file.exists", "exists already; choose another name with --out", f"{out}")
    parent = out.absolute().parent
    require(parent.is_dir(), "folder.missing", f"the directory {parent} does not exist", f"{out}")
    url, authority = home.settings.url, home.authority.decode()
    made = Invitation(name, url, home.key.public, home.terms_table, certificate=authority, **more)
    made.write(out)
    try:
        yield made
    except BaseException:
        out.unlink(missing_ok=True)
        raise
