"""The process that watches over a service: it opens the one listening socket, and starts workers and the holder.

What dies is started again, with a longer pause each time it dies young. Workers are replaced one by one when the
certificate has changed. Children end with this process, however it ends. It imports neither numpy nor a web framework.
`python -m quorank.service.supervisor DIR [--exit-when-done]`
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quorank.errors import BadInput
from quorank.files.atomic import write_whole
from quorank.kernels.process import raise_file_limit, terminate_all
from quorank.protocol.certificates import fit_together
from quorank.service.home import LOG, Home
from quorank.service.live.event_log import EventLog, turn_over

WORKER = "quorank.service.intake.worker"
STATE = "supervisor.json"
BACKLOG = 4096
LOOK_SECONDS = 0.2
CERTIFICATE_SECONDS, RENEWAL_SECONDS = 2.0, 3600.0
"""So often it is looked whether the certificate's files have changed, and how long it is still good."""
READY_SECONDS = 30.0
"""A worker answers within so long after its start."""
FIRST_PAUSE, LONGEST_PAUSE, YOUNG = 0.2, 10.0, 30.0


@dataclass(eq=False)
class ServiceProcess:
    """A process that is kept alive."""

    name: str
    words: list[str]
    listener: int | None = None  # descriptor of the socket that it answers on
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    ready: bool = field(default=False, init=False)  # it has said that it answers
    _born: float = field(default=0.0, init=False)
    _pause: float = field(default=0.0, init=False)
    _due: float = field(default=0.0, init=False)  # when it may be started again
    _told: int = field(default=-1, init=False)  # where it says so

    def start(self) -> None:
        """Start it, as a child that ends with this process."""
        passed: tuple[int, ...] = ()
        if self._told >= 0:
            os.close(self._told)
        if self.listener is not None:
            self._told, told = os.pipe()
            os.set_blocking(self._told, False)
            passed = (self.listener, told)
        words = [sys.executable, "-m", "quorank.kernels.process", str(os.getpid()), *self.words, *map(str, passed)]
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=passed)
        finally:
            for descriptor in passed[1:]:
                os.close(descriptor)
        self._born, self.ready = time.monotonic(), self.listener is None

    def is_due(self, now: float) -> bool:
        """Whether it is to be started now."""
        return self.process is None and now >= self._due

    def look(self) -> None:
        """Hear whether it answers by now."""
        if not self.ready and self._told >= 0:
            with contextlib.suppress(BlockingIOError):
                self.ready = bool(os.read(self._told, 1))

    def ended(self) -> int | None:
        """Its exit code, once it has ended."""
        return None if self.process is None else self.process.poll()

    def bury(self, now: float) -> None:
        """It has ended: when it may be started again."""
        young = now - self._born < YOUNG
        self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2.0 * self._pause)) if young else FIRST_PAUSE
        self.process, self.ready, self._due = None, False, now + self._pause


