"""Pre-forked process pool: children are forked from a parent that has Flower imported, so each starts at once.

Every process of Flower spends more than a second of processor time on imports before it does anything. A nursery loads the
modules once, has one thread and no connection but the one to its owner, and forks for every order. It ends when its owner
has gone. What it splits off leads a process group of its own, writes to its own log, and is not tied to the nursery.

    order   {"name", "words", "environment", "folder", "log"}, of a process group of its own;
            {"name", "words", "quiet"}, of a process of the nursery's own group, of which nothing is told
    told    {"started": process} for each order, in turn, and {"ended": process, "code"} when that has ended

`python -m quorank.flower.nursery SOCKET NAME…` with names of installed scripts or of modules.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

LARGEST = 1 << 20  # bytes of an order
START_SECONDS = 120.0
"""A nursery that has not split off a process after so long is given up, and the process is started as any other."""

Entry = Callable[[], object]


def load(names: Sequence[str]) -> dict[str, Entry]:
    """What each of the names runs: a script of an installed package, or the `main` of a module; one without is loaded."""
    scripts = importlib.metadata.entry_points(group="console_scripts")
    found: dict[str, Entry] = {}
    for name in names:
        entry = getattr(importlib.import_module(name), "main", None) if "." in name else scripts[name].load()
        if entry is not None:
            found[name] = entry
    return found


def serve(orders: socket.socket, entries: Mapping[str, Entry]) -> None:
    """Fork for every order until the owner has gone."""
    orders.setblocking(False)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waker.fileno())
    told: set[int] = set()
    while True:
        _reap(orders, told)
        select.select([orders, woken], [], [])
        with contextlib.suppress(BlockingIOError):
            woken.recv(LARGEST)
        try:
            text = orders.recv(LARGEST)
        except BlockingIOError:
            continue
        except OSError:
            return
        if not text:
            return
        order = json.loads(text)
        begun, begins = os.pipe()
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for end in (orders, woken, waker):
                end.close()
            if "log" in order:
                os.setsid()
            os.close(begins)
            os.close(begun)
            _run(order, entries)
        os.close(begins)
        os.read(begun, 1)  # until it leads its group: what is signalled to that sooner would reach nobody
        os.close(begun)
        if "log" in order:
            told.add(process)
            _tell(orders, {"started": process})


def _reap(orders: socket.socket, told: set[int]) -> None:
    """See to children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            if process in told:
                told.discard(process)
                _tell(orders, {"ended": process, "code": os.waitstatus_to_exitcode(status)})


def _tell(orders: socket.socket, what: dict[str, int]) -> None:
    with contextlib.suppress(OSError):
        orders.setblocking(True)
        orders.send(json.dumps(what).encode())
    orders.setblocking(False)


def _run(order: dict[str, Any], entries: Mapping[str, Entry]) -> None:
    """Be what was ordered; the process ends here."""
    code = 1
    try:
        if "log" in order:
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["folder"])
        _write_to(order.get("log") or (os.devnull if order["quiet"] else None))
        _call_yourself(order["name"])
        sys.argv = [order["name"], *order["words"]]
        ended = entries[order["name"]]()
        code = ended if isinstance(ended, int) else 0
    except SystemExit as end:  # the way in which Flower's processes end
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()  # into the log of this machine
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _write_to(log: str | None) -> None:
    """What is printed goes there."""
    if log is not None:
        file = os.open(log, os.O_WRONLY | os.O_APPEND)
        for output in (1, 2):
            os.dup2(file, output)
        os.close(file)


def _call_yourself(name: str) -> None:
    """So that the machine's owner finds it among the processes, by up to 15 letters."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name.rpartition(".")[2][:15])


def named(command: Sequence[str]) -> tuple[str, list[str]]:
    """The name that a nursery may know a command by, and the words behind it."""
    if list(command[:2]) == [sys.executable, "-m"]:
        return command[2], list(command[3:])
    return Path(command[0]).name, list(command[1:])


def _gone(process: int) -> bool:
    """Whether a process has ended, also where nobody has asked how."""
    try:
        return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class Forked:
    """Handle of a forked process, as `subprocess.Popen` is one of a started process."""

    def __init__(self, nursery: Nursery, process: int) -> None:
        self.pid, self._nursery = process, nursery

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        return self._nursery.code(self.pid)

    def wait(self) -> int:
        while (code := self.poll()) is None:
            self._nursery.listen(0.2)
        return code


class Nursery:
    """The owner's end of the process pool; any thread may use it."""

    def __init__(self, names: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.names = frozenset(names)
        self._mutex = threading.RLock()
        self._started: list[int] = []
        self._codes: dict[int, int] = {}
        self._socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, there):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)
        with there, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "quorank.flower.nursery", str(there.fileno()), *names],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        self.open, self.used = True, False

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> Forked | None:
        """Split off a process; None where the nursery does not know it, or is no more."""
        name, words = named(command)
        order = {"name": name, "words": words, "environment": dict(environment)}
        with self._mutex:
            if not self.open or name not in self.names:
                return None
            try:
                places = {"folder": str(folder), "log": str(log)}
                self._socket.send(json.dumps({**order, **places}).encode())
            except OSError:
                self.open = False
                return None
            end = time.monotonic() + START_SECONDS
            while not self._started:
                if not self.open or time.monotonic() > end:
                    self.close()
                    return None
                self.listen(0.2)
            self.used = True
            return Forked(self, self._started.pop())

    def code(self, process: int) -> int | None:
        """How a process that was split off has ended; None while it runs."""
        with self._mutex:
            self.listen(0.0)
            if process not in self._codes and not self.open and _gone(process):
                self._codes[process] = -signal.SIGKILL  # how, nobody can tell any more
            return self._codes.get(process)

    def listen(self, seconds: float) -> None:
        """Take in what is told, for at most so long."""
        with self._mutex:
            while self.open and select.select([self._socket], [], [], seconds)[0]:
                try:
                    text = self._socket.recv(LARGEST)
                except OSError:
                    text = b""
                if not text:
                    self.open = False
                    return
                told = json.loads(text)
                if "started" in told:
                    self._started.append(told["started"])
                else:
                    self._codes[told["ended"]] = told["code"]
                seconds = 0.0
        if seconds and not self.open:
            time.sleep(seconds)

    def close(self) -> None:
        """Let the nursery end; what it split off goes on."""
        with self._mutex:
            self.open = False
            self._socket.close()
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Load, and serve the socket that was handed over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    serve(orders, load(sys.argv[2:]))


if __name__ == "__main__":
    main()
