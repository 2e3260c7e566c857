"""A party of a group on a network: it answers its coordinator's messages and stores everything that must survive.

`SiloParty.answer` handles one message and returns the answer; it is the same over a network, over a service's store and
in one process. It never raises, and it declines with one of a fixed list of reasons (`Declined`): no path, query, document
or term leaves the machine except sealed or as the protocol says. `take_part` polls the party's mailbox and answers letters
until the session is over; where the service cannot be reached, or withdraws a letter, the party polls again later.

The folder has mode 0700: identity, ledger of searches, and one SQLite file with the party's progress, what it received
and what it sent. A folder restored from a copy is refused by the coordinator, which knows what was sent since.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.member.party_keys import kept_identity
from quorank.member.party_run import FINISHED, NEW, PROGRESS, SERVER, TEMPORARY, PartyRun
from quorank.member.party_searches import FolderDesk
from quorank.protocol.http_client import PollingInterval, ServiceClient, ServiceRefusal
from quorank.protocol.messages import Declined, Refusal
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.session.agreement import Entropy
from quorank.silos.session.records import MOST_MESSAGE, SiloMessage, meaning_of
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms


class SiloParty:
    """Party of a group's session.

    Args:
        folder: The party's private folder, created where it does not exist.
        name: Name of the party in the terms.
        terms: Terms that the group has agreed on.
        holding: The party's documents, queries and judgements.
        pins: Public identities that other parties must have.
        consent: Returns whether the owner agrees to take part; asked before every answer.
        stop: Returns whether to stop; asked between two steps of the work.
        desk: Searches of the party's own people, where the group searches.
        entropy: Source of secret bytes.

    Raises:
        BadInput: `folder.other-run` where the folder belongs to another session, party or set of documents; `file.busy`
            where another process works in it.

    >>> import tempfile
    >>> from quorank.silos.generated import Generator
    >>> from quorank.silos.holdings import generated_holdings
    >>> holding = generated_holdings(Generator(parties=2, documents=20, queries=4))[0]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     party = SiloParty(Path(folder) / "north", "north", SiloTerms("spring", ("north", "south")), holding)
    ...     print(party.progress)
    ...     party.close()
    north: starting
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
        desk: FolderDesk | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.folder, self.name, self.terms, self.holding = Path(folder), name, terms, holding
        self._number, self._digest = terms.number(name), terms.digest[:16]
        self._pins, self._consent, self._entropy = pins, consent, entropy
        self._stop, self._desk = stop, desk
        self._run: PartyRun | None = None
        self.said_all = False  # whether the last answer was the last one of the session
        self.stopped: str | None = None  # reason why the session cannot continue at this party, for its owner
        self._store = SiloStore(self.folder, "party")
        try:
            self._check(name, terms, holding)
            self.identity = kept_identity(self.folder, name, entropy)
        except BaseException:
            self._store.close()
            raise

    def _check(self, name: str, terms: SiloTerms, holding: Holding) -> None:
        """Refuse a folder of another session, party or set of documents, whose answers would contradict earlier ones."""
        facts = {
            "terms": (terms.digest, "a session with other terms"),
            "name": (name.encode(), "another party"),
            "holding": (digest_of(holding), "other documents, queries or judgements"),
        }
        for what, (value, words) in facts.items():
            kept = self._store.fact(what)
            sentence = f"this folder was created for {words}; choose another folder"
            require(kept is None or kept == value, "folder.other-run", sentence, f"{self.folder}")
        with self._store.transaction():
            for what, (value, _) in facts.items():
                self._store.set_fact(what, value)

    # ------------------------------------------------------------ for the owner

    @property
    def _is_finished(self) -> bool:
        return bool(self._store.note("place", 0) == FINISHED)

    @property
    def fingerprint(self) -> str | None:
        """Twelve digits, the same at all parties unless there is a man in the middle; None before keys are agreed."""
        found: str | None = self._store.note("fingerprint")
        return found

    @property
    def progress(self) -> str:
        """Progress of this party, or the reason why it cannot continue."""
        words = PROGRESS[self._store.note("place", NEW)] if self.stopped is None else f"cannot continue: {self.stopped}"
        return f"{self.name}: {words}"

    @property
    def ranker(self) -> Doubles | None:
        """Final parameters, once they have arrived."""
        kept = self._store.fact("ranker")
        return None if kept is None else np.frombuffer(kept, dtype="<f8").astype(np.float64)

    @property
    def figures(self) -> dict[str, float] | None:
        """ERR, nDCG@10 and nDCG of the ranker on this party's test lists, which stay with the party."""
        found: dict[str, float] | None = self._store.note("figures")
        return found

    def close(self) -> None:
        """Close the folder."""
        if self._run is not None:
            self._run.close()
        if self._is_finished:
            self._store.compact()
        self._store.close()

    # ------------------------------------------------------------ for the coordinator

    def answer(self, content: bytes) -> bytes | Declined:
        """Answer a message, or decline it; never raises, and causes go to this machine's log only."""
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
            raise Refusal("storage" if error.code in TEMPORARY else "place") from None
        self._work()
        reply = self._store.message(SERVER, self._number, self._digest)
        self.said_all = (
            self._is_finished
            and self.terms.search is None
            and reply.start + len(reply.pieces) == self._store.places(SERVER)[2]
        )
        return reply.to_bytes(to_party=False)

    def _work(self) -> None:
        """Take all possible steps; after a failure the state in memory is discarded, and the steps are retried later."""
        try:
            while not self._is_finished or self.terms.search is not None:
                if self._run is None:
                    place = self._store, self.folder, self.terms, self.holding, self.identity
                    self._run = PartyRun(*place, pins=self._pins, entropy=self._entropy)
                if self._stop():
                    raise Refusal("waiting")
                if not self._run.step() and not self._attend(self._run):
                    break
            self.stopped = None
        except Refusal:
            raise
        except BadInput as error:
            self._discard_run()
            if error.code in TEMPORARY:
                raise Refusal("storage") from None
            self.stopped = str(error)
            raise Refusal("stopped") from None
        except BaseException:
            self._discard_run()
            raise

    def _discard_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _attend(self, run: PartyRun) -> bool:
        """Begin pending searches and deliver results; return whether there is something to send."""
        if self._desk is None or not self._is_finished or self.terms.search is None:
            return False
        begun, sent = set(run.searches.open), False
        for request in self._desk.wanted():
            if request.name in begun:
                continue
            try:
                run.search(request.name, request.query, request.top, time.time() + request.patience)
                sent = True
            except BadInput as error:
                if error.code in TEMPORARY:
                    raise
                self._desk.hand_out(request.name, {"error": error.code, "sentence": str(error)})
        for name, result in run.searches.results(time.time()):
            self._desk.hand_out(name, result.to_table())
            with self._store.transaction():
                run.searches.finish(name)
        return sent


