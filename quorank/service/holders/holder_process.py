"""Holder process of a folder: one loop for a coordinator of devices, a group and a tuning (`Held`).

It opens the folder, waits for the lock in the store, restores the state of an earlier holder, and works until everything is
done or it is stopped; afterwards it stays, so that members read the end and can still leave. While the disk is full or the
store is unreachable it retries: accepted replies are kept. A process that was replaced waits for the lock again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from quorank import __version__
from quorank.errors import BadInput, Interrupted
from quorank.files.atomic import write_whole
from quorank.kernels.process import interruptible
from quorank.protocol.messages import Kind, leaving_receipt
from quorank.service.dashboard.event_log import EventLog
from quorank.service.dashboard.status import RoundFigures, State, Status, Versions, seconds_left, with_round
from quorank.service.holders.rounds import signed_task
from quorank.service.home import LEDGER, RANKER, STATUS, Home
from quorank.service.store.sql_store import HolderLost, SqlStore

FAST, SLOW = 0.02, 0.2  # minimum and maximum seconds between two looks at the store
HOLD_SECONDS = 1.0  # seconds between two tries to take the lock
AGAIN_SECONDS = 2.0  # seconds between retries while the store cannot be written
STAY_SECONDS = 0.2  # seconds between two looks after the end
COPY_SECONDS = 5.0  # seconds between two copies of ranker and ledger on a host that does not hold them

HomeKind = TypeVar("HomeKind", bound=Home)
Made = TypeVar("Made")


@dataclass(eq=False)
class Held(ABC, Generic[HomeKind]):
    """Work of one folder, for the holder of this epoch."""

    status_seconds: ClassVar[float] = 1.0  # seconds between two status documents

    home: HomeKind
    store: SqlStore
    log: EventLog
    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    soonest: float = 1.0  # minimum polling interval of members, seconds
    history: tuple[RoundFigures, ...] = field(default=(), init=False)
    refused: dict[str, int] = field(default_factory=dict, init=False)  # by code, as reported
    failed: int = field(default=0, init=False)  # number of failed writes
    began: float = field(init=False)
    opened: float = field(init=False)  # the open round
    _away: float | None = field(default=None, init=False)  # start of the failure
    _written: float = field(default=float("-inf"), init=False)  # the status

    def __post_init__(self) -> None:
        self.began = self.opened = self.clock()

    # ------------------------------------------------------------ differs by kind

    @property
    @abstractmethod
    def done(self) -> bool:
        """Return whether all work is done."""

    @property
    @abstractmethod
    def progress(self) -> tuple[int, int]:
        """Completed and planned rounds."""

    @abstractmethod
    def begin(self) -> None:
        """Publish the current task, and complete the writes of a killed holder."""

    @abstractmethod
    def look(self) -> bool:
        """Take in replies and close the round if it is complete; returns whether anything was done."""

    @abstractmethod
    def finish(self) -> None:
        """Publish the end."""

    def forget(self, member: int) -> None:
        """Remove a member that leaves from what is not yet published."""

    @abstractmethod
    def status(self, state: State | None = None) -> Status:
        """Return the current status; `state` where it is known."""

    # ------------------------------------------------------------ the loop

    def play(self, *, stay: bool = False) -> bool:
        """Work to the end, and stay if requested; returns whether all is done. HolderLost where another took over."""
        self.record("holder_taken", epoch=self.store.epoch, round=self.progress[0])
        self.retry(self.begin)
        pause = FAST
        while not self.done and not self.stop():
            busy = self.retry(self.look)
            pause = FAST if busy else min(SLOW, 1.1 * pause)
            if not busy:
                self.sleep(pause)
        done, planned = self.progress
        self.record("finished" if self.done else "stopped", round=done, rounds=planned)
        if self.done:
            self.retry(self.finish)
        while self.done and stay and not self.stop():
            self.retry(self.release_leavers)
            self.retry(self.publish_in_time)
            self.sleep(STAY_SECONDS)
        self.retry(lambda: self.publish("done" if self.done else "stopped"), once=True)
        return self.done

    def retry(self, work: Callable[[], Made], *, once: bool = False) -> Made | None:
        """Do some work, and retry while the store or the disk cannot be written, until it is stopped."""
        while True:
            try:
                made = work()
            except Interrupted:
                return None
            except OSError as error:  # nothing was changed
                self.failed += 1
                if self._away is None:
                    self._away = self.clock()
                    self.log.write("checkpoint_failed", round=self.progress[0], code=error.errno)
                if once or self.stop():
                    return None
                self.sleep(AGAIN_SECONDS)
                continue
            if self._away is not None:
                self.record("disk_back", round=self.progress[0], seconds=self.clock() - self._away)
                self._away = None
            return made

    def release_leavers(self) -> None:
        """Release members that have asked to leave."""
        for member, request, receipt in self.store.leavers():
            if receipt is None:
                self.forget(member)
                self.store.let_go(member, leaving_receipt(self.home.key, request))
                self.record("member_left", client=member, round=self.progress[0])

    # ------------------------------------------------------------ events, status, files

    def record(self, event: str, **facts: object) -> None:
        """Write an event to log and store; failures are ignored."""
        self.log.write(event, **facts)
        with contextlib.suppress(OSError, BadInput):
            self.store.note(event, **{name: value for name, value in facts.items() if value is not None})

    def record_refused(self, refused: Mapping[str, int]) -> dict[str, int]:
        """Report new refusals; returns their counts by code."""
        new = {code: more for code, count in refused.items() if (more := count - self.refused.get(code, 0)) > 0}
        for code in new:
            self.record("reply_refused", round=self.progress[0], reason=code)
        self.refused = dict(refused)
        return new

    def publish(self, state: State | None = None) -> None:
        """Write the status for `status`, dashboard and metrics."""
        self._written = self.clock()
        self.store.keep({STATUS: self.status(state).text().encode()})

    def publish_in_time(self) -> None:
        """Write the status if the last one is old."""
        if self.clock() - self._written >= self.status_seconds:
            self.publish()

    def base_status(self, kind: Any, state: State | None, **known: Any) -> Status:
        """Return the common part of the status."""
        (done, planned), history, open_seconds = self.progress, self.history, self.clock() - self.opened
        return Status(
            kind, state or ("done" if self.done else "running"), self.home.settings.run, self.store.now(),
            process=os.getpid(), uptime_seconds=self.clock() - self.began, versions=Versions(__version__),
            rounds=done, rounds_planned=planned, open_seconds=open_seconds, history=history,
            seconds_left=seconds_left(history, planned - done, open_seconds) if planned else None,
            last_round_seconds=history[-1].seconds if history else None, checkpoints_failed=self.failed, **known,
        )  # fmt: skip

    def end_round(self, figures: RoundFigures) -> None:
        """Append a completed round to the history; the next one is open now."""
        self.history, self.opened = with_round(self.history, figures), self.clock()

    def write_file(self, name: str, content: bytes | str) -> None:
        """Write a copy in the folder; on a full disk the next round or start writes it."""
        try:
            write_whole(self.home.path / name, content)
        except (OSError, BadInput) as error:
            code = error.errno if isinstance(error, OSError) else None
            self.log.write("checkpoint_failed", round=self.progress[0], code=code)

    def declare(self, kind: Kind, round_: int, content: bytes, wait: float) -> None:
        """Publish a task to which nobody replies."""
        self.store.publish_once(signed_task(self.home.key, kind, self.home.settings.run, round_, content, wait))


class FolderCopies:
    """Files of a folder whose service is held on another host, copied from the store."""

    def __init__(self, home: Home, store: SqlStore) -> None:
        self.home, self.store, self._next = home, store, 0.0
        self._written: dict[str, bytes] = {}

    def refresh(self) -> None:
        """Copy what has changed, at most once per interval; errors of the disk are ignored until the next time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + COPY_SECONDS
        for name in (RANKER, LEDGER):
            content = self.store.document(name)
            if content is not None and content != self._written.get(name):
                with contextlib.suppress(OSError, BadInput):
                    write_whole(self.home.path / name, content)
                    self._written[name] = content


