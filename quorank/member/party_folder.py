"""A party's private folder: invitation, location of its documents, pinned identities and consent.

The state of the session is in `session/` (`SiloParty`). Documents, queries and judgements stay where they are; the folder
stores their location, so that a later start needs nothing but the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.files.atomic import ProcessLock
from quorank.files.documents import ANYTHING, read_json
from quorank.member.party import sent_log
from quorank.member.party_keys import kept_identity, member_key
from quorank.member.party_searches import NUMBERS
from quorank.member.search_desk import FolderDesk
from quorank.protocol.certificates import write_private
from quorank.protocol.http_client import ServiceClient
from quorank.protocol.invitation import FILE, Invitation
from quorank.silos.generated import Generator
from quorank.silos.holdings import Holding, check_texts, generated_holdings, make_holding
from quorank.silos.session.agreement import PartyIdentity
from quorank.silos.session.terms import SiloTerms, read_identities
from quorank.text import read_collection
from quorank.text.embeddings import open_embedder

SOURCE, PINS, CONSENT, STATE, LOCK = "source.json", "pins.json", "consent.json", "state.json", "lock"
MEMBER = "member.json"
"""File of the party's number at the service and the offset of this machine's clock."""
SESSION, RANKER, SEARCHES = "session", "ranker.json", "searches"
REHEARSAL_SEED = 1


@dataclass(frozen=True)
class FolderSource:
    """Source of a party's documents: a collection on disk, or the generator in a rehearsal."""

    collection: str | None = None  # an absolute path
    generated: int | None = None  # number of a generated party
    documents: int = Generator.documents  # number of generated documents
    embeddings: str | None = None  # an absolute path of word vectors or of an encoder

    def __post_init__(self) -> None:
        sentence = "give the party's documents with --collection PATH, or rehearse with --generated NUMBER"
        require((self.collection is None) != (self.generated is None), "option.conflict", sentence)

    def holding(self, name: str, terms: SiloTerms) -> Holding:
        """Read the party's documents, queries and judgements."""
        parties, seed, setting = len(terms.parties), terms.seed, terms.setting
        wanted = "embedding" in setting.searched.evidence
        sentence = f"the group has agreed on embeddings, and {name} has none; give --embeddings FILE"
        require(not wanted or self.embeddings is not None, "evidence.missing", sentence)
        if self.collection is not None:
            found = read_collection(self.collection).without_empty()
            check_texts(name, found, setting.tokeniser)
            embedder = open_embedder(Path(self.embeddings)) if wanted and self.embeddings is not None else None
            everything = range(len(found.documents)), range(len(found.queries))
            return make_holding(name, found, *everything, setting.tokeniser, embedder=embedder)
        assert self.generated is not None
        sentence = f"the group has {parties} parties, so it is from 0 to {parties - 1}"
        require(0 <= self.generated < parties, "value.out-of-range", sentence, f"--generated {self.generated}")
        generator = Generator(parties=parties, documents=self.documents)
        made = generated_holdings(generator, REHEARSAL_SEED if seed is None else seed)
        return replace(made[self.generated], name=name)


def terms_of(invitation: Invitation) -> SiloTerms:
    """Return the terms of a party's invitation; one for a device is refused."""
    sentence = "this is a device's invitation; accept it with quorank join"
    require(invitation.kind == "party", "invitation.other-kind", sentence)
    require(invitation.code, "invitation.other-kind", "a party's invitation has a code; ask for a new one")
    terms = SiloTerms.read(dict(invitation.terms))
    sentence = f"{invitation.name} is not a party of the group; its parties are {', '.join(terms.parties)}"
    require(invitation.name in terms.parties, "party.unknown", sentence)
    read_identities([f"{name}={key.hex()}" for name, key in invitation.identities.items()], terms)
    return terms


