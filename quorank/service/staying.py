"""A coordinator after its last round: it tells devices that the run is over, and clients can still leave.

Whoever comes is told that all is over, and answers that by its request to leave if it has one. Then the ranker is built
again, as between two rounds (`leaving_desk`): that takes the devices of the others, so while a request is open nobody is
sent away. It ends when it is asked to stop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from quorank.errors import Interrupted
from quorank.federation import notices
from quorank.flower.driver import Driver
from quorank.service.leaving_desk import LeavingDesk

AGAIN_SECONDS = 60.0
"""A device that is still there is told again after so long: the message may have been lost."""

DISK_SECONDS = 5.0


@dataclass(eq=False)
class Staying:
    """`look` keeps the network alive; `rebuilt` is called when the ranker has changed, `failed` when the disk is full."""

    driver: Driver
    desk: LeavingDesk | None
    look: Callable[[], None]
    stop: Callable[[], bool]
    rebuilt: Callable[[], None]
    failed: Callable[[OSError], None]
    _told: dict[str, float] = field(default_factory=dict, init=False)

    def stay(self) -> None:
        """Until it is asked to stop."""
        driver = self.driver
        while not self.stop():
            try:
                self._attend()
                for arrival in driver.transport.pull():
                    driver.without_notices(arrival)
            except Interrupted:
                return
            except OSError as error:  # a full disk: the request stays open
                self.failed(error)
                driver.sleep(DISK_SECONDS)
            self._tell()
            self.look()
            driver.sleep(driver.poll)

    def _attend(self) -> None:
        if self.desk is not None and self.desk.pending:
            self.desk.attend()
            self.rebuilt()

    def _tell(self) -> None:
        """Say that all is over to whoever has come since, and again to whoever is still there."""
        if self.desk is not None and self.desk.pending:
            return
        present, now = set(self.driver.transport.nodes()), self.driver.clock()
        self._told = {node: at for node, at in self._told.items() if node in present}
        for node in sorted(present):
            if now - self._told.get(node, -math.inf) >= AGAIN_SECONDS:
                self._told[node] = now
                self.driver.transport.push(node, notices.OVER)


def say_goodbye(driver: Driver, stop: Callable[[], bool], seconds: float) -> None:
    """Tell the devices that are there that all is over, and wait a moment for their answers."""
    open_ = {driver.transport.push(node, notices.OVER) for node in driver.transport.nodes()}
    end = time.monotonic() + seconds
    while open_ and time.monotonic() < end and not stop():
        for arrival in driver.transport.pull():
            driver.without_notices(arrival)
            open_.discard(arrival.id)
        time.sleep(driver.poll)
