"""Requests to leave, on the service's side: each is checked, the client is left out, the ranker is rebuilt (`departures`).

A request is committed to the store as everything that members send. Once the rebuilt ranker is in the checkpoint, the
optimiser's memory, the replies and the rebuilding's own documents are gone, and the confirmation is in the store, where
the member finds it. What is kept of a leaver is its number, so that it stays out, and the digest of its request. A desk
that is killed anywhere goes on there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from quorank.errors import BadInput
from quorank.federation.unlearning.departures import Departures
from quorank.federation.unlearning.rebuilding import Rebuilding
from quorank.protocol.messages import check_leaving_request, leaving_receipt
from quorank.service.holders.kept_state import KeptInStore
from quorank.service.holders.rounds import Holder
from quorank.service.store.sql_store import Finished

REBUILDING = "rebuilding"
"""The document of an open rebuilding's checkpoint."""
HEAR_SECONDS = 1.0
"""Requests are looked for so often at most."""


@dataclass(eq=False, kw_only=True)
class LeavingDesk(Departures):
    """The leavers of a holder's coordinator; `look` is called all the time."""

    holder: Holder
    _heard: float = field(default=-math.inf, init=False)
    _refused: set[tuple[int, bytes]] = field(default_factory=set, init=False)  # requests that cannot be

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder.busy = self.busy

    def busy(self) -> bool:
        """Whether somebody must be let go before the next round."""
        self.hear()
        return bool(self.pending)

    def look(self) -> None:
        """Hear who wants to leave, now and then."""
        now = self.holder.clock()
        if now - self._heard >= HEAR_SECONDS:
            self._heard = now
            self.hear()

    def hear(self) -> None:
        """Take the requests that are in the store; confirm what a desk before has done and not confirmed."""
        known = {leaver.client: leaver for leaver in self.leavers}
        for member, request, receipt in self.holder.store.leavers(waiting=True):
            if member in known:
                if known[member].done and receipt is None:
                    self.holder.store.let_go(self.holder.epoch, member, leaving_receipt(request))
                continue
            if (member, request) in self._refused:
                continue
            try:
                found = self.holder.store.member(member)
                keys = {} if found is None or found.key is None else {member: found.key}
                leaving = check_leaving_request(request, self.coordinator.run, keys)
                self.add_leaver(leaving.client, leaving.digest, leaving.at)
            except BadInput as error:
                self._refused.add((member, request))
                self.coordinator.count_refusal(error, member)

    def process_requests(self) -> None:
        """Let all go who have asked to leave, and confirm it."""
        while self.pending and not self.coordinator.open:
            super().process_requests()
            self.hear()

    def read_document(self, name: str) -> bytes | None:
        return self.holder.store.document(name)

    def write_document(self, name: str, content: bytes) -> None:
        self.holder.store.keep(self.holder.epoch, {name: content})

    def storage(self) -> KeptInStore:
        return self.holder.keeping(REBUILDING)

    def play_round(self, rebuilding: Rebuilding) -> None:
        self.holder.round(rebuilding, "rebuilding")
        self.hear()

    def clear(self, run: str) -> None:
        self.storage().remove()
        self.holder.store.keep(self.holder.epoch, {}, Finished(run, 2**31))
