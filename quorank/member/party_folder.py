"""A party's private folder: its membership, the source of its documents, and its state for status commands.

The state of the session is in `session/` (`SiloParty`). Documents, queries and judgements stay where they are; the folder
stores their location, so that a later start needs nothing but the folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.files.atomic import ProcessLock
from quorank.files.documents import read_json
from quorank.member.membership import Membership, Pins
from quorank.member.party import sent_log
from quorank.member.party_searches import NUMBERS, SPENT, FolderDesk
from quorank.member.private_store import FILE, PrivateStore
from quorank.protocol.http_client import Enrolment, ServiceClient
from quorank.protocol.invitation import Invitation
from quorank.silos.generated import Generator
from quorank.silos.holdings import Holding, check_texts, generated_holdings, make_holding
from quorank.silos.search.ledger import SearchSpending
from quorank.silos.session.agreement import PartyIdentity, derive
from quorank.silos.session.terms import SiloTerms, read_identities
from quorank.text import Query, read_collection
from quorank.text.embeddings import open_embedder

SOURCE, STATE = "source", "state"  # facts: source of the documents, and the last stored state of the party
CONFIRMED, SERVICE = "confirmed", "service"  # fact: digits of the confirmed fingerprint, or that the service is trusted
SESSION, RANKER, SEARCHES, LOCK = "session", "ranker.json", "searches", "lock"
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

    def holding(self, name: str, terms: SiloTerms, query: str | None = None) -> Holding:
        """Read the party's documents with its queries and judgements, or with one query in their place."""
        parties, seed, setting = len(terms.parties), terms.seed, terms.setting
        wanted = "embedding" in setting.searched.evidence
        sentence = f"the group has agreed on embeddings, and {name} has none; give --embeddings FILE"
        require(not wanted or self.embeddings is not None, "evidence.missing", sentence)
        if self.collection is not None:
            found = read_collection(self.collection).without_empty()
            if query is not None:
                found = replace(found, queries=(Query("query", query),), judgements={})
            check_texts(name, found, setting.tokeniser)
            embedder = open_embedder(Path(self.embeddings)) if wanted and self.embeddings is not None else None
            everything = range(len(found.documents)), range(len(found.queries))
            return make_holding(name, found, *everything, setting.tokeniser, embedder=embedder)
        assert self.generated is not None
        sentence = f"the group has {parties} parties, so it is from 0 to {parties - 1}"
        require(0 <= self.generated < parties, "value.out-of-range", sentence, f"--generated {self.generated}")
        generator = Generator(parties=parties, documents=self.documents)
        made = generated_holdings(generator, REHEARSAL_SEED if seed is None else seed)
        holding = replace(made[self.generated], name=name)
        if query is None:
            return holding
        words = tuple(dict.fromkeys(holding.documents.body.tokeniser.tokenise(query)))
        return replace(holding, query_ids=("query",) * bool(words), queries=(words,) * bool(words), grades=({},))


def _digits(fingerprint: str) -> str:
    return "".join(fingerprint.split())


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


