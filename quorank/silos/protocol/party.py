"""Party of the cross-silo protocol, as a state machine without any network: envelopes in, envelopes out.

CS-F-LTR §IV-B, algorithms 1 and 2, between two parties with a server in the middle. A party says hello, contributes to
the group key, then serves its sketches and asks about terms. Whatever cannot come from the party that it names, or is no
message of this protocol, raises `BadInput` and changes nothing; a question that is sound but is not answered (a spent
budget, a field that is not served) is refused by an envelope, and the asker reads why.

Documents go by the owner's own numbers, the same for all askers. A number for each pair would not keep two askers from
comparing: in the same cell the same values stand, which name a document as well as its number does. Give numbers in an
order that says nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quorank.errors import BadInput, require
from quorank.silos.protocol.asker import Answered, Asker, NoObfuscation, Obfuscation, Question
from quorank.silos.protocol.budget import Budget, BudgetLedger
from quorank.silos.protocol.discrete_laplace import AddressedStream, SystemStream
from quorank.silos.protocol.group import Group
from quorank.silos.protocol.keys import Entropy, PartyIdentity
from quorank.silos.protocol.messages import Catalogue, Envelope, Kind, Refuse
from quorank.silos.protocol.owner import ByQuestion, Owner, Served, Streams
from quorank.silos.protocol.perturbation import Exact, Perturbation
from quorank.silos.protocol.session import Session
from quorank.silos.sketch.hashing import Hashing


class PartyMemory(Protocol):
    """Where a party keeps what others tell it: in memory in one process, on disk on a network (`silos.party.answers`)."""

    def question_number(self, asker: str, number: int) -> int:
        """The number of another party's question, which came in its envelope `number`: it addresses the answer's noise."""

    def take_answer(self, owner: str, text: bytes) -> None:
        """Keep an answer."""

    def take_refusal(self, owner: str, refuse: Refuse) -> None:
        """Keep that there is none."""

    def take_catalogue(self, owner: str, text: bytes) -> None:
        """Keep how many documents another party has, and how long they are."""


@dataclass
class _Pending:
    """A question that was sent, and what came back to it."""

    question: Question
    found: list[Answered] | None = None
    refused: str | None = None


class SessionMemory:
    """What others told in one session, in memory; questions go by the numbers of their envelopes."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.catalogues: dict[tuple[str, str], Catalogue] = {}  # (owner, field) → its documents
        self.asked: dict[tuple[str, int], _Pending] = {}

    def question_number(self, asker: str, number: int) -> int:
        return number

    def take_answer(self, owner: str, text: bytes) -> None:
        state = self._waiting(owner, int.from_bytes(text[:8], "little"))
        try:
            state.found = state.question.read(text, owner)
        except BadInput as error:
            state.refused = str(error)

    def take_refusal(self, owner: str, refuse: Refuse) -> None:
        self._waiting(owner, refuse.asked).refused = refuse.reason

    def take_catalogue(self, owner: str, text: bytes) -> None:
        catalogue = Catalogue.from_bytes(text, owner, self._group.fields)
        self.catalogues[owner, self._group.fields[catalogue.field].name] = catalogue

    def _waiting(self, owner: str, number: int) -> _Pending:
        state = self.asked.get((owner, number))
        if state is None or state.found is not None or state.refused is not None:
            said = f"{owner} answers a question {number} that nobody is waiting for; drop it"
            raise BadInput("silo-answer.unexpected", said)
        return state


