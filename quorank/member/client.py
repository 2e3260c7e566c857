"""One device for applications: `rank` shows a list, `record` learns from its clicks, `sync` talks to the service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.learning import Shown
from quorank.learning.click_guard import ClickGuard
from quorank.member.answering import DeviceAnswers
from quorank.member.device import Device
from quorank.member.exchange import Exchange
from quorank.member.membership import Membership, SyncReport
from quorank.member.private_store import PrivateStore
from quorank.member.status import log_of, status_of
from quorank.protocol.http_client import ServiceClient
from quorank.protocol.invitation import Invitation
from quorank.protocol.terms import Terms


class Client(Membership[Terms]):
    """A device; make it with `Client.open`, and close it, or use it as a context."""

    def __init__(
        self,
        store: PrivateStore,
        invitation: Invitation,
        *,
        start: npt.ArrayLike | None = None,
        guard: ClickGuard | None = None,
        seed: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(store, invitation, **more)
        self._start, self._guard, self._seed = start, guard, seed
        self._recorded: WeakSet[Shown] = WeakSet()
        self._plan()

    @classmethod
    def open(
        cls,
        folder: Path | str,
        invitation: Path | str | None = None,
        *,
        start: npt.ArrayLike | None = None,
        guard: ClickGuard | None = None,
        **more: Any,
    ) -> Client:
        """The device of a folder; a new one needs its invitation, and the same one may be given again.

        `start` are parameters that show lists until the first ranker comes (by default the ranker's own beginning: a linear
        one draws lists at random until then); `guard` keeps rankers that the owner's clicks speak against from the lists.
        """
        return cls._opened(folder, invitation, start=start, guard=guard, **more)

    @classmethod
    def read_terms(cls, table: object) -> Terms:
        return Terms.read(table)

    def _plan(self) -> None:
        terms, given = self.terms, self._start
        start = terms.ranker.initial(terms.n_features, 0) if given is None else np.asarray(given, np.float64)
        self.device = Device(
            self.store, terms, seed=self._seed, entropy=self._entropy, clock=self._clock, guard=self._guard, start=start
        )
        pinned = {int(who): key for who, key in self.invitation.identities.items() if who.isdecimal()}
        self._answers = DeviceAnswers.of(self.device, pinned or None)

    # what an application calls

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show for features (documents, n_features); its `order` are their rows, best first."""
        self._check_open()
        return self.device.rank(features)

    def present(self, features: npt.ArrayLike) -> Shown:
        """Take the list that the application shows in an order of its own, features (documents, n_features) best first.

        For runs whose learner corrects clicks by the ranks alone (counterfactual).
        """
        self._check_open()
        return self.device.present(features)

    def forget(self, names: Sequence[str]) -> None:
        """Erase the interactions that were recorded with these names as their `query`; what was sent stays sent."""
        self._check_open()
        with self.store.transaction():
            self.store.forget_named(names)
        self.store.overwrite_deleted()
        self._plan()

    def record(self, shown: Shown, clicks: npt.ArrayLike, query: str | None = None) -> None:
        """Take in what was clicked on a list, true or false for each shown document; the query only where it is given.

        Once a list, when the person is done with it: recorded twice, it would be learned from twice.
        """
        self._check_open()
        require(shown not in self._recorded, "list.recorded", "this list was recorded already; each counts once")
        self.device.record(shown, clicks, query)
        self._recorded.add(shown)

    def status(self) -> dict[str, Any]:
        """Where the device stands, as JSON holds it."""
        self._check_open()
        return status_of(self.store) | {"next": self._left_to_wait()}

    def log(self) -> dict[str, list[dict[str, Any]]]:
        """All that ever left the device, with its privacy, and when consent was given or withdrawn, as JSON holds it."""
        self._check_open()
        return log_of(self.store)

    # the line

    def _enrol(self, line: ServiceClient) -> None:
        super()._enrol(line)
        self._plan()

    def _talk(self, line: ServiceClient) -> SyncReport:
        return Exchange(line, self._answers).take_part()
