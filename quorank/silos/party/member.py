"""A party's reaction to each record of its coordinator, and what it sends by itself.

What it asks, answers and agrees on is a `Party` of the protocol, as in one process; here it gets a memory that survives.

Everything that a party says follows from what it keeps: its secrets, drawn once, the records that came, and its
documents. Records come in order, and each is dealt with in one transaction together with what it calls for. So a party
that was killed goes on where it was, in the same agreement and with the same keys, and the others do not notice.

The ledger of budgets is a file of its own: before anything is charged it is noted how many charges there were, and work
that was cut off and begins again charges nothing twice (`BudgetLedger.begin_again`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Uint64s
from quorank.privacy.secure_sum.masks import Occasion, pair_mask, wide_pair_mask
from quorank.protocol import frames
from quorank.silos.learning.exchange import build_sketches, make_obfuscation
from quorank.silos.learning.holdings import FIELDS, Holding
from quorank.silos.learning.shared_statistics import COLUMNS, ROWS, party_vector
from quorank.silos.party.answers import ReceivedAnswers
from quorank.silos.party.channels import SealedChannels
from quorank.silos.party.searching import PartySearches
from quorank.silos.party.secrets import Secrets
from quorank.silos.party.training import PartyTraining
from quorank.silos.protocol.budget import Budget
from quorank.silos.protocol.keys import Entropy, PartyIdentity, derive
from quorank.silos.protocol.messages import Envelope, Kind, Refuse
from quorank.silos.protocol.owner import ServedTopK
from quorank.silos.protocol.party import Party
from quorank.silos.protocol.records import Record, enclosed, kind_of, tag_of, written
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.reverse_top_k import ReverseTopK

SERVER = "the coordinator"
LEDGER = "ledger.json"
UNWRITTEN = ("file.busy", "file.unwritable")
"""Codes of what passes: the same message is taken later."""
SEARCHING = (Kind.SEARCH, Kind.FOUND, Kind.DESCRIPTION)
NEW, GREETED, COUNTED, ASKED, LEARNING, FINISHED = range(6)
"""How far a party is: it has said hello, sent its tables, described its documents and asked, told what it learns from."""


class SiloMember:
    """One party at work. It is thrown away when a transaction fails, and made anew from what is kept."""

    def __init__(
        self,
        store: SiloStore,
        folder: Path,
        name: str,
        terms: SiloTerms,
        holding: Holding,
        identity: PartyIdentity,
        *,
        pins: Mapping[str, bytes] | None = None,
        entropy: Entropy,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.folder, self.name, self.terms, self.holding = store, folder, name, terms, holding
        self.number, self.group, self._clock = terms.number(name), terms.group(), clock
        self.secrets = Secrets(store, terms, name, entropy)
        self.place: int = store.note("place", NEW)
        self.party = Party(
            identity,
            self.group,
            pins=pins,
            hashing_key=self.secrets.hashing_key,
            obfuscation=make_obfuscation(holding, terms.protocol, self.secrets.obfuscation_key),
            perturbation=terms.protocol.noise(),
            budget=Budget(terms.protocol.questions),
            ledger=folder / LEDGER,
            noise=self.secrets.of_answers(),
            entropy=self.secrets.session(),
        )
        self.session, self.owner, self.ledger = self.party.session, self.party.owner, self.party.ledger
        self.received = ReceivedAnswers(store, terms, self.number, holding, self.party.asker, self.secrets.draws)
        self.party.memory = self.received
        for raw in frames.unpack(store.fact("agreement") or frames.pack([])):
            self.session.receive(Envelope.from_bytes(raw))
        self._channels = SealedChannels(store, self.session)
        self._served: set[str] = set()

    # ------------------------------------------------------------ one step after the other

    def step(self) -> bool:
        """Do the next thing there is to do; False where there is nothing."""
        if self.place == NEW:
            with self.store.transaction():
                for hello in self.session.hello():
                    self._send(enclosed(hello.to_bytes()), hello.receiver)
                self._move(GREETED)
        elif self.place == GREETED and self.session.is_agreed:
            self._count()
        elif self.place == COUNTED and self.terms.asks and len(self._served) < len(FIELDS):
            self._serve()
        elif self.place == COUNTED and self.received.is_told:
            self._describe_and_ask()
        elif self.place == ASKED and self.received.is_complete:
            rows = self.training.rows()
            with self.store.transaction():
                self._send(rows, SERVER)
                self._move(LEARNING)
        else:
            record = self.store.next(SERVER)
            if record is None:
                return False
            self._handle(record)
        return True

    def progress(self) -> str:
        """Where this party stands, in a sentence."""
        words = {
            NEW: "it begins",
            GREETED: "it waits until the keys are agreed",
            COUNTED: "it waits for the sum of the statistics",
            ASKED: self._asking() if self.session.is_agreed else "",
            LEARNING: "the ranker is being trained",
            FINISHED: "the ranker is there" + ("; it answers searches" if self.terms.search is not None else ""),
        }
        return f"{self.name}: {words[self.place]}"

    def _asking(self) -> str:
        return f"it asks and answers; {self.received.state()}" if self.terms.asks else "it makes its lists"

    def _move(self, place: int) -> None:
        self.store.set_note("place", place)
        self.place = place

    def _send(self, record: bytes, receiver: str) -> None:
        self.store.put(SERVER, record)
        self.store.rows(
            "INSERT INTO log (at, kind, receiver, bytes) VALUES (?, ?, ?, ?)",
            self._clock(),
            tag_of(record),
            receiver,
            len(record),
        )

    def _seal(self, other: str, kind: Kind, text: bytes) -> None:
        self._send(enclosed(self._channels.seal(other, kind, text).to_bytes()), other)

    # ------------------------------------------------------------ statistics, sketches, questions

    @cached_property
    def training(self) -> PartyTraining:
        """What it learns from; when it has heard everything."""
        return self.received.training(self._statistics_hashing(), self._masks)

    def _masks(self, number: int, others: Sequence[int], length: int) -> Uint64s:
        """The masks of this party with some others in a sum of the training, added up."""
        total, occasion = np.zeros(length, dtype=np.uint64), Occasion(self.terms.digest(), number)
        for other in others:
            key = derive(self.session.keys.pairs[self.terms.parties[other]], "training masks")
            total += wide_pair_mask(occasion, key, self.number, other, length)
        return total

    def _statistics_hashing(self) -> Hashing:
        return Hashing(self.secrets.statistics_key(self.session.keys.hashing_key), ROWS, COLUMNS)

    def _count(self) -> None:
        """The tables of statistics under one mask with each other party, which cancel in the sum over all."""
        keys, occasion = self.session.keys, Occasion(self.terms.digest(), 0)
        epsilon = self.terms.protocol.statistics_epsilon
        total = party_vector(self.holding, self._statistics_hashing(), epsilon, self.secrets.of_statistics)
        for other in self.group.others(self.name):
            mask_key = derive(keys.pairs[other], "statistics masks")
            total = total + pair_mask(occasion, mask_key, self.number, self.terms.number(other), len(total))
        record = written(Record.MASKED, {"asks": len(self.received.batches)}, total.astype("<u4"))
        with self.store.transaction():
            self.store.set_note("fingerprint", keys.fingerprint)
            self._send(record, SERVER)
            self._move(COUNTED)

    def _serve(self) -> None:
        """Sketches from their files, or built and kept there."""
        noise = self.terms.protocol.noise()
        for name in FIELDS:
            if name in self._served:
                continue
            path, hashing = self.folder / f"{name}.sketch", self.session.hashing(name)
            streams, index = self.secrets.of_sketches(name), getattr(self.holding.documents, name)
            try:
                structure = ReverseTopK.load(path, hashing)
            except BadInput:  # not there, damaged, or of another run: it is built to the same bits
                served = build_sketches(hashing, name, index, self.terms.protocol, streams)
                served.structure.save(path)
            else:
                served = ServedTopK(structure, noise)
            self.party.serve(name, served)
            self._served.add(name)

    def _begin_charging(self, work: str) -> None:
        """Note where the ledger stands before work that charges it; or take up such work that was cut off."""
        kept = self.store.note("charging")
        if kept is not None and kept[0] == work:
            self.ledger.begin_again(kept[1])
            return
        self.ledger.begin_again(self.ledger.charges)
        with self.store.transaction():
            self.store.set_note("charging", [work, self.ledger.charges])

    def _describe_and_ask(self) -> None:
        self._begin_charging("catalogues")
        others = self.group.others(self.name)
        with self.store.transaction():
            for name in FIELDS if self.terms.asks else ():
                lengths = getattr(self.holding.documents, name).lengths
                held = np.flatnonzero(lengths > 0)
                text = self.owner.catalogue(name, held.tolist(), lengths[held].tolist(), others)
                for other in others:
                    self._seal(other, Kind.CATALOGUE, text)
            for batch in range(len(self.received.batches)):
                text = self.received.question(batch).to_bytes()
                for other in others:
                    self._seal(other, Kind.ASK, text)
            self._move(ASKED)

    # ------------------------------------------------------------ what comes

    def _handle(self, record: bytes) -> None:
        kind = kind_of(record)
        if kind is Record.ENVELOPE:
            envelope = Envelope.from_bytes(record[1:])
            if envelope.kind is Kind.ASK and self.terms.asks:
                self._serve()
                self._begin_charging(f"record {self.store.place(SERVER)}")
        with self.store.transaction():
            if kind is Record.ENVELOPE:
                self._take(envelope, record[1:])
            elif kind is Record.SUM:
                self.received.take_sum(record)
            elif kind is Record.LEARN:
                require(self.place == LEARNING, "silo-message.phase", "the coordinator asks to learn before its time")
                learned, last = self.training.learn(record, self.store.note("learned", [0, -1]))
                self.store.set_note("learned", last)
                self._send(learned, SERVER)
            elif kind is Record.JUDGE:
                sentence = "the coordinator asks to judge rankers at another time than agreed"
                require(self.place == LEARNING, "silo-message.phase", sentence)
                judged, place = self.training.judge(record, self.store.note("judged", []))
                self.store.set_note("judged", place)
                self._send(judged, SERVER)
            elif kind is Record.RANKER:
                require(
                    self.place == LEARNING, "silo-message.phase", "the coordinator hands out a ranker before its time"
                )
                self._end(record)
            else:
                raise BadInput("silo-message.kind", "the coordinator sent what only a party sends")
            self.store.finish(SERVER)

    def _take(self, envelope: Envelope, raw: bytes) -> None:
        sender, kind = envelope.sender, envelope.kind
        sentence = f"an envelope for {envelope.receiver} came to {self.name}"
        require(envelope.receiver == self.name, "silo-message.receiver", sentence)
        require(
            sender in self.group.others(self.name), "silo-message.sender", f"{sender} is no other party of this group"
        )
        if kind in (Kind.HELLO, Kind.CONTRIBUTION):
            out, _ = self.session.receive(envelope)
            require(not self.session.dropped, "silo-message.dropped", (self.session.dropped or [""])[-1])
            kept = frames.unpack(self.store.fact("agreement") or frames.pack([]))
            self.store.set_fact("agreement", frames.pack([*kept, raw]))
            for each in out:
                self._send(enclosed(each.to_bytes()), each.receiver)
            return
        text = self._channels.open(envelope)
        if self.place == FINISHED or kind in SEARCHING:
            self._take_search(sender, kind, envelope.number, text)
            return
        reply = self.party.react(envelope, text)
        if reply is not None:
            self._seal(sender, *reply)

    def _take_search(self, sender: str, kind: Kind, number: int, text: bytes) -> None:
        sentence = f"{sender} searches where the group has not agreed on it, or before its time"
        sound = self.terms.search is not None and self.place == FINISHED and kind in (*SEARCHING, Kind.REFUSE)
        require(sound, "silo-message.phase", sentence)
        try:
            if kind is Kind.SEARCH:
                self.searches.answer(sender, number, text)
            elif kind is Kind.FOUND:
                self.searches.receive_answer(sender, text)
            elif kind is Kind.DESCRIPTION:
                self.searches.receive_description(sender, text)
            else:
                self.searches.receive_refusal(sender, Refuse.from_bytes(text, sender))
        except BadInput as error:  # one member's mistake ends nobody's searches
            if error.code in UNWRITTEN:
                raise
            logging.getLogger(__name__).warning("a message of a search was dropped: %s", error.code)

    def _end(self, record: bytes) -> None:
        theta = self.training.ranker(record)
        self.store.set_fact("ranker", theta.astype("<f8").tobytes())
        self.store.set_note("figures", self.training.figures(theta))
        self._send(written(Record.KEPT), SERVER)
        self._move(FINISHED)
        self.received.forget()
        self.store.drop_fact("charging")
        if self.terms.search is None:  # searches go on in the same session
            self.store.drop_fact("agreement")
            SealedChannels.forget(self.store)
            Secrets.forget(self.store)

    # ------------------------------------------------------------ searches

    @cached_property
    def searches(self) -> PartySearches:
        """Searches of this party and of the others; once the ranker is there."""

        def seal(other: str, kind: Kind, text: bytes) -> int:
            envelope = self._channels.seal(other, kind, text)
            self._send(enclosed(envelope.to_bytes()), other)
            return envelope.number

        return PartySearches(
            self.store,
            self.folder,
            self.name,
            self.terms,
            self.holding,
            self.secrets,
            self.session.keys.hashing_key,
            self._statistics_hashing(),
            seal,
        )

    def search(self, name: str, query: str, top: int, until: float) -> None:
        """Begin a search over the documents of all others; `searches.results` has what came of it."""
        sentence = "the group has no ranker yet; search when the session is done"
        require(self.place == FINISHED, "silo-search.too-early", sentence)
        with self.store.transaction():
            self.searches.begin(name, query, top, until)

    def close(self) -> None:
        """Let go of what searches hold open."""
        if "searches" in self.__dict__:
            self.searches.close()