class PartyFolder(Membership[SiloTerms]):
    """Membership of a party in its folder; it can be opened while another process runs the party.

    Open it with `accept` or `open`, and close it or use it as a context.
    """

    @classmethod
    def _read_terms(cls, table: object) -> SiloTerms:
        return SiloTerms.read(table)

    @classmethod
    def accept(cls, path: Path, invitation: Invitation) -> PartyFolder:
        """Store an invitation and open the folder.

        Raises:
            BadInput: `invitation.other-kind`, `folder.missing`, `folder.not-empty`, or `folder.other-run` where the folder
                belongs to another party or other terms.
        """
        target = path.absolute()
        terms_of(invitation)
        require(target.parent.is_dir(), "folder.missing", f"the directory {target.parent} does not exist", f"{path}")
        if not (target / FILE).is_file():
            free = not target.exists() or (target.is_dir() and not any(target.iterdir()))
            said = "this is not a party's folder, and it is not empty; choose another one"
            require(free, "folder.not-empty", said, f"{path}")
            PrivateStore(target).close()  # creates the folder
        target.chmod(0o700)
        return cls._beside(target, invitation)

    @classmethod
    def open(cls, path: Path) -> PartyFolder:
        """Open a folder that holds an invitation."""
        said = "there is no invitation here; give one with --bundle FILE"
        require((path / FILE).is_file(), "invitation.missing", said, f"{path}")
        return cls._beside(path.absolute(), None)

    @classmethod
    def _beside(cls, folder: Path, given: Invitation | None) -> PartyFolder:
        store = PrivateStore(folder, owner=False)
        try:
            return cls(store, cls._accept(store, given, os.urandom))
        except BaseException:
            store.close()
            raise

    @classmethod
    def _check_same(cls, store: PrivateStore, known: Invitation | None, given: Invitation) -> None:
        if known is not None:
            run = terms_of(known).run
            said = f"this folder belongs to {known.name} in the session {run}; choose another folder"
            same = known.name == given.name and terms_of(known) == terms_of(given)
            require(same, "folder.other-run", said, f"{store.folder}")

    # ------------------------------------------------------------ documents and state

    @property
    def source(self) -> FolderSource:
        """Source of the documents."""
        found: FolderSource | None = self.store.note(SOURCE, FolderSource | None)
        return found or FolderSource()

    def note_source(self, source: FolderSource) -> None:
        """Store the source of the documents; it cannot change to other documents later."""
        before: FolderSource | None = self.store.note(SOURCE, FolderSource | None)
        moved = before is not None and None not in (source.collection, before.collection)
        said = "this party's documents are others; leave out --collection and --generated, or choose another folder"
        require(before is None or before == source or moved, "folder.other-documents", said, f"{self.folder}")
        self.store.set_note(SOURCE, source)

    def holding(self) -> Holding:
        """Read the party's documents, queries and judgements."""
        return self.source.holding(self.invitation.name, self.terms)

    @property
    def state(self) -> dict[str, Any]:
        """Last stored state of the party; empty before its first start."""
        return self.store.note(STATE, dict[str, Any] | None) or {}

    def note_state(self, **known: object) -> None:
        """Store the state of the party for `--status` and `--identity`; a full disk is ignored."""
        with contextlib.suppress(OSError):
            self.store.set_note(STATE, {"at": time.time(), **known})

    # ------------------------------------------------------------ membership

    def note_pins(self, given: Mapping[str, bytes]) -> None:
        """Pin identities of other parties; one that differs from before is refused."""
        own = self.invitation.name
        require(own not in given, "identity.own", "that is this party itself; pin the others", f"--pin {own}")
        self.pins.pin(given)

    def confirm(self, fingerprint: str | None) -> None:
        """Store that the others have read out this fingerprint, or with None that the service is trusted with identities.

        Raises:
            BadInput: `identity.not-agreed` before there is a fingerprint, `identity.not-confirmed` where it is another one.
        """
        if fingerprint is not None:
            own = self.state.get("fingerprint") or ""
            sentence = "keys are not agreed yet, so there is no fingerprint; start this party, and confirm later"
            require(own, "identity.not-agreed", sentence, f"{self.folder}")
            sentence = "this party has another fingerprint: somebody stands between it and the others; do not go on"
            require(
                _digits(fingerprint) == _digits(own), "identity.not-confirmed", sentence, f"--confirm {fingerprint}"
            )
        self.store.set_note(CONFIRMED, SERVICE if fingerprint is None else _digits(fingerprint))

    def has_confirmed(self, fingerprint: str, identities: Mapping[str, bytes]) -> bool:
        """Return whether the owner has confirmed the others: by the fingerprint, by pins of its own, or by the service.

        Pins of an invitation came from the service and do not count. In a rehearsal nothing is secret.
        """
        confirmed: str | None = self.store.note(CONFIRMED, str | None)
        pinned, others = Pins(self.store).known, set(self.terms.parties) - {self.invitation.name}
        return (
            self.terms.seed is not None
            or confirmed in (SERVICE, _digits(fingerprint))
            or all(name in pinned and pinned[name] == identities.get(name) for name in others)
        )

    def has_consent(self) -> bool:
        """Return whether consent is given; an unreadable file means no."""
        try:
            return self.store.consent
        except (BadInput, OSError):
            return False

    def enrol(self, service: ServiceClient) -> None:
        """Enrol with this party's own key, once.

        Raises:
            BadInput: `terms.changed` where the service's terms are not those of the invitation.
        """
        if service.member is None:
            super().enrol(service)

    def _is_agreed(self, terms: SiloTerms, found: Enrolment) -> bool:
        name = self.invitation.name
        return terms == self.terms and (found.name, found.member) == (name, terms.number(name))

    @property
    def identity(self) -> PartyIdentity:
        """The party's lasting key in the agreement, derived from the member key so that there is one secret to back up."""
        return PartyIdentity(self.invitation.name, derive(self.key.secret, "party identity"))

    # ------------------------------------------------------------ session

    def document_of(self, number: int) -> str:
        """Return the id of the document that has a number in others' searches."""
        file = self.folder / SESSION / NUMBERS
        said = "nobody has searched this party's documents yet, so they have no numbers"
        require(file.is_file(), "silo-search.no-numbers", said, f"{self.folder}")
        known: dict[str, str] = read_json(file, dict[str, str])
        said = f"no document has the number {number}; numbers start at {min(map(int, known), default=0)}"
        require(str(number) in known, "silo-search.unknown-document", said, f"{self.folder}")
        return known[str(number)]

    @property
    def spent(self) -> dict[str, SearchSpending]:
        """Budget that this party has spent at each owner, by the owner's last answer."""
        file = self.folder / SESSION / SPENT
        return read_json(file, dict[str, SearchSpending]) if file.is_file() else {}

    @property
    def desk(self) -> FolderDesk:
        """Searches of this party's own people."""
        return FolderDesk(self.folder / SEARCHES)

    def sent_log(self) -> list[dict[str, Any]]:
        """Return everything that was sent, also while another process runs the party."""
        return sent_log(self.folder / SESSION)

    def playing(self) -> AbstractContextManager[bool]:
        """Lock the folder for the process that runs the party."""
        return ProcessLock(self.folder / LOCK).hold("another process runs this party; stop it first")
