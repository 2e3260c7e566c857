"""Transport that lets only invited devices pass, each with one reply in its own name.

The coordinator judges a reply by what is in it, and the client's number is in it; the engine knows which node sent it,
by its key. Here the two are held against each other, so that no device can answer in another's name. What a revoked
device sends is dropped, also if it was asked before. Bytes are counted on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quorank import frames
from quorank.errors import BadInput, require
from quorank.federation import notices, wire
from quorank.federation.transport import BUSY, FAILED, Arrival, Failure, Transport
from quorank.flower.driver import OTHER_CLIENT
from quorank.service.members import InvitedMember

_SECURE = b"QSEC"
"""How the messages of a secure sum begin."""

Refused = Callable[[int | None, BadInput], None]
"""Is told (client, error) of what was refused here."""


@dataclass(eq=False)
class Passage:
    """A transport that counts what passes; what arrives is `checked`."""

    inner: Transport
    sent: int = field(default=0, init=False)  # bytes
    came: int = field(default=0, init=False)  # bytes

    def push(self, node: str, content: bytes) -> str:
        self.sent += len(content)
        return self.inner.push(node, content)

    def pull(self) -> list[Arrival]:
        return [self._counted(arrival) for arrival in self.inner.pull()]

    def forget(self, message: str) -> None:
        self.inner.forget(message)

    def _counted(self, arrival: Arrival) -> Arrival:
        if isinstance(arrival.content, Failure):
            return arrival
        self.came += len(arrival.content)
        return self.checked(arrival, arrival.content)

    def checked(self, arrival: Arrival, content: bytes) -> Arrival:
        """The arrival, or in its place a failure."""
        raise NotImplementedError


@dataclass(eq=False)
class Gate(Passage):
    """A transport whose nodes are the admitted members."""

    refused: Refused
    names: dict[int, str] = field(default_factory=dict)  # client → node, for `driver.Own`
    _clients: dict[str, int] = field(default_factory=dict, init=False)  # node → client

    def admit(self, members: Sequence[InvitedMember]) -> None:
        """Let these pass, and nobody else from now on."""
        admitted = {member.client: member.label for member in members if member.admitted}
        self.names.clear()
        self.names.update(admitted)
        self._clients = {label: client for client, label in admitted.items()}

    def present(self) -> list[int]:
        """The clients whose devices are there."""
        return sorted(self._clients[name] for name in self.nodes())

    def nodes(self) -> Sequence[str]:
        return [name for name in self.inner.nodes() if name in self._clients]

    def checked(self, arrival: Arrival, content: bytes) -> Arrival:
        client = self._clients.get(arrival.node)
        try:
            require(client is not None, "reply.revoked", "the node's key was revoked; it is refused")
            replies = frames.unpack(content)
            require(len(replies) == 1, "reply.several", "the node sent several replies, and it is one client")
            if replies[0] == notices.HEARD:
                return arrival._replace(content=Failure(BUSY))
            if replies[0] == notices.NOTHING or replies[0].startswith((notices.REQUEST, _SECURE)):
                return arrival  # a request to leave is signed; a secure sum's client is known by its line
            require(wire.decode_reply(replies[0]).client == client, "reply.other-client", OTHER_CLIENT)
        except BadInput as error:
            self.refused(client, error)
            return arrival._replace(content=Failure(FAILED))
        return arrival
