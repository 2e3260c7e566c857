"""A party of a group on a network: it answers its coordinator's messages, and keeps everything that must survive.

`answer` takes what came, works (`silos.party.member`), and gives back what there is to say; it is the same over a network,
over the store of a service and in one process. It never raises, and what it declines with is one of a fixed list
(`declined`): no path, query, document or term is in anything that leaves but sealed or as the protocol says.

The folder is the party's own (mode 0700): its identity, the ledger of budgets, its sketches, and one SQLite file with its
place in the protocol, what it heard and what it sent. Restored from a copy it is refused by the coordinator, which knows
what was said since.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.member.party_identity import kept_identity
from quorank.member.search_desk import SearchRequest
from quorank.protocol.messages import Declined, Refusal
from quorank.silos.learning.holdings import FIELDS, Holding
from quorank.silos.party.member import FINISHED, SERVER, UNWRITTEN, SiloMember
from quorank.silos.protocol.keys import Entropy
from quorank.silos.protocol.records import SiloMessage, tells
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms


class SearchDesk(Protocol):
    """Where a party's own people leave searches and fetch what was found."""

    def wanted(self) -> Sequence[SearchRequest]:
        """Searches that were not handed out yet."""

    def hand_out(self, name: str, found: Mapping[str, Any]) -> None:
        """The result of a search, or why there is none."""


