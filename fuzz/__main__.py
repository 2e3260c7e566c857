"""`python3 tasks.py fuzz`: fuzz all targets or some, show the progress, and save what was found.

    --minutes 10          for all targets together (each has its share); --each: for every single one
    --target NAME         only this one; may be given several times; --list shows them
    --seed N              other inputs; the same seed gives the same ones
    --input FILE          run one input of the target, with all limits, and say what it does
    --corpus              run the corpus alone, each input as it is
    --small               without the large inputs that are made for some targets
    --minimise SECONDS    how long each finding is shortened
    --json                the table as JSON on stdout

Exit code 1 where anything was found. An input that was found lies in fuzz/findings/ with the command that repeats it.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from fuzz.engine import Finding, Tally, fuzz, minimised, name_of, source_line, tried, warm_up
from fuzz.target import TARGETS, Target

FINDINGS = Path(__file__).parent / "findings"
CLEAR = "\r\x1b[K" if sys.stderr.isatty() else ""


def main() -> int:
    options = _options()
    importlib.import_module("fuzz.targets")  # registers them

    if options.list:
        print("\n".join(TARGETS))
        return 0
    unknown = [name for name in options.target if name not in TARGETS]
    if unknown:
        print(f"fuzz: there is no target {unknown[0]}; --list shows them", file=sys.stderr)
        return 2
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    print(f"{len(chosen)} targets: compiling and importing …", file=sys.stderr, flush=True)
    if options.input:
        warm_up(chosen)
        found = tried(chosen[0], Path(options.input).read_bytes())
        print(f"{found.kind} at {found.where}: {found.message}" if found else "read, or refused with a sentence")
        return int(found is not None)
    return _campaign(chosen, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 tasks.py fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    )
    parser.add_argument("--input")
    parser.add_argument("--corpus", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--minimise", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


class Display:
    """Inputs, inputs a second and the time that is left, on one line of a terminal or a line now and then elsewhere."""

    def __init__(self, seconds: float) -> None:
        self.began, self.seconds, self.tallies, self._lock, self._said = time.monotonic(), seconds, {}, Lock(), 0.0
        self.tallies: dict[str, Tally] = {}

    def show(self, tally: Tally) -> None:
        with self._lock:
            self.tallies[tally.target] = tally
            now = time.monotonic()
            if now - self._said < (0.5 if sys.stderr.isatty() else 10.0):
                return
            self._said = now
            done = sum(one.inputs for one in self.tallies.values())
            found = sum(len(one.findings) for one in self.tallies.values())
            left = max(self.seconds - (now - self.began), 0.0)
            rate = done / (now - self.began)
            line = f"{tally.target:24} {done:>10,} inputs, {rate:,.0f}/s, {found} findings, {left:,.0f} s left"
            print(CLEAR + line, end="" if CLEAR else "\n", file=sys.stderr, flush=True)


def _campaign(chosen: list[Target], options: argparse.Namespace) -> int:
    refused = warm_up(chosen)
    jobs = max(1, min(options.jobs, len(chosen)))
    seconds = 0.0 if options.corpus else 60.0 * options.minutes * (1.0 if options.each else jobs / len(chosen))
    display = Display(seconds * len(chosen) / jobs)
    saved: list[tuple[Finding, str]] = []
    lock = Lock()

    def one(target: Target) -> Tally:
        tally = fuzz(target, options.seed, seconds, display.show, large=not options.small)
        for found in tally.findings:
            entry = _saved(found, options.minimise)
            with lock:
                saved.append(entry)
                print(CLEAR + _described(*entry), file=sys.stderr, flush=True)
        return tally

    with ThreadPoolExecutor(jobs) as pool:
        futures: list[Future[Tally]] = [pool.submit(one, target) for target in chosen]
        try:
            tallies = [future.result() for future in futures]
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            os._exit(130)
    saved += [_saved(found, 0.0) for found in refused]
    print(CLEAR, end="", file=sys.stderr)
    _print(tallies, saved, options.json)
    return int(bool(saved))


def _described(found: Finding, repeat: str) -> str:
    return f"{found.target}: {found.kind} at {found.where}: {found.message}\n    {source_line(found)}\n    {repeat}"


def _saved(found: Finding, seconds: float) -> tuple[Finding, str]:
    """The finding with a shorter input, which is saved, and the command that repeats it."""
    target = TARGETS[found.target]
    if seconds > 0.0 and len(found.data) <= 1 << 16:
        found = minimised(found, target, seconds)
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / name_of(found)
    path.write_bytes(found.data)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return found, f"python3 tasks.py fuzz --target {found.target} --input {shown}"


def _print(tallies: list[Tally], saved: list[tuple[Finding, str]], as_json: bool) -> None:
    counts = Counter(found.target for found, _ in saved)
    rows: list[dict[str, Any]] = [
        {
            "target": t.target,
            "inputs": t.inputs,
            "minutes": round(t.seconds / 60, 2),
            "kept": t.kept,
            "findings": counts[t.target],
        }
        for t in tallies
    ]
    if as_json:
        listed = [
            {"target": one.target, "kind": one.kind, "where": one.where, "line": source_line(one), "message": one.message,
             "repeat": repeat, "input": base64.b64encode(one.data).decode() if len(one.data) <= 3000 else None}
            for one, repeat in saved
        ]  # fmt: skip
        print(json.dumps({"targets": rows, "findings": listed}, indent=1))
        return
    print(f"{'target':24} {'inputs':>12} {'minutes':>8} {'kept':>6} {'findings':>9}")
    for row in rows:
        print(f"{row['target']:24} {row['inputs']:>12,} {row['minutes']:>8.2f} {row['kept']:>6} {row['findings']:>9}")
    inputs, minutes, kept = (sum(row[key] for row in rows) for key in ("inputs", "minutes", "kept"))
    print(f"{'altogether':24} {inputs:>12,} {minutes:>8.2f} {kept:>6} {len(saved):>9}")
    for entry in saved:
        print(_described(*entry))


if __name__ == "__main__":
    sys.exit(main())