def hold(
    home: HomeKind, kind: type[Held[HomeKind]], log: EventLog, stop: Callable[[], bool], *, stay: bool = True
) -> bool:
    """Hold a folder's work whenever no other process does, until done or stopped; returns whether it is done."""
    while not stop():
        store = epoch = None
        try:
            store = home.store()
            epoch = store.hold_in_turn(stop, FolderCopies(home, store).refresh)
            if epoch is not None and kind(home, store, log, stop).play(stay=stay):
                return True
        except HolderLost:
            log.write("holder_lost", epoch=epoch)
        except OSError as error:  # it may recover
            if epoch is not None:
                log.write("checkpoint_failed", code=error.errno)
        except BadInput as error:
            if error.code != "database.unreachable":
                raise
        finally:
            if store is not None:
                with contextlib.suppress(OSError):
                    store.close()
        end = time.monotonic() + HOLD_SECONDS
        while time.monotonic() < end and not stop():
            time.sleep(STAY_SECONDS / 2.0)
    return False


def main(opened: Callable[[Path], HomeKind], kind: type[Held[HomeKind]]) -> None:
    """Hold the folder of the command line: `python -m MODULE DIR [--exit-when-done]`; exits with 0 when done."""
    folder, *_ = [word for word in sys.argv[1:] if not word.startswith("--")]
    os.umask(0o077)  # files are readable by their owner only
    try:
        with interruptible() as asked:
            stay = "--exit-when-done" not in sys.argv
            done = hold(opened(Path(folder)), kind, EventLog(sys.stderr), asked, stay=stay)
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if done else 1)
