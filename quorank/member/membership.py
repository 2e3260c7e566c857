"""Membership of a device, a tuner or a party in one service: invitation, key, consent, pins, enrolment, releases, leaving.

All state is in the private store of the member's folder. Opening a membership needs no network. A subclass (`Client`,
`Tuner`, `PartyFolder`) defines its terms and what it exchanges with the service.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypedDict, TypeVar

from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole
from quorank.files.codec import Length
from quorank.files.documents import read_json
from quorank.files.private_database import Damaged, wipe
from quorank.member.private_store import FILE, LOCK, Erased, PrivateStore, files_of
from quorank.protocol.http_client import Enrolment, ServiceClient
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import PUBLIC, MemberKey
from quorank.protocol.messages import AgreedTerms, leaving_digest, leaving_request

INVITATION, IDENTITY, TERMS, MEMBER, OFFSET, PINS = (
    "invitation", "identity", "terms", "member", "offset", "identities",
)  # fmt: skip
"""Facts: invitation, secret key, agreed terms, member number, clock offset, identities met in secure sums."""
LEAVING, HEARD = "leaving", "leaving heard"  # facts of a leaving member: its request, and that the service has it
ATTESTATION = "attestation"  # fact: an attester's signature for this member's key
LEFT = "left.json"


T = TypeVar("T", bound=AgreedTerms)


class Membership(ABC, Generic[T]):
    """Membership in its folder; open it with `open` of the subclass, and close it or use it as a context manager.

    Args:
        store: Private store with an accepted invitation, closed with the membership.
        invitation: The accepted invitation.
        entropy: Source of secret bytes.
        clock: Seconds since 1970.

    Attributes:
        terms: Terms that the owner has agreed to.
        folder: Directory of the private store.
        closed: True once the membership was closed, or has ended.
    """

    def __init__(
        self,
        store: PrivateStore,
        invitation: Invitation,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> None:
        secret = store.fact(IDENTITY)
        assert secret is not None
        self.store, self.folder, self.invitation = store, store.folder, invitation
        self.key, self.pins = MemberKey(secret), Pins(store, invitation.identities)
        self._entropy, self._clock, self.closed = entropy, clock, False
        self.terms: T = self._read_terms(store.note(TERMS, dict[str, Any]))

    @classmethod
    @abstractmethod
    def _read_terms(cls, table: object) -> T:
        """Return the terms of this kind from an untrusted table."""

    @classmethod
    def _opened(cls, folder: Path | str, invitation: Path | str | None, **options: Any) -> Self:
        path = Path(folder).expanduser()
        note = left_note(path)
        if note is not None and note["erased"] is None:
            resume_erasure(path, note)
        check_not_left(path)
        given = None if invitation is None else Invitation.read(Path(invitation).expanduser())
        sentence = "this invitation is for a party; join with: quorank silo join"
        require(given is None or given.kind == "device", "invitation.kind", sentence, f"{invitation}")
        sentence = "there is no device here; join with an invitation first"
        require(given is not None or (path / FILE).is_file(), "device.missing", sentence, f"{path}")
        store = PrivateStore(path)
        try:
            return cls(store, cls._accept(store, given, options.get("entropy", os.urandom)), **options)
        except BaseException:
            store.close()
            raise

    @classmethod
    def _accept(cls, store: PrivateStore, given: Invitation | None, entropy: Callable[[int], bytes]) -> Invitation:
        """Return the invitation of a folder; a new one is stored with its terms and a key."""
        stored = store.fact(INVITATION)
        known = None if stored is None else Invitation.parse(stored)
        found = given or known
        if found is None:
            raise BadInput("invitation.missing", "there is no invitation here; give one", f"{store.folder}")
        if found == known:
            return found
        cls._check_same(store, known, found)
        with store.transaction():
            store.set_fact(INVITATION, found.text().encode())  # the service may have another address now
            if known is None:
                store.set_fact(TERMS, _terms_bytes(cls._read_terms(found.terms)))
                store.set_fact(IDENTITY, store.fact(IDENTITY) or MemberKey.create(entropy).secret)
            elif (known.code, known.service) != (found.code, found.service):
                store.drop_fact(MEMBER)  # it enrols again
        return found

    @classmethod
    def _check_same(cls, store: PrivateStore, known: Invitation | None, given: Invitation) -> None:
        """Refuse an invitation to another run than the folder's."""
        terms = cls._read_terms(given.terms)
        if known is None:
            same = store.fact(TERMS) in (None, _terms_bytes(terms))
        else:
            same = (given.service, given.secret) == (known.service, known.secret)
            same = same and terms == cls._read_terms(known.terms)
        sentence = "this folder belongs to a device of another invitation; choose another folder, or leave first"
        require(same, "folder.other-run", sentence, f"{store.folder}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the private store and unlock the folder; a second call does nothing."""
        self.closed = True
        self.store.close()

    def _check_open(self) -> None:
        require(not self.closed, "device.closed", "this device was closed, or has left", f"{self.folder}")

    def consent(self, given: bool) -> None:
        """Agree to take part, or withdraw: from then on nothing leaves. Repeating a decision changes nothing.

        Args:
            given: True when the person has agreed, False when the person withdraws.

        Raises:
            BadInput: `device.leaving` after a request to leave, `value.wrong-type` for anything but True and False,
                `device.closed`, or `policy.` and the name of a limit of the owner's policy that the terms exceed.
        """
        self._check_open()
        require(isinstance(given, bool), "value.wrong-type", "consent is True or False", "given")
        sentence = "this device is leaving; consent cannot be given again"
        require(not given or self.store.fact(LEAVING) is None, "device.leaving", sentence)
        if given:
            self.check_policy()
        self.store.set_consent(given, self._clock())

    def check_policy(self) -> None:
        """Decline terms outside the owner's policy, where this kind of member has one."""

    # ------------------------------------------------------------ service

    def service(self) -> ServiceClient:
        """Return a client of the service with this member's key and number, which the caller closes.

        Returns:
            The client; its service key and certificate are those of the invitation, and a corrected clock offset is stored.
        """
        given = self.invitation
        return ServiceClient(
            given.url,
            given.service,
            given.certificate,
            self.key,
            self.store.note(MEMBER, int | None),
            offset=self.store.note(OFFSET, float | None) or 0.0,
            note_offset=lambda seconds: self.store.set_note(OFFSET, seconds),
            clock=self._clock,
        )

    def enrol(self, service: ServiceClient) -> None:
        """Enrol with the member's own key; the confirmed terms must be those that the owner has read.

        Args:
            service: Client from `service()`.

        Raises:
            BadInput: `terms.changed` where the service confirms other terms; nothing is stored then.
            ServiceRefusal: The service refuses, such as `invitation.used`, or is unreachable (`service.away`).
        """
        found = service.enrol(self.invitation, self.key, self.store.fact(ATTESTATION) or b"")
        terms = self._read_terms(found.terms)
        sentence = "the service enrols under other terms than those of the invitation; nothing is sent"
        require(self._is_agreed(terms, found), "terms.changed", sentence)
        with self.store.transaction():
            self.store.set_fact(TERMS, _terms_bytes(terms))
            self.store.set_fact(MEMBER, str(found.member).encode())
        self.terms = terms

    def _is_agreed(self, terms: T, found: Enrolment) -> bool:
        """Return whether confirmed terms equal the agreed ones but for the number, which is the enrolled one."""
        table = terms.table()
        return table | {"client": 0} == self.terms.table() | {"client": 0} and table["client"] == found.member

    # ------------------------------------------------------------ leaving

    def _request_leaving(self) -> bytes:
        """Withdraw consent and store the signed request to leave; a second call returns the same request."""
        request = self.store.fact(LEAVING)
        if request is None:
            request = leaving_request(self.terms, self.key, self._clock(), self._entropy(16))
            with self.store.transaction():
                self.store.set_consent(False, self._clock())
                self.store.set_fact(LEAVING, request)
        return request

    def _erase(self, request: bytes) -> Erased:
        """Erase the folder of a member whose request was confirmed, and close it.

        A note precedes the erasure, so that a member killed in between goes on erasing when it is next opened.
        """
        terms, digest = self.terms, leaving_digest(request)
        note = {"run": terms.run, "client": terms.client, "request": digest, "at": self._clock()}
        write_whole(self.folder / LEFT, json.dumps(note | {"erased": None}), durable=True)
        self.closed = True
        return _note_erased(self.folder, note, self.store.erase())


def _terms_bytes(terms: AgreedTerms) -> bytes:
    return json.dumps(terms.table(), sort_keys=True).encode()


# ---------------------------------------------------------------- members that have left


class LeftNote(TypedDict):
    """Content of `left.json`; `erased` is null where the erasure was interrupted."""

    run: str
    client: int
    request: str
    at: float
    erased: dict[str, Any] | None


def left_note(folder: Path) -> LeftNote | None:
    """Return the note of a member that has left this folder, or None.

    Raises:
        BadInput: `file.damaged` where the note cannot be read.
    """
    path = folder / LEFT
    return read_json(path, LeftNote, advice="; delete it, and repeat the command") if path.exists() else None


def check_not_left(folder: Path) -> None:
    """Raise BadInput with `device.left` for a folder whose member has left."""
    sentence = f"this device has left its run ({LEFT}); choose another folder, with a new invitation"
    require(left_note(folder) is None, "device.left", sentence, f"{folder}")


def resume_erasure(folder: Path, note: LeftNote) -> Erased:
    """Complete an interrupted erasure, also where it left only a part of the file."""
    try:
        store = PrivateStore(folder)
    except Damaged:
        doomed = [*files_of(folder), folder / LOCK]
        names = tuple(path.name for path in doomed if path.exists())
        return _note_erased(folder, note, Erased(names, wipe(doomed), 0, 0))
    return _note_erased(folder, note, store.erase())


def _note_erased(folder: Path, note: Mapping[str, object], erased: Erased) -> Erased:
    write_whole(folder / LEFT, json.dumps({**note, "erased": asdict(erased)}, indent=1), durable=True)
    return erased


# ---------------------------------------------------------------- pins


class Pins:
    """Pinned public keys of other members, by name or number: those of the invitation, and those that the owner adds.

    A pinned key is trusted because people have compared it, by voice or in another way that the service cannot change. The
    policy of a device can ask for a number of pinned members in each secure sum.

    Args:
        store: Private store of the member.
        given: Keys that the invitation names.

    >>> with PrivateStore("device") as store:
    ...     pins = Pins(store)
    ...     pins.pin({"7": bytes(32)})
    ...     pins.changed({"7": bytes(32), "8": bytes(32)}), pins.changed({"7": b"x" * 32})
    ([], ['7'])
    """

    def __init__(self, store: PrivateStore, given: Mapping[str, bytes] | None = None) -> None:
        self.store, self.given = store, dict(given or {})

    @property
    def known(self) -> dict[str, bytes]:
        """All pinned keys."""
        return self._met() | self.given

    def _met(self) -> dict[str, bytes]:
        return self.store.note(PINS, dict[str, Annotated[bytes, Length(PUBLIC, PUBLIC)]]) or {}

    def changed(self, keys: Mapping[str, bytes]) -> list[str]:
        """Return the names for which another key is pinned."""
        known = self.known
        return sorted(name for name, key in keys.items() if known.get(name, key) != key)

    def pin(self, keys: Mapping[str, bytes]) -> None:
        """Pin keys for names without one.

        Args:
            keys: Public keys by name.

        Raises:
            BadInput: `identity.conflict` for a name with another key.
        """
        changed = self.changed(keys)
        sentence = f"another identity is pinned already; ask {', '.join(changed)} by voice which is right"
        require(not changed, "identity.conflict", sentence, f"--pin {', '.join(changed)}")
        met = self._met()
        if not keys.items() <= met.items():
            self.store.set_note(PINS, {name: key.hex() for name, key in sorted((met | dict(keys)).items())})