class Supervisor:
    """One service's processes."""

    def __init__(self, home: Home, listener: socket.socket, *, stay: bool = True) -> None:
        self.home, self.listener, self.stay = home, listener, stay
        self.stopping, self._log = False, EventLog(sys.stderr)
        folder, names = str(home.path), [f"worker-{number}" for number in range(home.settings.workers)]
        self.workers = [ServiceProcess(name, [WORKER, folder], listener.fileno()) for name in names]
        self.holder = ServiceProcess("holder", [home.holder, folder, *([] if stay else ["--exit-when-done"])])
        self._stamp, self._looked = self._certificate(), time.monotonic()
        self._renewed, self._written = self._looked, b""

    def run(self) -> int:
        """Until it is told to stop, or the run is done where it does not stay; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            while not self.stopping:
                now = time.monotonic()
                for child in (*self.workers, self.holder):
                    self._tend(child, now)
                if now - self._looked > CERTIFICATE_SECONDS:
                    self._looked = now
                    self._tend_certificate()
                    turn_over(self.home.path / LOG)
                self._write("running" if all(worker.ready for worker in self.workers) else "starting")
                time.sleep(LOOK_SECONDS)
        finally:
            self._end()
        return 0

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _tend(self, child: ServiceProcess, now: float) -> None:
        child.look()
        code = child.ended()
        if code is not None:
            if child is self.holder and code == 0 and not self.stay:
                self.stopping = True
            self._note(child, "ended", code=code)
            child.bury(now)
        if child.is_due(now) and not self.stopping:
            child.start()
            self._note(child, "started")

    def _note(self, child: ServiceProcess, what: str, **facts: object) -> None:
        if child is self.holder:
            self._log.write(f"holder_{what}", **facts)
        else:
            self._log.write(f"worker_{what}", worker=self.workers.index(child), **facts)

    def _certificate(self) -> tuple[int, ...]:
        """Changes when a file of the certificate does."""
        files = self.home.tls
        if files is None:
            return ()
        with contextlib.suppress(OSError):
            return tuple(file.stat().st_mtime_ns for file in files)
        return (-1,)

    def _tend_certificate(self) -> None:
        """Replace the own certificate before its end; hand a changed one to the workers, one by one."""
        now = time.monotonic()
        with contextlib.suppress(OSError, BadInput):
            if now - self._renewed > RENEWAL_SECONDS:
                self._renewed = now
                self.home.renew()
        stamp = self._certificate()
        if stamp == self._stamp:
            return
        time.sleep(LOOK_SECONDS)  # certificate and key are two files
        files = self.home.tls
        if files is not None and not fit_together(*files):
            self._log.write("certificate_unreadable")
            return  # looked at again; the old one goes on
        self._stamp = self._certificate()
        replaced = [self._replace(worker) for worker in self.workers]
        if all(replaced):
            self._log.write("certificate_replaced", days=round(self.home.days_left()))

    def _replace(self, worker: ServiceProcess) -> bool:
        """Let a new worker answer, then the old one end; where the new one does not answer, the old one goes on."""
        old = worker.process
        worker.start()
        new, end = worker.process, time.monotonic() + READY_SECONDS
        while not worker.ready and worker.ended() is None and time.monotonic() < end and not self.stopping:
            time.sleep(LOOK_SECONDS / 4)
            worker.look()
        if not worker.ready and old is not None and not self.stopping:
            worker.process, worker.ready, old = old, True, new
        terminate_all([] if old is None else [old])
        return worker.process is new

    def _write(self, state: str) -> None:
        """Which processes there are, for whoever waits for the start; written when it changes."""
        known = {child.name: child.process.pid for child in (*self.workers, self.holder) if child.process is not None}
        content = json.dumps({"process": os.getpid(), "state": state, "children": known}).encode()
        if content != self._written:
            self._written = content
            with contextlib.suppress(OSError):
                write_whole(self.home.path / STATE, content)

    def _end(self) -> None:
        """Workers first, so that nothing more is accepted; then the holder."""
        self.listener.close()
        terminate_all([child.process for child in self.workers if child.process is not None])
        terminate_all([] if self.holder.process is None else [self.holder.process])
        for child in (*self.workers, self.holder):
            child.process = None
        self._write("stopped")


@contextlib.contextmanager
def listening(home: Home) -> Iterator[socket.socket]:
    """The one socket of a service."""
    settings = home.settings
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            sentence = f"cannot listen there ({error.strerror}); choose another --port or --host"
            raise BadInput("port.unusable", sentence, f"{settings.host}:{settings.port}") from None
        listener.listen(BACKLOG)
        listener.set_inheritable(True)
        yield listener


def supervise(home: Home, *, stay: bool = True) -> int:
    """Run a folder's service in this process."""
    raise_file_limit()
    with home.running(), listening(home) as listener:
        home.renew()
        return Supervisor(home, listener, stay=stay).run()


def main() -> None:
    """Supervise the folder that is named."""
    try:
        sys.exit(supervise(Home.open(Path(sys.argv[1])), stay="--exit-when-done" not in sys.argv[2:]))
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
