"""A party's side of a session: its reaction to each record of the coordinator, without any network.

Everything that a party sends follows from what it has stored (secrets drawn once, received records) and from its
documents. Records are handled in order, each in one transaction together with the records that it causes. A party that
was killed therefore continues where it was, with the same keys, and the others do not notice. Its part of each sum of the
training leaves under masks that cancel in the sum over all parties.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles, Uint64s
from quorank.member.party_keys import SealedChannels, Secrets, forget_session
from quorank.member.party_searches import PartySearches
from quorank.privacy.secure_sum.masks import Occasion, pair_mask, wide_pair_mask
from quorank.protocol import frames
from quorank.silos.envelopes import Envelope, Kind, Refuse
from quorank.silos.holdings import Holding
from quorank.silos.session.agreement import Agreement, Entropy, PartyIdentity, derive
from quorank.silos.session.records import (
    Record,
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
from quorank.silos.training.sums import SumRequest, check_agreed

Masks = Callable[[int, Sequence[int], int], Uint64s]
"""Sum of a party's masks with some others, by the number of the sum, these others and its length."""


class PartySums:
    """Training side of one party: its part of each sum over its lists."""

    def __init__(self, terms: SiloTerms, number: int, lists: tuple[SearchedLists, SearchedLists], masks: Masks) -> None:
        own, self.test = lists  # of the training and of the test
        self._parties, self._number, self._masks = len(terms.parties), number, masks
        training, self._w0 = terms.setting.training, terms.setting.searched.prior_direction()
        self._most, self._ranker = training.most_sums(self._parties), training.ranker_part
        self._answers = training.answers(own, self._w0)

    def part(self, record: bytes, last: Sequence[int]) -> tuple[bytes, list[int]]:
        """Return the masked part of a requested sum, and the number and leavers of that sum.

        A party takes part in each sum once: `last` is what an earlier call returned, and only a later sum, or the same one
        among fewer parties, is answered. A sum without this party or over fewer than two would show one party's part.
        """
        head, raw = decode_sum(record)
        said = "the coordinator requests a sum that would show one party's own part"
        alone = self._number not in head.among or len(head.among) < 2 or head.among[-1] >= self._parties
        require(not alone, "silo-message.not-agreed", said)
        check_agreed(head.number < self._most)
        left = self._parties - len(head.among)
        place = [head.number, left]
        require(place > list(last), "silo-message.turn", "the coordinator requests a sum that is complete")
        sums = self._answers(SumRequest(head.judging, head.asked, finite_doubles(raw)))
        # every sum has masks of its own: under the same ones two parts would show their difference
        occasion = 1 + (2 * head.number + head.judging) * self._parties + left
        masks = self._masks(occasion, [other for other in head.among if other != self._number], len(sums))
        answer = SumHead(head.number, head.among, head.judging)
        return encode(Record.PART, (sums + masks).astype("<u8"), head=answer), place

    def ranker(self, record: bytes) -> Doubles:
        """Return the final parameters."""
        found = finite_doubles(decode_array(record, 8 * self._ranker.size(len(self._w0))))
        self._ranker.check_size(found, len(self._w0))
        return found

    def figures(self, theta: Doubles) -> Figures:
        """Evaluate the ranker, the prior and the party's own search on its test lists; the results stay with the party."""
        if not self.test.n_lists:
            return {"test_lists": 0}
        (ranked,) = self.test.figures([theta], self._ranker)
        prior, search = self.test.figures([self._w0, np.zeros(len(self._w0))])
        return ranked | {"prior": prior["ndcg@10"], "bm25": search["ndcg@10"], "test_lists": self.test.n_lists}


SERVER = "the coordinator"
TEMPORARY = ("file.busy", "file.unwritable")
"""Error codes after which the same message is handled later."""
NEW, GREETED, COUNTED, FINISHED = range(4)
"""Progress of a party: nothing sent, hello sent, statistics sent, ranker stored."""
PROGRESS = ("starting", "agreeing on keys", "training", "has the ranker")


