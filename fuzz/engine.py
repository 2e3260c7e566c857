"""Engine: mutated inputs run in worker processes with limits, and every outcome but success and refusal is a finding.

A worker is forked from a process that has everything imported and warmed up. It makes input number i of a target from
(seed, target, i) and the inputs kept so far, writes it where its parent can see it, and runs the target under an alarm of
processor time and a limit of memory. An input that reaches a line of code, or a refusal, that none before it did is kept
and mutated further. Where the worker dies or hangs, its parent takes the input from the shared memory, saves it and starts
another worker. Each finding is shortened in forked processes before it is written down.
"""

from __future__ import annotations

import faulthandler
import hashlib
import linecache
import mmap
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from fuzz.mutations import mutate
from fuzz.target import VALID, Target, remove_scratch
from quorank.errors import BadInput

ROOT = Path(__file__).parent.parent
ROOM = 1 << 24
"""Bytes of the memory in which a worker shows its input."""
LONGEST_SENTENCE = 2_000
PATIENCE = 3
"""Times a target's seconds of processor time after which a worker that does not answer is killed."""
WAITING = 20
"""Times a target's seconds, by the clock on the wall, after which one is killed that waits for something."""
_HEAD = 16


@dataclass(frozen=True)
class Finding:
    """An input that did something else than be read or be refused with a sentence."""

    target: str
    kind: str  # the name of an exception, "time", "memory", "killed by SIGSEGV", "sentence"
    where: str  # file:line of the last line of Quorank or of the target
    message: str
    data: bytes = field(repr=False, default=b"")

    @property
    def signature(self) -> tuple[str, str, str]:
        """Key that equal findings share."""
        place = self.where.rpartition(":")[0] if self.kind in ("time", "memory") else self.where
        return self.target, self.kind, place


class _TooLong(BaseException):
    """Raised by the alarm; no parser may catch it."""


def _alarm(_: int, __: FrameType | None) -> None:
    raise _TooLong