@dataclass(frozen=True)
class PartyFolder:
    """One party's folder."""

    path: Path

    @classmethod
    def accept(cls, path: Path, invitation: Invitation) -> PartyFolder:
        """Store an invitation, unless the folder belongs to another party or other terms."""
        target, terms = path.absolute(), terms_of(invitation)
        require(target.parent.is_dir(), "folder.missing", f"the directory {target.parent} does not exist", f"{path}")
        made = cls(target)
        if (target / FILE).is_file():
            sentence = (
                f"this folder belongs to {made.invitation.name} in the session {made.terms.run}; choose another folder"
            )
            require(
                made.invitation.name == invitation.name and made.terms == terms, "folder.other-run", sentence, f"{path}"
            )
            if made.invitation.code != invitation.code or made.invitation.service != invitation.service:
                (target / MEMBER).unlink(missing_ok=True)  # it enrols anew
        else:
            free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
            sentence = "this is not a party's folder, and it is not empty; choose another one"
            require(free, "folder.not-empty", sentence, f"{path}")
            target.mkdir(mode=0o700, exist_ok=True)
        target.chmod(0o700)
        invitation.write(target / FILE)
        return cls(target)

    @classmethod
    def open(cls, path: Path) -> PartyFolder:
        """Open a folder that holds an invitation."""
        sentence = "there is no invitation here; give one with --bundle FILE"
        require((path / FILE).is_file(), "invitation.missing", sentence, f"{path}")
        return cls(path.absolute())

    @cached_property
    def invitation(self) -> Invitation:
        """The invitation that was accepted."""
        return Invitation.read(self.path / FILE)

    @cached_property
    def terms(self) -> SiloTerms:
        """Terms of the group."""
        return terms_of(self.invitation)

    @property
    def source(self) -> FolderSource:
        found = self._read(SOURCE, {})
        try:
            return FolderSource(**found)
        except TypeError:
            raise self._damaged(SOURCE) from None

    def note_source(self, source: FolderSource) -> None:
        """Store the source of the documents; it cannot change to other documents later."""
        before = self._read(SOURCE, None)
        table = asdict(source)
        moved = before is not None and source.collection is not None and before.get("collection") is not None
        sentence = "this party's documents are others; leave out --collection and --generated, or choose another folder"
        require(before is None or before == table or moved, "folder.other-documents", sentence, f"{self.path}")
        self._write(SOURCE, table)

    def holding(self) -> Holding:
        """The party's documents, queries and judgements."""
        terms = self.terms
        return self.source.holding(self.invitation.name, terms)

    @property
    def pins(self) -> dict[str, bytes]:
        """Pinned public identities: those of the invitation and those that the owner has added."""
        own = [f"{name}={key}" for name, key in self._read(PINS, {}).items()]
        return dict(self.invitation.identities) | read_identities(own, self.terms)

    def note_pins(self, given: Mapping[str, bytes]) -> None:
        """Pin identities; one that differs from before is refused."""
        known, own = self.pins, self.invitation.name
        require(own not in given, "identity.own", "that is this party itself; pin the others", f"--pin {own}")
        for name, key in given.items():
            sentence = f"another identity is pinned already; ask {name} by voice which is right"
            require(known.get(name, key) == key, "identity.conflict", sentence, f"--pin {name}")
        if given:
            self._write(PINS, self._read(PINS, {}) | {name: key.hex() for name, key in given.items()})

    @property
    def consents(self) -> list[tuple[float, bool]]:
        """Times at which consent was given or withdrawn."""
        return [(float(at), bool(on)) for at, on in self._read(CONSENT, [])]

    def consent(self) -> bool:
        """Return whether consent is given; an unreadable file means no."""
        try:
            found = self.consents
        except (BadInput, OSError, ValueError, TypeError):
            return False
        return bool(found) and found[-1][1]

    def set_consent(self, on: bool) -> None:
        """Give or withdraw consent, also while another process runs the party."""
        found = self.consents
        if not found or found[-1][1] != on:
            self._write(CONSENT, [*found, (time.time(), on)])

    @property
    def state(self) -> dict[str, Any]:
        """Last stored state of the party; empty before its first start."""
        found: dict[str, Any] = self._read(STATE, {})
        return found

    def note_state(self, **known: object) -> None:
        """Store the state of the party for `--status` and `--identity`; a full disk is ignored."""
        with contextlib.suppress(OSError):
            self._write(STATE, {"at": time.time(), **known})

    def line(self, url: str = "") -> ServiceClient:
        """The line to the service, with this party's key and, once it has enrolled, its number."""
        known, invitation = self._read(MEMBER, {}), self.invitation
        number, offset = known.get("member"), known.get("offset", 0.0)
        sound = (number is None or type(number) is int) and isinstance(offset, int | float)
        if not sound:
            raise self._damaged(MEMBER)
        return ServiceClient(
            url or invitation.url,
            invitation.service,
            invitation.certificate,
            member_key(self.identity()),
            number,
            offset=float(offset),
            note_offset=lambda seconds: self._write(MEMBER, self._read(MEMBER, {}) | {"offset": seconds}),
        )

    def enrol(self, line: ServiceClient) -> None:
        """Enrol with this party's own key, once.

        Raises:
            BadInput: `terms.changed` where the service's terms are not those of the invitation.
        """
        if line.member is not None:
            return
        assert line.key is not None
        found = line.enrol(self.invitation, line.key)
        same = found.name == self.invitation.name and found.member == self.terms.number(found.name)
        sentence = (
            "the service's terms are not those of the invitation; nothing was sent, ask the operator for a new one"
        )
        require(same and SiloTerms.read(dict(found.terms)) == self.terms, "terms.changed", sentence)
        self._write(MEMBER, {"member": found.member, "offset": line.offset})

    def identity(self) -> PartyIdentity:
        """Return the party's lasting key, created on first use."""
        session = self.path / SESSION
        session.mkdir(mode=0o700, exist_ok=True)
        return kept_identity(session, self.invitation.name, os.urandom)

    def document_of(self, number: int) -> str:
        """Return the id of the document that has a number in others' searches."""
        file = self.path / SESSION / NUMBERS
        sentence = "nobody has searched this party's documents yet, so they have no numbers"
        require(file.is_file(), "silo-search.no-numbers", sentence, f"{self.path}")
        known = read_json(file, ANYTHING)
        sentence = f"no document has the number {number}; numbers start at {min(map(int, known), default=0)}"
        require(str(number) in known, "silo-search.unknown-document", sentence, f"{self.path}")
        return str(known[str(number)])

    @property
    def desk(self) -> FolderDesk:
        """Searches of this party's own people."""
        return FolderDesk(self.path / SEARCHES)

    def sent_log(self) -> list[dict[str, Any]]:
        """Return everything that was sent, also while another process runs the party."""
        return sent_log(self.path / SESSION)

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Lock the folder for the process that runs the party."""
        with ProcessLock(self.path / LOCK).hold("another process runs this party; stop it first"):
            yield

    def _read(self, name: str, absent: Any) -> Any:
        try:
            found = read_json(self.path / name, ANYTHING)
        except BadInput as error:
            if error.code == "file.missing":
                return absent
            raise self._damaged(name) from None
        if absent is not None and type(found) is not type(absent):
            raise self._damaged(name)
        return found

    def _damaged(self, name: str) -> BadInput:
        return BadInput(
            "file.damaged", "damaged; restore it from a copy, or delete it and give it again", f"{self.path / name}"
        )

    def _write(self, name: str, content: object) -> None:
        write_private(self.path / name, json.dumps(content, indent=1).encode())
