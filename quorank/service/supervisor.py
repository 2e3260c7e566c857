"""Supervisor of a service: opens the one listening socket, and keeps workers and the holder running.

Processes that end are restarted, with a longer pause each time one dies young. Workers are replaced one by one when the
certificate has changed. Children end with this process, however it ends. It imports no web framework.
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
from quorank.files.documents import read_json
from quorank.kernels.process import raise_file_limit, terminate_all
from quorank.protocol.certificates import fit_together
from quorank.service.dashboard.event_log import EventLog
from quorank.service.home import HOLDERS, LOG, Home

SUPERVISOR, WORKER = "quorank.service.supervisor", "quorank.service.intake.worker"
STATE = "supervisor.json"
BACKLOG = 4096
LOOK_SECONDS = 0.2  # interval of the watch over children
CERTIFICATE_SECONDS, RENEWAL_SECONDS = 2.0, 3600.0  # intervals of checks for changed certificates, and for their end
READY_SECONDS, START_SECONDS = 30.0, 60.0  # time limits on the start of a worker and of a whole service
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # minimum and maximum seconds before a restart
YOUNG = 30.0  # age in seconds below which a child died young


@dataclass(eq=False)
class ServiceProcess:
    """Child process that is restarted when it ends."""

    name: str
    words: list[str]
    listener: int | None = None  # descriptor of the listening socket
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    ready: bool = field(default=False, init=False)  # it accepts requests
    _born: float = field(default=0.0, init=False)
    _pause: float = field(default=0.0, init=False)
    _due: float = field(default=0.0, init=False)  # time of the next start
    _pipe: int = field(default=-1, init=False)  # reports readiness

    def start(self) -> None:
        """Start it as a child that ends with this process."""
        passed: tuple[int, ...] = ()
        if self._pipe >= 0:
            os.close(self._pipe)
        if self.listener is not None:
            self._pipe, writing = os.pipe()
            os.set_blocking(self._pipe, False)
            passed = (self.listener, writing)
        words = [sys.executable, "-m", "quorank.kernels.process", str(os.getpid()), *self.words, *map(str, passed)]
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=passed)
        finally:
            for descriptor in passed[1:]:
                os.close(descriptor)
        self._born, self.ready = time.monotonic(), self.listener is None

    def check_ready(self) -> None:
        """Read from the pipe whether it accepts requests."""
        if not self.ready and self._pipe >= 0:
            with contextlib.suppress(BlockingIOError):
                self.ready = bool(os.read(self._pipe, 1))

    def exit_code(self) -> int | None:
        """Return its exit code once it has ended."""
        return None if self.process is None else self.process.poll()

    def tend(self) -> int | None:
        """Start it when it is due; returns the exit code of one that has ended, and schedules its next start."""
        self.check_ready()
        now, code = time.monotonic(), self.exit_code()
        if code is not None:
            young = now - self._born < YOUNG
            self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2.0 * self._pause)) if young else FIRST_PAUSE
            self.process, self.ready, self._due = None, False, now + self._pause
        elif self.process is None and now >= self._due:
            self.start()
        return code


class Supervisor:
    """Processes of one service."""

    def __init__(self, home: Home, listener: socket.socket, *, stay: bool = True) -> None:
        self.home, self.listener, self.stay = home, listener, stay
        self.stopping, self._log = False, EventLog(sys.stderr)
        folder, names = str(home.path), [f"worker-{number}" for number in range(home.settings.workers)]
        self.workers = [ServiceProcess(name, [WORKER, folder], listener.fileno()) for name in names]
        words = [HOLDERS[home.settings.kind], folder]
        self.holder = ServiceProcess("holder", words if stay else [*words, "--exit-when-done"])
        self._stamp, self._looked = self._certificate_stamp(), time.monotonic()
        self._renewed, self._written = self._looked, b""

    def run(self) -> int:
        """Run until it is stopped, or without `stay` until the run is done; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            while not self.stopping:
                for child in (*self.workers, self.holder):
                    self._tend(child)
                if time.monotonic() - self._looked > CERTIFICATE_SECONDS:
                    self._looked = time.monotonic()
                    self._tend_certificate()
                self._write("running" if all(worker.ready for worker in self.workers) else "starting")
                time.sleep(LOOK_SECONDS)
        finally:
            self._end()
        return 0

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _tend(self, child: ServiceProcess) -> None:
        before, code = child.process, child.tend()
        ended = code is not None
        if child is self.holder and code == 0 and not self.stay:
            self.stopping = True
        if ended or child.process is not before:
            kind, number = ("holder", None) if child is self.holder else ("worker", self.workers.index(child))
            self._log.write(f"{kind}_{'ended' if ended else 'started'}", worker=number, code=code)

    def _certificate_stamp(self) -> tuple[int, ...]:
        """Return a value that changes when a file of the certificate does."""
        with contextlib.suppress(OSError):
            return tuple(file.stat().st_mtime_ns for file in self.home.tls or ())
        return (-1,)

    def _tend_certificate(self) -> None:
        """Renew the own certificate before its end; give a changed one to the workers, one by one."""
        now = time.monotonic()
        with contextlib.suppress(OSError, BadInput):
            if now - self._renewed > RENEWAL_SECONDS:
                self._renewed = now
                self.home.renew()
        if self._certificate_stamp() == self._stamp:
            return
        time.sleep(LOOK_SECONDS)  # certificate and key are two files
        files = self.home.tls
        if files is not None and not fit_together(*files):
            self._log.write("certificate_unreadable")
            return  # checked again later; the old one stays in use
        self._stamp = self._certificate_stamp()
        replaced = [self._replace(worker) for worker in self.workers]
        if all(replaced):
            self._log.write("certificate_replaced", days=round(self.home.days_left()))

    def _replace(self, worker: ServiceProcess) -> bool:
        """Start a new worker and end the old one once the new one is ready; otherwise keep the old one."""
        old = worker.process
        worker.start()
        new, end = worker.process, time.monotonic() + READY_SECONDS
        while not worker.ready and worker.exit_code() is None and time.monotonic() < end and not self.stopping:
            time.sleep(LOOK_SECONDS / 4)
            worker.check_ready()
        if not worker.ready and old is not None and not self.stopping:
            worker.process, worker.ready, old = old, True, new
        terminate_all([] if old is None else [old])
        return worker.process is new

    def _write(self, state: str) -> None:
        """Write the processes and the state to a file when they change."""
        known = {child.name: child.process.pid for child in (*self.workers, self.holder) if child.process is not None}
        content = json.dumps({"process": os.getpid(), "state": state, "children": known}).encode()
        if content != self._written:
            self._written = content
            with contextlib.suppress(OSError):
                write_whole(self.home.path / STATE, content)

    def _end(self) -> None:
        """End the workers first, so that nothing more is accepted; then the holder."""
        self.listener.close()
        terminate_all([child.process for child in self.workers if child.process is not None])
        terminate_all([] if self.holder.process is None else [self.holder.process])
        for child in (*self.workers, self.holder):
            child.process = None
        self._write("stopped")


