"""The holder of a group: the process that carries its session between the store and the parties' mailboxes.

`python -m quorank.service.silo_service DIR [--exit-when-done]`. The session itself is `silos.coordinator`, its letters are
`silo_post`; here are the process that holds them, its log and its status. While the disk is full it waits and tries again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from quorank import __version__
from quorank.errors import BadInput
from quorank.experiments.run_directory import text_ranker_bytes
from quorank.federation.member_key import task_content
from quorank.federation.publication import Kind, Publication
from quorank.files import write_whole
from quorank.process import interruptible
from quorank.reports.live.event_log import EventLog
from quorank.reports.live.status import RoundFigures, State, Status, Versions, with_round
from quorank.reports.live.status_sources import session_status
from quorank.service.home import RANKER, STATUS
from quorank.service.overview import REFUSED
from quorank.service.silo_home import SiloHome
from quorank.service.silo_post import SiloPost
from quorank.service.store.sql_store import HolderLost, SqlStore
from quorank.silos.coordinator.phases import PHASES

LOOK_SECONDS = 0.02
"""Between two looks at the mailboxes while answers come; up to ten times as long while none does."""
NEXT_SECONDS = 0.05
"""A party asks again after so long while the session goes on."""
OVER_SECONDS = 60.0
STATUS_SECONDS = 1.0
DISK_SECONDS = 5.0


class SiloService:
    """One folder's session, held by this process."""

    def __init__(
        self,
        home: SiloHome,
        store: SqlStore,
        epoch: int,
        log: EventLog,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.home, self.store, self.epoch, self.log = home, store, epoch, log
        self._sleep, self._clock, self._began = sleep, clock, clock()
        self.post = SiloPost(store, epoch, home.group, home.settings.pause)
        self.server = self.post.server
        self._phase, self._turns = self.server.phase, self.server.turns[0]
        self._known: dict[str, int] = {}  # refusals by code that were told of
        self._turned: float | None = None  # when turns were last made
        self._failed = 0  # times that the disk was full
        self._history: tuple[RoundFigures, ...] = ()
        self._written = float("-inf")

    def run(self, stop: Callable[[], bool]) -> bool:
        """Carry on with the session until it is done or `stop` says so; whether it is done."""
        self._publish("over" if self.server.done else "secure")
        pause = LOOK_SECONDS
        while not self.server.done and not stop():
            try:
                busy = self.post.turn()
                self._tell()
                pause = LOOK_SECONDS if busy else min(10.0 * LOOK_SECONDS, 1.1 * pause)
                if not busy:
                    self._sleep(pause)
            except OSError as error:  # a full disk: nothing was accepted
                self._failed += 1
                self.log.write("checkpoint_failed", round=self._turns, code=error.errno)
                self._sleep(DISK_SECONDS)
        if self.server.done:
            self._publish("over")
            self.hand_out()
        self.write_status("done" if self.server.done else "stopped")
        return self.server.done

    def _publish(self, kind: Kind) -> None:
        """Say that parties look into their mailboxes, or that all is done; nothing but the word is in it."""
        found = self.store.publication()
        if found is None or found.kind != kind:
            seconds = OVER_SECONDS if kind == "over" else NEXT_SECONDS
            signature = self.home.key.sign(task_content(kind, b""))
            self.store.publish(self.epoch, Publication(kind, self.home.group.run, 0, b"", signature, seconds))

    def hand_out(self) -> None:
        """Write the ranker of a session that is done; on a full disk the next start does."""
        theta = self.server.ranker
        if theta is not None:
            try:
                write_whole(self.home.path / RANKER, text_ranker_bytes(theta))
            except OSError as error:
                self.log.write("checkpoint_failed", round=self._turns, code=error.errno)

    def note(self, event: str, **facts: object) -> None:
        """An event, for the log and for the page."""
        self.log.write(event, **facts)
        self.store.note(event, **facts)

    def _tell(self) -> None:
        """Tell of the turns that were made, of the phase and of what was refused since the last look."""
        now, (done, _) = self._clock(), self.server.turns
        if done > self._turns:  # the first turns of a process are not timed: nobody knows when they began
            seconds = None if self._turned is None else (now - self._turned) / (done - self._turns)
            self._history = with_round(self._history, RoundFigures(done, seconds, rounds=done - self._turns))
            self._turned, self._turns = now, done
            self.log.write("round_closed", round=done, seconds=seconds)
        if self.server.phase != self._phase:
            self._phase = self.server.phase
            self.note("phase_begun", phase=PHASES.index(self._phase), round=done)
        for code, count in self.server.refused.items():
            if count > self._known.get(code, 0):
                self.store.tally({f"{REFUSED}{code}": count - self._known.get(code, 0)})
                self._known[code] = count
                self.note("reply_refused", round=done, reason=code)
        if now - self._written > STATUS_SECONDS:
            self._written = now
            self.write_status("running")

    def write_status(self, state: State) -> None:
        """Write down how it stands, for page and status; a full disk is no reason to end."""
        with contextlib.suppress(OSError):
            self.store.keep(self.epoch, {STATUS: self.status(state).text().encode()})

    def status(self, state: State) -> Status:
        """How the session stands; members and refusals are added from the store by whoever shows it."""
        base = Status(
            "parties", state, self.home.group.run, self.store.now(), uptime_seconds=self._clock() - self._began,
            versions=Versions(__version__), sent_bytes=self.post.sent, received_bytes=self.post.came,
            checkpoints_failed=self._failed, history=self._history,
        )  # fmt: skip
        return replace(session_status(base, self.server, ()), refused={})


def hold(home: SiloHome, stop: Callable[[], bool], log: EventLog, *, stay: bool = False) -> bool:
    """Become the holder of a folder's session, and carry it on; whether it is done."""
    store = home.store()
    try:
        epoch = store.hold_in_turn(stop)
        if epoch is None:
            return False
        service = SiloService(home, store, epoch, log)
        turns, planned = service.server.turns
        service.note("holder_taken", epoch=epoch, round=turns)
        done = service.run(stop)
        service.note("finished" if done else "stopped", round=service.server.turns[0], rounds=planned)
        while done and stay and not stop():
            time.sleep(STATUS_SECONDS)
            service.write_status("done")
        return done
    finally:
        store.close()


def main() -> None:
    """Hold the session of the folder that is named."""
    home = SiloHome.open(Path(sys.argv[1]))
    with interruptible() as asked:
        try:
            done = hold(home, asked, EventLog(sys.stderr), stay="--exit-when-done" not in sys.argv[2:])
        except HolderLost:
            sys.exit("another process holds the session")
        except BadInput as error:
            print(f"quorank: {error}", file=sys.stderr)
            sys.exit(2)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