def sent_log(folder: Path) -> list[dict[str, Any]]:
    """Return everything that the party of a folder has sent: time, kind, receiver, size and meaning.

    It can be read while another process runs the party.
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
        {"at": at, "kind": kind.lower(), "receiver": receiver, "bytes": size, "tells": meaning_of(kind)}
        for at, kind, receiver, size in rows
    ]


def digest_of(holding: Holding) -> bytes:
    """Return the SHA-256 of a party's documents, queries and judgements."""
    digest = hashlib.sha256(b"quorank silo holding")
    for name in FIELDS:
        index = getattr(holding.documents, name)
        for array in (index.offsets, index.terms, index.counts, index.lengths):
            digest.update(len(array).to_bytes(8, "little") + np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(index.vocabulary).encode())
    for query, grades in zip(holding.queries, holding.grades, strict=True):
        digest.update("\0".join(query).encode() + b"\n" + repr(sorted(grades.items())).encode())
    return digest.digest()


LOOK_SECONDS = 0.25
"""Interval at which a waiting party checks whether to stop, seconds."""
SHORTEST = 0.02
"""Shortest polling interval, seconds."""
TASK_SECONDS = 2.0
"""Interval at which an idle party checks whether the session is over, seconds."""
LONGER, LONGEST = 1.15, 40.0
"""Growth of the polling interval while the mailbox is empty, and its limit, as multiples of the service's interval."""
QUIET_SECONDS = 180.0
"""Time without contact after which a party with the ranker regards the session as over, seconds."""


def take_part(
    party: SiloParty,
    line: ServiceClient,
    stop: Callable[[], bool],
    consent: Callable[[], bool] = lambda: True,
    seen: Callable[[str], None] = lambda fault: None,
    enrol: Callable[[Any], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Answer letters until the session is over or `stop` returns true; return whether it is over.

    `seen` is called after every poll, with a sentence while the service cannot be reached; `enrol` before the first one.

    Raises:
        ServiceRefusal: A permanent refusal, such as that of a revoked party.
        BadInput: `silo-run.ended` where the service has ended the session without a ranker.
    """
    pace, heard, looked = PollingInterval(most=60.0), clock(), clock()
    wait, idle, enrolled = 0.0, 1.0, False
    while not _ends(wait, stop, clock, sleep):
        fault = ""
        try:
            if not consent():
                wait = LOOK_SECONDS
            elif not enrolled:
                enrol(line)
                enrolled, wait = True, 0.0
            else:
                wait = exchange(party, line, pace)
                if wait < 0.0:
                    return True
                idle = min(LONGEST, LONGER * idle) if wait else 1.0
                wait *= idle
                ends = party.ranker is not None and party.terms.search is None
                if ends or clock() - looked > TASK_SECONDS:
                    looked = clock()
                    if line.task().kind == "over":
                        sentence = (
                            "the service ended the session before this party had the ranker; ask its operator why"
                        )
                        require(party.ranker is not None, "silo-run.ended", sentence)
                        return True
            heard = clock()
        except ServiceRefusal as error:
            if not (error.is_temporary or error.code in ("mail.unknown", "mail.repeated")):
                raise
            wait, fault = pace.after_failure(error), error.sentence
            if party.ranker is not None and party.terms.search is None and clock() - heard > QUIET_SECONDS:
                return True
        seen(fault)
    return False


def exchange(party: SiloParty, line: ServiceClient, pace: PollingInterval) -> float:
    """Fetch and answer one letter; return the seconds until the next poll, negative after the last answer."""
    mail = line.mail(MOST_MESSAGE)
    if mail.content is None:
        return pace.after_success(max(mail.next, SHORTEST))
    answer = party.answer(mail.content)
    if answer == Declined("waiting"):
        return LOOK_SECONDS  # stopped in the middle of its work; it answers after its next start
    line.answer(mail.id, b"" if isinstance(answer, Declined) else answer)
    pace.after_success(0.0)
    return -1.0 if party.said_all else 0.0


def _ends(seconds: float, stop: Callable[[], bool], clock: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Wait, and return whether to stop."""
    until = clock() + seconds
    while not stop():
        left = until - clock()
        if left <= 0.0:
            return False
        sleep(min(left, LOOK_SECONDS))
    return True