class PartyRun:
    """Running party; discarded when a transaction fails, and created again from what is stored."""

    def __init__(
        self,
        store: SiloStore,
        folder: Path,
        terms: SiloTerms,
        holding: Holding,
        identity: PartyIdentity,
        *,
        pins: Mapping[str, bytes] | None = None,
        entropy: Entropy,
    ) -> None:
        self.store, self.folder, self.name, self.terms, self.holding = store, folder, identity.name, terms, holding
        self.number = terms.number(self.name)
        self.secrets = Secrets(store, terms, self.name, entropy)
        self.place: int = store.note("place", NEW)
        self.agreement = Agreement(identity, terms.parties, terms.settings, pins, self.secrets.session())
        for raw in frames.unpack(store.fact("agreement") or frames.pack([])):
            self.agreement.receive(Envelope.from_bytes(raw))

    @cached_property
    def _channels(self) -> SealedChannels:
        return SealedChannels(self.store, self.name, self.agreement.keys)

    # ------------------------------------------------------------ steps

    def step(self) -> bool:
        """Take the next step; return False after the last one."""
        if self.place == NEW:
            with self.store.transaction():
                for hello in self.agreement.hellos():
                    self._send(enclose(hello.to_bytes()), hello.receiver)
                self._move(GREETED)
        elif self.place == GREETED and self.agreement.is_complete:
            self._send_statistics()
        else:
            record = self.store.next(SERVER)
            if record is None:
                return False
            with self.store.transaction():
                self._handle(record)
                self.store.finish(SERVER)
        return True

    def _move(self, place: int) -> None:
        self.store.set_note("place", place)
        self.place = place

    def _send(self, record: bytes, receiver: str = SERVER) -> None:
        self.store.put(SERVER, record)
        insert = "INSERT INTO log (at, kind, receiver, bytes) VALUES (?, ?, ?, ?)"
        self.store.rows(insert, time.time(), tag_of(record), receiver, len(record))

    # ------------------------------------------------------------ sums

    def _send_statistics(self) -> None:
        """Send the term statistics under one mask with each other party; masks cancel in the sum over all."""
        keys, occasion = self.agreement.keys, Occasion(self.terms.digest, 0)
        hashing, epsilon = self.secrets.statistics_hashing(keys), self.terms.statistics_epsilon
        total = party_vector(self.holding, hashing, epsilon, self.secrets.statistics_noise)
        for other in self.agreement.others:
            key = derive(keys.pairs[other], "statistics masks")
            total = total + pair_mask(occasion, key, self.number, self.terms.number(other), len(total))
        with self.store.transaction():
            self.store.set_note("fingerprint", keys.fingerprint)
            self._send(encode(Record.STATISTICS, total.astype("<u4")))
            self._move(COUNTED)

    def _masks(self, number: int, others: Sequence[int], length: int) -> Uint64s:
        """Return the sum of this party's masks with some others in a sum of the training."""
        total, occasion = np.zeros(length, dtype=np.uint64), Occasion(self.terms.digest, number)
        for other in others:
            key = derive(self.agreement.keys.pairs[self.terms.parties[other]], "training masks")
            total += wide_pair_mask(occasion, key, self.number, other, length)
        return total

    @cached_property
    def training(self) -> PartySums:
        """This party's side of the training."""
        lists = self.terms.setting.lists(self.holding, self.secrets.draws, self.number)
        return PartySums(self.terms, self.number, lists, self._masks)

    # ------------------------------------------------------------ received records

    def _handle(self, record: bytes) -> None:
        kind = kind_of(record)
        if kind is Record.ENVELOPE:
            self._open(record[1:])
        elif kind is Record.TOTAL:
            self._keep_statistics(record)
        elif kind is Record.ASK_SUM:
            self._check_training("the coordinator requests a sum outside the training")
            part, last = self.training.part(record, self.store.note("last sum", []))
            self.store.set_note("last sum", last)
            self._send(part)
        elif kind is Record.RANKER:
            self._check_training("the coordinator distributes a ranker outside the training")
            self._finish(record)
        else:
            raise BadInput("silo-message.kind", "the coordinator sent a record of a party")

    def _check_training(self, said: str) -> None:
        due = self.place == COUNTED and self.store.note("has statistics", False)
        require(due, "silo-message.phase", said)

    def _keep_statistics(self, record: bytes) -> None:
        is_new = self.place == COUNTED and not self.store.note("has statistics", False)
        require(is_new, "silo-message.repeated", "the coordinator sends statistics before or after their time")
        total = decode_array(record, 4 * VECTOR_LENGTH)
        self.store.set_note("has statistics", True)
        if self.terms.search is not None:
            self.store.set_fact("sum", total)

    def _open(self, raw: bytes) -> None:
        envelope = Envelope.from_bytes(raw)
        if envelope.kind in (Kind.HELLO, Kind.CONTRIBUTION):
            contributions = self.agreement.receive(envelope)
            kept = frames.unpack(self.store.fact("agreement") or frames.pack([]))
            self.store.set_fact("agreement", frames.pack([*kept, raw]))
            for each in contributions:
                self._send(enclose(each.to_bytes()), each.receiver)
            return
        sender = envelope.sender
        said = f"an envelope for {envelope.receiver} was delivered to {self.name}"
        require(envelope.receiver == self.name, "silo-message.misdirected", said)
        require(
            sender in self.agreement.others, "silo-group.unknown-party", f"{sender} is not another party of this group"
        )
        text = self._channels.open(envelope)
        said = f"{sender} searches before the training is over, or in a group that does not search"
        require(self.terms.search is not None and self.place == FINISHED, "silo-message.phase", said)
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
        theta = self.training.ranker(record)
        self.store.set_fact("ranker", theta.astype("<f8").tobytes())
        self.store.set_note("figures", self.training.figures(theta))
        self._send(encode(Record.KEPT))
        self._move(FINISHED)
        if self.terms.search is None:  # searches continue in the same session
            self.store.drop_fact("agreement")
            forget_session(self.store)

    # ------------------------------------------------------------ searches

    @cached_property
    def searches(self) -> PartySearches:
        """Searches of this party and of the others."""
        return PartySearches(self.store, self.folder, self.holding, self.secrets, self.agreement.keys, self._seal)

    def _seal(self, other: str, kind: Kind, text: bytes) -> int:
        envelope = self._channels.seal(other, kind, text)
        self._send(enclose(envelope.to_bytes()), other)
        return envelope.number

    def search(self, name: str, query: str, top: int, until: float) -> None:
        """Begin a search over the documents of all others; `searches.results` returns its result."""
        said = "the group has no ranker yet; search when the session is done"
        require(self.place == FINISHED, "silo-search.too-early", said)
        with self.store.transaction():
            self.searches.begin(name, query, top, until)

    def close(self) -> None:
        """Close the ledger of searches."""
        if "searches" in self.__dict__:
            self.searches.close()
