"""Child processes that never outlive the one that started them.

The children, and whatever they start, are one process group. Its leader is a watchdog that holds the reading end of a
pipe: when this process ends in any way, also killed, the pipe closes, and the group is killed and the folder of the
children, where keys may lie, removed. Ctrl-C reaches this process alone, which then stops the children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_WATCHDOG = """
import os, shutil, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.read()
group = os.getpgrp()
if os.fork() == 0:
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
else:
    signal.pause()  # so that there is a group until it is killed
"""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@dataclass(eq=False)
class Processes:
    """Children by name, until `stop`; the folder goes with them where this process is killed."""

    folder: Path  # where they run and their logs go
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        command, none = [sys.executable, "-S", "-c", _WATCHDOG, str(self.folder)], subprocess.DEVNULL
        self._watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, process_group=0)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a child; what it prints goes to `NAME.log`."""
        with (self.folder / f"{name}.log").open("wb") as output:
            self.children[name] = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=self.folder,
                process_group=self._watchdog.pid,
            )

    def is_running(self, name: str) -> bool:
        """Whether it was started and has not ended."""
        return name in self.children and self.children[name].poll() is None

    def last_words(self, name: str) -> str:
        """The end of its log."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")

    def stop(self) -> None:
        """Kill all children and what they started."""
        os.killpg(self._watchdog.pid, signal.SIGKILL)
        for process in (self._watchdog, *self.children.values()):
            process.wait()
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