@contextmanager
def _timed(seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def outcome(target: Target, data: bytes, codes: Callable[[str], None] = lambda code: None) -> Finding | None:
    """Run a target on an input in this process; `codes` is told what it was refused for."""
    try:
        with _timed(target.seconds):
            target.run(data)
    except BadInput as error:
        codes(error.code)
        fault = _fault_of(error)
        return Finding(target.name, "sentence", _place(error), fault, data) if fault else None
    except _TooLong as error:
        return Finding(target.name, "time", _place(error), f"more than {target.seconds:g} s", data)
    except MemoryError as error:
        return Finding(target.name, "memory", _place(error), f"more than {target.megabytes} MB", data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        said = "".join(traceback.format_exception_only(error)).strip().splitlines()
        memory = "emory" in type(error).__name__
        return Finding(
            target.name,
            "memory" if memory else type(error).__name__,
            _place(error),
            said[-1][:300] if said else "",
            data,
        )
    return None


def _fault_of(error: BadInput) -> str:
    """Return the fault of a refusal; empty if it is one printable sentence with a code."""
    text = str(error)
    if len(text.splitlines()) != 1:
        return f"{error.code}: a refusal of {len(text.splitlines())} lines"
    if len(text) > LONGEST_SENTENCE:
        return f"{error.code}: a refusal of {len(text):,} characters"
    if not text.isprintable():
        return f"{error.code}: a refusal with letters that cannot be printed"
    return "" if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", error.code) else f"{error.code!r} is no code"


def _place(error: BaseException) -> str:
    """The last line of Quorank's, or of the target's, that an exception passed."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [place for place in frames if f"{os.sep}quorank{os.sep}" in place[0] and "site-packages" not in place[0]]
    target = [place for place in frames if f"{os.sep}fuzz{os.sep}targets" in place[0]]
    file, line = (ours or target or frames or [("?", 0)])[-1]
    return f"{_short(file)}:{line}"


def _short(file: str) -> str:
    path = Path(file)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


class Coverage:
    """Which lines were reached for the first time; cheap, since a line that was reached is not looked at again."""

    def __init__(self) -> None:
        self.fresh = 0
        self._left: dict[CodeType, set[int]] = {}  # lines that were never reached
        self._calls: dict[CodeType, int] = {}

    def new(self) -> int:
        """Return the number of new lines since the last call."""
        fresh, self.fresh = self.fresh, 0
        return fresh

    def start(self) -> None:
        """Watch this process from now on."""
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "quorank fuzz")
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._line)
        else:
            sys.settrace(self._call)

    def _line(self, code: CodeType, line: int) -> Any:
        self.fresh += 1
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace a function of this repository until all its lines were reached, any other for a hundred calls."""
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            ours = any(f"{os.sep}{name}{os.sep}" in code.co_filename for name in ("quorank", "fuzz", "tests"))
            left = self._left[code] = {line for _, _, line in code.co_lines() if line is not None}
            self._calls[code] = -1 if ours and "site-packages" not in code.co_filename else 100
        if not left or self._calls[code] == 0:
            return None
        self._calls[code] -= self._calls[code] > 0

        def line(inner: FrameType, what: str, _: Any) -> Any:
            if inner.f_lineno in left:
                left.discard(inner.f_lineno)
                self.fresh += 1
            return line

        return line(frame, "line", None)


@dataclass
class Tally:
    """Counts and findings of one target."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    kept: int = 0
    findings: list[Finding] = field(default_factory=list)


def warm_up(targets: Iterable[Target]) -> list[Finding]:
    """Run the valid seeds of targets in this process: what they compile and import is there for all workers."""
    found = []
    for target in targets:
        for name, data in target.seeds().items():
            if name.startswith(VALID):
                try:
                    target.run(data)
                except Exception as error:
                    said = f"{name} of the corpus: {type(error).__name__}: {error}"
                    found.append(Finding(target.name, "valid input refused", _place(error), said[:300], data))
    return found


def limit_memory(megabytes: int) -> None:
    """Limit this process to this many megabytes beyond its present size."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * resource.getpagesize() + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _work(
    target: Target,
    seed: int,
    start: int,
    stop: float,
    kept: list[bytes],
    fixed: list[bytes],
    line: Connection,
    shown: mmap.mmap,
    crash: str,
) -> None:
    """A worker: first the inputs that are to be run as they are, then mutated ones until it is time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(Path(crash).open("w"))  # noqa: SIM115
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    coverage, refused, reported = Coverage(), set[str](), set[tuple[str, str, str]]()
    fresh_codes: list[str] = []

    def note(code: str) -> None:
        if code not in refused:
            refused.add(code)
            fresh_codes.append(code)

    for data in fixed[:1]:
        outcome(target, data)  # what it imports and compiles
    limit_memory(target.megabytes)
    index, told = start, time.monotonic()
    if told < stop:  # inputs are to be mutated by what they cover, which a replay of the corpus does not ask
        coverage.start()
    while True:
        at = index - start
        random = Random(f"{seed}/{target.name}/{index}")
        if at < len(fixed):
            data = fixed[at]
        elif time.monotonic() >= stop:
            break
        else:
            chosen = kept[-1 - int(len(kept) * random.random() ** 2)] if kept else b""
            data = mutate(random, chosen, target.shape, target.words, random.choice(kept) if kept else b"")
        shown[:_HEAD] = index.to_bytes(8, "little") + len(data).to_bytes(8, "little")
        shown[_HEAD : _HEAD + len(data)] = data[: ROOM - _HEAD]
        index += 1
        found = outcome(target, data, note)
        if found is not None and found.signature not in reported:
            reported.add(found.signature)
            line.send(("found", found))
        new = coverage.new()
        if (new or fresh_codes) and at >= len(fixed) and len(data) <= 1 << 16:
            kept.append(data)
            line.send(("kept", data))
        fresh_codes.clear()
        if time.monotonic() - told > 0.2:
            told = time.monotonic()
            line.send(("done", index))
    line.send(("done", index))
    line.send(("end", index))
    line.close()
    remove_scratch()
    os._exit(0)


def fuzz(
    target: Target,
    seed: int,
    seconds: float,
    watch: Callable[[Tally], None] = lambda tally: None,
    *,
    large: bool = True,
    enough: int = 0,
) -> Tally:
    """Fuzz one target for `seconds`, or until `enough` findings; the corpus comes first, each input unchanged."""
    tally, began = Tally(target.name), time.monotonic()
    fixed = list((target.seeds() | (target.made() if target.made and large else {})).values())
    kept = [data for data in fixed if len(data) <= 1 << 16]
    stop, index, signatures = began + seconds, 0, set[tuple[str, str, str]]()
    while fixed or time.monotonic() < stop:
        index, pending, ended = _supervise(target, seed, index, stop, kept, fixed, tally, signatures, watch, enough)
        fixed = pending
        if ended:
            break
    tally.seconds, tally.kept = time.monotonic() - began, len(kept)
    watch(tally)
    return tally


def _supervise(
    target: Target,
    seed: int,
    start: int,
    stop: float,
    kept: list[bytes],
    fixed: list[bytes],
    tally: Tally,
    signatures: set[tuple[str, str, str]],
    watch: Callable[[Tally], None],
    enough: int = 0,
) -> tuple[int, list[bytes], bool]:
    """Run one worker to its end or its death: (the next index, fixed inputs that are left, whether it ended in time)."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    shown = mmap.mmap(-1, ROOM)
    with tempfile.NamedTemporaryFile(prefix="quorank-fuzz-") as crash:
        worker = context.Process(
            target=_work, args=(target, seed, start, stop, list(kept), fixed, theirs, shown, crash.name)
        )
        worker.start()
        theirs.close()
        seen, moved, used, ended = -1, time.monotonic(), 0.0, False
        counted, hung = tally.inputs, False
        while True:
            try:
                while ours.poll(0.05):
                    what, value = ours.recv()
                    if what == "found" and value.signature not in signatures:
                        signatures.add(value.signature)
                        tally.findings.append(value)
                    elif what == "kept":
                        kept.append(value)
                    elif what == "end":
                        ended = True
            except EOFError:
                worker.join(10)
                break
            if enough and len(tally.findings) >= enough:
                worker.kill()
                worker.join()
                ended = True
                break
            now = int.from_bytes(shown[:8], "little")
            tally.inputs = counted + max(now - start, 0)
            watch(tally)
            if now != seen:
                seen, moved, used = now, time.monotonic(), processor_seconds(worker.pid)
            elif _hangs(target, worker.pid, moved, used):
                worker.kill()
                worker.join()
                hung = True
                break
        index, size = int.from_bytes(shown[:8], "little"), int.from_bytes(shown[8:_HEAD], "little")
        data, code, place = shown[_HEAD : _HEAD + size], worker.exitcode or 0, _crashed_at(crash.name)
        remove_orphans(worker.pid)
    tally.inputs = counted + index + 1 - start
    if not ended:
        kind = "time" if hung else f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        found = Finding(target.name, kind, place, "the process did not answer" if hung else "the process ended", data)
        if found.signature not in signatures:
            signatures.add(found.signature)
            tally.findings.append(found)
    return index + 1, fixed[index + 1 - start :], ended


def processor_seconds(process: int | None) -> float:
    """The processor time of another process: time on a busy machine is nobody's fault."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _hangs(target: Target, process: int | None, since: float, used: float) -> bool:
    """Return True if a worker has computed, or waited, too long for one input."""
    computed = processor_seconds(process) - used
    return computed > PATIENCE * target.seconds or time.monotonic() - since > WAITING * target.seconds


def remove_orphans(process: int | None) -> None:
    """Delete the scratch folder of a worker that died."""
    for folder in (
        *Path("/dev/shm").glob(f"quorank-fuzz-{process}-*"),
        *Path(tempfile.gettempdir()).glob(f"quorank-fuzz-{process}-*"),
    ):
        shutil.rmtree(folder, ignore_errors=True)


def _crashed_at(report: str) -> str:
    """Return the innermost line of Quorank in the report of a crash."""
    for line in Path(report).read_text(errors="replace").splitlines():
        match = re.search(r'File "(.+)", line (\d+)', line)
        if match and f"{os.sep}quorank{os.sep}" in match[1] and "site-packages" not in match[1]:
            return f"{_short(match[1])}:{match[2]}"
    return "?"


def tried(target: Target, data: bytes) -> Finding | None:
    """Run an input in a separate process, with all limits."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="quorank-fuzz-") as crash:
        worker = context.Process(target=_try, args=(target, data, theirs, crash.name))
        worker.start()
        theirs.close()
        began, hung = time.monotonic(), False
        try:
            while not ours.poll(0.05):
                if _hangs(target, worker.pid, began, 0.0):
                    worker.kill()
                    hung = True
                    break
            if not hung:
                found: Finding | None = ours.recv()
                worker.join()
                return found
        except EOFError:
            pass
        worker.join()
        remove_orphans(worker.pid)
        code = worker.exitcode or 0
        kind = "time" if hung else f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        return Finding(target.name, kind, _crashed_at(crash.name), "the process ended", data)


def _try(target: Target, data: bytes, line: Connection, crash: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(Path(crash).open("w"))  # noqa: SIM115
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    limit_memory(target.megabytes)
    line.send(outcome(target, data))
    remove_scratch()
    os._exit(0)


def minimised(found: Finding, target: Target, seconds: float = 20.0) -> Finding:
    """A shorter input with the same finding: halves, quarters, … down to single bytes are left out while it stays."""
    stop, data = time.monotonic() + seconds, found.data
    best = found
    size = max(len(data) // 2, 1)
    while size >= 1 and time.monotonic() < stop:
        at, shorter = 0, False
        while at < len(data) and time.monotonic() < stop:
            attempt = data[:at] + data[at + size :]
            again = tried(target, attempt)
            if again is not None and again.signature == found.signature:
                data, best, shorter = attempt, again, True
            else:
                at += size
        size = size // 2 if not shorter or size > 1 else 0
    return best


def name_of(found: Finding) -> str:
    """The name of the file that a finding's input is saved under."""
    return f"{found.target}-{hashlib.sha256(repr(found.signature).encode()).hexdigest()[:10]}"


def source_line(found: Finding) -> str:
    """The line of code that a finding is about."""
    file, _, line = found.where.rpartition(":")
    return linecache.getline(str(ROOT / file), int(line)).strip() if line.isdecimal() else ""
