"""The mailbox of a service as a transport: a message to a node is a letter to a member, fetched and answered by it.

What is sent and forgotten between two looks goes to the store in one transaction. A letter stays until its member has
answered it or it is forgotten, so nothing is lost and nothing has to be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from quorank import frames
from quorank.federation.transport import BUSY, Arrival, Failure
from quorank.service.store.sql_store import SqlStore

Admitted = Callable[[], Collection[int]]
"""The numbers of all who may take part now."""


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

    store: SqlStore
    epoch: int
    admitted: Admitted
    bundled: bool = False
    _count: int = field(default=0, init=False)
    _out: dict[str, tuple[int, bytes]] = field(default_factory=dict, init=False)  # not in the store yet
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
        for letter in self.store.answers(self.epoch):
            message = self._messages.get(letter.id)
            if message is None:
                continue
            self._drop(message)
            arrivals.append(Arrival(message, str(letter.member), self._content(letter.answer or b"")))
        return arrivals

    def _content(self, answer: bytes) -> bytes | Failure:
        """An empty answer says that the member has nothing, or has left the exchange."""
        if not answer:
            return Failure(BUSY)
        return answer if self.bundled else frames.pack([answer])

    def flush(self) -> None:
        """Bring the store up to what was sent and forgotten."""
        if self._done:
            self.store.forget(self.epoch, self._done)
            self._done = []
        if self._out:
            out = list(self._out)
            letters = self.store.send(self.epoch, [self._out[message] for message in out])
            self._out = {}
            self._letters |= dict(zip(out, letters, strict=True))
            self._messages |= dict(zip(letters, out, strict=True))

    def begin(self) -> None:
        """Forget what an earlier holder has sent."""
        self.store.forget(self.epoch, None)
