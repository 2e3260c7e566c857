"""Who is invited: names, client numbers, public keys, and whether a key was revoked.

The list is one file of the coordinator's folder. The commands change it, also while the coordinator runs; the coordinator
looks at it again and again and lets the engine know. The private half of a node's key is in its invitation alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from quorank.certificates import node_keys, write_private
from quorank.documents import Items, read_json, shape_of
from quorank.errors import BadInput, require
from quorank.federation.bundle import Bundle
from quorank.service.home import Home

FILE, LOCK = "members.json", "members.lock"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class WrittenInvitation(Protocol):
    """What a member is given."""

    def write(self, path: Path) -> None:
        """For its owner's eyes, whole or not at all."""


@dataclass(frozen=True)
class InvitedMember:
    """One invited device."""

    name: str
    client: int
    public: str  # the line of its public key
    invited: float
    revoked: float | None = None
    node: int | None = None  # the engine's number for it; None until the engine knows its key
    removed: bool = False  # whether the engine has been told that the key is revoked

    @property
    def label(self) -> str:
        """The node's name in the engine, which need not know people's names; a new key makes a new one."""
        return f"client-{self.client}-{hashlib.blake2b(self.public.encode(), digest_size=4).hexdigest()}"

    @property
    def admitted(self) -> bool:
        return self.revoked is None


def members(home: Home) -> list[InvitedMember]:
    """All who were ever invited, by the order of their invitations."""
    path = home.path / FILE
    try:
        found = read_json(path, Items(shape_of(InvitedMember)), advice="; restore it from a copy")
    except BadInput as error:
        if error.code == "file.missing":
            return []
        raise
    return [InvitedMember(**entry) for entry in found]


def stamp(home: Home) -> int:
    """Changes whenever the list does."""
    try:
        return (home.path / FILE).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[None]:
    descriptor = os.open(home.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def change(home: Home, alter: Callable[[list[InvitedMember]], list[InvitedMember]]) -> list[InvitedMember]:
    """Replace the list by what `alter` makes of it, with nobody in between."""
    with _alone(home):
        before = members(home)
        after = alter(before)
        if after != before:
            text = json.dumps([asdict(member) for member in after], indent=1)
            write_private(home.path / FILE, text.encode())
        return after


def invite(home: Home, name: str, out: Path) -> InvitedMember:
    """Give a device a number and a key, and write its invitation, which holds the only copy of that key."""
    require(
        _NAME.fullmatch(name),
        "device.name",
        f"{name!r} is not a device's name; use up to 64 letters, digits, dots, dashes and underscores",
    )

    def number(known: list[InvitedMember]) -> int:
        own = [member for member in known if member.name == name]
        found = own[0].client if own else len({member.client for member in known})
        clients = home.experiment.federation.clients
        require(
            found < clients,
            "invitation.none-left",
            f"all {clients} clients of the experiment are invited; set federation.clients higher in a new folder",
            f"{name}",
        )
        return found

    def invitation(client: int, key: str) -> Bundle:
        return Bundle(name, home.settings.address, home.authority.decode(), key, home.terms(client))

    return enlist(home, name, out, number, invitation)


def enlist(
    home: Home,
    name: str,
    out: Path,
    number: Callable[[list[InvitedMember]], int],
    invitation: Callable[[int, str], WrittenInvitation],
) -> InvitedMember:
    """Add a member with a new key: `number` gives its place among those known, `invitation` what is written for it."""
    require(not out.exists(), "file.exists", "it is there already; choose another name with --out", f"{out}")
    require(
        out.absolute().parent.is_dir(),
        "folder.missing",
        f"the directory {out.absolute().parent} does not exist",
        f"{out}",
    )
    pair = node_keys()

    def add(known: list[InvitedMember]) -> list[InvitedMember]:
        require(
            not any(member.name == name and member.admitted for member in known),
            "invitation.repeated",
            "is invited already; revoke it first if its invitation was lost",
            f"{name}",
        )
        client = number(known)
        invitation(client, pair.private.decode()).write(out)
        return [*known, InvitedMember(name, client, pair.public.decode().strip(), time.time())]

    try:
        return change(home, add)[-1]
    except OSError:
        out.unlink(missing_ok=True)
        raise


def revoke(home: Home, name: str, verb: str = "coordinator") -> InvitedMember:
    """From now on nothing of this device is accepted; the engine drops its key as soon as it runs."""

    def drop(known: list[InvitedMember]) -> list[InvitedMember]:
        mine = [member for member in known if member.name == name and member.admitted]
        past = any(member.name == name for member in known)
        why = "was revoked already" if past else f"is not invited; quorank {verb} status shows who is"
        require(mine, "invitation.unknown", f"{why}", f"{name}")
        return [replace(member, revoked=time.time()) if member in mine else member for member in known]

    return next(member for member in reversed(change(home, drop)) if member.name == name)


def note_nodes(home: Home, nodes: dict[str, int], removed: set[str]) -> list[InvitedMember]:
    """Write down what the engine answered: numbers of nodes by label, and the labels that it has dropped."""

    def fill(known: list[InvitedMember]) -> list[InvitedMember]:
        return [
            replace(
                member, node=nodes.get(member.label, member.node), removed=member.removed or member.label in removed
            )
            for member in known
        ]

    return change(home, fill)
