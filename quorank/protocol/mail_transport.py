"""Mailboxes of a service as a transport: a message to a node is a letter to a member, fetched and answered by it.

What is sent and forgotten between two looks goes to the mailboxes in one transaction. A letter stays until its member has
answered it or it is forgotten, so nothing is lost and nothing has to be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from quorank.protocol import frames
from quorank.protocol.transport import BUSY, Arrival, Failure

Admitted = Callable[[], Collection[int]]
"""The numbers of all who may take part now."""


class MailAnswer(NamedTuple):
    """The answer to a letter."""

    letter: int
    member: int
    content: bytes


class Mailboxes(Protocol):
    """The mailboxes of all members, for the one process that may write to them; what it has taken survives a kill."""

    def send(self, letters: Sequence[tuple[int, bytes]]) -> list[int]:
        """Put letters (member, content) into the mailboxes; returns their numbers."""

    def answers(self) -> list[MailAnswer]:
        """Answers that came since the last call; the first call gets all that are kept."""

    def unanswered(self) -> list[tuple[int, int]]:
        """(letter, member) of all without an answer, also those of a process before."""

    def forget(self, letters: Sequence[int] | None) -> None:
        """Drop letters that are not wanted any more, with their answers; None: all."""


@dataclass(frozen=True)
class MemberNodes:
    """Each client is one member, by its number. `simulated` ones can begin again, and answer in bundles."""

    simulated: bool = False

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        return str(client) if str(client) in present else None

    def speaks_for(self, node: str, client: int) -> bool:
        return node == str(client)


@dataclass(eq=False)
class MailTransport:
    """Nodes are the admitted members; `bundled` where their answers are bundles already."""

    mailboxes: Mailboxes
    admitted: Admitted
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
            message = self._messages.get(answer.letter)
            if message is None:
                continue
            self._drop(message)
            arrivals.append(Arrival(message, str(answer.member), self._content(answer.content)))
        return arrivals

    def _content(self, answer: bytes) -> bytes | Failure:
        """An empty answer says that the member has nothing, or has left the exchange."""
        if not answer:
            return Failure(BUSY)
        return answer if self.bundled else frames.pack([answer])

    def flush(self) -> None:
        """Bring the mailboxes up to what was sent and forgotten."""
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
        """Forget what an earlier holder has sent."""
        self.mailboxes.forget(None)
