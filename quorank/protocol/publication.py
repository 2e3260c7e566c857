"""The task of the moment as a service publishes it: the same bytes for all members, and whose replies it takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from quorank.errors import require
from quorank.privacy.setting import Turns

Kind = Literal["round", "secure", "rebuilding", "tuning", "over"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Publication:
    """The task of the moment: the same bytes for all."""

    kind: Kind
    run: str
    round: int
    content: bytes
    signature: bytes
    next: float  # seconds until it is worth asking again
    number: int = 0  # counts publications; given by the store
    room: int = 0  # replies that the round takes; 0: one of each member that is asked
    most: int = 0  # times that a member may reply in the run; 0: as often as it is asked
    rest: int = 0  # rounds that a member sits out after a reply
    asked: bytes = b""  # numbers of the members that are asked, as little-endian u32 in order; none: everybody
    opened: float = 0.0  # when, by the store's clock

    @property
    def takes_replies(self) -> bool:
        """Whether it is answered by replies; a secure sum is by letters."""
        return self.kind not in ("secure", "over")

    @cached_property
    def turns(self) -> Turns:
        """How often one member may reply."""
        return Turns(self.most or None, self.rest)

    def asks(self, member: int) -> bool:
        """Whether a member is asked."""
        low, high = 0, len(self.asked) // 4
        while low < high:
            middle = (low + high) // 2
            found = int.from_bytes(self.asked[4 * middle : 4 * middle + 4], "little")
            if found == member:
                return True
            low, high = (middle + 1, high) if found < member else (low, middle)
        return not self.asked

    def check_answers(self, member: int, number: int) -> None:
        """Refuse a reply to the publication of this number where that is not this one, or does not ask this member."""
        require(self.takes_replies, "reply.no-open-round", "no round is open that takes replies")
        require(number == self.number, "reply.other-round", "the round of this reply is over")
        require(self.asks(member), "reply.unasked", "this member was not asked in this round")

    def check_turn(self, taken: int, last: int, filled: int) -> None:
        """Refuse a member that has replied `taken` times, in round `last` most recently, where `filled` replies are in."""
        self.turns.check(taken, last, self.round)
        full = self.room and filled >= self.room
        require(not full, "reply.round-full", "the round has all the replies that it takes")
