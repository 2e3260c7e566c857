"""Transports between a coordinator and its nodes, and the mailboxes of a service as one of them.

Messages may be lost, delayed, duplicated or reordered: the driver sends them again, and the coordinator checks the answers.
No call waits for the network.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quorank.protocol import frames
from quorank.protocol.keys import MemberKey, signed_letter

FAILED = "the node could not answer"
BUSY = "the node has nothing to send yet"


class Failure(NamedTuple):
    """Failed answer with one of this module's fixed reasons, so nothing private can leak through it."""

    reason: str


class Arrival(NamedTuple):
    """Answer of a node."""

    id: str  # of the message that it answers
    node: str
    content: bytes | Failure


class Transport(Protocol):
    """The coordinator's side of an engine."""

    def nodes(self) -> Sequence[str]:
        """Stable names of the nodes that are online, in any order."""

    def push(self, messages: Sequence[tuple[str, bytes]]) -> list[str]:
        """Send messages (node, content); return their ids."""

    def pull(self) -> list[Arrival]:
        """Return the answers since the last call."""

    def forget(self, messages: Sequence[str]) -> None:
        """Cancel messages; their answers may still arrive."""


# ---------------------------------------------------------------- mailboxes of a service


class Message(NamedTuple):
    """Stored letter to a member, or a member's reply or answer; an answer has the number of its letter."""

    id: int
    member: int
    content: bytes


class Mailboxes(Protocol):
    """Mailboxes of all members, for the one process that may write to them; accepted letters survive a kill."""

    def send(self, letters: Sequence[tuple[int, bytes]]) -> list[int]:
        """Deliver letters (member, content) and return their numbers."""

    def answers(self) -> list[Message]:
        """Return the answers since the last call; the first call returns all that are stored."""

    def unanswered(self) -> list[tuple[int, int]]:
        """Return (letter, member) of all unanswered letters, including those of an earlier process."""

    def forget(self, letters: Sequence[int] | None) -> None:
        """Delete letters with their answers; None: all."""


@dataclass(frozen=True)
class MemberNodes:
    """Node names of members: each client is one member, by its number. Simulated members can restart a secure round."""

    simulated: bool = False

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        return str(client) if str(client) in present else None


@dataclass(frozen=True)
class SignedMailboxes:
    """Mailboxes whose letters the service signs, each for its member; a proxy in between can only drop them."""

    mailboxes: Mailboxes
    key: MemberKey

    def send(self, letters: Sequence[tuple[int, bytes]]) -> list[int]:
        return self.mailboxes.send([(member, signed_letter(self.key, member, content)) for member, content in letters])

    def answers(self) -> list[Message]:
        return self.mailboxes.answers()

    def unanswered(self) -> list[tuple[int, int]]:
        return self.mailboxes.unanswered()

    def forget(self, letters: Sequence[int] | None) -> None:
        self.mailboxes.forget(letters)


@dataclass(frozen=True)
class MailTransport:
    """Transport whose messages are letters to the admitted members, under the letters' numbers.

    A letter stays until its member answers it or it is cancelled, so nothing is lost and nothing is sent twice.
    """

    mailboxes: Mailboxes
    admitted: Callable[[], Collection[int]]  # numbers of the members that may take part now
    bundled: bool = False  # answers are bundles already

    def nodes(self) -> Sequence[str]:
        return [str(number) for number in self.admitted()]

    def push(self, messages: Sequence[tuple[str, bytes]]) -> list[str]:
        letters = self.mailboxes.send([(int(node), content) for node, content in messages])
        return [str(letter) for letter in letters]

    def pull(self) -> list[Arrival]:
        answers = self.mailboxes.answers()
        self.forget([str(answer.id) for answer in answers])
        return [Arrival(str(answer.id), str(answer.member), self._content(answer.content)) for answer in answers]

    def _content(self, answer: bytes) -> bytes | Failure:
        if not answer:  # the member has nothing to send, or has left the exchange
            return Failure(BUSY)
        return answer if self.bundled else frames.pack([answer])

    def forget(self, messages: Sequence[str]) -> None:
        if messages:
            self.mailboxes.forget([int(message) for message in messages])
