"""Transports between a coordinator and its nodes, and the mailboxes of a service as one of them.

A transport promises as little as a network does: messages may be lost, delayed, duplicated or reordered. Its driver sends
again and lets the coordinator judge the answers. No call waits for the network.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from quorank.protocol import frames

FAILED = "the node could not answer"
BUSY = "the node has nothing to give yet"


class Failure(NamedTuple):
    """Failed answer with one of this module's fixed reasons, so nothing that the node knows can leak through it."""

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

    def push(self, node: str, content: bytes) -> str:
        """Send a message to a node; returns the message's id."""

    def pull(self) -> list[Arrival]:
        """Return the answers since the last call."""

    def forget(self, message: str) -> None:
        """Cancel a message; its answer may still arrive."""


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
    """Node names of members: each client is one member, by its number. `simulated` ones can begin a secure round again."""

    simulated: bool = False

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        return str(client) if str(client) in present else None


@dataclass(eq=False)
class MailTransport:
    """Transport whose messages are letters to the admitted members.

    Letters pushed or cancelled between two calls of `pull` are written in one transaction. A letter stays until its member
    answers it or it is cancelled, so nothing is lost and nothing is sent twice. `bundled`: answers are bundles already.
    """

    mailboxes: Mailboxes
    admitted: Callable[[], Collection[int]]  # numbers of the members that may take part now
    bundled: bool = False
    _count: int = field(default=0, init=False)
    _out: dict[str, tuple[int, bytes]] = field(default_factory=dict, init=False)  # not in the mailboxes yet
    _letters: dict[str, int] = field(default_factory=dict, init=False)  # message → number of the letter
    _messages: dict[int, str] = field(default_factory=dict, init=False)
    _done: list[int] = field(default_factory=list, init=False)  # to be deleted

    def nodes(self) -> Sequence[str]:
        return [str(number) for number in self.admitted()]

    def push(self, node: str, content: bytes) -> str:
        self._count += 1
        self._out[str(self._count)] = int(node), content
        return str(self._count)

    def forget(self, message: str) -> None:
        if self._out.pop(message, None) is None and message in self._letters:
            self._drop(message)

    def _drop(self, message: str) -> None:
        letter = self._letters.pop(message)
        del self._messages[letter]
        self._done.append(letter)

    def pull(self) -> list[Arrival]:
        self.flush()
        if not self._letters:
            return []
        arrivals = []
        for answer in self.mailboxes.answers():
            message = self._messages.get(answer.id)
            if message is None:
                continue
            self._drop(message)
            arrivals.append(Arrival(message, str(answer.member), self._content(answer.content)))
        return arrivals

    def _content(self, answer: bytes) -> bytes | Failure:
        if not answer:  # the member has nothing to send, or has left the exchange
            return Failure(BUSY)
        return answer if self.bundled else frames.pack([answer])

    def flush(self) -> None:
        """Write the pushed and the cancelled letters to the mailboxes."""
        if self._done:
            self.mailboxes.forget(self._done)
            self._done = []
        if self._out:
            out = list(self._out)
            letters = self.mailboxes.send([self._out[message] for message in out])
            self._out = {}
            self._letters |= dict(zip(out, letters, strict=True))
            self._messages |= dict(zip(letters, out, strict=True))

    def begin(self) -> None:
        """Cancel all letters of an earlier holder."""
        self.mailboxes.forget(None)