class SiloParty:
    """One party of a run. `pins` are the public identities that others are known by.

    Between two steps of its work it ends where `stop` says so, and tells `seen` that its progress has changed. Where the
    group searches, it goes on when the ranker is there, with the searches of its `desk` and those of the others.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        terms: SiloTerms,
        holding: Holding,
        *,
        pins: Mapping[str, bytes] | None = None,
        consent: Callable[[], bool] = lambda: True,
        stop: Callable[[], bool] = lambda: False,
        seen: Callable[[], None] = lambda: None,
        desk: SearchDesk | None = None,
        entropy: Entropy = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self.name, self.terms, self.holding = Path(folder), name, terms, holding
        self._number, self._digest = terms.number(name), terms.digest()[:16]
        self._pins, self._consent, self._entropy, self._clock = pins, consent, entropy, clock
        self._stop, self._seen, self._desk = stop, seen, desk
        self._member: SiloMember | None = None
        self.said_all = False  # the last answer ended all that this party ever has to say
        self.stopped: str | None = None  # why the run cannot go on at this party, for its owner
        self._store = SiloStore(self.folder, "party")
        try:
            self._check(name, terms, holding)
            self.identity = kept_identity(self.folder, name, entropy)
            self._progress = f"{name}: " + ("the ranker is there" if self._is_finished else "it begins")
        except BaseException:
            self._store.close()
            raise

    def _check(self, name: str, terms: SiloTerms, holding: Holding) -> None:
        """A folder is of one run, one party and one set of documents: with others it would say what it said otherwise."""
        facts = {
            "terms": (terms.digest(), "a run with other terms"),
            "name": (name.encode(), "another party"),
            "holding": (digest_of(holding), "other documents, queries or judgements"),
        }
        for what, (value, words) in facts.items():
            kept = self._store.fact(what)
            sentence = f"this folder was begun with {words}; choose another folder, or go back to those"
            require(kept is None or kept == value, "folder.other-run", sentence, f"{self.folder}")
        with self._store.transaction():
            for what, (value, _) in facts.items():
                self._store.set_fact(what, value)

    # ------------------------------------------------------------ what the owner looks at

    @property
    def _is_finished(self) -> bool:
        return bool(self._store.note("place", 0) == FINISHED)

    @property
    def fingerprint(self) -> str | None:
        """Twelve digits, the same at all parties unless someone stands in between; None before keys are agreed."""
        found: str | None = self._store.note("fingerprint")
        return found

    @property
    def progress(self) -> str:
        """Where this party stands, in a sentence."""
        return self._progress if self.stopped is None else f"{self.name}: it cannot go on: {self.stopped}"

    @property
    def ranker(self) -> Doubles | None:
        """The weights that all parties end with, once they are there."""
        kept = self._store.fact("ranker")
        return None if kept is None else np.frombuffer(kept, dtype="<f8").astype(np.float64)

    @property
    def figures(self) -> dict[str, float] | None:
        """ERR, nDCG@10 and nDCG of the ranker on this party's own test lists, which nobody else learns."""
        found: dict[str, float] | None = self._store.note("figures")
        return found

    def close(self) -> None:
        """Let go of the folder."""
        if self._member is not None:
            self._member.close()
        if self._is_finished:
            self._store.compact()
        self._store.close()

    # ------------------------------------------------------------ what the coordinator asks

    def answer(self, content: bytes) -> bytes | Declined:
        """The answer to a message, or why there is none. It never raises; the cause stays in this machine's log."""
        self.said_all = False
        try:
            return self._answer(content)
        except Refusal as refusal:
            return refusal.declined
        except OSError:
            logging.getLogger(__name__).exception("the private folder cannot be written")
            return Declined("storage")
        except Exception:  # its text could hold a path, a query or a document
            logging.getLogger(__name__).exception("a message could not be answered")
            return Declined("fault")

    def _answer(self, content: bytes) -> bytes:
        if not self._consent():
            raise Refusal("consent")
        try:
            message = SiloMessage.from_bytes(content, to_party=True)
        except BadInput:
            raise Refusal("malformed") from None
        if message.digest != self._digest:
            raise Refusal("run")
        if message.number != self._number:
            raise Refusal("client")
        try:
            with self._store.transaction():
                self._store.take(SERVER, message)
        except BadInput as error:
            raise Refusal("storage" if error.code in UNWRITTEN else "place") from None
        self._work()
        reply = self._store.message(SERVER, self._number, self._digest)
        self.said_all = (
            self._is_finished
            and self.terms.search is None
            and reply.start + len(reply.pieces) == self._store.places(SERVER)[2]
        )
        return reply.to_bytes(to_party=False)

    def _work(self) -> None:
        """Do all that there is to do now; what fails is thrown away with its half-made state and tried again later."""
        try:
            while not self._is_finished or self.terms.search is not None:
                if self._member is None:
                    self._member = SiloMember(
                        self._store,
                        self.folder,
                        self.name,
                        self.terms,
                        self.holding,
                        self.identity,
                        pins=self._pins,
                        entropy=self._entropy,
                        clock=self._clock,
                    )
                self.report(self._member.progress())
                if self._stop():
                    raise Refusal("waiting")
                if not self._member.step() and not self._attend(self._member):
                    break
            if self._member is not None:
                self.report(self._member.progress())
            self.stopped = None
        except Refusal:
            raise
        except BadInput as error:
            self._forget_member()
            if error.code in UNWRITTEN:
                raise Refusal("storage") from None
            self.stopped = str(error)
            raise Refusal("stopped") from None
        except BaseException:
            self._forget_member()
            raise

    def _forget_member(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close()

    def _attend(self, member: SiloMember) -> bool:
        """Begin searches that are wanted and hand out those that are done; whether there is something to send."""
        if self._desk is None or not self._is_finished or self.terms.search is None:
            return False
        begun, sent = set(member.searches.open), False
        for request in self._desk.wanted():
            if request.name in begun:
                continue
            try:
                member.search(request.name, request.query, request.top, self._clock() + request.patience)
                sent = True
            except BadInput as error:
                if error.code in UNWRITTEN:
                    raise
                self._desk.hand_out(request.name, {"error": error.code, "sentence": str(error)})
        for name, result in member.searches.results(self._clock()):
            self._desk.hand_out(name, result.to_table())
            with self._store.transaction():
                member.searches.finish(name)
        return sent

    def report(self, progress: str) -> None:
        """Note where this party stands, in a sentence, and tell it."""
        if progress != self._progress:
            self._progress = progress
            self._seen()


def sent_log(folder: Path) -> list[dict[str, Any]]:
    """All that a party in this folder gave to the network: when, what, for whom, how large, and what it tells.

    It may be read while another process plays the party.
    """
    file = folder / "party.sqlite"
    if not file.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as found:
            rows = found.execute("SELECT at, kind, receiver, bytes FROM log ORDER BY id").fetchall()
    except sqlite3.Error as error:
        sentence = f"cannot be read ({error}); try again, or restore it from a copy"
        raise BadInput("file.unreadable", sentence, f"{file}") from None
    return [
        {"at": at, "kind": kind.lower(), "receiver": receiver, "bytes": size, "tells": tells(kind)}
        for at, kind, receiver, size in rows
    ]


def digest_of(holding: Holding) -> bytes:
    """32 bytes that stand for a party's documents, queries and judgements."""
    digest = hashlib.sha256(b"quorank silo holding")
    for name in FIELDS:
        index = getattr(holding.documents, name)
        for array in (index.offsets, index.terms, index.counts, index.lengths):
            digest.update(len(array).to_bytes(8, "little") + np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(index.vocabulary).encode())
    for query, grades in zip(holding.queries, holding.grades, strict=True):
        digest.update("\0".join(query).encode() + b"\n" + repr(sorted(grades.items())).encode())
    return digest.digest()
