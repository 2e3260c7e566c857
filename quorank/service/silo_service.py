"""The holder of a group: the process that carries its session between the store and the parties' mailboxes.

`python -m quorank.service.silo_service DIR [--exit-when-done]`. The session itself is `silo_server`, its letters are
`silo_post`; here are the process that holds them, its log and its status. While the disk is full it waits and tries again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quorank.errors import BadInput
from quorank.experiments.run_directory import text_ranker_bytes
from quorank.federation.member_key import task_content
from quorank.files import write_whole
from quorank.process import interruptible
from quorank.service.home import RANKER
from quorank.service.silo_home import SiloHome
from quorank.service.silo_post import SiloPost
from quorank.service.store import HolderLost, Kind, Publication, SqlStore
from quorank.service.supervisor import log

LOOK_SECONDS = 0.02
"""Between two looks at the mailboxes while answers come; up to ten times as long while none does."""
NEXT_SECONDS = 0.05
"""A party asks again after so long while the session goes on."""
OVER_SECONDS = 60.0
STATUS_SECONDS = 1.0
DISK_SECONDS = 5.0
PRESENT_SECONDS = 60.0
"""A party that has asked within so long is there."""
STATUS = "status.json"


class SiloService:
    """One folder's session, held by this process."""

    def __init__(
        self,
        home: SiloHome,
        store: SqlStore,
        epoch: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.home, self.store, self.epoch, self._sleep, self._clock = home, store, epoch, sleep, clock
        self.post = SiloPost(store, epoch, home.group, home.settings.pause)
        self.server = self.post.server
        self._phase, self._turns = self.server.phase, self.server.turns[0]
        self._known: dict[str, int] = {}  # refusals by code that were told of
        self._timed = [0.0, 0]  # seconds and turns of this process
        self._turned: float | None = None  # when turns were last made
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
                log("checkpoint_failed", round=self._turns, code=error.errno)
                if not stop():
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
                log("checkpoint_failed", round=self._turns, code=error.errno)

    def _tell(self) -> None:
        """Log the turns that were made, the phase and what was refused since the last look; write the status."""
        now, (done, planned) = self._clock(), self.server.turns
        if done > self._turns:
            if self._turned is not None:  # the first turn of a process is not timed: nobody knows when it began
                self._timed = [self._timed[0] + now - self._turned, self._timed[1] + done - self._turns]
            self._turned, self._turns = now, done
            log("round_closed", round=done, rounds=planned)
        if self.server.phase != self._phase:
            self._phase = self.server.phase
            self.store.note("phase_begun", phase=self._phase)
        for code, count in self.server.refused.items():
            if count > self._known.get(code, 0):
                self.store.tally({f"refused {code}": count - self._known.get(code, 0)})
                self._known[code] = count
                log("reply_refused", round=done, reason=code)
        if now - self._written > STATUS_SECONDS:
            self._written = now
            self.write_status("running")

    def seconds_left(self) -> float | None:
        """Seconds that the turns to come will take, if they take as long as those of this process; None before any."""
        seconds, turns = self._timed
        done, planned = self.server.turns
        return seconds / turns * (planned - done) if turns else None

    def write_status(self, state: str) -> None:
        """Write down how it stands, for page and status; a full disk is no reason to end."""
        try:
            self.store.keep(self.epoch, {STATUS: json.dumps(self.status(state), allow_nan=False).encode()})
        except OSError:
            return

    def status(self, state: str) -> dict[str, Any]:
        """How the session stands."""
        now, parties, (done, planned) = self.store.now(), self.home.group.parties, self.server.turns
        seen = {member.name: member.seen for member in self.store.members()}
        return {
            "at": now,
            "state": state,
            "process": os.getpid(),
            "phase": self.server.phase,
            "rounds": done,
            "rounds_planned": planned,
            "present": [name for name in parties if now - (seen.get(name) or 0.0) < PRESENT_SECONDS],
            "waited": [] if self.server.done else [name for name in parties if self.server.waits(name)],
            "traffic": self.server.traffic(),
            "refused": dict(self.server.refused),
            "sent_bytes": self.post.sent,
            "received_bytes": self.post.came,
            "seconds_left": self.seconds_left(),
        }


def hold(home: SiloHome, stop: Callable[[], bool], *, stay: bool = False) -> bool:
    """Become the holder of a folder's session, and carry it on; whether it is done."""
    store = home.store()
    try:
        while (epoch := store.hold()) is None:  # another process, or another host, holds it
            if stop():
                return False
            time.sleep(0.5)
        log("starting", clients=len(home.group.parties))
        service = SiloService(home, store, epoch)
        done = service.run(stop)
        log("finished" if done else "stopped", round=service.server.turns[0], rounds=service.server.turns[1])
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
            done = hold(home, asked, stay="--exit-when-done" not in sys.argv[2:])
        except HolderLost:
            sys.exit("another process holds the session")
        except BadInput as error:
            print(f"quorank: {error}", file=sys.stderr)
            sys.exit(2)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
