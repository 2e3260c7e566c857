"""Child processes that never outlive the one that started them.

Each child leads a process group of its own, so that whatever it starts goes with it. A watchdog, which is one more child,
holds the reading end of a pipe: when this process ends in any way, also killed, the pipe closes and the watchdog kills all
groups; a temporary folder, where keys may lie, goes with them. Ctrl-C reaches this process alone, which then stops the
children in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from quorank.errors import require

_WATCHDOG = """
import os, shutil, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    word, number = line.split()
    (groups.add if word == "add" else groups.discard)(int(number))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
if sys.argv[1:]:
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return found


@dataclass(eq=False)
class Child:
    """One process group."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    since: float = field(default_factory=time.monotonic)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self.process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Tell the whole group; no error if it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def last_words(self, count: int = 1) -> str:
        """The end of its log, for its owner."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.is_file() else []
        return " ".join(line.strip() for line in lines[-count:])


@dataclass(eq=False)
class Processes:
    """Children by name; used as a context, it leaves none behind."""

    folder: Path  # where their logs go
    temporary: bool = False  # whether the folder goes when they have ended
    children: dict[str, Child] = field(default_factory=dict, init=False)
    _watchdog: subprocess.Popen[str] | None = field(default=None, init=False)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a child under a name that no running child has; what it prints is added to `NAME.log`."""
        old = self.children.get(name)
        require(old is None or not old.running, "process.running", f"the process {name} runs already")
        if old is not None:
            self._end(old)
        log = self.folder / f"{name}.log"
        log.touch()
        process = _start(command, environment, self.folder, log)
        child = self.children[name] = Child(name, process, log)
        self._tell("add", process.pid)
        return child

    def running(self, name: str) -> bool:
        return name in self.children and self.children[name].running

    def kill(self, name: str) -> None:
        """End a child and all that it started, at once."""
        self._end(self.children.pop(name))

    def stop(self, grace: float = 0.0) -> None:
        """End all children; those that do not end within `grace` seconds are killed."""
        children = list(self.children.values())
        if grace > 0.0:
            for child in children:
                child.signal(signal.SIGTERM)
            end = time.monotonic() + grace
            while any(child.running for child in children) and time.monotonic() < end:
                time.sleep(0.05)
        for child in children:
            child.signal(signal.SIGKILL)
        for child in children:
            self._end(child)
        self.children.clear()
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog.wait()
            self._watchdog = None

    def _end(self, child: Child) -> None:
        child.signal(signal.SIGKILL)
        child.process.wait()
        self._tell("drop", child.process.pid)

    def _tell(self, word: str, group: int) -> None:
        if self._watchdog is None:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-S", "-c", _WATCHDOG, *([str(self.folder)] if self.temporary else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        assert self._watchdog.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watchdog.stdin.write(f"{word} {group}\n")
            self._watchdog.stdin.flush()


def _start(command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
