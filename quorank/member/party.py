"""A party of a group: it answers its coordinator's messages and stores everything that must survive.

`SiloParty.answer` handles one message and returns the answer; it is the same over a network, over a service's store and
in one process. It never raises, and it declines with one of a fixed list of reasons (`Declined`): no path, query, document
or term leaves the machine except sealed or as the protocol says.

Everything that a party sends follows from what it has stored (secrets drawn once, received records) and from its
documents. Records are handled in order, each in one transaction together with the records that it causes. A party that
was killed therefore continues where it was, with the same keys, and the others do not notice. Its part of each sum of the
training leaves under masks that cancel in the sum over all parties.

The folder has mode 0700: the ledger of searches, and one SQLite file with the party's progress, what it received and what
it sent. A folder restored from a copy is refused by the coordinator, which knows what was sent since.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.member.party_keys import SECRETS, Secrets
from quorank.member.party_searches import TEMPORARY, FolderDesk, PartySearches
from quorank.privacy.secure_sum.masks import Occasion, pair_mask, wide_pair_mask
from quorank.protocol import frames
from quorank.protocol.messages import Declined, Refusal
from quorank.silos.envelopes import Envelope, Kind, Refuse
from quorank.silos.holdings import Holding
from quorank.silos.session.agreement import Agreement, Entropy, PartyIdentity, SealedChannel, derive
from quorank.silos.session.records import (
    MEANINGS,
    Record,
    SiloMessage,
    SumHead,
    decode_array,
    decode_sum,
    enclose,
    encode,
    finite_doubles,
    kind_of,
    tag_of,
)
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.lists import Figures, SearchedLists
from quorank.silos.training.statistics import VECTOR_LENGTH, party_vector
from quorank.silos.training.sums import SumAnswers, SumRequest, check_agreed

SERVER = "the coordinator"
NEW, GREETED, COUNTED, FINISHED = range(4)  # nothing sent, hello sent, statistics sent, ranker stored
PROGRESS = ("starting", "agreeing on keys", "training", "has the ranker")
UNCONFIRMED = "waits until its owner has confirmed the others' identities"
IDENTITIES = "identities"  # note: public identities of the others, once keys are agreed
COUNTERS = "lines"  # fact: envelopes sent to and received from each other party
_LOADED = ("_secrets", "agreement", "_channels", "lists", "sums", "searches")


class SiloParty:
    """Party of a group's session.

    Attributes:
        name: Name of the party in the terms.
        terms: Terms of the group.
        said_all: True when the last answer was the last one of the session.
        stopped: Reason why the session cannot continue at this party, a sentence for its owner; None while it can.

    Args:
        folder: The party's private folder, created where it does not exist.
        identity: The party's name in the terms and its lasting key.
        terms: Terms that the group has agreed on.
        holding: The party's documents, queries and judgements.
        pins: Public identities that other parties must have.
        consent: Returns whether the owner agrees to take part; asked before every answer.
        confirmed: Returns whether the owner takes the others for who they say, by the fingerprint and their public
            identities; nothing but keys is exchanged before.
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
    ...     terms, identity = SiloTerms("spring", ("north", "south")), PartyIdentity("north")
    ...     party = SiloParty(Path(folder) / "north", identity, terms, holding)
    ...     print(party.progress)
    ...     party.close()
    north: starting
    """

    def __init__(
        self,
        folder: Path,
        identity: PartyIdentity,
        terms: SiloTerms,
        holding: Holding,
        *,
        pins: Mapping[str, bytes] | None = None,
        consent: Callable[[], bool] = lambda: True,
        confirmed: Callable[[str, Mapping[str, bytes]], bool] = lambda fingerprint, identities: True,
        stop: Callable[[], bool] = lambda: False,
        desk: FolderDesk | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.folder, self.identity, self.terms = Path(folder), identity, terms
        self.holding = replace(holding, name=identity.name)
        self.name, self._number, self._digest = identity.name, terms.number(identity.name), terms.digest[:16]
        self._pins, self._consent, self._entropy = pins, consent, entropy
        self._confirmed, self._stop, self._desk = confirmed, stop, desk
        self.said_all = False
        self.stopped: str | None = None
        self._store = SiloStore(self.folder, "party")
        try:
            self._check()
        except BaseException:
            self._store.close()
            raise

    def _check(self) -> None:
        """Refuse a folder of another session, party or set of documents, whose answers would contradict earlier ones."""
        facts = {
            "terms": (self.terms.digest, "a session with other terms"),
            "name": (self.name.encode(), "another party"),
            "holding": (self.holding.digest(), "other documents, queries or judgements"),
        }
        with self._store.transaction():
            for what, (value, words) in facts.items():
                sentence = f"this folder was created for {words}; choose another folder"
                require(self._store.fact(what) in (None, value), "folder.other-run", sentence, f"{self.folder}")
                self._store.set_fact(what, value)

    # ------------------------------------------------------------ for the owner

    @property
    def fingerprint(self) -> str | None:
        """Twelve digits, the same at all parties unless there is a man in the middle; None before keys are agreed."""
        found: str | None = self._store.note("fingerprint")
        return found

    @property
    def identities(self) -> dict[str, str]:
        """Public identities of the other parties, hexadecimal; empty before keys are agreed."""
        found: dict[str, str] = self._store.note(IDENTITIES, default={})
        return found

    @property
    def progress(self) -> str:
        """Progress of this party, or the reason why it cannot continue, as a line for its owner."""
        stopped = f"cannot continue: {self.stopped}"
        place = self._place
        waits = place == GREETED and self.fingerprint is not None
        return f"{self.name}: {stopped if self.stopped else UNCONFIRMED if waits else PROGRESS[place]}"

    @property
    def ranker(self) -> Doubles | None:
        """Final parameters (parameters,), float64; None until they have arrived."""
        kept = self._store.fact("ranker")
        return None if kept is None else np.frombuffer(kept, dtype="<f8").astype(np.float64)

    @property
    def figures(self) -> dict[str, float] | None:
        """Metrics of the ranker on this party's test lists, which stay with the party; None before the ranker.

        ERR, nDCG@10 and nDCG by name, `prior` and `bm25` (nDCG@10 of the start and of BM25), and the number `test_lists`.
        """
        found: dict[str, float] | None = self._store.note("figures")
        return found

    def close(self) -> None:
        """Close the folder and unlock it; another `SiloParty` may continue the session there."""
        self._forget()
        if self._is_finished:
            self._store.compact()
        self._store.close()

    # ------------------------------------------------------------ for the coordinator

    def answer(self, content: bytes) -> bytes | Declined:
        """Answer a message of the coordinator; never raises.

        Args:
            content: Bytes of a `SiloMessage`.

        Returns:
            Bytes of the answering `SiloMessage`, or the reason for declining, one of a fixed list: `consent`, `malformed`,
            `run`, `client`, `place` (it contradicts earlier messages), `storage`, `waiting` (stopped in the middle of its
            work), `stopped` (see `stopped`) or `fault`. Causes go to this machine's log only.
        """
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
                if self._stop():
                    raise Refusal("waiting")
                if not self._step() and not self._attend():
                    break
            self.stopped = None
        except Refusal:
            raise
        except BaseException as error:
            self._forget()
            if not isinstance(error, BadInput):
                raise
            if error.code in TEMPORARY:
                raise Refusal("storage") from None
            self.stopped = str(error)
            raise Refusal("stopped") from None

    # ------------------------------------------------------------ stored state, loaded when it is needed

    def _forget(self) -> None:
        """Discard what was loaded, which may contradict what is stored."""
        if "searches" in self.__dict__:
            self.searches.close()
        for name in _LOADED:
            self.__dict__.pop(name, None)

    @property
    def _place(self) -> int:
        place: int = self._store.note("place", default=NEW)
        return place

    @property
    def _is_finished(self) -> bool:
        return self._place == FINISHED

    @cached_property
    def _secrets(self) -> Secrets:
        return Secrets(self._store, self.terms, self.name, self._entropy)

    @cached_property
    def agreement(self) -> Agreement:
        """This party's side of the key agreement."""
        terms = self.terms
        found = Agreement(self.identity, terms.parties, terms.settings, self._pins, self._secrets.session())
        for raw in self._received():
            found.receive(Envelope.from_bytes(raw))
        return found

    def _received(self) -> list[bytes]:
        """Return the envelopes of the agreement that have been received."""
        return frames.unpack(self._store.fact("agreement") or frames.pack([]))

    @cached_property
    def _channels(self) -> dict[str, SealedChannel]:
        """Sealed channels to the other parties, at the stored counters."""
        counters: dict[str, list[int]] = self._store.note(COUNTERS, default={})
        return {
            other: SealedChannel(secret, self.name, other, *counters.get(other, (0, 0)))
            for other, secret in self.agreement.keys.pairs.items()
        }

    def _note_counters(self) -> None:
        """Store the counters of the channels, in the transaction that stores what was sealed or opened."""
        counters = {other: [channel.sent, channel.received] for other, channel in self._channels.items()}
        self._store.set_note(COUNTERS, counters)

    @cached_property
    def lists(self) -> tuple[SearchedLists, SearchedLists]:
        """This party's lists of the training and of the test."""
        return self.terms.setting.lists(self.holding, self._secrets.draws, self._number)

    @cached_property
    def sums(self) -> SumAnswers:
        """Function from a request to this party's part of a sum of the training."""
        setting = self.terms.setting
        return setting.training.answers(self.lists[0], setting.searched.prior_direction())

    @cached_property
    def searches(self) -> PartySearches:
        """Searches of this party and of the others."""
        return PartySearches(self._store, self.folder, self.holding, self._secrets, self.agreement.keys, self.seal)

    # ------------------------------------------------------------ steps

    def _step(self) -> bool:
        """Take the next step; return False after the last one."""
        place = self._place
        if place == NEW:
            hellos = self.agreement.hellos()
            with self._store.transaction():
                for hello in hellos:
                    self._send(enclose(hello.to_bytes()), hello.receiver)
                self._store.set_note("place", GREETED)
        elif place == GREETED and self.agreement.is_complete and self._has_confirmed():
            self._send_statistics()
        else:
            record = self._store.next(SERVER)
            if record is None:
                return False
            with self._store.transaction():
                self._handle(record)
                self._store.finish(SERVER)
        return True

    def _has_confirmed(self) -> bool:
        """Store whom the keys are agreed with, for the owner to compare, and return whether the owner has confirmed it."""
        fingerprint, identities = self.agreement.keys.fingerprint, self.agreement.identities
        if self.fingerprint is None:
            with self._store.transaction():
                self._store.set_note("fingerprint", fingerprint)
                self._store.set_note(IDENTITIES, {name: key.hex() for name, key in sorted(identities.items())})
        return self._confirmed(fingerprint, identities)

    def _send(self, record: bytes, receiver: str = SERVER) -> None:
        self._store.put(SERVER, record)
        insert = "INSERT INTO log (at, kind, receiver, bytes) VALUES (?, ?, ?, ?)"
        self._store.rows(insert, time.time(), tag_of(record), receiver, len(record))

    def seal(self, other: str, kind: Kind, text: bytes) -> int:
        """Seal a body and send it to another party, inside a transaction.

        Args:
            other: Name of the receiver.
            kind: Kind of the body.
            text: The body.

        Returns:
            Number of the envelope.
        """
        envelope = self._channels[other].seal(kind, text)
        self._note_counters()
        self._send(enclose(envelope.to_bytes()), other)
        return envelope.number

    def _attend(self) -> bool:
        """Begin pending searches and deliver results; return whether there is something to send."""
        if self._desk is None or not self._is_finished:
            return False
        begun, sent = set(self.searches.open), False
        for request in self._desk.wanted():
            if request.name in begun:
                continue
            try:
                with self._store.transaction():
                    self.searches.begin(request.name, request.query, request.top, time.time() + request.patience)
                sent = True
            except BadInput as error:
                if error.code in TEMPORARY:
                    raise
                self._desk.hand_out(request.name, {"error": error.code, "sentence": str(error)})
        for name, result in self.searches.results(time.time()):
            self._desk.hand_out(name, result.to_table())
            with self._store.transaction():
                self.searches.finish(name)
        return sent

    # ------------------------------------------------------------ sums

    def _send_statistics(self) -> None:
        """Send the term statistics under one mask with each other party; masks cancel in the sum over all."""
        keys, occasion = self.agreement.keys, Occasion(self.terms.digest, 0)
        hashing, epsilon = self._secrets.statistics_hashing(keys), self.terms.statistics_epsilon
        total = party_vector(self.holding, hashing, epsilon, self._secrets.statistics_noise)
        for other in self.agreement.others:
            key = derive(keys.pairs[other], "statistics masks")
            total = total + pair_mask(occasion, key, self._number, self.terms.number(other), len(total))
        with self._store.transaction():
            self._send(encode(Record.STATISTICS, total.astype("<u4")))
            self._store.set_note("place", COUNTED)

    def _send_part(self, record: bytes) -> None:
        """Send the masked part of a requested sum.

        A party takes part in each sum once: only a later sum than the last one, or the same one among fewer parties, is
        answered. A sum without this party or over fewer than two would show one party's part.
        """
        self._check_training("the coordinator requests a sum outside the training")
        head, raw = decode_sum(record)
        parties, number = self.terms.parties, self._number
        hidden = number in head.among and len(head.among) > 1 and head.among[-1] < len(parties)
        said = "the coordinator requests a sum that would show one party's own part"
        require(hidden, "silo-message.not-agreed", said)
        check_agreed(head.number < self.terms.setting.training.most_sums(len(parties)))
        left = len(parties) - len(head.among)
        place = [head.number, left]
        is_new = place > self._store.note("last sum", default=[])
        require(is_new, "silo-message.turn", "the coordinator requests a sum that is complete")
        total = self.sums(SumRequest(head.judging, head.asked, finite_doubles(raw)))
        # each sum has its own masks: the difference of two parts under the same ones would be that of their contents
        occasion = Occasion(self.terms.digest, 1 + (2 * head.number + head.judging) * len(parties) + left)
        for other in head.among:
            if other != number:
                key = derive(self.agreement.keys.pairs[parties[other]], "training masks")
                total = total + wide_pair_mask(occasion, key, number, other, len(total))
        self._store.set_note("last sum", place)
        head = SumHead(head.number, head.among, head.judging)
        self._send(encode(Record.PART, total.astype("<u8"), head=head))

    # ------------------------------------------------------------ received records

    def _handle(self, record: bytes) -> None:
        kind = kind_of(record)
        if kind is Record.ENVELOPE:
            self._open(record[1:])
        elif kind is Record.TOTAL:
            self._keep_statistics(record)
        elif kind is Record.ASK_SUM:
            self._send_part(record)
        elif kind is Record.RANKER:
            self._finish(record)
        else:
            raise BadInput("silo-message.kind", "the coordinator sent a record of a party")

    def _check_training(self, said: str) -> None:
        due = self._place == COUNTED and self._store.note("has statistics", default=False)
        require(due, "silo-message.phase", said)

    def _keep_statistics(self, record: bytes) -> None:
        is_new = self._place == COUNTED and not self._store.note("has statistics", default=False)
        require(is_new, "silo-message.repeated", "the coordinator sends statistics before or after their time")
        total = decode_array(record, 4 * VECTOR_LENGTH)
        self._store.set_note("has statistics", True)
        if self.terms.search is not None:
            self._store.set_fact("sum", total)

    def _open(self, raw: bytes) -> None:
        envelope = Envelope.from_bytes(raw)
        if envelope.kind in (Kind.HELLO, Kind.CONTRIBUTION):
            contributions = self.agreement.receive(envelope)
            self._store.set_fact("agreement", frames.pack([*self._received(), raw]))
            for each in contributions:
                self._send(enclose(each.to_bytes()), each.receiver)
            return
        sender = envelope.sender
        said = f"an envelope for {envelope.receiver} was delivered to {self.name}"
        require(envelope.receiver == self.name, "silo-message.misdirected", said)
        require(
            sender in self.agreement.others, "silo-group.unknown-party", f"{sender} is not another party of this group"
        )
        text = self._channels[sender].open(envelope)
        self._note_counters()
        said = f"{sender} searches before the training is over, or in a group that does not search"
        require(self.terms.search is not None and self._place == FINISHED, "silo-message.phase", said)
        try:
            if envelope.kind is Kind.SEARCH:
                self.searches.answer(sender, envelope.number, text)
            elif envelope.kind is Kind.FOUND:
                self.searches.receive_answer(sender, text)
            elif envelope.kind is Kind.DESCRIPTION:
                self.searches.receive_description(sender, text)
            else:
                self.searches.receive_refusal(sender, Refuse.from_bytes(text, sender))
        except BadInput as error:  # one member's mistake ends nobody's searches
            if error.code in TEMPORARY:
                raise
            logging.getLogger(__name__).warning("a message of a search was dropped: %s", error.code)

    def _finish(self, record: bytes) -> None:
        """Store the final ranker, and its metrics on this party's test lists, which stay with the party."""
        self._check_training("the coordinator distributes a ranker outside the training")
        ranker, w0 = self.terms.setting.training.ranker_part, self.terms.setting.searched.prior_direction()
        theta = finite_doubles(decode_array(record, 8 * ranker.size(len(w0))))
        ranker.check_size(theta, len(w0))
        test, figures = self.lists[1], Figures()
        if test.n_lists:
            (figures,) = test.figures([theta], ranker)
            prior, search = test.figures([w0, np.zeros(len(w0))])
            figures |= {"prior": prior["ndcg@10"], "bm25": search["ndcg@10"]}
        self._store.set_fact("ranker", theta.astype("<f8").tobytes())
        self._store.set_note("figures", figures | {"test_lists": test.n_lists})
        self._send(encode(Record.KEPT))
        self._store.set_note("place", FINISHED)
        if self.terms.search is None:  # searches continue in the same session
            for name in ("agreement", SECRETS, COUNTERS):
                self._store.drop_fact(name)


def sent_log(folder: Path) -> list[dict[str, Any]]:
    """Return everything that the party of a folder has sent, also while another process runs the party.

    Args:
        folder: Private folder of the party.

    Returns:
        One table for each record, in order: `at` (seconds since 1970), `kind`, `receiver`, `bytes` and `tells` (its
        meaning); empty where the party was never started.

    Raises:
        BadInput: `file.unreadable` for a damaged file.
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
        {"at": at, "kind": kind.lower(), "receiver": receiver, "bytes": size, "tells": MEANINGS[kind]}
        for at, kind, receiver, size in rows
    ]
