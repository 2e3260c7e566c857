"""Transport of a group that lets only invited parties pass; each party is one node.

The engine knows a node by its key; the member's name says which party it is. What a revoked node sends is dropped, also
if it was asked before. Bytes are counted on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quorank import frames
from quorank.errors import BadInput, require
from quorank.federation import notices
from quorank.federation.transport import BUSY, FAILED, Arrival, Failure
from quorank.service.gate import Passage
from quorank.service.members import InvitedMember

Refused = Callable[[BadInput], None]
"""Is told the error of what was refused here."""


@dataclass(eq=False)
class SiloGate(Passage):
    """A transport whose nodes are the admitted parties, and whose answers are single messages."""

    refused: Refused
    names: dict[str, str] = field(default_factory=dict)  # party → node, for the driver

    def admit(self, members: Sequence[InvitedMember]) -> None:
        """Let these pass, and nobody else from now on."""
        admitted = {member.name: member.label for member in members if member.admitted}
        self.names.clear()
        self.names.update(admitted)

    def present(self) -> list[str]:
        """The parties whose nodes are there."""
        there = set(self.inner.nodes())
        return [name for name, node in self.names.items() if node in there]

    def nodes(self) -> Sequence[str]:
        admitted = set(self.names.values())
        return [node for node in self.inner.nodes() if node in admitted]

    def checked(self, arrival: Arrival, content: bytes) -> Arrival:
        """The arrival with its one message, or in its place a failure."""
        try:
            known = arrival.node in self.names.values()
            require(known, "reply.revoked", "the node's key was revoked; it is refused")
            parts = frames.unpack(content)
            require(len(parts) == 1, "reply.several", "the node sent several replies, and it is one party")
        except BadInput as error:
            self.refused(error)
            return arrival._replace(content=Failure(FAILED))
        return arrival._replace(content=Failure(BUSY) if parts[0] == notices.HEARD else parts[0])