@contextlib.contextmanager
def listening(home: Home) -> Iterator[socket.socket]:
    """Open the one listening socket of a service."""
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


def start_service(home: Home, *options: str, stays: bool = True) -> subprocess.Popen[bytes]:
    """Start the service of a folder in a separate process and wait until it answers; it prints into its log.

    Unless it `stays`, it ends with this process. It runs in a separate session, so Ctrl-C in a terminal does not reach it.
    """
    bound = [] if stays else ["quorank.kernels.process", str(os.getpid())]
    descriptor = os.open(home.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begun = os.fstat(descriptor).st_size
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", *bound, SUPERVISOR, str(home.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    end, sentence = time.monotonic() + START_SECONDS, f"the service did not start; see {home.path / LOG}"
    while time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(BadInput):
            found = read_json(home.path / STATE)
            if (found.get("process"), found.get("state")) == (child.pid, "running"):
                return child
        time.sleep(0.1)
    with (home.path / LOG).open("rb") as log:
        log.seek(begun)
        lines = log.read().decode(errors="replace").splitlines()
    errors = [line.removeprefix("quorank: ") for line in lines if line.startswith("quorank: ")]
    raise BadInput("coordinator.not-started", errors[-1] if errors else sentence, f"{home.path}")


def main() -> None:
    """Supervise the folder of the command line."""
    try:
        sys.exit(supervise(Home.open(Path(sys.argv[1])), stay="--exit-when-done" not in sys.argv[2:]))
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