class Party:
    """One party: it agrees on keys with its group, asks with an obfuscation, and answers with a perturbation and a budget.

    `pins` are the public keys that others are known by. `hashing_key` continues with the key of an earlier session, for
    sketches that were kept. With a `seed` the noise of answers is addressed, for simulation; else it is the system's, or
    what `noise` gives. What others tell is kept in `memory`.
    """

    def __init__(
        self,
        identity: PartyIdentity,
        group: Group,
        *,
        pins: Mapping[str, bytes] | None = None,
        hashing_key: bytes | None = None,
        obfuscation: Obfuscation | None = None,
        perturbation: Perturbation | None = None,
        budget: Budget | None = None,
        ledger: Path | str | None = None,
        seed: int | None = None,
        noise: tuple[Streams, ByQuestion | None] | None = None,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self.name, self.group = identity.name, group
        self.session = Session(identity, group, pins, hashing_key=hashing_key, entropy=entropy)
        self.asker = Asker(group, obfuscation or NoObfuscation(), self.hashing)
        book = BudgetLedger(identity.name, budget, ledger)
        streams, by_question = noise or (answer_noise(group, identity.name, seed), None)
        self.owner = Owner(group, perturbation or Exact(), book, streams, by_question)
        self._session_memory = SessionMemory(group)
        self.memory: PartyMemory = self._session_memory

    # ------------------------------------------------------------ key agreement

    def hello(self) -> list[Envelope]:
        """Return this party's hello, one for each other party."""
        return self.session.hello()

    @property
    def is_agreed(self) -> bool:
        """Keys are agreed: sketches can be built, served and asked."""
        return self.session.is_agreed

    @property
    def fingerprint(self) -> str:
        """Twelve digits, the same at all parties unless a server stands in between; to be compared by voice."""
        return self.session.keys.fingerprint

    @property
    def hashing_key(self) -> bytes:
        """Secret that the group hashes with, to be kept beside sketches; never for the server."""
        return self.session.keys.hashing_key

    def hashing(self, field: str = "body") -> Hashing:
        """Return the hash functions of a field: sketches that are served are built with them."""
        return self.session.hashing(field)

    # ------------------------------------------------------------ serving

    @property
    def ledger(self) -> BudgetLedger:
        """Ledger of what this party has answered, by asker."""
        return self.owner.ledger

    def serve(self, field: str, served: Served, build: str = "1") -> None:
        """Answer questions about a field from now on; `build` names sketches with noise, which are charged once each."""
        self.owner.serve(field, served, build, self.hashing(field).fingerprint())

    def describe(self, field: str, documents: Sequence[int], lengths: Sequence[int]) -> list[Envelope]:
        """Return a catalogue for every other party, once in a session: documents and lengths, perturbed as cells are."""
        others = tuple(self.session.keys.pairs)
        text = self.owner.catalogue(field, documents, lengths, others)
        return [self.session.seal(other, Kind.CATALOGUE, text) for other in others]

    # ------------------------------------------------------------ asking

    @property
    def catalogues(self) -> dict[tuple[str, str], Catalogue]:
        """(owner, field) → its documents, in memory."""
        return self._session_memory.catalogues

    def ask(self, terms: str | Sequence[str], other: str, field: str = "body") -> Envelope:
        """Return a question about one or many terms to one other party; `answers` reads what came back to it."""
        self.group.check_other(other, self.name)
        question = self.asker.question((terms,) if isinstance(terms, str) else terms, field)
        envelope = self.session.seal(other, Kind.ASK, question.to_bytes())
        self._session_memory.asked[other, envelope.number] = _Pending(question)
        return envelope

    def ask_many(self, terms: Sequence[str], other: str, field: str = "body") -> list[Envelope]:
        """Return questions about terms in as many envelopes as they need."""
        return [self.ask(batch, other, field) for batch in self.asker.batches(terms, field)]

    def answers(self, asked: Envelope) -> list[Answered] | None:
        """Return the answers to a question, one for each term, once; None as long as nothing came.

        A refusal is raised in the owner's words, and so is what is wrong with an answer that cannot be read.
        """
        key, pending = (asked.receiver, asked.number), self._session_memory.asked
        is_waiting = asked.sender == self.name and asked.kind is Kind.ASK and key in pending
        said = f"{self.name} is not waiting for an answer to envelope {asked.number} to {asked.receiver}"
        require(is_waiting, "silo-question.unknown", said)
        state = pending[key]
        if state.found is None and state.refused is None:
            return None
        del pending[key]
        if state.refused is not None:
            raise BadInput("silo-question.refused", f"{asked.receiver} gives no answer: {state.refused}")
        return state.found

    # ------------------------------------------------------------ receiving

    def receive(self, envelope: Envelope) -> list[Envelope]:
        """Accept an envelope, and return the envelopes that it calls for."""
        out, opened = self.session.receive(envelope)
        for each, text in opened:
            try:
                out += self._handle(each, text)
            except BadInput as error:
                if each is envelope:
                    raise
                self.session.drop(error)
        return out

    def _handle(self, envelope: Envelope, text: bytes) -> list[Envelope]:
        reply = self.react(envelope, text)
        return [] if reply is None else [self.session.seal(envelope.sender, *reply)]

    def react(self, envelope: Envelope, text: bytes) -> tuple[Kind, bytes] | None:
        """Deal with an envelope that opens as `text`: the kind and text of what is sealed in return, if anything is."""
        sender = envelope.sender
        if envelope.kind is Kind.ASK:
            return self.owner.answer(sender, self.memory.question_number(sender, envelope.number), text)
        if envelope.kind is Kind.ANSWER:
            self.memory.take_answer(sender, text)
        elif envelope.kind is Kind.REFUSE:
            self.memory.take_refusal(sender, Refuse.from_bytes(text, sender))
        else:
            self.memory.take_catalogue(sender, text)
        return None


def answer_noise(group: Group, owner: str, seed: int | None) -> Streams:
    """Return the source of an owner's noise: the system or, with a seed, addresses that ignore the order of questions."""
    if seed is None:
        system = SystemStream()
        return lambda asker, number: system
    place, client = group.parties.index, group.parties.index(owner)
    return lambda asker, number: AddressedStream(seed, round_=place(asker), client=client, interaction=number)
