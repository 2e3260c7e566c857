"""The process that holds what a folder runs: one loop for a coordinator of devices, a group and a tuning.

It opens the folder, waits in turn for the lock in the store, restores what an earlier holder left, and works until all is
done or it is asked to stop; then it stays, so that members hear the end and can still leave. While the disk is full or
the store is away it waits and tries again: nothing that was accepted is lost. One that finds another process in its place
waits for its turn again. What is worked on is a `Held`, one for each kind.
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
from quorank.protocol.messages import Kind, Publication
from quorank.service.dashboard.event_log import EventLog
from quorank.service.dashboard.status import RoundFigures, State, Status, Versions
from quorank.service.holders.rounds import FAST, SLOW, signed_task
from quorank.service.home import STATUS, Home
from quorank.service.store.sql_store import HolderLost, SqlStore

HOLD_SECONDS = 1.0
"""Between two tries to hold the coordinator."""
AGAIN_SECONDS = 2.0
"""So long it waits where the store cannot be written."""
STAY_SECONDS = 0.2
"""Between two looks while all is done."""

HomeKind = TypeVar("HomeKind", bound=Home)
Made = TypeVar("Made")


@dataclass(eq=False)
class Held(ABC, Generic[HomeKind]):
    """What one folder runs, for the holder of this epoch."""

    fast: ClassVar[float] = FAST  # between two looks at the store while something comes
    slow: ClassVar[float] = SLOW  # the same at most
    growth: ClassVar[float] = 1.5
    status_seconds: ClassVar[float] = 1.0  # between two documents of the status

    home: HomeKind
    store: SqlStore
    epoch: int
    log: EventLog
    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    soonest: float = 1.0  # seconds after which members ask again, at least
    history: tuple[RoundFigures, ...] = field(default=(), init=False)
    refused: dict[str, int] = field(default_factory=dict, init=False)  # by code, as far as told of
    failed: int = field(default=0, init=False)  # times that the store or the disk could not be written
    began: float = field(init=False)
    opened: float = field(init=False)  # the open round
    _away: float | None = field(default=None, init=False)  # since when it cannot
    _written: float = field(default=float("-inf"), init=False)  # the status

    def __post_init__(self) -> None:
        self.began = self.opened = self.clock()

    # ------------------------------------------------------------ what each kind says

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing is left to ask."""

    @property
    @abstractmethod
    def place(self) -> tuple[int, int]:
        """Rounds that are done, and how many there are in all."""

    @abstractmethod
    def begin(self) -> None:
        """Publish what members are asked, and write what a holder that was killed did not."""

    @abstractmethod
    def look(self) -> bool:
        """Take in what came, and end the round where that is enough; whether anything was done."""

    @abstractmethod
    def finish(self) -> None:
        """Say that all is over."""

    @abstractmethod
    def attend(self) -> None:
        """What is done while all is over: let those go who have asked to leave."""

    @abstractmethod
    def status(self, state: State | None = None) -> Status:
        """How it stands at this moment; `state` where it is known."""

    # ------------------------------------------------------------ the loop

    def play(self, *, stay: bool = False) -> bool:
        """Do what is left, and stay where asked; whether all is done. HolderLost where another took over."""
        self.tell("holder_taken", epoch=self.epoch, round=self.place[0])
        self.again(self.begin)
        pause = self.fast
        while not self.done and not self.stop():
            busy = self.again(self.look)
            pause = self.fast if busy else min(self.slow, self.growth * pause)
            if not busy:
                self.sleep(pause)
        done, planned = self.place
        self.tell("finished" if self.done else "stopped", round=done, rounds=planned)
        if self.done:
            self.again(self.finish)
        while self.done and stay and not self.stop():
            self.again(self.attend)
            self.again(self.publish_in_time)
            self.sleep(STAY_SECONDS)
        self.again(lambda: self.publish("done" if self.done else "stopped"), once=True)
        return self.done

    def again(self, work: Callable[[], Made], *, once: bool = False) -> Made | None:
        """Do something; where the store or the disk cannot be written, again and again until it is asked to stop."""
        while True:
            try:
                made = work()
            except Interrupted:
                return None
            except OSError as error:  # nothing was changed
                self.failed += 1
                if self._away is None:
                    self._away = self.clock()
                    self.log.write("checkpoint_failed", round=self.place[0], code=error.errno)
                if once or self.stop():
                    return None
                self.sleep(AGAIN_SECONDS)
                continue
            if self._away is not None:
                self.tell("disk_back", round=self.place[0], seconds=self.clock() - self._away)
                self._away = None
            return made

    # ------------------------------------------------------------ what is written

    def tell(self, event: str, **facts: object) -> None:
        """Note an event, for the log and the page; it must not keep anything from its work."""
        self.log.write(event, **facts)
        with contextlib.suppress(OSError, BadInput):
            self.store.note(event, **{name: value for name, value in facts.items() if value is not None})

    def tell_refused(self, refused: Mapping[str, int]) -> dict[str, int]:
        """Note what was refused since the last look; returns how much, by code."""
        new = {code: more for code, count in refused.items() if (more := count - self.refused.get(code, 0)) > 0}
        for code in new:
            self.tell("reply_refused", round=self.place[0], reason=code)
        self.refused = dict(refused)
        return new

    def publish(self, state: State | None = None) -> None:
        """Write down how it stands, for `status`, the page and the metrics."""
        self._written = self.clock()
        self.store.keep(self.epoch, {STATUS: self.status(state).text().encode()})

    def publish_in_time(self) -> None:
        """The same, where the last one is old."""
        if self.clock() - self._written >= self.status_seconds:
            self.publish()

    def base_status(self, kind: Any, state: State | None, **known: Any) -> Status:
        """What every kind says of itself."""
        return Status(
            kind, state or ("done" if self.done else "running"), self.home.settings.run, self.store.now(),
            process=os.getpid(), uptime_seconds=self.clock() - self.began, versions=Versions(__version__),
            checkpoints_failed=self.failed, **known,
        )  # fmt: skip

    def write_file(self, name: str, content: bytes | str) -> None:
        """A copy in the folder; on a full disk the next round writes it, or the next start."""
        try:
            write_whole(self.home.path / name, content)
        except (OSError, BadInput) as error:
            code = error.errno if isinstance(error, OSError) else None
            self.log.write("checkpoint_failed", round=self.place[0], code=code)

    def signed(self, kind: Kind, round_: int, content: bytes, wait: float, room: int = 0) -> Publication:
        """A task for all members."""
        return signed_task(self.home.key, kind, self.home.settings.run, round_, content, wait, room=room)

    def declare(self, kind: Kind, round_: int, content: bytes, wait: float) -> None:
        """Publish a task unless one of its kind is out."""
        found = self.store.publication()
        if found is None or found.kind != kind:
            self.store.publish(self.epoch, self.signed(kind, round_, content, wait))


def hold(
    home: HomeKind, kind: type[Held[HomeKind]], log: EventLog, stop: Callable[[], bool], *, stay: bool = True
) -> bool:
    """Hold what a folder runs whenever no other process does, until it is done or asked to stop; whether all is done."""
    while not stop():
        store = epoch = None
        try:
            store = home.store()
            epoch = store.hold_in_turn(stop)
            if epoch is not None and kind(home, store, epoch, log, stop).play(stay=stay):
                return True
        except HolderLost:
            log.write("holder_lost", epoch=epoch)
        except OSError as error:  # it may come back
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
    """Hold what the named folder runs: `python -m MODULE DIR [--exit-when-done]`; 0 once all is done."""
    folder, *_ = [word for word in sys.argv[1:] if not word.startswith("--")]
    os.umask(0o077)  # whatever is written is for its owner's eyes
    try:
        with interruptible() as asked:
            stay = "--exit-when-done" not in sys.argv
            done = hold(opened(Path(folder)), kind, EventLog(sys.stderr), asked, stay=stay)
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if done else 1)
